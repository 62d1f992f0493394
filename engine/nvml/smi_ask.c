/* NVML as nvidia-smi asks it: whatever the library has not or does not say is not known, and nothing else. */
#define _GNU_SOURCE
#include "smi.h"

#include <dlfcn.h>
#include <string.h>

static void *library;

nvml_f *nvml_find(const char *name) {
    return library ? (nvml_f *)dlsym(library, name) : NULL;
}

bool nvml_load(void) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    return nvml_find("elasticAiLeased") || nvml_find("elasticAiEmulated");
}

bool nvml_emulated(void) {
    return nvml_find("elasticAiEmulated") != NULL;
}

const char *nvml_start(void) {
    nvml_f *start = nvml_find("nvmlInit_v2");
    int status = start ? start() : FUNCTION_NOT_FOUND;
    if (!status) return "";
    if (status == NO_PERMISSION) return "this user has no right to the state of the emulated GPUs";
    return nvml_emulated() ? "no emulated GPU is described on this node"
                           : "this is no program of a lease; start it by toolkit run, or look at toolkit lease env";
}

int gpus_all(struct shown to[MAX_SHOWN]) {
    nvml_f *number = nvml_find("nvmlDeviceGetCount_v2"), *handle = nvml_find("nvmlDeviceGetHandleByIndex_v2");
    unsigned count = 0;
    if (!number || !handle || number(&count) || count > MAX_SHOWN) return -1;
    elastic_lease_f *about = (elastic_lease_f *)nvml_find("elasticAiLeased");
    int found = 0;
    for (unsigned i = 0; i < count; i++) {
        struct shown *gpu = &to[found];
        memset(gpu, 0, sizeof *gpu);
        gpu->index = i;
        if (handle(i, &gpu->handle)) {
            fprintf(stderr, "GPU %u does not answer: it is lost\n", i);
            continue;
        }
        if (!ask_text(gpu, "nvmlDeviceGetName", gpu->name, sizeof gpu->name)) strcpy(gpu->name, "[N/A]");
        if (!ask_text(gpu, "nvmlDeviceGetUUID", gpu->uuid, sizeof gpu->uuid)) strcpy(gpu->uuid, "[N/A]");
        gpu->leased = about && !about(i, &gpu->lease, sizeof gpu->lease);
        found++;
    }
    return found;
}

bool ask_unsigned(const struct shown *gpu, const char *function, unsigned *to) {
    nvml_f *ask = nvml_find(function);
    return ask && !ask(gpu->handle, to);
}

bool ask_of(const struct shown *gpu, const char *function, int of, unsigned *to) {
    nvml_f *ask = nvml_find(function);
    return ask && !ask(gpu->handle, of, to);
}

bool ask_text(const struct shown *gpu, const char *function, char *to, unsigned size) {
    nvml_f *ask = nvml_find(function);
    return ask && !ask(gpu->handle, to, size);
}

bool ask_pci(const struct shown *gpu, nvmlPciInfo_t *to) {
    nvml_f *ask = nvml_find("nvmlDeviceGetPciInfo_v3");
    return ask && !ask(gpu->handle, to);
}

bool ask_utilisation(const struct shown *gpu, nvmlUtilization_t *to) {
    nvml_f *ask = nvml_find("nvmlDeviceGetUtilizationRates");
    return ask && !ask(gpu->handle, to);
}

bool ask_ecc(const struct shown *gpu, int type, unsigned long long *to) {
    nvml_f *ask = nvml_find("nvmlDeviceGetTotalEccErrors");
    return ask && !ask(gpu->handle, type, 0, to);
}

bool ask_mode(const struct shown *gpu, const char *function, unsigned *now) {
    unsigned later;
    nvml_f *ask = nvml_find(function);
    return ask && !ask(gpu->handle, now, &later);
}

struct memory ask_memory(const struct shown *gpu) {
    struct memory found = {UNTOLD, UNTOLD, UNTOLD, UNTOLD};
    nvmlMemory_v2_t about = {.version = NVML_VERSION(nvmlMemory_v2_t, 2)};
    nvml_f *ask = nvml_find("nvmlDeviceGetMemoryInfo_v2");
    if (ask && !ask(gpu->handle, &about)) {
        found = (struct memory){(int64_t)about.total, (int64_t)about.used, (int64_t)about.free, (int64_t)about.reserved};
        if (gpu->leased) found.reserved = UNTOLD;
    } else if (gpu->leased) {
        found.total = gpu->lease.device.part_bytes;
    }
    return found;
}

int ask_processes(const struct shown *gpu, nvmlProcessInfo_t *to, unsigned room) {
    nvml_f *ask = nvml_find("nvmlDeviceGetComputeRunningProcesses_v3");
    return ask && !ask(gpu->handle, &room, to) ? (int)room : 0;
}

void driver_text(char *to, size_t size) {
    nvml_f *ask = nvml_find("nvmlSystemGetDriverVersion");
    if (!ask || ask(to, (unsigned)size)) snprintf(to, size, "N/A");
}

void cuda_text(char *to, size_t size) {
    int version;
    nvml_f *ask = nvml_find("nvmlSystemGetCudaDriverVersion_v2");
    if (ask && !ask(&version)) snprintf(to, size, "%d.%d", version / 1000, version % 1000 / 10);
    else snprintf(to, size, "N/A");
}
