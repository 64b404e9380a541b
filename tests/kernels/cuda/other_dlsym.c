/* Another preloaded tool with a dlsym of its own, behind the hook: it says what the program asks cuGetProcAddress_v2
 * for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda_api.h"

#define API __attribute__((visibility("default")))

typedef void *dlsym_of(void *, const char *);

static __typeof__(&cuGetProcAddress_v2) ask;

static CUresult watch(const char *symbol, void **function, int version, cuuint64_t flags,
                      CUdriverProcAddressQueryResult *status) {
    puts(symbol);
    CUresult result = ask(symbol, function, version, flags, status);
    if (strcmp(symbol, "cuGetProcAddress") == 0 && version >= 12000) *function = (void *)watch;
    return result;
}

API void *dlsym(void *restrict handle, const char *restrict name) {
    static dlsym_of *next;
    for (int i = 0; !next && i < 3; i++)
        *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", (const char *[]){"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"}[i]);
    if (strcmp(name, "cuGetProcAddress_v2") != 0 || handle == RTLD_NEXT) return next(handle, name);
    *(void **)&ask = next(handle, name);
    return (void *)watch;
}
