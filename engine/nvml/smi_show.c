/* What nvidia-smi shows without a query: the table, -L and -q, in the form that people and programs know of NVIDIA's. */
#define _GNU_SOURCE
#include "smi.h"

#include <string.h>
#include <time.h>

#define MIB (1 << 20)
#define N_A "N/A"
#define RULE "-----------------------------------------+----------------------+----------------------"
#define WIDE "---------------------------------------------------------------------------------------"

/* The servers of a lease, each once, with commas between; "..." where there are too many. */
static void servers(const struct shown *gpus, int count, char *to, size_t size) {
    size_t length = 0;
    to[0] = '\0';
    for (int i = 0; i < count; i++) {
        const char *name = gpus[i].lease.device.server;
        bool known = !name[0];
        for (int k = 0; k < i && !known; k++) known = !strcmp(name, gpus[k].lease.device.server);
        if (known) continue;
        if (length + strlen(name) + 6 >= size) {
            snprintf(to + length, size - length, ", ...");
            return;
        }
        length += (size_t)snprintf(to + length, size - length, "%s%s", length ? ", " : "", name);
    }
}

void whose(const struct shown *gpus, int count, char *to, size_t size) {
    char names[64], lease[48] = "";
    if (nvml_emulated()) {
        snprintf(to, size, "EMULATED devices of an Elastic AI lab, over host memory: no figure is a GPU's");
        return;
    }
    servers(gpus, count, names, sizeof names);
    if (count && gpus[0].lease.lease[0]) snprintf(lease, sizeof lease, " %s", gpus[0].lease.lease);
    bool emulated = count && gpus[0].lease.device.emulated;
    snprintf(to, size, "LEASED%s, over the network%s%s: Elastic AI lease%s, no GPU is in this machine",
             emulated ? ", EMULATED" : "", names[0] ? " from " : "", names, lease);
}

static void number(char *to, size_t size, bool known, unsigned value, const char *unit) {
    if (known) snprintf(to, size, "%u%s", value, unit);
    else snprintf(to, size, N_A);
}

/* A figure that NVML has, divided by so many. of: which clock or sensor, NO_SUCH where the function has none. */
#define NO_SUCH (-1)
static void figure(char *to, size_t size, const struct shown *gpu, const char *function, int of, unsigned by, const char *unit) {
    unsigned found = 0;
    bool known = of == NO_SUCH ? ask_unsigned(gpu, function, &found) : ask_of(gpu, function, of, &found);
    number(to, size, known, found / by, unit);
}

static void bytes(char *to, size_t size, int64_t value, const char *unit) {
    if (value == UNTOLD) snprintf(to, size, N_A);
    else snprintf(to, size, "%lld%s", (long long)value / MIB, unit);
}

/* Where it is: the server's name and its number there, or its PCI address. */
static void place(const struct shown *gpu, char *to, size_t size) {
    nvmlPciInfo_t pci;
    const struct leased *device = &gpu->lease.device;
    if (gpu->leased && device->server[0] && device->server_index != UNTOLD)
        snprintf(to, size, "%.40s:%u", device->server, (unsigned)device->server_index);
    else if (gpu->leased) snprintf(to, size, "%s", device->server[0] ? device->server : N_A);
    else if (ask_pci(gpu, &pci)) snprintf(to, size, "%s", pci.busId);
    else snprintf(to, size, N_A);
}

/* "1/2 of 81559MiB", "" of a whole device. */
static void part(const struct shown *gpu, char *to, size_t size) {
    const struct leased *device = &gpu->lease.device;
    to[0] = '\0';
    if (!gpu->leased || !device->part[0] || !strcmp(device->part, "1")) return;
    char whole[32];
    bytes(whole, sizeof whole, device->total_bytes, "MiB");
    snprintf(to, size, "part: %s of %s", device->part, whole);
}

static const char *compute_mode(const struct shown *gpu) {
    static const char *const words[] = {"Default", "E. Thread", "Prohibited", "E. Process"};
    unsigned mode;
    return ask_unsigned(gpu, "nvmlDeviceGetComputeMode", &mode) && mode < 4 ? words[mode] : N_A;
}

