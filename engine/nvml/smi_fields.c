/* --query-gpu and --query-compute-apps: fields by the names that NVIDIA's nvidia-smi gives them. Each that it has is known here;
 * what nobody tells is [N/A], as there. */
#define _GNU_SOURCE
#include "smi.h"

#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define NOT_KNOWN "[N/A]"
#define MIB (1 << 20)
#define MAX_FIELDS 256

enum kind {
    NOBODY_TELLS, TIME, COUNT, INDEX, NAME, UUID, DRIVER, TEXT, NUMBER, MEMORY, BUSY, CLOCK, WATT, ON_OFF, MODE_NOW, COMPUTE_MODE,
    PERFORMANCE, CAPABILITY, PCI, ECC
};

struct field {
    const char *name, *alias, *unit;
    enum kind kind;
    const char *function;
    int of;
};

#define CURRENT "nvmlDeviceGetClockInfo"
#define MOST "nvmlDeviceGetMaxClockInfo"
static const struct field fields[] = {
    {"timestamp", NULL, NULL, TIME, NULL, 0},
    {"driver_version", NULL, NULL, DRIVER, NULL, 0},
    {"count", NULL, NULL, COUNT, NULL, 0},
    {"name", "gpu_name", NULL, NAME, NULL, 0},
    {"serial", "gpu_serial", NULL, TEXT, "nvmlDeviceGetSerial", 0},
    {"uuid", "gpu_uuid", NULL, UUID, NULL, 0},
    {"index", NULL, NULL, INDEX, NULL, 0},
    {"vbios_version", NULL, NULL, TEXT, "nvmlDeviceGetVbiosVersion", 0},
    {"pci.bus_id", "gpu_bus_id", NULL, PCI, NULL, 0},
    {"pci.domain", NULL, NULL, PCI, NULL, 1},
    {"pci.bus", NULL, NULL, PCI, NULL, 2},
    {"pci.device", NULL, NULL, PCI, NULL, 3},
    {"pcie.link.gen.current", "pcie.link.gen.gpucurrent", NULL, NUMBER, "nvmlDeviceGetCurrPcieLinkGeneration", 0},
    {"pcie.link.gen.max", "pcie.link.gen.gpumax", NULL, NUMBER, "nvmlDeviceGetMaxPcieLinkGeneration", 0},
    {"pcie.link.width.current", NULL, NULL, NUMBER, "nvmlDeviceGetCurrPcieLinkWidth", 0},
    {"pcie.link.width.max", NULL, NULL, NUMBER, "nvmlDeviceGetMaxPcieLinkWidth", 0},
    {"persistence_mode", NULL, NULL, ON_OFF, "nvmlDeviceGetPersistenceMode", 0},
    {"pstate", NULL, NULL, PERFORMANCE, "nvmlDeviceGetPerformanceState", 0},
    {"fan.speed", NULL, "%", NUMBER, "nvmlDeviceGetFanSpeed", 0},
    {"memory.total", NULL, "MiB", MEMORY, NULL, 0},
    {"memory.reserved", NULL, "MiB", MEMORY, NULL, 1},
    {"memory.used", NULL, "MiB", MEMORY, NULL, 2},
    {"memory.free", NULL, "MiB", MEMORY, NULL, 3},
    {"compute_mode", NULL, NULL, COMPUTE_MODE, "nvmlDeviceGetComputeMode", 0},
    {"compute_cap", NULL, NULL, CAPABILITY, NULL, 0},
    {"utilization.gpu", NULL, "%", BUSY, NULL, 0},
    {"utilization.memory", NULL, "%", BUSY, NULL, 1},
    {"ecc.mode.current", NULL, NULL, MODE_NOW, "nvmlDeviceGetEccMode", 0},
    {"mig.mode.current", NULL, NULL, MODE_NOW, "nvmlDeviceGetMigMode", 0},
    {"ecc.errors.corrected.volatile.total", NULL, NULL, ECC, NULL, 0},
    {"ecc.errors.uncorrected.volatile.total", NULL, NULL, ECC, NULL, 1},
    {"temperature.gpu", NULL, NULL, CLOCK, "nvmlDeviceGetTemperature", 0},
    {"power.draw", NULL, "W", WATT, "nvmlDeviceGetPowerUsage", 0},
    {"power.limit", NULL, "W", WATT, "nvmlDeviceGetPowerManagementLimit", 0},
    {"enforced.power.limit", NULL, "W", WATT, "nvmlDeviceGetEnforcedPowerLimit", 0},
    {"clocks.current.graphics", "clocks.gr", "MHz", CLOCK, CURRENT, 0},
    {"clocks.current.sm", "clocks.sm", "MHz", CLOCK, CURRENT, 1},
    {"clocks.current.memory", "clocks.mem", "MHz", CLOCK, CURRENT, 2},
    {"clocks.current.video", "clocks.video", "MHz", CLOCK, CURRENT, 3},
    {"clocks.max.graphics", "clocks.max.gr", "MHz", CLOCK, MOST, 0},
    {"clocks.max.sm", NULL, "MHz", CLOCK, MOST, 1},
    {"clocks.max.memory", "clocks.max.mem", "MHz", CLOCK, MOST, 2},
};

