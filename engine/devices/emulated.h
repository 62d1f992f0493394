/* Emulated GPUs of a lab node: described by a file, backed by host memory, accounted for over all processes. */
#ifndef ELASTIC_AI_EMULATED_H
#define ELASTIC_AI_EMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_GPUS 64 /* with their MIG instances */
#define MIG_SLICES 7 /* of a GPU, NVIDIA Multi-Instance GPU User Guide: A100, H100, H200 */
/* The build says EMULATED_CUDA_VERSION, the API level that the emulated driver has (13000: 13.0), and EMULATED_DRIVER,
 * its version: those of the release that the toolkit installs (stacks/current.yml). */

/* What the description may say of a GPU's link and health, and what is wrong with its copies, each by this name and a
 * whole number. nvlinks: to NVSwitches; nvlinks_each: to each other GPU of its peer group. slow_percent: how much slower
 * it copies; wrong_bits: how many bits of each copy of 4 KiB or more into its memory are turned round. After so many
 * copies of all processes: lost_after: it has fallen off the bus; xid_after: a copy ends in an uncorrectable memory error,
 * and nothing works any more in the process that asked for it; taken_after: nobody gets any more of its memory.
 * illegal_after, endless_after: after so many launches of a process a kernel meets an illegal address, never ends. */
#define HEALTH(X) \
    X(pcie_generation) X(pcie_width) X(pcie_max_generation) X(pcie_max_width) X(pcie_replays) \
    X(ecc_enabled) X(ecc_corrected) X(ecc_uncorrected) X(pages_retired) X(rows_remapped) X(repair_pending) \
    X(remapping_failed) X(temperature_c) X(slowdown_c) X(shutdown_c) X(throttle_reasons) X(sm_mhz) X(sm_max_mhz) \
    X(memory_mhz) X(memory_max_mhz) X(power_mw) X(power_limit_mw) X(persistence) \
    X(nvlinks) X(nvlinks_each) X(nvlinks_up) X(nvlink_mb_s) X(compute_mode) X(fabric_state) X(fabric_status) X(fabric_clique) X(fabric_health) \
    X(slow_percent) X(wrong_bits) X(lost_after) X(xid_after) X(taken_after) X(illegal_after) X(endless_after)
struct health {
#define HEALTH_FIELD(name) int64_t name;
    HEALTH(HEALTH_FIELD)
#undef HEALTH_FIELD
};
#define UNSAID (-1) /* NVML calls it NOT_SUPPORTED */

struct gpu {
    char name[96]; /* begins with "Emulated", for people; programs ask for elasticAiEmulated */
    uint8_t uuid[16];
    char uuid_text[48]; /* GPU-... */
    char pci_bus_id[32]; /* 00000000:1A:00.0 */
    unsigned pci_domain, pci_bus, pci_device;
    uint64_t memory_bytes; /* as NVML has it: with the driver's own */
    uint64_t reserved_bytes; /* of these, the driver's own */
    uint64_t context_bytes; /* what a context takes */
    int sm_count, capability_major, capability_minor;
    int peer_group; /* those of one group reach each other's memory directly */
    int mig[MIG_SLICES], mig_count; /* slices of each MIG instance; 0: not divided */
    struct health health; /* UNSAID where the description says nothing; all of an instance's are */
    int parent, slices, id; /* of an instance: position of its GPU, its slices and number; -1, 0, 0 for a GPU */
};

/* config.c: the GPUs of /etc/elastic-ai-emulated/gpus.json (or $ELASTIC_AI_EMULATED_GPUS); their number, or -1 after a
 * sentence on stderr. Their MIG instances come behind them; `all` counts both. */
int config_read(struct gpu gpus[MAX_GPUS], int *all);

/* config.c: exported by both libraries and by no driver of NVIDIA's. That it is there says that the devices are emulated,
 * whatever they are called; it returns 1. */
int elasticAiEmulated(void);

/* Objects of a process in the driver. */
enum counted { COUNTED_CONTEXTS, COUNTED_STREAMS, COUNTED_EVENTS, COUNTED };

/* state.c: what all processes of the node hold, in /dev/shm/elastic-ai-devices (or $ELASTIC_AI_EMULATED_STATE). What a
 * process held is gone with the process, however it ended. */
struct holder {
    int pid;
    uint64_t bytes;
};
int state_open(void); /* 0, or -1 with errno */
void state_count(enum counted what, int by); /* objects that this process has in the driver */
bool state_take(int gpu, uint64_t bytes, uint64_t of); /* false: more than `of` would be in use */
void state_give(int gpu, uint64_t bytes);
uint64_t state_used(int gpu);
void state_busy(int gpu, uint64_t ns);
unsigned state_utilization(int gpu); /* percent of the time since the last question, which is at least 100 ms ago */
int state_holders(int gpu, struct holder *to, int room); /* how many there are */
void state_copied(int gpu, bool counts); /* one more copy of all processes, or none yet */
uint64_t state_now_ns(void);
bool state_lost(int gpu, int64_t after); /* after so many copies; UNSAID: never */

#endif