static void row(const struct shown *gpu) {
    char where[64], used[32], total[32], memory[72], busy[16], temperature[16], draw[16], limit[16], fan[16], errors[24], parted[64];
    unsigned n;
    unsigned long long ecc;
    nvmlUtilization_t rates = {0, 0};
    struct memory m = ask_memory(gpu);
    place(gpu, where, sizeof where);
    bytes(used, sizeof used, m.used, "MiB");
    bytes(total, sizeof total, m.total, "MiB");
    snprintf(memory, sizeof memory, "%s / %s", used, total);
    bool known = ask_utilisation(gpu, &rates);
    number(busy, sizeof busy, known, rates.gpu, "%");
    figure(temperature, sizeof temperature, gpu, "nvmlDeviceGetTemperature", 0, 1, "C");
    figure(fan, sizeof fan, gpu, "nvmlDeviceGetFanSpeed", NO_SUCH, 1, "%");
    figure(draw, sizeof draw, gpu, "nvmlDeviceGetPowerUsage", NO_SUCH, 1000, "W");
    figure(limit, sizeof limit, gpu, "nvmlDeviceGetEnforcedPowerLimit", NO_SUCH, 1000, "W");
    if (ask_ecc(gpu, 1, &ecc)) snprintf(errors, sizeof errors, "%llu", ecc);
    else snprintf(errors, sizeof errors, N_A);
    const char *persistence = ask_unsigned(gpu, "nvmlDeviceGetPersistenceMode", &n) ? n ? "On" : "Off" : N_A;
    const char *mig = ask_mode(gpu, "nvmlDeviceGetMigMode", &n) ? n ? "Enabled" : "Disabled" : N_A;
    char level[8] = N_A, power[40];
    if (ask_unsigned(gpu, "nvmlDeviceGetPerformanceState", &n) && n < 16) snprintf(level, sizeof level, "P%u", n);
    snprintf(power, sizeof power, "%s / %s", draw, limit);
    part(gpu, parted, sizeof parted);
    printf("| %3u  %-29.29s %3.3s  | %-20.20s | %20.20s |\n", gpu->index, gpu->name, persistence, where, errors);
    printf("| %-4.4s %-5.5s  %-4.4s %21.21s  | %20.20s | %7.7s %12.12s |\n", fan, temperature, level, power, memory, busy, compute_mode(gpu));
    printf("| %-39.39s | %20.20s | %20.20s |\n", parted, "", mig);
    puts("+" RULE "+");
}

