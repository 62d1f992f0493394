/* Images on their way to a server: their size, the compiler's options, and its words on the way back. */
#define _GNU_SOURCE
#include "jit.h"

#include <stdlib.h>
#include <string.h>

#include "../../shared/image.h"
#include "rpc.h"
#include "say.h"

#define WRAPPER_MAGIC 0x466243b1u
#define WALL_TIME 2 /* CU_JIT_WALL_TIME: an answer, which nobody measures here */

/* What nvcc puts into programs: __fatBinC_Wrapper_t, fatbinary_section.h of the CUDA toolkit. */
struct wrapper {
    uint32_t magic, version;
    const void *data;
    void *file_or_list;
};

static CUresult read_options(unsigned count, const int *options, void **values, struct jit_option *to, unsigned *made,
                             struct wish *wish) {
    *made = 0;
    memset(wish, 0, sizeof *wish);
    if (count && (!options || !values)) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        int buffer = options[i] - CU_JIT_INFO_LOG_BUFFER; /* and its size, twice */
        if (buffer == 0 || buffer == 2) {
            wish->text[buffer / 2] = values[i];
        } else if (buffer == 1 || buffer == 3) {
            wish->room[buffer / 2] = (unsigned)(uintptr_t)values[i];
            wish->told[buffer / 2] = &values[i];
        } else if (options[i] == WALL_TIME) {
            values[i] = NULL;
        } else {
            if (*made == MOST_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
            to[(*made)++] = (struct jit_option){(uint32_t)options[i], 0, (uint64_t)(uintptr_t)values[i]};
        }
    }
    return CUDA_SUCCESS;
}

CUresult image_make(const void *code, unsigned count, const int *options, void **values, struct image **image,
                    struct wish *wish) {
    struct jit_option numbers[MOST_OPTIONS];
    unsigned made;
    uint32_t magic = 0;
    if (!code) return CUDA_ERROR_INVALID_VALUE;
    TRY(read_options(count, options, values, numbers, &made, wish));
    size_t bytes = image_bytes(code, SIZE_MAX);
    if (bytes >= sizeof magic) memcpy(&magic, code, sizeof magic);
    if (magic == WRAPPER_MAGIC) {
        struct wrapper wrapper;
        memcpy(&wrapper, code, sizeof wrapper);
        code = wrapper.data;
        bytes = code ? image_bytes(code, SIZE_MAX) : 0;
    }
    if (!bytes) return CUDA_ERROR_INVALID_IMAGE;
    *image = malloc(sizeof **image + made * sizeof *numbers + bytes);
    if (!*image) return CUDA_ERROR_OUT_OF_MEMORY;
    (*image)->options = made;
    (*image)->bytes = made * sizeof *numbers + bytes;
    memcpy((*image)->data, numbers, made * sizeof *numbers);
    memcpy((*image)->data + made * sizeof *numbers, code, bytes);
    return CUDA_SUCCESS;
}

CUresult image_send(const struct image *image, const struct wish *wish, struct object *context, uint64_t *number) {
    struct request r = {.op = OP_MODULE_LOAD, .context = context->number, .bytes = image->bytes, .arg = {image->options}};
    struct reply reply = {0};
    void *words = NULL;
    if (!context->number) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    CUresult status = call_for_text(context->c, &r, image->data, &reply, &words);
    *number = reply.value[0];
    size_t all = words ? reply.bytes : 0, first = reply.value[1] < all ? reply.value[1] : all;
    for (int i = 0; i < 2; i++) {
        const char *from = (char *)words + (i ? first : 0);
        size_t length = i ? all - first : first;
        if (wish && wish->text[i] && wish->room[i]) {
            if (length > wish->room[i] - 1) length = wish->room[i] - 1;
            memcpy(wish->text[i], from, length);
            wish->text[i][length] = '\0';
        } else if (i && status && length) {
            say("the driver of %s does not take a module: %.*s", context->c->name, (int)length, from);
        }
        if (wish && wish->told[i]) *wish->told[i] = (void *)(uintptr_t)length;
    }
    free(words);
    return status;
}
