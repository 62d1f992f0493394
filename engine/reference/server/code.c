/* Modules and functions. An image is the driver's to judge, in this child alone: whatever it does there, nobody else is
 * in this process. What of the device's memory it takes is accounted for. */
#define _GNU_SOURCE
#include "code.h"

#include <stdlib.h>
#include <string.h>

#include "../../shared/image.h"
#include "accounts.h"
#include "driver.h"
#include "handles.h"
#include "options.h"
#include "session.h"

#define MOST_IMAGE ((uint64_t)256 << 20)
#define MOST_NAME ((uint64_t)16 << 10) /* of C++ symbols, too */
#define TEXT ((size_t)16 << 10) /* of the compiler, each of two */

/* The payload with a zero behind it, of malloc; NULL: it is too large, and has been thrown away. */
static char *take_payload(const struct request *r, uint64_t most) {
    char *data = r->bytes <= most ? malloc((size_t)r->bytes + 1) : NULL;
    if (!data) {
        discard(r->bytes);
        return NULL;
    }
    receive(data, (size_t)r->bytes);
    data[r->bytes] = '\0';
    return data;
}

/* CUjit_option: those whose value is a number for the compiler. Others are addresses, or its answers. */
static bool is_number(uint32_t option) {
    return option <= 1 || (option >= 7 && option <= 14) || (option >= 20 && option <= 24) || (option >= 29 && option <= 33);
}

static uint64_t free_bytes(void) {
    size_t left = 0, total = 0;
    return driver.cuMemGetInfo_v2(&left, &total) ? 0 : left;
}

