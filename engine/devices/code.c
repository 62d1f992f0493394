/* Modules, libraries and what is in them. A module is of a context; a library is of none, and becomes a module of each
 * context that uses it. Handles are looked up and never followed. */
#define _GNU_SOURCE
#include "code.h"
#include "grid.h"
#include "memory.h"
#include "queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct code {
    enum kind kind; /* MODULE or LIBRARY */
    struct code *next, *library; /* library: what this module is of */
    const struct context *context;
    char *text; /* of a library: its image */
    struct image image;
    struct function *functions; /* as many as the image has kernels */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct code *codes;

static int capability(const struct context *c) {
    return gpus[c->gpu].capability_major * 10 + gpus[c->gpu].capability_minor;
}

static void code_free(struct code *code) {
    for (uint32_t i = 0; code->context && code->image.module && i < code->image.module->global_count; i++)
        memory_return(code->image.module->globals[i].at);
    image_unload(&code->image);
    free(code->functions);
    free(code->text);
    free(code);
}

/* A module of `context`, or with none a library. Called without the lock. */
static CUresult code_make(struct code **made, const char *text, const struct context *context, char log[LOG_BYTES]) {
    struct code *code = calloc(1, sizeof *code);
    if (!code) return CUDA_ERROR_OUT_OF_MEMORY;
    code->kind = context ? MODULE : LIBRARY;
    code->image.file = -1;
    if (!context && !(code->text = strdup(text))) return free(code), CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = image_load(text, &code->image, log);
    if (!status && context) status = image_fits(&code->image, capability(context), log);
    if (!status && context && !memory_show()) status = CUDA_ERROR_OUT_OF_MEMORY;
    const struct host_module *m = code->image.module;
    if (!status && !(code->functions = calloc(m->kernel_count + 1, sizeof *code->functions)))
        status = CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < m->kernel_count; i++) {
        int fixed = image_shared_bytes(&code->image, m->kernels[i].name);
        if (fixed > USUAL_SHARED_BYTES) {
            snprintf(log, LOG_BYTES, "ptxas error: %.100s uses too much shared memory (%d bytes, %d at most)",
                     m->kernels[i].name, fixed, USUAL_SHARED_BYTES);
            status = CUDA_ERROR_INVALID_PTX;
        }
        code->functions[i] = (struct function){context ? FUNCTION : KERNEL, code, &m->kernels[i], fixed,
                                               USUAL_SHARED_BYTES - fixed};
    }
    for (uint32_t i = 0; !status && context && i < m->global_count; i++) {
        code->context = context; /* what was lent comes back */
        if (!memory_lend(context, m->globals[i].at, m->globals[i].bytes)) status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    code->context = context;
    if (status) return code_free(code), status;
    *made = code;
    return CUDA_SUCCESS;
}

/* The list holds handles of both sorts. Called with the lock. */
static struct code *find(const void *handle, enum kind kind) {
    struct code *c = codes;
    while (c && (c != handle || c->kind != kind)) c = c->next;
    return c;
}

static void keep(struct code *code) {
    pthread_mutex_lock(&lock);
    code->next = codes;
    codes = code;
    pthread_mutex_unlock(&lock);
}

/* Takes those of a context, of a library, or one alone out of the list, and frees them. */
static bool drop(const struct context *context, const struct code *library, const struct code *one) {
    struct code *gone = NULL, **at = &codes;
    pthread_mutex_lock(&lock);
    while (*at) {
        struct code *c = *at;
        if ((context && c->context == context) || (library && (c == library || c->library == library)) || c == one)
            *at = c->next, c->next = gone, gone = c;
        else at = &c->next;
    }
    pthread_mutex_unlock(&lock);
    bool any = gone != NULL;
    while (gone) {
        struct code *c = gone;
        gone = c->next;
        code_free(c);
    }
    return any;
}

void code_forget(const struct context *context) {
    drop(context, NULL, NULL);
}

