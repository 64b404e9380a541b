/* The tables of GPU models, and the file in which the pretended hardware lives. See world.h. */
#define _GNU_SOURCE
#include "world.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* The shape of A100, H100 and H200: 7 compute slices on 8 memory units. Gigabytes are in the names. */
#define SEVEN(g1, gd, g2, g3, g7, m1, md, m3, m7, s1, sd, s2, s3, s4, s7) \
    {                                                                     \
        {"1g." #g1 "gb", 0x0, 19, 1, 1, 1, 7, 7, m1, s1, PLAIN},          \
        {"1g." #g1 "gb+me", 0x7, 20, 1, 1, 1, 7, 1, m1, s1, SOME_MEDIA},  \
        {"1g." #gd "gb", 0x9, 15, 1, 2, 2, 4, 4, md, sd, PLAIN},          \
        {"2g." #g2 "gb", 0x1, 14, 2, 2, 2, 3, 3, md, s2, PLAIN},          \
        {"3g." #g3 "gb", 0x2, 9, 3, 4, 4, 2, 2, m3, s3, PLAIN},           \
        {"4g." #g3 "gb", 0x3, 5, 4, 4, 4, 1, 1, m3, s4, PLAIN},           \
        {"7g." #g7 "gb", 0x4, 0, 7, 8, 8, 1, 1, m7, s7, PLAIN},           \
    }

static const struct profile A100_40[] = SEVEN(5, 10, 10, 20, 40, 4864, 9856, 19968, 40192, 14, 14, 28, 42, 56, 98);
static const struct profile A100_80[] = SEVEN(10, 20, 20, 40, 80, 9856, 19968, 40192, 80384, 14, 14, 28, 42, 56, 98);
static const struct profile H100_SXM[] = SEVEN(10, 20, 20, 40, 80, 9984, 20096, 40448, 81152, 16, 26, 32, 60, 64, 132);
static const struct profile H100_PCIE[] = SEVEN(10, 20, 20, 40, 80, 9984, 20096, 40448, 81152, 14, 14, 30, 46, 62, 114);
static const struct profile H200[] = SEVEN(18, 35, 35, 71, 141, 16384, 33024, 71168, 143360, 16, 26, 32, 60, 64, 132);
static const struct profile A30[] = {
    {"1g.6gb", 0x0, 14, 1, 1, 1, 4, 4, 5952, 14, PLAIN},  {"1g.6gb+me", 0x7, 21, 1, 1, 1, 4, 1, 5952, 14, SOME_MEDIA},
    {"2g.12gb", 0x1, 5, 2, 2, 2, 2, 2, 11968, 28, PLAIN}, {"2g.12gb+me", 0x8, 6, 2, 2, 2, 2, 1, 11968, 28, SOME_MEDIA},
    {"4g.24gb", 0x3, 0, 4, 4, 4, 1, 1, 24000, 56, PLAIN},
};
static const struct profile RTX_PRO_6000[] = {
    {"1g.24gb", 0x0, 14, 1, 3, 3, 4, 4, 24192, 46, PLAIN},
    {"1g.24gb+me", 0x7, 21, 1, 3, 3, 4, 1, 24192, 46, SOME_MEDIA},
    {"1g.24gb+gfx", 0xA, 47, 1, 3, 3, 4, 4, 24192, 46, PLAIN},
    {"1g.24gb+me.all", 0xF, 65, 1, 3, 3, 4, 1, 24192, 46, ALL_MEDIA},
    {"1g.24gb-me", 0xD, 67, 1, 3, 3, 4, 4, 24192, 46, NO_MEDIA},
    {"2g.48gb", 0x1, 5, 2, 6, 6, 2, 2, 48512, 94, PLAIN},
    {"2g.48gb+gfx", 0xB, 35, 2, 6, 6, 2, 2, 48512, 94, PLAIN},
    {"2g.48gb+me.all", 0x10, 64, 2, 6, 6, 2, 1, 48512, 94, ALL_MEDIA},
    {"2g.48gb-me", 0xE, 66, 2, 6, 6, 2, 2, 48512, 94, NO_MEDIA},
    {"4g.96gb", 0x3, 0, 4, 12, 12, 1, 1, 97280, 188, PLAIN},
    {"4g.96gb+gfx", 0xC, 32, 4, 12, 12, 1, 1, 97280, 188, PLAIN},
};

#define CUT(table) table, COUNT(table)
static const struct model MODELS[] = {
    {"A100-40GB", "NVIDIA A100-SXM4-40GB", 40960, 7, 8, 0, CUT(A100_40)},
    {"A100-80GB", "NVIDIA A100-SXM4-80GB", 81920, 7, 8, 0, CUT(A100_80)},
    {"A30-24GB", "NVIDIA A30", 24576, 4, 4, 0, CUT(A30)},
    {"H100-SXM-80GB", "NVIDIA H100 80GB HBM3", 81559, 7, 8, 1, CUT(H100_SXM)},
    {"H100-PCIe-80GB", "NVIDIA H100 PCIe", 81559, 7, 8, 1, CUT(H100_PCIE)},
    {"H200-141GB", "NVIDIA H200", 143771, 7, 8, 1, CUT(H200)},
    {"RTX-PRO-6000-96GB", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 4, 12, 1, CUT(RTX_PRO_6000)},
    {"T4-16GB", "Tesla T4", 15360, 0, 0, 0, NULL, 0},
    /* Two boards that gpuloom's catalogue does not have: one to be cut by the driver's word alone, one without MIG. */
    {"unknown-mig", "NVIDIA X900", 40960, 7, 8, 1, CUT(A100_40)},
    {"unknown", "NVIDIA GeForce 256", 64, 0, 0, 0, NULL, 0},
};

const struct model *find_model(const char *name) {
    for (unsigned i = 0; i < COUNT(MODELS); i++)
        if (strcmp(MODELS[i].name, name) == 0) return &MODELS[i];
    return strcmp(name, REPLAYED) == 0 ? replayed_model() : NULL;
}

/* Two copies and a switch: a new state is written beside the old one, and one small write puts it in force. */
struct file {
    char magic[8];
    unsigned active;
    struct world copies[2];
};
static const char MAGIC[8] = "standin1";

static const char *state_path(void) {
    const char *path = getenv("GPULOOM_STANDIN_STATE");
    return path && *path ? path : NULL;
}

static off_t copy_at(unsigned number) { return (off_t)(offsetof(struct file, copies) + number * sizeof(struct world)); }

static unsigned active_copy(int file) {
    unsigned active = 0;
    if (pread(file, &active, sizeof active, offsetof(struct file, active)) != sizeof active) return 0;
    return active & 1;
}

/* When a process was started, in clock ticks since boot; 0 if it is gone, or dead and not yet buried. One whose first
 * thread has ended looks dead, but has others. */
static unsigned long long birth(int pid) {
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *stat = fopen(path, "re");
    if (!stat) return 0;
    size_t length = fread(text, 1, sizeof text - 1, stat);
    fclose(stat);
    text[length] = '\0';
    /* The second field is the name in brackets and may hold anything: count from the last bracket. */
    char *field = strrchr(text, ')');
    char state = 0;
    long threads = 0;
    unsigned long long born = 0;
    if (!field || sscanf(field + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
                         &state, &threads, &born) != 3)
        return 0;
    return (state == 'Z' && threads <= 1) || state == 'X' ? 0 : born;
}

static int has_gone(const struct process *process) { return process->pid > 0 && birth(process->pid) != process->born; }

int process_lives(const struct process *process) { return process->pid > 0 && !process->gone_ns && !has_gone(process); }

unsigned long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

int process_lingers(const struct process *process) {
    const char *seconds = getenv("GPULOOM_STANDIN_LINGER_S");
    double linger_ns = seconds ? strtod(seconds, NULL) * 1e9 : 0;
    return process->gone_ns && (double)(now_ns() - process->gone_ns) < linger_ns;
}

/* Nobody tells the driver that a process ends, and a kernel does not write down when: it is noted at the first look. */
static int note_gone(struct world *world) {
    int noted = 0;
    for (unsigned p = 0; p < MAX_PROCESSES; p++) {
        struct process *process = &world->processes[p];
        if (process->gone_ns || !has_gone(process)) continue;
        process->gone_ns = now_ns();
        noted = 1;
    }
    return noted;
}

int world_save(int file, const struct world *world) {
    unsigned next = 1 - active_copy(file);
    if (pwrite(file, world, sizeof *world, copy_at(next)) != sizeof *world) return -1;
    return pwrite(file, &next, sizeof next, offsetof(struct file, active)) == sizeof next ? 0 : -1;
}

int world_open(struct world *world) {
    const char *path = state_path();
    char magic[sizeof MAGIC];
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return -1;
    if (flock(file, LOCK_EX) != 0 || pread(file, magic, sizeof magic, 0) != sizeof magic ||
        memcmp(magic, MAGIC, sizeof magic) != 0 ||
        pread(file, world, sizeof *world, copy_at(active_copy(file))) != sizeof *world) {
        close(file);
        return -1;
    }
    if (note_gone(world) && world_save(file, world) != 0) {
        close(file);
        return -1;
    }
    return file;
}

void world_close(int file) { close(file); /* gives the lock back too */ }

int world_create(const struct world *world) {
    static struct file content;
    const char *path = state_path();
    int file = path ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (file < 0) return -1;
    memcpy(content.magic, MAGIC, sizeof MAGIC);
    content.copies[0] = *world;
    int done = write(file, &content, sizeof content) == sizeof content;
    close(file);
    return done ? 0 : -1;
}

void gpu_uuid(char *text, unsigned gpu) { snprintf(text, UUID_LENGTH, "GPU-5ca1ab1e-0000-4000-8000-%012x", gpu); }

/* The same instance in the same place has the same UUID again, as with real drivers. */
void mig_uuid(char *text, unsigned gpu, unsigned gi, unsigned ci) {
    snprintf(text, UUID_LENGTH, "MIG-5ca1ab1e-%04x-5000-8000-%08x%04x", gpu & 0xFFFF, gi, ci & 0xFFFF);
}

static int device_of(const struct world *world, const char *uuid, struct process *found) {
    char text[UUID_LENGTH];
    for (unsigned g = 0; g < world->gpu_count; g++) {
        const struct gpu *gpu = &world->gpus[g];
        found->gpu = (int)g;
        found->gi = found->ci = -1;
        gpu_uuid(text, g);
        if (strcmp(text, uuid) == 0) return !gpu->mig && !gpu->lost; /* a GPU in MIG mode cannot be used whole */
        for (unsigned i = 0; i < MAX_INSTANCES && gpu->mig && !gpu->lost; i++)
            for (unsigned c = 0; c < MAX_COMPUTES; c++) {
                const struct instance *gi = &gpu->instances[i];
                mig_uuid(text, g, gi->id, gi->computes[c].id);
                if (!gi->used || !gi->computes[c].used || strcmp(text, uuid) != 0) continue;
                found->gi = (int)gi->id;
                found->ci = (int)gi->computes[c].id;
                return 1;
            }
    }
    return 0;
}

/* An empty one, or that of the process that has been gone for longest. */
static struct process *free_place(struct world *world) {
    struct process *found = NULL;
    for (unsigned p = 0; p < MAX_PROCESSES; p++) {
        struct process *process = &world->processes[p];
        if (process->pid && !process->gone_ns) continue;
        if (!found || process->gone_ns < found->gone_ns) found = process;
    }
    return found;
}

int world_has(const char *uuid) {
    struct world world;
    struct process found = {0};
    int file = world_open(&world), there = file >= 0 && device_of(&world, uuid, &found);
    if (file >= 0) world_close(file);
    return there;
}

int world_use(const char *uuid) {
    struct world world;
    struct process me = {.pid = getpid()};
    int file = world_open(&world), result = 6; /* not found */
    if (file < 0) return 9;                    /* driver not loaded */
    me.born = birth(me.pid);
    if (device_of(&world, uuid, &me)) {
        result = 20; /* no memory: the table of processes is full */
        struct process *place = free_place(&world);
        if (place) {
            *place = me;
            result = world_save(file, &world) ? 999 : 0;
        }
    }
    world_close(file);
    return result;
}

/* In the place of the oldest. */
void add_xid(struct world *world, unsigned gpu, unsigned code) {
    struct xid *oldest = &world->xids[0];
    for (unsigned i = 1; i < MAX_XIDS; i++)
        if (world->xids[i].serial < oldest->serial) oldest = &world->xids[i];
    *oldest = (struct xid){++world->serial, gpu, code};
}
