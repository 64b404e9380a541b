/* The hands of the stand-in, as of a person in the machine room: make the hardware, look at it, use it, pull a plug.
 *
 *   standinctl init MODEL[+mig][+resets] …   new hardware; MIG mode on; mode changes that need no reset by hand
 *   standinctl show                          the whole state as JSON
 *   standinctl use [UUID]                    be a process on a device ($CUDA_VISIBLE_DEVICES) until standard input ends
 *   standinctl reset GPU                     if nobody has the driver open: the pending MIG mode, no instances
 *   standinctl lose|find GPU                 the GPU falls off the bus (Xid 79), or is back, empty and reset
 *   standinctl xid GPU CODE                  the driver reports a critical error, to whoever has asked to be told
 *   standinctl ecc GPU COUNT                 so many more uncorrected ECC errors, until the next reset
 *   standinctl retired GPU                   broken memory waits for a reset to be set aside
 */
#include "clients.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *why, const char *what) {
    fprintf(stderr, "standinctl: %s %s\n", why, what);
    return 1;
}

static int init(int count, char **names) {
    struct world world = {.gpu_count = (unsigned)count};
    if (count > MAX_GPUS) return fail("too many GPUs from", names[MAX_GPUS]);
    for (int i = 0; i < count; i++) {
        struct gpu *gpu = &world.gpus[i];
        char *wish = strchr(names[i], '+');
        snprintf(gpu->model, sizeof gpu->model, "%.*s", (int)(wish ? wish - names[i] : 31), names[i]);
        const struct model *model = find_model(gpu->model);
        if (!model) return fail("no such model:", names[i]);
        gpu->resets_itself = (unsigned)model->resets_itself || (wish && strstr(wish, "+resets"));
        gpu->mig = gpu->mig_pending = wish && strstr(wish, "+mig");
    }
    return world_create(&world) ? fail("cannot write", "GPULOOM_STANDIN_STATE") : 0;
}

static void show_instances(const struct world *world, unsigned g) {
    const char *comma = "";
    const struct gpu *gpu = &world->gpus[g];
    const struct model *model = find_model(gpu->model);
    for (unsigned i = 0; i < MAX_INSTANCES; i++) {
        const struct instance *gi = &gpu->instances[i];
        if (!gi->used) continue;
        printf("%s{\"profile\": \"%s\", \"start\": %u, \"id\": %u, \"slices\": %u, \"computes\": [", comma,
               model->profiles[gi->profile].name, gi->start, gi->id, model->profiles[gi->profile].slices);
        const char *inner = "";
        for (unsigned c = 0; c < MAX_COMPUTES; c++)
            if (gi->computes[c].used) {
                char uuid[UUID_LENGTH];
                mig_uuid(uuid, g, gi->id, gi->computes[c].id);
                printf("%s{\"slices\": %u, \"uuid\": \"%s\"}", inner, gi->computes[c].slices, uuid);
                inner = ", ";
            }
        printf("]}");
        comma = ", ";
    }
}

static const char *yes(unsigned flag) { return flag ? "true" : "false"; }

static int show(const struct world *world) {
    printf("[");
    for (unsigned g = 0; g < world->gpu_count; g++) {
        const struct gpu *gpu = &world->gpus[g];
        char uuid[UUID_LENGTH];
        const char *comma = "";
        gpu_uuid(uuid, g);
        printf("%s{\"model\": \"%s\", \"uuid\": \"%s\", ", g ? ", " : "", gpu->model, uuid);
        printf("\"mig\": %s, \"mig_pending\": %s, \"lost\": %s, \"instances\": [", yes(gpu->mig), yes(gpu->mig_pending),
               yes(gpu->lost));
        show_instances(world, g);
        printf("], \"pids\": [");
        for (unsigned p = 0; p < MAX_PROCESSES; p++)
            if (process_lives(&world->processes[p]) && world->processes[p].gpu == (int)g) {
                printf("%s%d", comma, world->processes[p].pid);
                comma = ", ";
            }
        printf("]}");
    }
    printf("]\n");
    return 0;
}

static int use(const char *uuid) {
    char ignored[256];
    int error = uuid ? world_use(uuid) : 2;
    if (error) return fail("cannot use", uuid ? uuid : "no device");
    puts("ready");
    fflush(stdout);
    while (fgets(ignored, sizeof ignored, stdin));
    return 0;
}

/* What a reset and a power cut have in common: what was in use a moment ago is no more, and errors are repaired. */
static void clear(struct world *world, unsigned g) {
    struct gpu *gpu = &world->gpus[g];
    memset(gpu->instances, 0, sizeof gpu->instances);
    gpu->ecc_errors = gpu->repair_pending = 0;
    for (unsigned p = 0; p < MAX_PROCESSES; p++)
        if (world->processes[p].gone_ns && world->processes[p].gpu == (int)g) world->processes[p] = (struct process){0};
}

static int reset(struct world *world, unsigned g, const char *number) {
    for (unsigned p = 0; p < MAX_PROCESSES; p++)
        if (process_lives(&world->processes[p]) && world->processes[p].gpu == (int)g)
            return fail("in use: GPU", number);
    if (other_client()) return fail("another client of the driver holds GPU", number);
    handles_die(g);
    clear(world, g);
    world->gpus[g].mig = world->gpus[g].mig_pending;
    return 0;
}

static int change(int file, struct world *world, int count, char **words) {
    enum { FELL_OFF_THE_BUS = 79 };
    const char *verb = words[0];
    unsigned g = count > 1 ? (unsigned)strtoul(words[1], NULL, 10) : MAX_GPUS;
    unsigned number = count > 2 ? (unsigned)strtoul(words[2], NULL, 10) : 0;
    if (g >= world->gpu_count) return fail("no such GPU:", count > 1 ? words[1] : "(none)");
    struct gpu *gpu = &world->gpus[g];
    if (strcmp(verb, "reset") == 0 && count == 2) {
        if (reset(world, g, words[1])) return 1;
    } else if (strcmp(verb, "lose") == 0 && count == 2) {
        memset(gpu->instances, 0, sizeof gpu->instances);
        gpu->lost = 1;
        handles_die(g);
        add_xid(world, g, FELL_OFF_THE_BUS);
    } else if (strcmp(verb, "find") == 0 && count == 2) {
        clear(world, g);
        gpu->lost = 0;
    } else if (strcmp(verb, "xid") == 0 && count == 3) {
        add_xid(world, g, number);
    } else if (strcmp(verb, "ecc") == 0 && count == 3) {
        gpu->ecc_errors += number;
        gpu->ecc_errors_ever += number;
    } else if (strcmp(verb, "retired") == 0 && count == 2) {
        gpu->repair_pending = 1;
    } else
        return fail("what is", verb);
    return world_save(file, world) ? fail("cannot write", "GPULOOM_STANDIN_STATE") : 0;
}

int main(int count, char **words) {
    struct world world;
    const char *verb = count > 1 ? words[1] : "";
    if (strcmp(verb, "init") == 0) return init(count - 2, words + 2);
    if (strcmp(verb, "use") == 0) return use(count > 2 ? words[2] : getenv("CUDA_VISIBLE_DEVICES"));
    int file = world_open(&world);
    if (file < 0) return fail("cannot read", "GPULOOM_STANDIN_STATE");
    int show_it = strcmp(verb, "show") == 0 && count == 2;
    int result = show_it     ? show(&world)
                 : count > 1 ? change(file, &world, count - 1, words + 1)
                             : fail("what is", "it");
    world_close(file);
    return result;
}
