/* The CUDA front end: loaded into a program by LD_PRELOAD, it stands between the program and the driver, libcuda.so.1.
 *
 * A program comes to the driver's functions in three ways, and each leads to the functions of this file:
 *   - linked against libcuda: ours have the same names and are found first;
 *   - dlopen and dlsym: dlsym is ours as well;
 *   - cuGetProcAddress, itself found by dlsym: also ours. The runtime API (libcudart, shared or linked into a program)
 * comes this way, so whatever is launched with <<<>>>, cudaLaunchKernel or cudaGraphLaunch passes here, libraries
 * included.
 *
 * Kernels and graphs ask before they are launched, and tell when they have ended; a graph counts as one kernel. A
 * launch into a stream that is being captured does not run anything, it becomes part of a graph: it neither asks nor
 * tells. Copies and memsets are not touched.
 *
 * A stream is a slot, from its first launch on (so "first, second, ... stream" in the settings means in order of first
 * launch):
 *   - a stream that the program created, until cuStreamDestroy, whichever thread uses it;
 *   - the legacy default stream (NULL, CU_STREAM_LEGACY), one for each context;
 *   - the per-thread default stream (CU_STREAM_PER_THREAD, or NULL in functions named _ptsz), one for each thread and
 * context, until the thread ends. All of a context's go when it does. What goes unnoticed (a green context's) is freed
 * when the process ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "cuda_streams.h"

typedef cuda_entry entry;

/* ISO C has no conversion between the two kinds of pointers; POSIX promises that they are alike. */
union pointer {
    void *data;
    entry *function;
};

/* Which functions are ours */

/* A function as the library exports it; how cuGetProcAddress is asked for it: by which name, from which version of CUDA
 * on (newer ones come later; NVIDIA's cudaTypedefs.h has these numbers), and whether it is the variant with a default
 * stream for each thread. */
/* clang-format off */
#define HOOKS(HOOK)                                                                \
    HOOK(cuGetProcAddress, "cuGetProcAddress", 0, false)                           \
    HOOK(cuGetProcAddress_v2, "cuGetProcAddress", 12000, false)                    \
    HOOK(cuLaunchKernel, "cuLaunchKernel", 0, false)                               \
    HOOK(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, true)                           \
    HOOK(cuLaunchKernelEx, "cuLaunchKernelEx", 0, false)                           \
    HOOK(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, true)                       \
    HOOK(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 0, false)         \
    HOOK(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 9000, true)     \
    HOOK(cuGraphLaunch, "cuGraphLaunch", 0, false)                                 \
    HOOK(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, true)                             \
    HOOK(cuStreamDestroy, "cuStreamDestroy", 0, false)                             \
    HOOK(cuStreamDestroy_v2, "cuStreamDestroy", 4000, false)                       \
    HOOK(cuCtxDestroy, "cuCtxDestroy", 0, false)                                   \
    HOOK(cuCtxDestroy_v2, "cuCtxDestroy", 4000, false)                             \
    HOOK(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 0, false)         \
    HOOK(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, false)  \
    HOOK(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 0, false)             \
    HOOK(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, false)      \
    HOOK(cuStreamSynchronize, "cuStreamSynchronize", 0, false)                     \
    HOOK(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, true)                 \
    HOOK(cuCtxSynchronize, "cuCtxSynchronize", 0, false)                           \
    HOOK(cuCtxSynchronize_v2, "cuCtxSynchronize", 13000, false)                    \
    HOOK(cuEventSynchronize, "cuEventSynchronize", 0, false)                       \
    HOOK(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, false)                             \
    HOOK(cuMemcpyDtoH_v2_ptds, "cuMemcpyDtoH", 7000, true)
/* clang-format on */

#define NUMBER(name, ...) HOOK_##name,
enum { HOOKS(NUMBER) HOOK_COUNT };

#define ROW(name, base, since, per_thread) {#name, base, since, per_thread, (entry *)name, NULL},
static struct hook {
    const char *name, *base;
    int since;
    bool per_thread;
    entry *ours;
    _Atomic(entry *) real; /* what the program would have got */
} hooks[] = {HOOKS(ROW)};

/* dlsym */

typedef void *dlsym_of(void *, const char *);

/* dlsym is called before anything is set up, by sanitizers too. */
#define EARLY __attribute__((no_sanitize_address, no_sanitize_undefined, no_sanitize_thread))

/* The version that glibc has had from its first day on each machine: asking for one that exists cannot fail, and so
 * does not allocate; a malloc that itself begins with dlsym would otherwise come back to us without end. */
EARLY static dlsym_of *libc_dlsym(void) {
#if defined(__x86_64__)
    static const char version[] = "GLIBC_2.2.5";
#elif defined(__aarch64__) || defined(__powerpc64__)
    static const char version[] = "GLIBC_2.17";
#else
    static const char version[] = "GLIBC_2.34";
#endif
    union pointer found = {dlvsym(RTLD_NEXT, "dlsym", version)};
    return (dlsym_of *)found.function;
}