/* `texts`: room for both, zeroed. */
static CUresult load(const struct request *r, const char *data, char *texts, uint64_t *number) {
    uint64_t count = r->arg[0], skip = count * sizeof(struct jit_option), took = 0;
    int option[MOST_OPTIONS + 4];
    void *value[MOST_OPTIONS + 4];
    unsigned n = 0;
    if (!driver.cuModuleLoadDataEx) return CUDA_ERROR_NOT_SUPPORTED;
    if (count > MOST_OPTIONS || skip > r->bytes) return CUDA_ERROR_INVALID_VALUE;
    TRY(use_context(r->context));
    for (; n < count; n++) {
        const struct jit_option *given = (const void *)(data + n * sizeof *given);
        if (!is_number(given->option)) return CUDA_ERROR_NOT_SUPPORTED;
        option[n] = (int)given->option;
        value[n] = (void *)(uintptr_t)given->value;
    }
    for (int i = 0; i < 2; i++) {
        option[n] = i ? CU_JIT_ERROR_LOG_BUFFER : CU_JIT_INFO_LOG_BUFFER;
        value[n++] = texts + (size_t)i * TEXT;
        option[n] = i ? CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES : CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES;
        value[n++] = (void *)(uintptr_t)(TEXT - 1);
    }
    const char *image = data + skip;
    if (!image_bytes(image, (size_t)(r->bytes - skip) + 1)) return CUDA_ERROR_INVALID_IMAGE;
    int device = handle_get(r->context, CONTEXT)->device;
    uint64_t before = options.memory_limit ? free_bytes() : 0;
    CUmodule module = NULL;
    TRY(driver.cuModuleLoadDataEx(&module, image, n, option, value));
    /* No driver tells what a module takes (its variables may be as large as the device): what is gone from the device is
     * its own, and what another lease took in that moment. */
    uint64_t after = options.memory_limit ? free_bytes() : 0;
    if (after < before) took = before - after;
    if (took && !account_take(session.child, device, took)) {
        driver.cuModuleUnload(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *number = handle_add(MODULE, module, device, r->context);
    handle_get(*number, MODULE)->bytes = took;
    return CUDA_SUCCESS;
}

void module_load(const struct request *r) {
    static char texts[2 * TEXT];
    uint64_t number = 0;
    char *data = take_payload(r, MOST_IMAGE);
    memset(texts, 0, sizeof texts);
    CUresult status = data ? load(r, data, texts, &number) : CUDA_ERROR_INVALID_VALUE;
    free(data);
    size_t first = strnlen(texts, TEXT - 1), second = strnlen(texts + TEXT, TEXT - 1);
    memmove(texts + first, texts + TEXT, second);
    answer(r, status, number, first, texts, first + second);
}

CUresult module_unload(const struct request *r, uint64_t *value) {
    (void)value;
    struct handle *module = handle_get(r->arg[0], MODULE);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    TRY(use_context(module->context));
    TRY(driver.cuModuleUnload(module->real));
    module_forget(r->arg[0], session.child);
    return CUDA_SUCCESS;
}

/* NULL: it makes no sense, whatever is in it. */
static struct layout *ask_layout(CUfunction function, struct function_info *info, struct parameter *to) {
    size_t offset = 0, bytes = 0, end = 0, count = 0;
    CUresult status = CUDA_ERROR_NOT_SUPPORTED;
    if (driver.cuFuncGetParamInfo) {
        while (!(status = driver.cuFuncGetParamInfo(function, count, &offset, &bytes))) {
            if (count == MOST_PARAMETERS || offset < end || bytes > MOST_PARAMETER_BYTES) return NULL;
            if (offset > MOST_PARAMETER_BYTES - bytes) return NULL;
            to[count++] = (struct parameter){(uint32_t)offset, (uint32_t)bytes};
            end = offset + bytes;
        }
        if (status == CUDA_ERROR_INVALID_VALUE) status = CUDA_SUCCESS; /* beyond the last one */
    }
    struct layout *layout = calloc(1, sizeof *layout + count * sizeof *to);
    if (!layout) return NULL;
    layout->known = !status;
    layout->count = info->parameters = status ? 0 : (uint32_t)count;
    layout->bytes = status ? 0 : (uint32_t)end;
    info->layout_status = status;
    memcpy(layout->at, to, layout->count * sizeof *to);
    return layout;
}

/* The module's function of that name, as number, and what the client has to know of it. */
static CUresult find_function(const struct request *r, const char *name, uint64_t *number, struct function_info *info,
                              struct parameter *to) {
    struct handle *module = handle_get(r->arg[0], MODULE);
    uint64_t context = module ? module->context : 0;
    CUfunction function = NULL;
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    TRY(use_context(context));
    TRY(driver.cuModuleGetFunction(&function, module->real, name));
    for (int a = 0; a < FUNC_ATTRIBUTES; a++)
        info->attribute_status[a] = driver.cuFuncGetAttribute
                                        ? driver.cuFuncGetAttribute(&info->attribute[a], a, function)
                                        : CUDA_ERROR_NOT_SUPPORTED;
    struct layout *layout = ask_layout(function, info, to);
    if (!layout) return CUDA_ERROR_INVALID_IMAGE;
    if (!info->attribute_status[CU_FUNC_LOCAL_SIZE_BYTES] && info->attribute[CU_FUNC_LOCAL_SIZE_BYTES] > 0)
        layout->local_bytes = (uint64_t)info->attribute[CU_FUNC_LOCAL_SIZE_BYTES];
    *number = function_find(r->arg[0], function);
    if (*number) {
        free(layout);
        return CUDA_SUCCESS;
    }
    *number = handle_add(FUNCTION, function, -1, context);
    handle_get(*number, FUNCTION)->module = r->arg[0];
    handle_get(*number, FUNCTION)->layout = layout;
    return CUDA_SUCCESS;
}

void module_function(const struct request *r) {
    static struct {
        struct function_info info;
        struct parameter parameters[MOST_PARAMETERS];
    } told;
    uint64_t number = 0;
    char *name = take_payload(r, MOST_NAME);
    memset(&told.info, 0, sizeof told.info);
    CUresult status = name ? find_function(r, name, &number, &told.info, told.parameters) : CUDA_ERROR_INVALID_VALUE;
    free(name);
    uint64_t bytes = status ? 0 : sizeof told.info + told.info.parameters * sizeof *told.parameters;
    answer(r, status, number, 0, &told, bytes);
}

CUresult module_global(const struct request *r, uint64_t *value) {
    struct handle *module = handle_get(r->arg[0], MODULE);
    CUdeviceptr at = 0;
    size_t bytes = 0;
    char *name = take_payload(r, MOST_NAME);
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    uint64_t context = module ? module->context : 0;
    CUresult status = module ? use_context(context) : CUDA_ERROR_INVALID_HANDLE;
    if (!status) status = driver.cuModuleGetGlobal_v2(&at, &bytes, module->real, name);
    free(name);
    TRY(status);
    if (!memory_find(at, bytes)) memory_add(at, bytes, context, r->arg[0]);
    value[0] = at;
    value[1] = bytes;
    return CUDA_SUCCESS;
}

CUresult function_set(const struct request *r, uint64_t *value) {
    struct handle *function = handle_get(r->arg[0], FUNCTION);
    int now = 0, attribute = (int)r->arg[1];
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    TRY(use_context(function->context));
    if (r->arg[1] == FUNC_CACHE_CONFIG)
        return driver.cuFuncSetCacheConfig ? driver.cuFuncSetCacheConfig(function->real, (int)r->arg[2])
                                           : CUDA_ERROR_NOT_SUPPORTED;
    if (r->arg[1] >= FUNC_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
    if (!driver.cuFuncSetAttribute || !driver.cuFuncGetAttribute) return CUDA_ERROR_NOT_SUPPORTED;
    TRY(driver.cuFuncSetAttribute(function->real, attribute, (int)r->arg[2]));
    TRY(driver.cuFuncGetAttribute(&now, attribute, function->real));
    value[0] = (uint64_t)(int64_t)now;
    return CUDA_SUCCESS;
}
