#define _GNU_SOURCE
#include "seen.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu gpus[MAX_GPUS];
int visible[MAX_GPUS], visible_count;
CUresult ended;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUresult status = CUDA_ERROR_NOT_INITIALIZED;

/* CUDA_VISIBLE_DEVICES as the CUDA documentation has it: indices or UUIDs (or their beginnings), up to the first that
 * is none; unset means all. A GPU that is divided by MIG is no device; its instances are, by UUID, and where there is
 * nothing else the first of them is seen by itself. */
static void see(int count, int all) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; !list && i < count; i++)
        if (!gpus[i].mig_count) visible[visible_count++] = i;
    if (!list && !visible_count && all > count) visible[visible_count++] = count;
    for (const char *at = list; at && *at && visible_count < MAX_GPUS;) {
        size_t length = strcspn(at, ",");
        int found = -1;
        for (int i = 0; i < all; i++) {
            char index[16];
            snprintf(index, sizeof index, "%d", i);
            bool by_index = i < count && strlen(index) == length && !strncmp(at, index, length);
            bool by_uuid = length > 4 && !strncasecmp(at, gpus[i].uuid_text, length);
            if (by_uuid && found >= 0) return; /* ambiguous */
            if (by_index || by_uuid) found = i;
        }
        for (int i = 0; i < visible_count; i++)
            if (visible[i] == found) found = -1; /* twice */
        if (found < 0 || gpus[found].mig_count) return;
        visible[visible_count++] = found;
        at += length + (at[length] == ',');
    }
}

static void start(void) {
    int all = 0, count = config_read(gpus, &all);
    if (count < 0) {
        status = CUDA_ERROR_NO_DEVICE;
        return;
    }
    if (state_open()) {
        fprintf(stderr, "elastic-ai: the emulated GPUs' accounts cannot be opened: %s\n", strerror(errno));
        status = CUDA_ERROR_OPERATING_SYSTEM;
        return;
    }
    see(count, all);
    status = visible_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult seen_start(void) {
    pthread_once(&once, start);
    return status;
}

CUresult seen_status(void) {
    return status;
}

CUresult gpu_of(CUdevice device, const struct gpu **gpu) {
    if (status) return status;
    if (device < 0 || device >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
    *gpu = &gpus[visible[device]];
    return CUDA_SUCCESS;
}
