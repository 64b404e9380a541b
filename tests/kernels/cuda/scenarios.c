/* What a CUDA program does, for the tests of the hook: scenarios by name, with the results on stdout.
 *
 * Compiled with -DLINKED it is linked against libcuda.so.1; without, it loads the library and asks cuGetProcAddress_v2
 * for everything, in the way and with the versions in which libcudart does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin_cuda.h"

/* clang-format off */
#define FUNCTIONS(X)                                                                           \
    X(cuInit, "cuInit", 2000, 0)                                                               \
    X(cuDeviceGet, "cuDeviceGet", 2000, 0)                                                     \
    X(cuCtxCreate_v2, "cuCtxCreate", 3020, 0)                                                  \
    X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0)                                                \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, 0)                                             \
    X(cuCtxSynchronize, "cuCtxSynchronize", 2000, 0)                                           \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, 0)                           \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, 0)                     \
    X(cuModuleLoadData, "cuModuleLoadData", 2000, 0)                                           \
    X(cuModuleGetFunction, "cuModuleGetFunction", 2000, 0)                                     \
    X(cuLibraryGetKernel, "cuLibraryGetKernel", 12000, 0)                                      \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, 0)                                                    \
    X(cuMemFree_v2, "cuMemFree", 3020, 0)                                                      \
    X(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, 0)                                                \
    X(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, 0)                                                \
    X(cuStreamCreate, "cuStreamCreate", 2000, 0)                                               \
    X(cuStreamDestroy_v2, "cuStreamDestroy", 4000, 0)                                          \
    X(cuStreamSynchronize, "cuStreamSynchronize", 2000, 0)                                     \
    X(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, 2)                                \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, 0)                               \
    X(cuStreamEndCapture, "cuStreamEndCapture", 10000, 0)                                      \
    X(cuGraphGetNodes, "cuGraphGetNodes", 10000, 0)                                            \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, 0)                    \
    X(cuGraphLaunch, "cuGraphLaunch", 10000, 0)                                                \
    X(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, 2)                                           \
    X(cuLaunchKernel, "cuLaunchKernel", 4000, 0)                                               \
    X(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, 2)                                          \
    X(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, 0)                                          \
    X(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, 2)                                     \
    X(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000, 0)  \
    X(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 9000, 2)
/* clang-format on */

#define MEMBER(name, ...) __typeof__(&name) name;
static struct {
    FUNCTIONS(MEMBER)
} cu;

static CUcontext context;
static CUdevice device;
static pthread_barrier_t barrier;

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s: %d\n", what, result);
    exit(1);
}
#define CHECK(call) check((int)(call), #call)

#ifdef LINKED
#define LINK(name, ...) cu.name = name;
static void load(void) { FUNCTIONS(LINK) }
#else
static void *found(__typeof__(&cuGetProcAddress_v2) ask, const char *base, int version, unsigned flags) {
    void *function = NULL;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    check((int)ask(base, &function, version, flags, &status), base);
    check((int)status, base);
    return function;
}
#define LOAD(name, base, version, flags) *(void **)&cu.name = found(ask, base, version, flags);
static void load(void) {
    __typeof__(&cuGetProcAddress_v2) first, ask;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) check(1, dlerror());
    *(void **)&first = dlsym(library, "cuGetProcAddress_v2");
    check(dlerror() != NULL, "an error though it was found");
    *(void **)&ask = found(first, "cuGetProcAddress", 12000, 0);
    check(*(void **)&ask == found(first, "cuGetProcAddress", 11030, 0), "one function for two signatures");
    FUNCTIONS(LOAD)
}
#endif

/* The test looks at the shared memory now, and answers with a line. */
static void stage(const char *name) {
    printf("%s\n", name);
    fflush(stdout);
    if (getchar() == EOF) return;
}

static CUdeviceptr buffer(void) {
    CUdeviceptr at;
    CHECK(cu.cuMemAlloc_v2(&at, 2 * sizeof(long long)));
    return at;
}

static long long result_of(CUdeviceptr at) {
    long long values[2];
    CHECK(cu.cuMemcpyDtoH_v2(values, at, sizeof values));
    CHECK(cu.cuMemFree_v2(at));
    return values[0];
}

static CUfunction function(const char *name) {
    CUmodule module;
    CUfunction f;
    CHECK(cu.cuModuleLoadData(&module, "an image"));
    CHECK(cu.cuModuleGetFunction(&f, module, name));
    return f;
}

