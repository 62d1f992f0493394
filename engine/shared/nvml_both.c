/* See nvml_both.h. */
#include "nvml_both.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;
int (*nvml_begin)(void);

EXPORT int nvmlInitWithFlags(unsigned flags);
EXPORT int nvmlInit_v2(void);
EXPORT int nvmlInit(void);
EXPORT int nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int error);

bool opened(void) {
    return __atomic_load_n(&users, __ATOMIC_ACQUIRE) > 0;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    int status = users ? OK : nvml_begin();
    if (!status) __atomic_add_fetch(&users, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return status;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    int status = users ? OK : UNINITIALIZED;
    if (users) __atomic_sub_fetch(&users, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return status;
}

const char *nvmlErrorString(int error) {
    switch (error) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case FUNCTION_NOT_FOUND: return "Function Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    case NO_DATA: return "No data";
    case ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

int text(char *to, unsigned size, const char *from) {
    if (!opened()) return UNINITIALIZED;
    if (!to) return INVALID_ARGUMENT;
    if (!*from) return NOT_SUPPORTED;
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return OK;
}