/* Of which neither a lease nor a lab tells anything: all names that begin so. */
static const char *const silent[] = {
    "accounting.", "addressing_mode", "c2c.mode", "clocks.applications", "clocks.default_applications", "clocks_event_reasons",
    "clocks_throttle_reasons", "display_active", "display_attached", "display_mode", "dramEncryption.", "driver_model.", "ecc.errors.",
    "ecc.mode.pending", "encoder.stats", "fabric.", "gom.", "gpu_operation_mode", "gsp.mode", "inforom.", "mig.mode.pending",
    "pci.device_id", "pci.sub_device_id", "pci.baseClass", "pci.subClass", "pcie.link.gen.hostmax", "platform.", "power.default_limit",
    "power.draw.", "power.management", "power.max_limit", "power.min_limit", "protected_memory.", "remapped_rows.",
    "reset_status.", "retired_pages.", "temperature.", "utilization.", "vgpu_", "minor_number", "gpu_part_number", "module.power",
};

static bool called(const char *a, const char *b) {
    return b && !strcasecmp(a, b);
}

static bool find(const char *name, struct field *to) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (called(name, fields[i].name) || called(name, fields[i].alias)) return *to = fields[i], true;
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        if (!strncasecmp(name, silent[i], strlen(silent[i]))) return *to = (struct field){.name = name}, true;
    return false;
}

void list_fields(void) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        printf("%s%s%s\n", fields[i].name, fields[i].alias ? " or " : "", fields[i].alias ? fields[i].alias : "");
    puts("All other fields of NVIDIA's nvidia-smi are [N/A] here.");
}

static const char *of_value(const char *const words[], unsigned count, unsigned value) {
    return value < count ? words[value] : NOT_KNOWN;
}

static void pci(const struct shown *gpu, int part, char *to, size_t size) {
    nvmlPciInfo_t about;
    if (!ask_pci(gpu, &about)) return;
    if (!part) snprintf(to, size, "%s", about.busId);
    else if (part == 1) snprintf(to, size, "0x%04X", about.domain);
    else snprintf(to, size, "0x%02X", part == 2 ? about.bus : about.device);
}

static void clock_text(char *to, size_t size) {
    struct timeval now;
    char text[32];
    gettimeofday(&now, NULL);
    strftime(text, sizeof text, "%Y/%m/%d %H:%M:%S", localtime(&now.tv_sec));
    snprintf(to, size, "%s.%03ld", text, (long)now.tv_usec / 1000);
}