/* What the program's calls would reach: another preloaded tool may have a dlsym of its own. */
EARLY static dlsym_of *next_dlsym(void) {
    static _Atomic(entry *) known;
    union pointer next = {.function = atomic_load_explicit(&known, memory_order_relaxed)};
    if (!next.function) {
        next.data = libc_dlsym()(RTLD_NEXT, "dlsym");
        atomic_store_explicit(&known, next.function, memory_order_relaxed);
    }
    return (dlsym_of *)next.function;
}

/* The library's own function: behind us in the order of loading, or loaded apart. Once found it stays loaded. */
entry *cuda_find(const char *name) {
    union pointer found = {libc_dlsym()(RTLD_NEXT, name)}; /* next after its caller, so nobody else's dlsym will do */
    if (found.data) return found.function;
    static _Atomic(void *) library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library) found.data = next_dlsym()(library, name);
    return found.function;
}

static entry *real(struct hook *hook) {
    entry *known = atomic_load_explicit(&hook->real, memory_order_acquire);
    if (!known) atomic_store(&hook->real, known = cuda_find(hook->name));
    return known;
}

#define REAL(function) ((__typeof__(&function))real(&hooks[HOOK_##function]))
#define NEED_REAL(function) \
    if (!REAL(function)) return CUDA_ERROR_NOT_FOUND /* there is no driver in this process */

/* A library may stand in front of the driver with functions of the same names, and look up the driver's. Ours can lead
 * to one of the two only: to the one that a program would reach. The other is left as it is, or they would call each
 * other without end. */
static void *ours_or(struct hook *hook, entry *known, void *found) {
    union pointer first = {.function = known}, now = {found}, ours = {.function = hook->ours};
    Dl_info its, here;
    if (found == ours.data) return found;
    if (first.data && dladdr(first.data, &its) && dladdr(found, &here) && its.dli_fbase != here.dli_fbase) return found;
    atomic_store(&hook->real, now.function); /* the newest, for a library that was unloaded and loaded again */
    return ours.data;
}

/* The program's own question comes last: dlerror tells of the last one. What would not be there without us is not
 * there. */
static void *look_up(struct hook *hook, void *handle) {
    entry *known = real(hook);
    union pointer found = {next_dlsym()(handle, hook->name)};
    if (found.function == hook->ours && !known) found.data = libc_dlsym()(RTLD_NEXT, hook->name);
    return found.data ? ours_or(hook, known, found.data) : NULL;
}

/* Where the name is none of ours, the real dlsym must believe that the program called it: what RTLD_NEXT means depends
 * on the caller. A call as the last thing does that: compilers make it a jump when they optimise, for which
 * CMakeLists.txt provides. A library that asks for what comes after itself stands between the program and the driver,
 * as we do, and gets just that. */
LOOM_API EARLY void *dlsym(void *restrict handle, const char *restrict name) {
    if (handle != RTLD_NEXT && name[0] == 'c' && name[1] == 'u')
        for (int i = 0; i < HOOK_COUNT; i++)
            if (strcmp(name, hooks[i].name) == 0) return look_up(&hooks[i], handle);
    return next_dlsym()(handle, name);
}

/* Which of ours stands for what the driver has given. That is told by what it is, where the driver gives what it also
 * exports. Otherwise by NVIDIA's rule: the newest that the version has, and if asked for, one for each thread. */
static void replace(const char *symbol, void **function, int version, cuuint64_t flags) {
    struct hook *best = NULL;
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    for (struct hook *hook = hooks; hook < hooks + HOOK_COUNT; hook++) {
        if (strcmp(symbol, hook->base) != 0) continue;
        union pointer known = {.function = real(hook)};
        bool is_it = known.data == *function;
        if (is_it || (version >= hook->since && (per_thread || !hook->per_thread))) best = hook; /* newer come later */
        if (is_it) break;
    }
    if (best) *function = ours_or(best, real(best), *function);
}

LOOM_API CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
    NEED_REAL(cuGetProcAddress);
    CUresult result = REAL(cuGetProcAddress)(symbol, function, version, flags);
    if (result == CUDA_SUCCESS && symbol && function && *function) replace(symbol, function, version, flags);
    return result;
}

LOOM_API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                      CUdriverProcAddressQueryResult *status) {
    NEED_REAL(cuGetProcAddress_v2);
    CUresult result = REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS && symbol && function && *function) replace(symbol, function, version, flags);
    return result;
}

/* Launches */

/* The one shape of all launches. */
#define LAUNCH(function, handle, name, grid, block, ...)                \
    NEED_REAL(function);                                                \
    struct cuda_stream *known = cuda_watched(handle);                   \
    if (!known) return REAL(function)(__VA_ARGS__);                     \
    struct cuda_launch *launch = cuda_before(known, name, grid, block); \
    return cuda_after(known, launch, REAL(function)(__VA_ARGS__))

