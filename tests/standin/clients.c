/* See clients.h. The locks are those of a process, so that they can be asked for its number; closing the file in any way
 * gives them up, and it is opened once.
 */
#define _GNU_SOURCE
#include "clients.h"

#include "world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int held = -1;
static unsigned as_opened[MAX_GPUS];

static int open_held(void) {
    const char *world = getenv("GPULOOM_STANDIN_STATE");
    char path[4096];
    snprintf(path, sizeof path, "%s.held", world ? world : "");
    return world ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
}

static void read_counts(unsigned *counts) {
    memset(counts, 0, MAX_GPUS * sizeof *counts);
    if (held >= 0 && pread(held, counts, MAX_GPUS * sizeof *counts, 0) < 0)
        memset(counts, 0, MAX_GPUS * sizeof *counts);
}

void client_opens(void) {
    struct flock shared = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (held < 0) held = open_held();
    if (held >= 0) fcntl(held, F_SETLK, &shared);
    read_counts(as_opened);
}

void client_closes(void) {
    if (held >= 0) close(held);
    held = -1;
}

int other_client(void) {
    struct flock alone = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int borrowed = held < 0;
    if (borrowed) held = open_held();
    int asked = held >= 0 ? fcntl(held, F_GETLK, &alone) : -1;
    if (borrowed) client_closes();
    return asked == 0 && alone.l_type != F_UNLCK ? alone.l_pid : 0;
}

int handles_died(unsigned gpu) {
    unsigned counts[MAX_GPUS];
    read_counts(counts);
    return counts[gpu] != as_opened[gpu];
}

void handles_die(unsigned gpu) {
    unsigned counts[MAX_GPUS];
    if (held < 0) held = open_held();
    read_counts(counts);
    counts[gpu]++;
    if (held >= 0 && pwrite(held, counts, sizeof counts, 0) != sizeof counts) perror("standinctl: the file of clients");
    client_closes();
}
