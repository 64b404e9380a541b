/* The hardware that the stand-in pretends: GPUs, their instances, the processes on them, kept in one file.
 *
 * Every process that loads the library reads and writes the same file under a lock, so all see the same hardware.
 * What a GPU model can be cut into is a table of its own here, not gpuloom's: a mistake in one shows against the other.
 */
#ifndef STANDIN_WORLD_H
#define STANDIN_WORLD_H

enum { MAX_GPUS = 8, MAX_INSTANCES = 8, MAX_COMPUTES = 7, MAX_PROCESSES = 128, MAX_XIDS = 32, UUID_LENGTH = 48 };
enum media { PLAIN, SOME_MEDIA, ALL_MEDIA, NO_MEDIA };

/* A profile may start at 0, step, 2 * step …: `places` of them. `number` is NVML's enumeration, `id` its answer. */
struct profile {
    const char *name;
    unsigned number, id, slices, size, step, places, limit, mem_mib, sms;
    enum media media;
};

struct model {
    const char *name, *product;
    unsigned mem_mib, slices, units;
    int resets_itself; /* whether a change of MIG mode needs no reset by hand (Hopper and later) */
    const struct profile *profiles;
    unsigned profile_count;
};

struct compute {
    unsigned used, id, slices, start, serial;
};

struct instance {
    unsigned used, id, profile, start, serial; /* profile: index in the model's table */
    struct compute computes[MAX_COMPUTES];
};

struct gpu {
    char model[32];
    unsigned mig, mig_pending, resets_itself, lost;
    /* Uncorrected ECC errors since the last reset, and ever; whether broken memory waits for a reset to be set aside. */
    unsigned long long ecc_errors, ecc_errors_ever;
    unsigned repair_pending, compute_mode, persistence;
    struct instance instances[MAX_INSTANCES];
};

/* A process on a whole GPU has gi and ci -1. `born` tells it from a later process with the same number. `gone_ns` is
 * when it was first seen to be gone (CLOCK_BOOTTIME), by whoever looked; 0 before. */
struct process {
    int pid, gpu, gi, ci;
    unsigned long long born, gone_ns;
};

/* A critical error that the driver has reported. */
struct xid {
    unsigned serial, gpu, code;
};

struct world {
    unsigned gpu_count, serial;
    struct gpu gpus[MAX_GPUS];
    struct process processes[MAX_PROCESSES];
    struct xid xids[MAX_XIDS]; /* the latest; 0 as serial: none */
};

/* What a GPU is called that is as a transcript says. */
#define REPLAYED "replayed"
const struct model *find_model(const char *name);
/* NULL if there is no transcript, or it says nothing. */
const struct model *replayed_model(void);
/* What a function answers there whatever it is asked, with MIG off or on; 0: nothing special. */
int replayed_code(const struct model *of, const char *function, unsigned mig);
/* What it answers about a profile's number that this GPU does not have. */
int replayed_absence(const struct model *of, const char *function, unsigned mig, unsigned number);

/* Open and lock the file that GPULOOM_STANDIN_STATE names, read it, and note in it which processes have gone since the
 * last look. A file descriptor, or -1. */
int world_open(struct world *world);
/* Replace what is in the file. A process that dies in the middle leaves the old content in force. */
int world_save(int file, const struct world *world);
void world_close(int file);
int world_create(const struct world *world);

int process_lives(const struct process *process);
/* It has gone, but what it used still counts as in use: for the seconds in GPULOOM_STANDIN_LINGER_S. */
int process_lingers(const struct process *process);
void add_xid(struct world *world, unsigned gpu, unsigned code);
/* CLOCK_BOOTTIME, the same for all processes of a machine. */
unsigned long long now_ns(void);
/* Register this process on a GPU or a MIG device by its UUID, as CUDA would. An NVML code. */
int world_use(const char *uuid);
/* Whether there is a device with this UUID that a process could be on. */
int world_has(const char *uuid);
void gpu_uuid(char *text, unsigned gpu);
void mig_uuid(char *text, unsigned gpu, unsigned gi, unsigned ci);
#endif