/* The value, without its unit. */
static void value(const struct field *f, const struct shown *gpu, int all, char *to, size_t size) {
    static const char *const on_off[] = {"Disabled", "Enabled"};
    static const char *const modes[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    unsigned n = 0, minor = 0;
    nvmlUtilization_t busy;
    unsigned long long errors;
    struct memory m;
    nvml_f *capability;
    snprintf(to, size, NOT_KNOWN);
    switch (f->kind) {
    case NOBODY_TELLS: break;
    case TIME: clock_text(to, size); break;
    case COUNT: snprintf(to, size, "%d", all); break;
    case INDEX: snprintf(to, size, "%u", gpu->index); break;
    case NAME: snprintf(to, size, "%s", gpu->name); break;
    case UUID: snprintf(to, size, "%s", gpu->uuid); break;
    case DRIVER: driver_text(to, size); if (!strcmp(to, "N/A")) snprintf(to, size, NOT_KNOWN); break;
    case TEXT: if (!ask_text(gpu, f->function, to, (unsigned)size)) snprintf(to, size, NOT_KNOWN); break;
    case NUMBER: if (ask_unsigned(gpu, f->function, &n)) snprintf(to, size, "%u", n); break;
    case CLOCK: if (ask_of(gpu, f->function, f->of, &n)) snprintf(to, size, "%u", n); break;
    case WATT: if (ask_unsigned(gpu, f->function, &n)) snprintf(to, size, "%.2f", n / 1000.0); break;
    case ON_OFF: if (ask_unsigned(gpu, f->function, &n)) snprintf(to, size, "%s", of_value(on_off, 2, n)); break;
    case MODE_NOW: if (ask_mode(gpu, f->function, &n)) snprintf(to, size, "%s", of_value(on_off, 2, n)); break;
    case COMPUTE_MODE: if (ask_unsigned(gpu, f->function, &n)) snprintf(to, size, "%s", of_value(modes, 4, n)); break;
    case PERFORMANCE: if (ask_unsigned(gpu, f->function, &n) && n < 16) snprintf(to, size, "P%u", n); break;
    case BUSY: if (ask_utilisation(gpu, &busy)) snprintf(to, size, "%u", f->of ? busy.memory : busy.gpu); break;
    case ECC: if (ask_ecc(gpu, f->of, &errors)) snprintf(to, size, "%llu", errors); break;
    case PCI: pci(gpu, f->of, to, size); break;
    case CAPABILITY:
        capability = nvml_find("nvmlDeviceGetCudaComputeCapability");
        if (capability && !capability(gpu->handle, &n, &minor)) snprintf(to, size, "%u.%u", n, minor);
        break;
    case MEMORY:
        m = ask_memory(gpu);
        int64_t bytes = (int64_t[]){m.total, m.reserved, m.used, m.available}[f->of];
        if (bytes != UNTOLD) snprintf(to, size, "%lld", (long long)bytes / MIB);
        break;
    }
}

/* The fields of a list with commas, or -1 after a sentence. `text` is taken apart. */
static int parse(char *text, struct field to[MAX_FIELDS]) {
    int count = 0;
    char *rest = text, *name;
    while ((name = strsep(&rest, ","))) {
        name += strspn(name, " ");
        name[strcspn(name, " ")] = '\0';
        if (count == MAX_FIELDS || !find(name, &to[count])) {
            fprintf(stderr, "Field \"%s\" is not a valid field to query; --help-query-gpu lists them.\n", name);
            return -1;
        }
        count++;
    }
    return count;
}

int query_gpus(const struct asked *asked, const struct shown *gpus, int count, int all) {
    static struct field chosen[MAX_FIELDS];
    char *text = strdup(asked->fields), found[128];
    int number = text ? parse(text, chosen) : -1;
    for (int k = 0; k < number && !asked->no_header; k++) {
        printf("%s%s", k ? ", " : "", chosen[k].name);
        if (chosen[k].unit) printf(" [%s]", chosen[k].unit);
    }
    if (number > 0 && !asked->no_header) putchar('\n');
    for (int i = 0; i < count && number > 0; i++) {
        for (int k = 0; k < number; k++) {
            value(&chosen[k], &gpus[i], all, found, sizeof found);
            printf("%s%s", k ? ", " : "", found);
            if (chosen[k].unit && !asked->no_units && strcmp(found, NOT_KNOWN)) printf(" %s", chosen[k].unit);
        }
        putchar('\n');
    }
    free(text);
    return number > 0 ? 0 : 2;
}

static void process_name(unsigned pid, char *to, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "re");
    snprintf(to, size, "[Not Found]");
    if (!file) return;
    if (fgets(to, (int)size, file)) to[strcspn(to, "\n")] = '\0';
    fclose(file);
}

int query_processes(const struct asked *asked, const struct shown *gpus, int count) {
    static const char *const names[] = {"gpu_name", "gpu_uuid", "pid", "process_name", "used_gpu_memory", "name", "used_memory", "timestamp"};
    enum { KNOWN = sizeof names / sizeof *names };
    int chosen[KNOWN * 2], number = 0;
    char *text = strdup(asked->of_processes), *rest = text, *name;
    while (text && (name = strsep(&rest, ","))) {
        name += strspn(name, " ");
        int at = 0;
        while (at < KNOWN && strcasecmp(name, names[at])) at++;
        if (at == KNOWN || number == KNOWN * 2) {
            fprintf(stderr, "Field \"%s\" is not a valid field to query.\n", name);
            free(text);
            return 2;
        }
        chosen[number++] = at == 5 ? 3 : at == 6 ? 4 : at;
    }
    free(text);
    for (int k = 0; k < number && !asked->no_header; k++)
        printf("%s%s%s%s", k ? ", " : "", names[chosen[k]], chosen[k] == 4 ? " [MiB]" : "", k + 1 == number ? "\n" : "");
    for (int i = 0; i < count; i++) {
        static nvmlProcessInfo_t list[512];
        int running = ask_processes(&gpus[i], list, 512);
        for (int p = 0; p < running; p++) {
            char found[64];
            for (int k = 0; k < number; k++) {
                printf("%s", k ? ", " : "");
                switch (chosen[k]) {
                case 0: printf("%s", gpus[i].name); break;
                case 1: printf("%s", gpus[i].uuid); break;
                case 2: printf("%u", list[p].pid); break;
                case 3: process_name(list[p].pid, found, sizeof found); printf("%s", found); break;
                case 4: printf("%llu%s", list[p].usedGpuMemory / MIB, asked->no_units ? "" : " MiB"); break;
                default: clock_text(found, sizeof found); printf("%s", found);
                }
            }
            putchar('\n');
        }
    }
    return 0;
}