#define SIZES(...) ((uint64_t[]){__VA_ARGS__})
#define OR_LEGACY(stream) ((stream) ? (stream) : CU_STREAM_LEGACY)
#define OR_PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

#define LAUNCH_KERNEL(function, or_default)                                                                         \
    LOOM_API CUresult function(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,       \
                               unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra) {    \
        LAUNCH(function, or_default(stream), cuda_name(f), SIZES(gx, gy, gz), SIZES(bx, by, bz), f, gx, gy, gz, bx, \
               by, bz, shared, stream, parameters, extra);                                                          \
    }
LAUNCH_KERNEL(cuLaunchKernel, OR_LEGACY)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, OR_PER_THREAD)

#define LAUNCH_COOPERATIVE(function, or_default)                                                                    \
    LOOM_API CUresult function(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,       \
                               unsigned bz, unsigned shared, CUstream stream, void **parameters) {                  \
        LAUNCH(function, or_default(stream), cuda_name(f), SIZES(gx, gy, gz), SIZES(bx, by, bz), f, gx, gy, gz, bx, \
               by, bz, shared, stream, parameters);                                                                 \
    }
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, OR_LEGACY)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, OR_PER_THREAD)

#define LAUNCH_EX(function, or_default)                                                                       \
    LOOM_API CUresult function(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) { \
        NEED_REAL(function);                                                                                  \
        if (!config) return REAL(function)(config, f, parameters, extra); /* the driver refuses it */         \
        LAUNCH(function, or_default(config->hStream), cuda_name(f),                                           \
               SIZES(config->gridDimX, config->gridDimY, config->gridDimZ),                                   \
               SIZES(config->blockDimX, config->blockDimY, config->blockDimZ), config, f, parameters, extra); \
    }
LAUNCH_EX(cuLaunchKernelEx, OR_LEGACY)
LAUNCH_EX(cuLaunchKernelEx_ptsz, OR_PER_THREAD)

#define LAUNCH_GRAPH(function, or_default)                                                                            \
    LOOM_API CUresult function(CUgraphExec graph, CUstream stream) {                                                  \
        LAUNCH(function, or_default(stream), "(graph)", SIZES(cuda_graph_number(graph), 1, 1), SIZES(1, 1, 1), graph, \
               stream);                                                                                               \
    }
LAUNCH_GRAPH(cuGraphLaunch, OR_LEGACY)
LAUNCH_GRAPH(cuGraphLaunch_ptsz, OR_PER_THREAD)

/* What ends streams, and waiting */

/* A function that is passed on, with something done before and after it. */
#define PASS(function, parameters, arguments, first, then) \
    LOOM_API CUresult function parameters {                \
        NEED_REAL(function);                               \
        first;                                             \
        CUresult result = REAL(function) arguments;        \
        then;                                              \
        return result;                                     \
    }
#define NOTHING (void)0

/* A stream is forgotten before it goes: afterwards another one may have its handle. */
PASS(cuStreamDestroy, (CUstream stream), (stream), cuda_stream_goes(stream), NOTHING)
PASS(cuStreamDestroy_v2, (CUstream stream), (stream), cuda_stream_goes(stream), NOTHING)
PASS(cuCtxDestroy, (CUcontext context), (context), NOTHING, if (result == CUDA_SUCCESS) cuda_context_gone(context))
PASS(cuCtxDestroy_v2, (CUcontext context), (context), NOTHING, if (result == CUDA_SUCCESS) cuda_context_gone(context))
PASS(cuDevicePrimaryCtxRelease, (CUdevice device), (device), NOTHING, cuda_primary_released(device))
PASS(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device), NOTHING, cuda_primary_released(device))
PASS(cuDevicePrimaryCtxReset, (CUdevice device), (device), NOTHING, cuda_primary_released(device))
PASS(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device), NOTHING, cuda_primary_released(device))

PASS(cuStreamSynchronize, (CUstream stream), (stream), NOTHING, cuda_waited(result, stream, NULL))
PASS(cuStreamSynchronize_ptsz, (CUstream stream), (stream), NOTHING, cuda_waited(result, stream, NULL))
PASS(cuCtxSynchronize, (void), (), NOTHING, cuda_waited(result, NULL, NULL))
PASS(cuCtxSynchronize_v2, (CUcontext context), (context), NOTHING, cuda_waited(result, NULL, context))
PASS(cuEventSynchronize, (CUevent event), (event), NOTHING, cuda_waited(result, NULL, NULL))
PASS(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes), NOTHING,
     cuda_waited(result, NULL, NULL))
PASS(cuMemcpyDtoH_v2_ptds, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes), NOTHING,
     cuda_waited(result, NULL, NULL))