static CUstream stream(void) {
    CUstream made;
    CHECK(cu.cuStreamCreate(&made, CU_STREAM_DEFAULT));
    return made;
}

static CUresult launch(CUfunction f, CUstream on, CUdeviceptr at, long long value) {
    return cu.cuLaunchKernel(f, 4, 2, 1, 32, 1, 1, 0, on, (void *[]){&at, &value}, NULL);
}

static CUresult launch_ptsz(CUfunction f, CUdeviceptr at, long long value) {
    return cu.cuLaunchKernel_ptsz(f, 4, 2, 1, 32, 1, 1, 0, NULL, (void *[]){&at, &value}, NULL);
}

/* Every way to launch, on every kind of stream; five kernels for each way, and three graphs. */
struct in_thread {
    CUfunction f;
    CUdeviceptr at;
};

static void *use_thread_stream(void *data) {
    const struct in_thread *mine = data;
    CUlaunchConfig config = {
        .gridDimX = 3, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 8, .blockDimY = 1, .blockDimZ = 1};
    CHECK(cu.cuCtxSetCurrent(context));
    for (long long i = 0; i < 5; i++) {
        void *parameters[] = {(void *)&mine->at, &i};
        CHECK(launch_ptsz(mine->f, mine->at, i));
        CHECK(cu.cuLaunchKernelEx_ptsz(&config, mine->f, parameters, NULL));
        CHECK(cu.cuLaunchCooperativeKernel_ptsz(mine->f, 1, 1, 1, 1, 1, 1, 0, NULL, parameters));
    }
    CHECK(cu.cuStreamSynchronize_ptsz(NULL));
    return NULL;
}

static void results(void) {
    CUfunction add = function("add"), spin = function("spin_50us");
    CUkernel kernel;
    CHECK(cu.cuLibraryGetKernel(&kernel, NULL, "add_as_kernel"));
    CUstream a = stream(), b = stream();
    CUdeviceptr at[5];
    for (int i = 0; i < 5; i++) at[i] = buffer();
    pthread_t threads[2];
    struct in_thread mine[2] = {{add, at[3]}, {spin, at[4]}};
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, use_thread_stream, &mine[i]));
    CUlaunchConfig config = {2, 1, 1, 1, 1, 1, 0, b, NULL, 0};
    for (long long i = 0; i < 5; i++) {
        CHECK(launch(add, a, at[0], i));
        CHECK(launch((CUfunction)kernel, a, at[0], 2 * i));
        CHECK(cu.cuLaunchKernelEx(&config, spin, (void *[]){&at[1], &i}, NULL));
        CHECK(cu.cuLaunchCooperativeKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&at[2], &i}));
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes;
    CHECK(cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (long long i = 0; i < 3; i++) CHECK(launch(add, a, at[0], 7 + i));
    CHECK(cu.cuStreamEndCapture(a, &graph));
    CHECK(cu.cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 2; i++) CHECK(cu.cuGraphLaunch(exec, a));
    CHECK(cu.cuStreamSynchronize(a));
    CHECK(cu.cuGraphLaunch_ptsz(exec, NULL));
    CHECK(cu.cuCtxSynchronize());
    printf("nodes %zu\n", nodes);
    for (int i = 0; i < 5; i++) printf("%lld\n", result_of(at[i]));
    stage("done");
    CHECK(cu.cuStreamDestroy_v2(a));
    CHECK(cu.cuStreamDestroy_v2(b));
}

static void *one_more(void *data) {
    const struct in_thread *mine = data;
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(launch_ptsz(mine->f, mine->at, 1));
    CHECK(launch(mine->f, CU_STREAM_PER_THREAD, mine->at, 1));
    CHECK(cu.cuCtxSynchronize());
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

/* Streams that come and go; the test counts slots at each stage. */
static void come_and_go(void) {
    struct in_thread mine = {function("add"), buffer()};
    CHECK(launch(mine.f, NULL, mine.at, 1));
    CHECK(launch(mine.f, CU_STREAM_LEGACY, mine.at, 1));
    pthread_t threads[2];
    pthread_barrier_init(&barrier, NULL, 3);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, one_more, &mine));
    pthread_barrier_wait(&barrier);
    stage("default streams");
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    stage("threads ended");
    CUstream made = stream();
    CHECK(launch(mine.f, made, mine.at, 1));
    CHECK(cu.cuCtxSynchronize());
    stage("created");
    CHECK(cu.cuStreamDestroy_v2(made));
    stage("destroyed");
    CUcontext primary;
    CHECK(cu.cuDevicePrimaryCtxRetain(&primary, device));
    CHECK(cu.cuDevicePrimaryCtxRetain(&primary, device));
    CHECK(cu.cuCtxDestroy_v2(context));
    stage("context destroyed");
    context = NULL;
    CHECK(cu.cuCtxSetCurrent(primary));
    CHECK(launch(mine.f, NULL, mine.at, 1));
    CHECK(cu.cuDevicePrimaryCtxRelease_v2(device));
    stage("primary used");
    CHECK(cu.cuDevicePrimaryCtxRelease_v2(device));
    stage("primary released");
    CHECK(cu.cuMemFree_v2(mine.at));
}

