/* Link and health of emulated devices in NVML, as the node's description says them: nothing here is measured. */
#include "nvml.h"

/* One described figure. */
#define SAY(to, field) \
    if (!(to)) return INVALID_ARGUMENT; \
    if (gpus[i].health.field == UNSAID) return NOT_SUPPORTED; \
    *(to) = (__typeof__(*(to)))gpus[i].health.field; \
    return OK;
#define FIGURE(name, type, field) DEVICE(name, (nvmlDevice_t device, type *to), SAY(to, field))

FIGURE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, pcie_generation)
FIGURE(nvmlDeviceGetCurrPcieLinkWidth, unsigned, pcie_width)
FIGURE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, pcie_max_generation)
FIGURE(nvmlDeviceGetMaxPcieLinkWidth, unsigned, pcie_max_width)
FIGURE(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, pcie_max_generation)
FIGURE(nvmlDeviceGetPcieReplayCounter, unsigned, pcie_replays)
FIGURE(nvmlDeviceGetPowerUsage, unsigned, power_mw)
FIGURE(nvmlDeviceGetEnforcedPowerLimit, unsigned, power_limit_mw)
FIGURE(nvmlDeviceGetPowerManagementLimit, unsigned, power_limit_mw)
FIGURE(nvmlDeviceGetPersistenceMode, int, persistence)
FIGURE(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, throttle_reasons)
FIGURE(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, throttle_reasons) /* its name from R535 on */

DEVICE(nvmlDeviceGetTemperature, (nvmlDevice_t device, int sensor, unsigned *to),
       if (sensor) return INVALID_ARGUMENT; /* NVML_TEMPERATURE_GPU is all that there is */
       SAY(to, temperature_c))
DEVICE(nvmlDeviceGetTemperatureThreshold, (nvmlDevice_t device, int type, unsigned *to),
       if (type == 0) { SAY(to, shutdown_c) }
       if (type == 1) { SAY(to, slowdown_c) }
       return NOT_SUPPORTED;)

/* nvmlClockType_t: graphics, SM, memory, video. Graphics and SM have one clock. */
DEVICE(nvmlDeviceGetClockInfo, (nvmlDevice_t device, int type, unsigned *to),
       if (type == 0 || type == 1) { SAY(to, sm_mhz) }
       if (type == 2) { SAY(to, memory_mhz) }
       return NOT_SUPPORTED;)
DEVICE(nvmlDeviceGetMaxClockInfo, (nvmlDevice_t device, int type, unsigned *to),
       if (type == 0 || type == 1) { SAY(to, sm_max_mhz) }
       if (type == 2) { SAY(to, memory_max_mhz) }
       return NOT_SUPPORTED;)

DEVICE(nvmlDeviceGetEccMode, (nvmlDevice_t device, int *now, int *later),
       if (!later) return INVALID_ARGUMENT;
       *later = (int)gpus[i].health.ecc_enabled;
       SAY(now, ecc_enabled))

/* nvmlMemoryErrorType_t: 0 corrected, 1 uncorrected. Since the start (volatile) and ever (aggregate) is the same here. */
DEVICE(nvmlDeviceGetTotalEccErrors, (nvmlDevice_t device, int type, int counter, unsigned long long *to),
       if (type < 0 || type > 1 || counter < 0 || counter > 1) return INVALID_ARGUMENT;
       if (gpus[i].health.ecc_enabled != 1) return NOT_SUPPORTED;
       if (type) {
           if (!to) return INVALID_ARGUMENT;
           if (gpus[i].health.ecc_uncorrected == UNSAID) return NOT_SUPPORTED;
           *to = (unsigned long long)gpus[i].health.ecc_uncorrected + state_lost(i, gpus[i].health.xid_after);
           return OK;
       }
       SAY(to, ecc_corrected))

/* From compute capability 8.0 on rows are remapped; before, pages are retired (nvml.h: "For Ampere or newer"). */
DEVICE(nvmlDeviceGetRemappedRows,
       (nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed),
       const struct health *h = &gpus[i].health;
       if (!corrected || !uncorrected || !pending || !failed) return INVALID_ARGUMENT;
       if (gpus[i].capability_major < 8 || h->rows_remapped == UNSAID) return NOT_SUPPORTED;
       *corrected = 0;
       *uncorrected = (unsigned)h->rows_remapped;
       *pending = h->repair_pending > 0;
       *failed = h->remapping_failed > 0;
       return OK;)

/* nvmlPageRetirementCause_t: 0 multiple single-bit errors, 1 a double-bit error, which is the cause of all here. */
DEVICE(nvmlDeviceGetRetiredPages, (nvmlDevice_t device, int cause, unsigned *room, unsigned long long *addresses),
       if (!room || cause < 0 || cause > 1) return INVALID_ARGUMENT;
       if (gpus[i].capability_major >= 8 || gpus[i].health.pages_retired == UNSAID) return NOT_SUPPORTED;
       unsigned had = *room;
       *room = cause ? (unsigned)gpus[i].health.pages_retired : 0;
       if (*room > had || (*room && !addresses)) return INSUFFICIENT_SIZE;
       for (unsigned k = 0; k < *room; k++) addresses[k] = (unsigned long long)k << 16;
       return OK;)
DEVICE(nvmlDeviceGetRetiredPagesPendingStatus, (nvmlDevice_t device, int *to),
       if (gpus[i].capability_major >= 8) return NOT_SUPPORTED;
       SAY(to, repair_pending))

#define NOT_THERE(name, parameters, ...) DEVICE(name, parameters, __VA_ARGS__ return NOT_SUPPORTED;)
NOT_THERE(nvmlDeviceGetTotalEnergyConsumption, (nvmlDevice_t device, unsigned long long *to), (void)to;)
NOT_THERE(nvmlDeviceGetFanSpeed, (nvmlDevice_t device, unsigned *to), (void)to;)
NOT_THERE(nvmlDeviceGetPerformanceState, (nvmlDevice_t device, int *to), (void)to;)
