/* What a client holds: contexts, streams, events, modules and functions by number, and memory by address. */
#include "handles.h"

#include <stdlib.h>
#include <string.h>

#include "accounts.h"
#include "options.h"

static struct handle *handles; /* number n is entry n - 1 */
static uint64_t handle_room, free_hint;
static struct memory *memories; /* by address */
static size_t memory_count, memory_room;

static void *grown(void *array, size_t bytes) {
    void *larger = realloc(array, bytes);
    if (!larger) abort();
    return larger;
}

uint64_t handle_add(enum handle_kind kind, void *real, int device, uint64_t context) {
    uint64_t i = free_hint;
    while (i < handle_room && handles[i].kind) i++;
    if (i == handle_room) {
        uint64_t room = handle_room ? handle_room * 2 : 64;
        handles = grown(handles, room * sizeof *handles);
        memset(handles + handle_room, 0, (room - handle_room) * sizeof *handles);
        handle_room = room;
    }
    handles[i] = (struct handle){.kind = kind, .real = real, .device = device, .context = context};
    free_hint = i + 1;
    return i + 1;
}

struct handle *handle_get(uint64_t number, enum handle_kind kind) {
    if (number == 0 || number > handle_room || handles[number - 1].kind != kind) return NULL;
    return &handles[number - 1];
}

void handle_drop(uint64_t number) {
    free(handles[number - 1].layout);
    handles[number - 1].layout = NULL;
    handles[number - 1].kind = NO_HANDLE;
    if (number - 1 < free_hint) free_hint = number - 1;
}

uint64_t context_find(int device) {
    for (uint64_t i = 0; i < handle_room; i++)
        if (handles[i].kind == CONTEXT && handles[i].device == device) return i + 1;
    return 0;
}

uint64_t handles_count(enum handle_kind kind) {
    uint64_t found = 0;
    for (uint64_t i = 0; i < handle_room; i++) found += handles[i].kind == kind;
    return found;
}

uint64_t staging_events(void) {
    uint64_t found = 0;
    for (uint64_t i = 0; i < handle_room; i++) found += handles[i].kind == CONTEXT ? handles[i].staging_events : 0;
    return found;
}

/* Index of the first memory above `at`. */
static size_t above(CUdeviceptr at) {
    size_t low = 0, high = memory_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (memories[middle].at <= at) low = middle + 1;
        else high = middle;
    }
    return low;
}

void memory_add(CUdeviceptr at, uint64_t bytes, uint64_t context, uint64_t module) {
    if (memory_count == memory_room) {
        memory_room = memory_room ? memory_room * 2 : 64;
        memories = grown(memories, memory_room * sizeof *memories);
    }
    size_t i = above(at);
    memmove(memories + i + 1, memories + i, (memory_count++ - i) * sizeof *memories);
    memories[i] = (struct memory){at, bytes, context, module};
}

struct memory *memory_find(CUdeviceptr at, uint64_t bytes) {
    size_t i = above(at);
    if (i == 0) return NULL;
    struct memory *m = &memories[i - 1];
    uint64_t offset = at - m->at;
    return offset <= m->bytes && bytes <= m->bytes - offset ? m : NULL;
}

void memory_drop(struct memory *memory) {
    size_t i = (size_t)(memory - memories);
    memmove(memories + i, memories + i + 1, (--memory_count - i) * sizeof *memories);
}

uint64_t function_find(uint64_t module, const void *real) {
    for (uint64_t i = 0; i < handle_room; i++)
        if (handles[i].kind == FUNCTION && handles[i].module == module && handles[i].real == real) return i + 1;
    return 0;
}

void module_forget(uint64_t number, int child) {
    struct handle *module = handle_get(number, MODULE);
    size_t kept = 0;
    for (size_t i = 0; i < memory_count; i++)
        if (memories[i].module != number) memories[kept++] = memories[i];
    memory_count = kept;
    account_give(child, handle_get(module->context, CONTEXT)->device, module->bytes);
    for (uint64_t i = 0; i < handle_room; i++)
        if (handles[i].kind == FUNCTION && handles[i].module == number) handle_drop(i + 1);
    handle_drop(number);
}

void context_forget(uint64_t number, int child) {
    struct handle *context = handle_get(number, CONTEXT);
    size_t kept = 0;
    for (uint64_t i = 0; i < handle_room; i++)
        if (handles[i].kind == MODULE && handles[i].context == number) module_forget(i + 1, child);
    for (size_t i = 0; i < memory_count; i++) {
        if (memories[i].context == number) account_give(child, context->device, memories[i].bytes);
        else memories[kept++] = memories[i];
    }
    memory_count = kept;
    account_give(child, context->device, options.context_bytes + context->bytes);
    for (uint64_t i = 0; i < handle_room; i++)
        if ((handles[i].kind == STREAM || handles[i].kind == EVENT) && handles[i].context == number) handle_drop(i + 1);
    handle_drop(number);
}
