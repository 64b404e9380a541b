#define _GNU_SOURCE
#include "region_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_SETUP = 0, LOCK_MEMBER = 1, LOCK_SLOT = 16, TRIES = 200 }; /* bytes of the file that are locked */

static struct {
    struct loom_region *region; /* one file in a process at a time */
    int file;
    char path[256];
    uint32_t owner;
    int users;
} opened = {NULL, -1, "", 0, 0};
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static bool set_lock(int file, short type, off_t byte, off_t length) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = length};
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

static bool lock_setup(int file) {
    for (int i = 0; i < TRIES; i++) {
        if (set_lock(file, F_WRLCK, LOCK_SETUP, 1)) return true;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return false;
}

/* A forked child is no user of the file: it must not keep its parent's locks alive. */
static void forget_in_child(void) {
    if (opened.file >= 0) close(opened.file);
    opened.region = NULL;
    opened.file = -1;
    opened.owner = 0; /* its parent is somebody else, who can die */
    pthread_mutex_init(&guard, NULL);
}

static const char *distrust(int file, const struct stat *seen) {
    if (!S_ISREG(seen->st_mode)) return "is not a plain file";
    if (seen->st_uid != geteuid()) return "belongs to another user";
    if (seen->st_mode & 077) return "can be opened by other users";
    if (!lock_setup(file)) return "is being set up by somebody who does not finish";
    return NULL;
}

static bool sound(const struct loom_region *region) {
    return region->magic == LOOM_MAGIC && region->version == LOOM_VERSION && region->size == sizeof *region;
}

/* Through a second opening: a mapping keeps its opening alive, and with it the locks, also in a forked child. */
static struct loom_region *map(int file) {
    char itself[64];
    snprintf(itself, sizeof itself, "/proc/self/fd/%d", file);
    int again = open(itself, O_RDWR | O_CLOEXEC);
    if (again < 0) return MAP_FAILED;
    void *mapped = mmap(NULL, sizeof(struct loom_region), PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
    close(again);
    return mapped;
}

/* Empty, or begun as a region: not somebody's file, which we would overwrite and remove. */
static bool ours(int file) {
    uint64_t start = 0;
    ssize_t got = pread(file, &start, sizeof start, 0);
    return got == 0 || (got == sizeof start && (start == 0 || start == LOOM_MAGIC));
}

/* With the setup lock held: a region to use, or why not. A region that nobody uses is made anew, so a broken one does
 * not last. */
static struct loom_region *set_up(int file, const char *path, const char **why) {
    const off_t size = sizeof(struct loom_region);
    struct stat now;
    *why = "is no shared memory of gpuloom";
    if (!ours(file)) return NULL;
    bool alone = set_lock(file, F_WRLCK, LOCK_MEMBER, 1);
    *why = "has the size of another version, and is in use";
    if (!alone && (fstat(file, &now) != 0 || now.st_size != size)) return NULL;
    *why = "cannot be given memory";
    if (alone && (ftruncate(file, size) != 0 || posix_fallocate(file, 0, size) != 0)) {
        unlink(path);
        return NULL;
    }
    struct loom_region *region = map(file);
    if (region == MAP_FAILED) return NULL;
    if (alone) loom_region_init(region);
    if (sound(region) && set_lock(file, F_RDLCK, LOCK_MEMBER, 1)) return region;
    *why = "is of another version or broken, and in use";
    munmap(region, sizeof *region);
    return NULL;
}

static int open_file(const char *path, const char **why) {
    for (int i = 0; i < TRIES; i++) {
        struct stat seen, there;
        int file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file < 0 || fstat(file, &seen) != 0) {
            *why = strerror(errno);
            if (file >= 0) close(file);
            return -1;
        }
        *why = distrust(file, &seen);
        if (!*why && stat(path, &there) == 0 && there.st_ino == seen.st_ino) return file;
        close(file); /* the last user removed it while we opened it: again */
        if (*why) return -1;
    }
    *why = "comes and goes";
    return -1;
}

struct loom_region *loom_region_open(const char *path, char *why, size_t why_size) {
    const char *reason = "another one is open";
    pthread_mutex_lock(&guard);
    if (opened.region) {
        bool same = strcmp(path, opened.path) == 0;
        opened.users += same;
        pthread_mutex_unlock(&guard);
        if (!same) snprintf(why, why_size, "%s: %s", path, reason);
        return same ? opened.region : NULL;
    }
    static bool prepared;
    if (!prepared) prepared = pthread_atfork(NULL, NULL, forget_in_child) == 0;
    struct loom_region *region = NULL;
    reason = "its name is too long";
    int file = strlen(path) < sizeof opened.path ? open_file(path, &reason) : -1;
    if (file >= 0) {
        region = set_up(file, path, &reason);
        set_lock(file, F_UNLCK, LOCK_SETUP, 1);
        if (!region) close(file);
    }
    if (region) {
        opened.region = region;
        opened.file = file;
        opened.users = 1;
        strcpy(opened.path, path);
        while (opened.owner == 0)
            if (getrandom(&opened.owner, sizeof opened.owner, 0) < 0) opened.owner = (uint32_t)getpid();
    } else
        snprintf(why, why_size, "%s: %s", path, reason);
    pthread_mutex_unlock(&guard);
    return region;
}

/* With the guard held. The mapping stays: callbacks may still come. */
static void leave(void) {
    struct stat seen, there;
    for (uint32_t i = 0; i < LOOM_SLOTS; i++)
        if (atomic_load(&opened.region->slots[i].owner) == opened.owner) loom_give_back(opened.region, i);
    loom_ring(opened.region);
    if (lock_setup(opened.file) && set_lock(opened.file, F_WRLCK, LOCK_MEMBER, 1) && fstat(opened.file, &seen) == 0 &&
        stat(opened.path, &there) == 0 && seen.st_ino == there.st_ino)
        unlink(opened.path);
    close(opened.file); /* and with it all locks */
    opened.region = NULL;
    opened.file = -1;
}

void loom_region_leave(struct loom_region *region) {
    pthread_mutex_lock(&guard);
    if (region && region == opened.region && --opened.users == 0) leave();
    pthread_mutex_unlock(&guard);
}

/* The process ends, whoever still uses the region in it. */
__attribute__((destructor)) static void leave_at_exit(void) {
    pthread_mutex_lock(&guard);
    if (opened.region) leave();
    pthread_mutex_unlock(&guard);
}

int loom_claim(struct loom_region *region, uint64_t device, uint32_t priority, const char *name) {
    int found = -1;
    pthread_mutex_lock(&guard);
    for (int i = 0; region == opened.region && i < LOOM_SLOTS && found < 0; i++) {
        if (atomic_load(&region->slots[i].owner) != 0 || !set_lock(opened.file, F_WRLCK, LOCK_SLOT + i, 1)) continue;
        if (loom_take(region, (uint32_t)i, opened.owner, (uint32_t)getpid(), device, priority, name))
            found = i;
        else
            set_lock(opened.file, F_UNLCK, LOCK_SLOT + i, 1);
    }
    pthread_mutex_unlock(&guard);
    return found;
}

void loom_unclaim(struct loom_region *region, int index) {
    pthread_mutex_lock(&guard);
    if (region == opened.region) {
        loom_give_back(region, (uint32_t)index);
        set_lock(opened.file, F_UNLCK, LOCK_SLOT + index, 1);
    }
    pthread_mutex_unlock(&guard);
    loom_ring(region);
}

int loom_reap(struct loom_region *region) {
    int dead = 0;
    pthread_mutex_lock(&guard);
    for (int i = 0; region == opened.region && i < LOOM_SLOTS; i++) {
        uint32_t owner = atomic_load(&region->slots[i].owner);
        if (owner == 0 || owner == opened.owner || !set_lock(opened.file, F_WRLCK, LOCK_SLOT + i, 1)) continue;
        if (atomic_load(&region->slots[i].owner) == owner) { /* still, now that we hold its lock */
            loom_give_back(region, (uint32_t)i);
            dead++;
        }
        set_lock(opened.file, F_UNLCK, LOCK_SLOT + i, 1);
    }
    pthread_mutex_unlock(&guard);
    if (dead) loom_ring(region);
    return dead;
}

void loom_ring(struct loom_region *region) {
    if (atomic_load(&region->sleepers) == 0 || atomic_exchange(&region->sleepers, 0) == 0) return;
    atomic_fetch_add(&region->bell, 1);
    syscall(SYS_futex, &region->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