/* Where the program wants the compiler's words. */
static void tell(const char *log, unsigned count, const int *options, void **values) {
    char *to = NULL;
    size_t room = 0;
    void **length = NULL;
    for (unsigned i = 0; options && values && i < count; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) to = values[i];
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) length = &values[i], room = (size_t)(uintptr_t)values[i];
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) values[i] = (void *)(uintptr_t)0;
    }
    if (to && room) snprintf(to, room, "%s", log);
    if (length) *length = (void *)(uintptr_t)(to && room ? strlen(to) : 0);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
    struct code *made = NULL;
    char log[LOG_BYTES] = "";
    if (!module || !image || (count && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
    TRY(current_check());
    CUresult status = code_make(&made, image, current(), log);
    tell(log, count, options, values);
    if (status) return status;
    keep(made);
    *module = (CUmodule)made;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    size_t bytes = 0, room = 0;
    char *text = NULL;
    if (!module || !path) return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(path, "re");
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    ssize_t got = getdelim(&text, &room, '\0', file);
    bytes = got > 0 ? (size_t)got : 0;
    fclose(file);
    CUresult status = bytes ? cuModuleLoadData(module, text) : CUDA_ERROR_INVALID_IMAGE;
    free(text);
    return status;
}

CUresult cuModuleUnload(CUmodule module) {
    TRY(current_check());
    queue_wait_context(current());
    pthread_mutex_lock(&lock);
    struct code *code = find(module, MODULE);
    bool may = code && !code->library; /* a library's goes with the library */
    pthread_mutex_unlock(&lock);
    return may && drop(NULL, NULL, code) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult function_find(struct function **found, void *handle, enum kind kind, const char *name) {
    pthread_mutex_lock(&lock);
    struct code *code = find(handle, kind);
    for (uint32_t i = 0; code && i < code->image.module->kernel_count; i++)
        if (!strcmp(code->image.module->kernels[i].name, name)) *found = &code->functions[i];
    pthread_mutex_unlock(&lock);
    return !code ? CUDA_ERROR_INVALID_HANDLE : *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult global_find(CUdeviceptr *pointer, size_t *bytes, void *handle, const char *name) {
    const struct host_global *found = NULL;
    pthread_mutex_lock(&lock);
    struct code *code = find(handle, MODULE);
    for (uint32_t i = 0; code && i < code->image.module->global_count; i++)
        if (!strcmp(code->image.module->globals[i].name, name)) found = &code->image.module->globals[i];
    pthread_mutex_unlock(&lock);
    if (!found) return code ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
    if (pointer) *pointer = (CUdeviceptr)(uintptr_t)found->at;
    if (bytes) *bytes = found->bytes;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    struct function *found = NULL;
    if (!function || !name) return CUDA_ERROR_INVALID_VALUE;
    TRY(current_check());
    TRY(function_find(&found, module, MODULE, name));
    *function = (CUfunction)found;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name) {
    if ((!pointer && !bytes) || !name) return CUDA_ERROR_INVALID_VALUE;
    TRY(current_check());
    return global_find(pointer, bytes, module, name);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *options, void **values, unsigned count,
                           int *library_options, void **library_values, unsigned library_count) {
    struct code *made = NULL;
    char log[LOG_BYTES] = "";
    int devices;
    (void)library_options;
    (void)library_values;
    (void)library_count;
    if (!library || !image || (count && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
    TRY(cuDeviceGetCount(&devices));
    CUresult status = code_make(&made, image, NULL, log);
    tell(log, count, options, values);
    if (status) return status;
    keep(made);
    *library = (CUlibrary)made;
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
    const struct context *users[MAX_GPUS];
    int count = 0;
    pthread_mutex_lock(&lock);
    struct code *code = find(library, LIBRARY);
    for (struct code *c = codes; c && code && count < MAX_GPUS; c = c->next)
        if (c->library == code) users[count++] = c->context;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < count; i++) queue_wait_context(users[i]);
    return code && drop(NULL, code, NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The library as a module of the current context. */
static CUresult instance(struct code **found, const struct code *library) {
    const struct context *c = current();
    char log[LOG_BYTES] = "";
    TRY(current_check());
    pthread_mutex_lock(&lock);
    for (*found = codes; *found && ((*found)->library != library || (*found)->context != c); *found = (*found)->next) {}
    pthread_mutex_unlock(&lock);
    if (*found) return CUDA_SUCCESS;
    TRY(code_make(found, library->text, c, log));
    (*found)->library = (struct code *)library;
    keep(*found);
    return CUDA_SUCCESS;
}

static CUresult library_find(struct code **found, CUlibrary library) {
    pthread_mutex_lock(&lock);
    *found = find(library, LIBRARY);
    pthread_mutex_unlock(&lock);
    return *found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    struct code *found, *made;
    if (!module) return CUDA_ERROR_INVALID_VALUE;
    TRY(library_find(&found, library));
    TRY(instance(&made, found));
    *module = (CUmodule)made;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name) {
    CUmodule module;
    if ((!pointer && !bytes) || !name) return CUDA_ERROR_INVALID_VALUE;
    TRY(cuLibraryGetModule(&module, library));
    return global_find(pointer, bytes, module, name);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    struct function *found = NULL;
    if (!kernel || !name) return CUDA_ERROR_INVALID_VALUE;
    TRY(function_find(&found, library, LIBRARY, name));
    *kernel = (CUkernel)found;
    return CUDA_SUCCESS;
}

/* Whether it is a handle of that kind. Its library or module stays as long as nobody unloads it. */
static struct function *known(const void *handle, enum kind kind) {
    struct function *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct code *c = codes; c && !found; c = c->next)
        for (uint32_t i = 0; i < c->image.module->kernel_count; i++)
            if (&c->functions[i] == handle && c->functions[i].kind == kind) found = &c->functions[i];
    pthread_mutex_unlock(&lock);
    return found;
}

struct function *kernel_of(CUkernel kernel) {
    return known(kernel, KERNEL);
}

CUresult function_of(CUfunction handle, struct function **found) {
    struct function *kernel = known(handle, KERNEL); /* may be launched as a function */
    struct code *code;
    TRY(current_check());
    *found = kernel ? NULL : known(handle, FUNCTION);
    if (kernel) {
        TRY(instance(&code, kernel->code));
        *found = &code->functions[kernel - kernel->code->functions];
    }
    return *found && (*found)->code->context == current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    struct function *found;
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    if (!kernel_of(kernel)) return CUDA_ERROR_INVALID_HANDLE;
    TRY(function_of((CUfunction)kernel, &found));
    *function = (CUfunction)found;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle) {
    struct function *found;
    if (!module) return CUDA_ERROR_INVALID_VALUE;
    TRY(function_of(handle, &found));
    *module = (CUmodule)found->code;
    return CUDA_SUCCESS;
}

int function_target(const struct function *function) {
    return function->code->image.target;
}