static int process_rows(const struct shown *gpu) {
    static nvmlProcessInfo_t list[512];
    int running = ask_processes(gpu, list, 512);
    for (int i = 0; i < running; i++) {
        char path[64], name[64] = "[Not Found]";
        snprintf(path, sizeof path, "/proc/%u/comm", list[i].pid);
        FILE *file = fopen(path, "re");
        if (file && fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = '\0';
        if (file) fclose(file);
        printf("| %4u  N/A  N/A %10u    C   %-39.39s %8lluMiB |\n", gpu->index, list[i].pid, name, list[i].usedGpuMemory / MIB);
    }
    return running;
}

void show_table(const struct shown *gpus, int count) {
    char driver[96], cuda[16], words[256];
    time_t now = time(NULL);
    char date[64];
    strftime(date, sizeof date, "%a %b %e %H:%M:%S %Y", localtime(&now));
    driver_text(driver, sizeof driver);
    cuda_text(cuda, sizeof cuda);
    whose(gpus, count, words, sizeof words);
    printf("%s\n+" WIDE "+\n", date);
    printf("| NVIDIA-SMI %-19.19s Driver Version: %-19.19s CUDA Version: %-4.4s |\n", driver, driver, cuda);
    for (const char *at = words; *at;) { /* lines end between words */
        size_t length = strlen(at) > 85 ? 85 : strlen(at);
        while (at[length] && length > 1 && at[length] != ' ') length--;
        printf("| %-85.*s |\n", (int)length, at);
        at += length + strspn(at + length, " ");
    }
    puts("|" RULE "+");
    printf("| GPU  Name                 Persistence-M | %-20s | Volatile Uncorr. ECC |\n", count && gpus[0].leased ? "Server:GPU" : "Bus-Id");
    puts("| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |");
    puts("|                                         |                      |               MIG M. |");
    puts("|=========================================+======================+======================|");
    for (int i = 0; i < count; i++) row(&gpus[i]);
    puts("\n+" WIDE "+");
    puts("| Processes:                                                                            |");
    puts("|  GPU   GI   CI        PID   Type   Process name                            GPU Memory |");
    puts("|=======================================================================================|");
    int running = 0;
    for (int i = 0; i < count; i++) running += process_rows(&gpus[i]);
    if (!running)
        printf("|  %-84s |\n", count && gpus[0].leased ? "Not told: they run on the servers, for programs of this machine"
                                                      : "No running processes found");
    puts("+" WIDE "+");
}

/* One line for each, which scripts count, with the UUID at its end, where they look for it. */
void show_list(const struct shown *gpus, int count) {
    for (int i = 0; i < count; i++) {
        char where[400] = "", parted[64];
        const struct leased *device = &gpus[i].lease.device;
        part(&gpus[i], parted, sizeof parted);
        if (gpus[i].leased)
            snprintf(where, sizeof where, ", leased over the network%s%s%s%s", device->server[0] ? " from " : "", device->server,
                     parted[0] ? ", " : "", parted);
        printf("GPU %u: %s%s (UUID: %s)\n", gpus[i].index, gpus[i].name, where, gpus[i].uuid);
    }
}

static void line(int indent, const char *name, const char *value) {
    printf("%*s%-*s: %s\n", indent, "", 42 - indent, name, value);
}

void show_log(const struct shown *gpus, int count) {
    char text[256], date[64];
    time_t now = time(NULL);
    strftime(date, sizeof date, "%a %b %e %H:%M:%S %Y", localtime(&now));
    puts("\n==============NVSMI LOG==============\n");
    line(0, "Timestamp", date);
    driver_text(text, sizeof text);
    line(0, "Driver Version", text);
    cuda_text(text, sizeof text);
    line(0, "CUDA Version", text);
    whose(gpus, count, text, sizeof text);
    line(0, "What is shown", text);
    snprintf(text, sizeof text, "%d", count);
    puts("");
    line(0, "Attached GPUs", text);
    for (int i = 0; i < count; i++) {
        const struct shown *gpu = &gpus[i];
        struct memory m = ask_memory(gpu);
        nvmlUtilization_t rates = {0, 0};
        bool known = ask_utilisation(gpu, &rates);
        place(gpu, text, sizeof text);
        printf("GPU %s\n", text);
        line(4, "Product Name", gpu->name);
        line(4, "GPU UUID", gpu->uuid);
        part(gpu, text, sizeof text);
        if (gpu->leased) line(4, "Part", text[0] ? text + strlen("part: ") : "all of it");
        if (gpu->leased) line(4, "Server", gpu->lease.device.server[0] ? gpu->lease.device.server : N_A);
        puts("    FB Memory Usage");
        const int64_t of[] = {m.total, m.reserved, m.used, m.available};
        static const char *const names[] = {"Total", "Reserved", "Used", "Free"};
        for (int k = 0; k < 4; k++) bytes(text, sizeof text, of[k], " MiB"), line(8, names[k], text);
        line(4, "Compute Mode", compute_mode(gpu));
        puts("    Utilization");
        number(text, sizeof text, known, rates.gpu, " %");
        line(8, "Gpu", text);
        number(text, sizeof text, known, rates.memory, " %");
        line(8, "Memory", text);
        puts("    Temperature");
        figure(text, sizeof text, gpu, "nvmlDeviceGetTemperature", 0, 1, " C");
        line(8, "GPU Current Temp", text);
        puts("    Clocks");
        static const char *const clocks[] = {"Graphics", "SM", "Memory"};
        for (int k = 0; k < 3; k++)
            figure(text, sizeof text, gpu, "nvmlDeviceGetClockInfo", k, 1, " MHz"), line(8, clocks[k], text);
    }
    puts("");
}
