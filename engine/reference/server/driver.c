/* The host's CUDA driver, found by the dynamic linker when the first client comes. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>

struct driver driver;

const char *driver_load(void) {
    static char why[120];
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, sizeof why, "%s", dlerror());
        return why;
    }
#define DRIVER_FIND(name) \
    driver.name = (__typeof__(&name))(uintptr_t)dlsym(library, #name); \
    if (!driver.name) return snprintf(why, sizeof why, "the driver has no %s", #name), why;
    DRIVER(DRIVER_FIND)
#undef DRIVER_FIND
#define DRIVER_FIND(name) driver.name = (__typeof__(&name))(uintptr_t)dlsym(library, #name);
    DRIVER_MAY(DRIVER_FIND)
#undef DRIVER_FIND
    driver.emulated = dlsym(library, "elasticAiEmulated") != NULL;
    CUresult status = driver.cuInit(0);
    if (status) {
        snprintf(why, sizeof why, "the driver's cuInit returned %d", status);
        return why;
    }
    return NULL;
}