struct low {
    CUfunction f;
    CUstream on;
    CUdeviceptr at;
};

static void *launch_low(void *data) {
    const struct low *low = data;
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(launch(low->f, low->on, low->at, 5));
    return NULL;
}

static void release(CUdeviceptr at) {
    long long now = 1;
    CHECK(cu.cuMemcpyHtoD_v2(at + sizeof now, &now, sizeof now));
}

/* The first stream has a kernel that runs until it is released; a thread launches on the second. */
static void two_priorities(void) {
    CUstream high = stream();
    struct low low = {function("add"), stream(), buffer()};
    CUdeviceptr at = buffer();
    CHECK(launch(low.f, high, at, 3));
    CHECK(launch(low.f, low.on, low.at, 4));
    CHECK(cu.cuCtxSynchronize());
    CHECK(launch(function("hold"), high, at, 1));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, launch_low, &low));
    stage("held");
    release(at);
    pthread_join(thread, NULL);
    CHECK(cu.cuCtxSynchronize());
    long long first = result_of(at);
    printf("%lld %lld\n", first, result_of(low.at));
    stage("done");
}

static void hold(void) {
    CHECK(launch(function("hold"), stream(), buffer(), 1));
    stage("held");
}

static void three(void) {
    CUstream on = stream();
    CUdeviceptr at = buffer();
    CUfunction add = function("add");
    for (int i = 1; i <= 3; i++) {
        CHECK(launch(add, on, at, i));
        if (i == 2) CHECK(cu.cuStreamSynchronize(on));
    }
    CHECK(cu.cuCtxSynchronize());
    printf("%lld\n", result_of(at));
}

static void failing(void) {
    CUstream on = stream();
    CUdeviceptr at = buffer();
    long long value = 6;
    CUfunction add = function("add");
    CHECK(launch(add, on, at, 5));
    printf("%d\n", (int)cu.cuLaunchKernel(add, 0, 1, 1, 1, 1, 1, 0, on, (void *[]){&at, &value}, NULL));
    printf("%d\n", (int)cu.cuLaunchKernelEx(NULL, add, (void *[]){&at, &value}, NULL));
    CHECK(launch(add, on, at, 7));
    CHECK(cu.cuCtxSynchronize());
    printf("%lld\n", result_of(at));
    stage("done");
}

/* A context dies of a kernel, and the program is told when it waits: in the context, or for a stream from another
 * context. */
static void die(bool from_another) {
    CUstream on = stream();
    CUdeviceptr at = buffer();
    CUfunction add = function("add");
    CUcontext another = NULL;
    CHECK(launch(function("hold"), on, at, 5));
    CHECK(launch(function("fault"), on, at, 5));
    if (from_another) CHECK(cu.cuCtxCreate_v2(&another, 0, device));
    release(at); /* the fault comes when all has been launched */
    printf("%d\n", (int)(from_another ? cu.cuStreamSynchronize(on) : cu.cuCtxSynchronize()));
    stage("faulted");
    if (from_another) CHECK(cu.cuCtxDestroy_v2(another));
    printf("%d\n", (int)launch(add, on, at, 5));
    stage("told");
    CHECK(cu.cuMemFree_v2(at));
}

static void fault(void) { die(false); }
static void fault_elsewhere(void) { die(true); }

/* The launch itself still succeeds. */
static void fault_at_once(void) {
    CUstream on = stream();
    CUdeviceptr at = buffer();
    CUfunction fault = function("fault at once");
    CHECK(launch(function("hold"), on, at, 5));
    CHECK(launch(fault, on, at, 5));
    stage("faulted");
    release(at);
    printf("%d\n", (int)cu.cuCtxSynchronize());
    CHECK(cu.cuMemFree_v2(at));
}

