/* A stand-in for libcuda.so.1 of a process that does nothing but hold a context: what others see of it. It opens the
 * first device in CUDA_VISIBLE_DEVICES: with an MPS daemon behind CUDA_MPS_PIPE_DIRECTORY it becomes a client of that,
 * without one it is on the device itself, as the stand-in for NVML then tells. Memory is only counted, against the limit
 * that the daemon has told it.
 *
 * The other libcuda.so.1, cuda/libcuda.c, runs kernels for the tests of the hook, and knows of no other device or process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_VALUE = 1, MPS_FAILED = 805 };
enum { MULTIPROCESSOR_COUNT = 16, PROCESSORS = 100 };

static int open_; /* has a context */
static double share_pct = 100;
static unsigned long long most_mib; /* 0: no limit */

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* The daemon's socket, or -1 if there is no daemon. It stays open as long as the process lives. */
static int daemon_of(const char *pipes) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/control", pipes) >= (int)sizeof address.sun_path)
        return -1;
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) == 0) return connection;
    close(connection);
    return -1;
}

static int join(int connection) {
    char text[256];
    const char *limit = strchr(setting("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=none"), '=');
    const char *share = setting("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100");
    int length = snprintf(text, sizeof text, "client %d %u %s %s\n", getpid(), getuid(), share, limit ? limit + 1 : "");
    if (write(connection, text, (size_t)length) != length) return MPS_FAILED;
    ssize_t got = read(connection, text, sizeof text - 1);
    text[got > 0 ? got : 0] = '\0';
    return sscanf(text, "admitted %lf %llu", &share_pct, &most_mib) == 2 ? OK : MPS_FAILED;
}

static int use(const char *device) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*on)(const char *) = NULL;
    if (nvml) *(void **)&on = dlsym(nvml, "standinUse");
    return on && on(device) == 0 ? OK : NO_DEVICE;
}

API int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }

API int cuDriverGetVersion(int *version) {
    *version = 13000;
    return OK;
}

API int cuDeviceGet(int *device, int ordinal) {
    *device = 0;
    return ordinal == 0 && getenv("CUDA_VISIBLE_DEVICES") ? OK : NO_DEVICE;
}

API int cuDevicePrimaryCtxRetain(void **context, int device) {
    int connection = daemon_of(setting("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"));
    int result = device ? NO_DEVICE : connection < 0 ? use(setting("CUDA_VISIBLE_DEVICES", "")) : join(connection);
    open_ = result == OK;
    *context = &open_;
    return result;
}

API int cuCtxSetCurrent(void *context) { return context == &open_ ? OK : INVALID_VALUE; }

API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == MULTIPROCESSOR_COUNT ? (int)(PROCESSORS * share_pct / 100) : 0;
    return OK;
}

API int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    if (!open_) return NOT_INITIALIZED;
    if (most_mib && bytes > most_mib << 20) return OUT_OF_MEMORY;
    *address = 1 << 20;
    return OK;
}

API int cuMemFree_v2(unsigned long long address) { return address ? OK : INVALID_VALUE; }
