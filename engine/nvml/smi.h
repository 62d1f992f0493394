/* nvidia-smi of a lease's client and of a lab's nodes: what the libnvidia-ml.so.1 says that a program finds, and whose GPUs
 * these are. That of the driver asks tables of functions that NVIDIA does not document, so it works with no other library. */
#ifndef ELASTIC_AI_NVML_SMI_H
#define ELASTIC_AI_NVML_SMI_H

#include "../shared/nvml_types.h"
#include "lease.h"

#include <stdio.h>

#define MAX_SHOWN MAX_LEASED

/* A GPU of those that are asked for. */
struct shown {
    void *handle;
    unsigned index;
    char name[96], uuid[128];
    bool leased;
    struct elastic_lease lease; /* where it is leased */
};

struct asked {
    bool list, query, no_header, no_units;
    const char *fields, *of_processes; /* --query-gpu, --query-compute-apps */
    const char *chosen; /* -i */
    unsigned every_ms; /* -l */
};

/* smi_ask.c */
typedef int nvml_f(); /* of whatever parameters, as the function of that name in nvml.h has them */
nvml_f *nvml_find(const char *name); /* NULL: the library has it not */
bool nvml_load(void); /* false: it is neither a lease's library nor that of emulated devices */
const char *nvml_start(void); /* "", or why it cannot be used */
bool nvml_emulated(void);
int gpus_all(struct shown to[MAX_SHOWN]); /* their number, or -1 */
bool ask_unsigned(const struct shown *gpu, const char *function, unsigned *to);
bool ask_of(const struct shown *gpu, const char *function, int of, unsigned *to); /* a clock, a sensor */
bool ask_text(const struct shown *gpu, const char *function, char *to, unsigned size);
bool ask_pci(const struct shown *gpu, nvmlPciInfo_t *to);
bool ask_utilisation(const struct shown *gpu, nvmlUtilization_t *to);
bool ask_ecc(const struct shown *gpu, int type, unsigned long long *to); /* since the start: 0 corrected, 1 uncorrected */
bool ask_mode(const struct shown *gpu, const char *function, unsigned *now); /* of those that say now and later */
/* Bytes; UNTOLD where it is not known. */
struct memory {
    int64_t total, used, available, reserved;
};
struct memory ask_memory(const struct shown *gpu);
int ask_processes(const struct shown *gpu, nvmlProcessInfo_t *to, unsigned room); /* their number, 0 where unknown */
void driver_text(char *to, size_t size);
void cuda_text(char *to, size_t size);

/* smi_fields.c: 0, or a field that there is not, after a sentence. */
int query_gpus(const struct asked *asked, const struct shown *gpus, int count, int all);
int query_processes(const struct asked *asked, const struct shown *gpus, int count);
void list_fields(void);

/* smi_show.c */
void show_table(const struct shown *gpus, int count);
void show_list(const struct shown *gpus, int count);
void show_log(const struct shown *gpus, int count);
void whose(const struct shown *gpus, int count, char *to, size_t size); /* one sentence */

#endif