/* While one thread captures, another one ends, and with it what we have for its stream. */
static void capture(void) {
    struct in_thread mine = {function("add"), buffer()};
    CUstream on = stream();
    CUgraph graph;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK(pthread_create(&thread, NULL, one_more, &mine));
    pthread_barrier_wait(&barrier);
    CHECK(cu.cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    printf("%d\n", (int)cu.cuStreamEndCapture(on, &graph));
}

#ifndef LINKED
static void show_entry(__typeof__(&cuGetProcAddress_v2) ask, const char *symbol, int version) {
    void *function = &function;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    int result = (int)ask(symbol, &function, version, 0, &status);
    printf("%d %s %d\n", result, result ? "-" : function ? "found" : "none", (int)status);
}

/* What is not there. */
static void entries(void) {
    __typeof__(&cuGetProcAddress_v2) ask;
    *(void **)&ask = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    show_entry(ask, "cuLaunchKernelEx", 12000);
    show_entry(ask, "cuLaunchKernelEx", 11000);
    show_entry(ask, "cuLaunchNothing", 12000);
    show_entry(ask, "cuLaunchKernelEx", 99000);
}

/* Functions for each thread, asked for as of a version of CUDA that did not have them yet. The kernels go to the two default streams, as the test sees; every function must lead to what it led to before. */
static void versions(void) {
    __typeof__(&cuGetProcAddress_v2) ask;
    __typeof__(&cuLaunchKernel) early, late, plain;
    __typeof__(&cuStreamSynchronize) wait_early, wait_late;
    *(void **)&ask = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    for (int round = 0; round < 2; round++) {
        *(void **)&early = found(ask, "cuLaunchKernel", 4000, 2);
        *(void **)&late = found(ask, "cuLaunchKernel", 7000, 2);
        *(void **)&plain = found(ask, "cuLaunchKernel", 7000, 0);
        *(void **)&wait_early = found(ask, "cuStreamSynchronize", 2000, 2);
        *(void **)&wait_late = found(ask, "cuStreamSynchronize", 7000, 2);
    }
    printf("%d %d %d\n", early == plain, early == late, wait_early == wait_late);
    CUdeviceptr at = buffer();
    CUfunction add = function("add");
    long long value = 1;
    void *parameters[] = {&at, &value};
    CHECK(early(add, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    for (int i = 0; i < 2; i++) CHECK(plain(add, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cu.cuCtxSynchronize());
    for (int i = 0; i < 4; i++) CHECK(late(add, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CHECK(wait_early(NULL));
    CHECK(wait_late(NULL));
    CHECK(cu.cuCtxSynchronize());
    printf("%lld\n", result_of(at));
    stage("done");
}
#else
static void entries(void) {}
static void versions(void) {}
#endif

/* Two kernels whose names differ late, as those of C++ templates do. */
static void long_names(void) {
    enum { LENGTH = 3000 };
    char name[LENGTH + 1];
    memset(name, 'x', LENGTH);
    memcpy(name, "add", 3);
    name[LENGTH] = 0;
    CUdeviceptr at = buffer();
    for (char last = 'a'; last <= 'b'; last++) {
        name[LENGTH - 1] = last;
        CHECK(launch(function(name), NULL, at, 1));
    }
    CHECK(cu.cuCtxSynchronize());
    printf("%lld\n", result_of(at));
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {{"results", results},
                     {"come_and_go", come_and_go},
                     {"two_priorities", two_priorities},
                     {"hold", hold},
                     {"three", three},
                     {"failing", failing},
                     {"fault", fault},
                     {"fault_elsewhere", fault_elsewhere},
                     {"fault_at_once", fault_at_once},
                     {"capture", capture},
                     {"entries", entries},
                     {"versions", versions},
                     {"long_names", long_names}};
    if (count < 2) return 2;
    if (strcmp(arguments[1], "without_driver") == 0) { /* is a driver seen where there is none? */
        bool seen = dlsym(RTLD_DEFAULT, "cuLaunchKernel") != NULL;
        printf("%d\n", seen || dlerror() == NULL);
        return 0;
    }
    load();
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&device, 0));
    CHECK(cu.cuCtxCreate_v2(&context, 0, device));
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(arguments[1], scenarios[i].name) == 0) scenarios[i].run();
    if (context) CHECK(cu.cuCtxDestroy_v2(context));
    return 0;
}
