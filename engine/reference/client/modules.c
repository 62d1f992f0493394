/* Modules, libraries, functions, kernels. */
#define _GNU_SOURCE
#include "modules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../../shared/image.h"
#include "current.h"
#include "jit.h"
#include "pointers.h"
#include "rpc.h"
#include "say.h"
#include "start.h"

/* A library's module in a context. */
struct placed {
    struct placed *next;
    struct object *context;
    unsigned life;
    struct module *module;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all lists */

static struct object *usable(void) {
    struct object *context = current();
    return context && context->number ? context : NULL;
}

static CUresult module_make(const struct image *image, const struct wish *wish, struct object *context,
                            struct module **made) {
    uint64_t number;
    TRY(image_send(image, wish, context, &number));
    *made = calloc(1, sizeof **made);
    if (!*made) return CUDA_ERROR_OUT_OF_MEMORY;
    (*made)->o = (struct object){.kind = MODULE, .c = context->c, .number = number, .context = context,
                                 .device = context->device, .life = context->life};
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *code, unsigned count, int *options, void **values) {
    struct image *image;
    struct wish wish;
    struct module *made;
    if (!module) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    if (!usable()) return CUDA_ERROR_INVALID_CONTEXT;
    TRY(image_make(code, count, options, values, &image, &wish));
    CUresult status = module_make(image, &wish, usable(), &made);
    free(image);
    if (!status) *module = (CUmodule)made;
    return status;
}

CUresult cuModuleLoadData(CUmodule *module, const void *code) {
    return cuModuleLoadDataEx(module, code, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *code) {
    return cuModuleLoadDataEx(module, code, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    struct stat about;
    if (!module || !path) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    FILE *file = fopen(path, "re");
    if (!file || fstat(fileno(file), &about) || about.st_size <= 0) {
        if (file) fclose(file);
        return file ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_FILE_NOT_FOUND;
    }
    /* Zeros behind it: a header that says more than there is finds no more. */
    char *code = calloc(1, (size_t)about.st_size + 64);
    size_t got = code ? fread(code, 1, (size_t)about.st_size, file) : 0;
    fclose(file);
    CUresult status = !code ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
    if (got && image_bytes(code, got + 1)) status = cuModuleLoadData(module, code);
    free(code);
    return status;
}

static struct module *module_of(CUmodule handle) {
    struct module *m = (struct module *)handle;
    return plausible(m) && m->o.kind == MODULE && m->o.context->number && m->o.context->life == m->o.life ? m : NULL;
}

/* The object stays: a function of it that is launched later is told that it is gone. */
static CUresult module_end(struct module *m) {
    struct request r = {.op = OP_MODULE_UNLOAD, .arg = {m->o.number}};
    m->o.kind = 0;
    pointers_forget(NULL, m);
    for (struct function *f = m->functions; f; f = f->next) f->o.kind = 0;
    return call(m->o.c, &r, NULL, NULL);
}

CUresult cuModuleUnload(CUmodule handle) {
    TRY(ready());
    struct module *m = module_of(handle);
    if (!m) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    CUresult status = module_end(m);
    pthread_mutex_unlock(&lock);
    return status;
}

/* What the server says of a function, from its reply. NULL: it makes no sense. */
static struct function *function_read(struct module *m, const char *name, uint64_t number, const void *told, size_t bytes) {
    struct function *f = calloc(1, sizeof *f);
    if (!f || bytes < sizeof f->info) return free(f), NULL;
    memcpy(&f->info, told, sizeof f->info);
    size_t rest = bytes - sizeof f->info, end = 0;
    bool fine = f->info.parameters <= MOST_PARAMETERS && rest == f->info.parameters * sizeof *f->parameter;
    if (fine) fine = (f->parameter = malloc(rest + 1)) && (f->name = strdup(name));
    if (fine) memcpy(f->parameter, (const char *)told + sizeof f->info, rest);
    for (uint32_t i = 0; fine && i < f->info.parameters; i++) {
        const struct parameter *p = &f->parameter[i];
        fine = p->offset >= end && p->offset <= MOST_PARAMETER_BYTES && p->bytes <= MOST_PARAMETER_BYTES - p->offset;
        end = (size_t)p->offset + p->bytes;
    }
    if (!fine) return free(f->parameter), free(f->name), free(f), NULL;
    f->parameter_bytes = end;
    f->module = m;
    f->o = m->o;
    f->o.kind = FUNCTION;
    f->o.number = number;
    return f;
}

/* Called with the lock. */
static CUresult function_get(struct module *m, const char *name, struct function **found) {
    for (*found = m->functions; *found; *found = (*found)->next)
        if (!strcmp((*found)->name, name)) return CUDA_SUCCESS;
    struct request r = {.op = OP_MODULE_FUNCTION, .bytes = strlen(name), .arg = {m->o.number}};
    struct reply reply = {0};
    void *told = NULL;
    CUresult status = call_for_text(m->o.c, &r, name, &reply, &told);
    if (!status) {
        *found = function_read(m, name, reply.value[0], told, told ? reply.bytes : 0);
        if (!*found) status = CUDA_ERROR_UNKNOWN;
    }
    free(told);
    if (status) return status;
    (*found)->next = m->functions;
    m->functions = *found;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name) {
    struct function *found;
    if (!function || !name) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct module *m = module_of(handle);
    if (!m) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    CUresult status = function_get(m, name, &found);
    pthread_mutex_unlock(&lock);
    if (!status) *function = (CUfunction)found;
    return status;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule handle, const char *name) {
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct module *m = module_of(handle);
    if (!m) return CUDA_ERROR_INVALID_HANDLE;
    struct request r = {.op = OP_MODULE_GLOBAL, .bytes = strlen(name), .arg = {m->o.number}};
    struct reply reply;
    TRY(call(m->o.c, &r, name, &reply));
    if (pointer_add(reply.value[0], reply.value[1], m->o.context, m)) {
        say("a variable of %s has an address that memory of another server has; use fewer servers", m->o.c->name);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (pointer) *pointer = reply.value[0];
    if (bytes) *bytes = reply.value[1];
    return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction handle) {
    struct function *f = function_of(handle);
    if (!module) return CUDA_ERROR_INVALID_VALUE;
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    *module = (CUmodule)f->module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(int *mode) {
    if (!mode) return CUDA_ERROR_INVALID_VALUE;
    *mode = 1; /* CU_MODULE_EAGER_LOADING */
    return CUDA_SUCCESS;
}

/* Libraries. */

static struct library *library_of(CUlibrary handle) {
    struct library *l = (struct library *)handle;
    return plausible(l) && l->o.kind == LIBRARY ? l : NULL;
}

/* The library's module in the current context. Called with the lock. */
static CUresult library_place(struct library *l, const struct wish *wish, struct module **module) {
    struct object *context = usable();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    for (struct placed *p = l->placed; p; p = p->next)
        if (p->context == context && p->life == context->life) return *module = p->module, CUDA_SUCCESS;
    struct placed *p = calloc(1, sizeof *p);
    CUresult status = p ? module_make(l->image, wish, context, module) : CUDA_ERROR_OUT_OF_MEMORY;
    if (status) return free(p), status;
    *p = (struct placed){l->placed, context, context->life, *module};
    l->placed = p;
    return CUDA_SUCCESS;
}

/* Where there is a context, the driver judges the image at once, else when it is used. */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *options, void **values, unsigned count,
                           int *library_options, void **library_values, unsigned library_count) {
    struct wish wish;
    struct module *module;
    (void)library_options, (void)library_values, (void)library_count; /* how the image is kept: it is copied here */
    if (!library) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct library *l = calloc(1, sizeof *l);
    if (!l) return CUDA_ERROR_OUT_OF_MEMORY;
    l->o.kind = LIBRARY;
    CUresult status = image_make(code, count, options, values, &l->image, &wish);
    if (!status && usable()) {
        pthread_mutex_lock(&lock);
        status = library_place(l, &wish, &module);
        pthread_mutex_unlock(&lock);
        if (status) free(l->image);
    }
    if (status) return free(l), status;
    *library = (CUlibrary)l;
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary handle) {
    CUresult status = CUDA_SUCCESS;
    TRY(ready());
    struct library *l = library_of(handle);
    if (!l) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    l->o.kind = 0;
    for (struct kernel *k = l->kernels; k; k = k->next) k->o.kind = 0;
    for (struct placed *p = l->placed; p; p = p->next)
        if (module_of((CUmodule)p->module)) {
            CUresult one = module_end(p->module);
            if (!status) status = one;
        }
    free(l->image);
    pthread_mutex_unlock(&lock);
    return status;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary handle) {
    struct module *found;
    if (!module) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct library *l = library_of(handle);
    if (!l) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    CUresult status = library_place(l, NULL, &found);
    pthread_mutex_unlock(&lock);
    if (!status) *module = (CUmodule)found;
    return status;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary handle, const char *name) {
    CUmodule module;
    TRY(cuLibraryGetModule(&module, handle));
    return cuModuleGetGlobal_v2(pointer, bytes, module, name);
}

/* The kernel's function in the current context. Called with the lock. */
static CUresult kernel_place(struct kernel *k, struct function **function) {
    struct module *module;
    struct object *context = usable();
    if (context && k->context == context && k->life == context->life) return *function = k->function, CUDA_SUCCESS;
    TRY(library_place(k->library, NULL, &module));
    TRY(function_get(module, k->name, function));
    k->context = context;
    k->life = context->life;
    k->function = *function;
    return CUDA_SUCCESS;
}

static struct kernel *kernel_of(CUkernel handle) {
    struct kernel *k = (struct kernel *)handle;
    return plausible(k) && k->o.kind == KERNEL ? k : NULL;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary handle, const char *name) {
    struct function *function;
    CUresult status = CUDA_SUCCESS;
    if (!kernel || !name) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct library *l = library_of(handle);
    if (!l) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    struct kernel *k = l->kernels;
    while (k && strcmp(k->name, name)) k = k->next;
    if (!k && (k = calloc(1, sizeof *k))) {
        k->o.kind = KERNEL;
        k->library = l;
        k->name = strdup(name);
        if (!k->name) status = CUDA_ERROR_OUT_OF_MEMORY;
        else if (usable()) status = kernel_place(k, &function);
        if (status) free(k->name), free(k), k = NULL;
        else k->next = l->kernels, l->kernels = k;
    }
    pthread_mutex_unlock(&lock);
    if (!k) return status ? status : CUDA_ERROR_OUT_OF_MEMORY;
    *kernel = (CUkernel)k;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel handle) {
    struct function *found = NULL;
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    TRY(ready());
    struct kernel *k = kernel_of(handle);
    if (!k) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    CUresult status = kernel_place(k, &found);
    pthread_mutex_unlock(&lock);
    if (!status) *function = (CUfunction)found;
    return status;
}

CUresult cuKernelGetName(const char **name, CUkernel handle) {
    struct kernel *k = kernel_of(handle);
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    if (!k) return CUDA_ERROR_INVALID_HANDLE;
    *name = k->name;
    return CUDA_SUCCESS;
}

struct function *function_of(CUfunction handle) {
    struct function *f = (struct function *)handle;
    CUfunction placed;
    if (!plausible(f) || (f->o.kind != FUNCTION && f->o.kind != KERNEL)) return NULL;
    if (f->o.kind == KERNEL) f = cuKernelGetFunction(&placed, (CUkernel)handle) ? NULL : (struct function *)placed;
    return f && f->o.context->life == f->o.life && f->o.context->number ? f : NULL;
}
