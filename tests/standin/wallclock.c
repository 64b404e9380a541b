/* A wall clock that a test can set, for one process and its children: LD_PRELOAD of this library adds to the time of day
 * the seconds that stand in the file named by $GPULOOM_STANDIN_CLOCK, read again at every call. The monotonic clock is
 * the kernel's own. Without the variable or the file nothing is added. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int (*clock_gettime_fn)(clockid_t, struct timespec *);

static time_t shift_s(void) {
    const char *path = getenv("GPULOOM_STANDIN_CLOCK");
    int before = errno;
    char text[32] = {0};
    if (path != NULL) {
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
            close(file);
        }
    }
    errno = before;
    return (time_t)strtoll(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static _Atomic(clock_gettime_fn) real;
    if (real == NULL) real = (clock_gettime_fn)dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift_s();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
    if (where != NULL) *where = now.tv_sec;
    return now.tv_sec;
}
