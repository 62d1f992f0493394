/* The file that describes a node's emulated GPUs: a JSON object with "gpus", a list of flat objects. */
#define _GNU_SOURCE
#include "emulated.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH "/etc/elastic-ai-emulated/gpus.json"
#define SLOWEST_PERCENT 99

struct reader {
    const char *at;
    bool failed;
};

static void skip(struct reader *r) {
    r->at += strspn(r->at, " \t\r\n");
}

static bool is(struct reader *r, char c) {
    skip(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static void need(struct reader *r, char c) {
    if (!is(r, c)) r->failed = true;
}

/* Strings without escapes: none of the values has one. */
static void string(struct reader *r, char *to, size_t size) {
    need(r, '"');
    size_t length = strcspn(r->at, "\"\\\n");
    if (r->failed || r->at[length] != '"' || length >= size) {
        r->failed = true;
        return;
    }
    memcpy(to, r->at, length);
    to[length] = '\0';
    r->at += length + 1;
}

static bool uuid_read(const char *text, uint8_t to[16]) {
    int digits = 0;
    if (strncmp(text, "GPU-", 4)) return false;
    memset(to, 0, 16);
    for (const char *p = text + 4; *p; p++) {
        if (*p == '-') continue;
        const char *hex = "0123456789abcdef", *found = strchr(hex, *p | 0x20);
        if (!found || digits == 32) return false;
        to[digits / 2] = (uint8_t)(to[digits / 2] << 4 | (found - hex));
        digits++;
    }
    return digits == 32;
}

/* "1,1,2,3": slices of the MIG instances, which together are no more than a GPU has. */
static bool instances_read(const char *text, struct gpu *g) {
    int sum = 0;
    for (const char *at = text; *at; at += *at == ',') {
        char *end;
        long slices = strtol(at, &end, 10);
        bool known = slices == 1 || slices == 2 || slices == 3 || slices == 4 || slices == 7;
        if (end == at || (*end && (*end != ',' || !end[1])) || !known || (sum += (int)slices) > MIG_SLICES) return false;
        g->mig[g->mig_count++] = (int)slices;
        at = end;
    }
    return g->mig_count > 0;
}

#define HEALTH_UNSAID(name) .name = UNSAID,
static const struct health unsaid = {HEALTH(HEALTH_UNSAID)};

/* Memory comes in eighths, of which three slices have four: NVIDIA Multi-Instance GPU User Guide, profiles of H100. */
static int expand(struct gpu gpus[MAX_GPUS], int count) {
    static const int eighths[MIG_SLICES + 1] = {0, 1, 2, 4, 4, 0, 0, 8};
    int all = count;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < gpus[i].mig_count; k++) {
            if (all == MAX_GPUS) return -1;
            struct gpu *g = &gpus[all++];
            *g = (struct gpu){.context_bytes = gpus[i].context_bytes, .capability_major = gpus[i].capability_major,
                              .capability_minor = gpus[i].capability_minor, .health = unsaid, .parent = i, .slices = gpus[i].mig[k],
                              .id = k + 1, .pci_domain = gpus[i].pci_domain, .pci_bus = gpus[i].pci_bus,
                              .pci_device = gpus[i].pci_device};
            g->memory_bytes = gpus[i].memory_bytes / 8 * (uint64_t)eighths[g->slices];
            g->sm_count = gpus[i].sm_count * g->slices / MIG_SLICES;
            if (!g->sm_count) g->sm_count = 1;
            memcpy(g->pci_bus_id, gpus[i].pci_bus_id, sizeof g->pci_bus_id);
            memcpy(g->uuid, gpus[i].uuid, sizeof g->uuid);
            g->uuid[0] ^= (uint8_t)(k + 1); /* the last bytes tell the GPUs apart */
            snprintf(g->name, sizeof g->name, "%.80s MIG %dg", gpus[i].name, g->slices);
            char *to = g->uuid_text + sprintf(g->uuid_text, "MIG-");
            for (int b = 0; b < 16; b++)
                to += sprintf(to, "%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", g->uuid[b]);
        }
    }
    return all;
}

/* False: the key is none of these. */
static bool health_read(struct reader *r, struct health *h, const char *key, const char *text) {
    int64_t *to = NULL;
#define HEALTH_FIND(name) if (!strcmp(key, #name)) to = &h->name;
    HEALTH(HEALTH_FIND)
    if (!to) return false;
    char *end;
    errno = 0;
    *to = strtoll(text, &end, 10);
    r->failed |= end == text || *end != '\0' || *to < 0 || errno;
    return true;
}

static void value(struct reader *r, struct gpu *g, const char *key) {
    char text[128];
    skip(r);
    if (*r->at == '"') {
        string(r, text, sizeof text);
    } else { /* a number or a word */
        size_t length = strspn(r->at, "+-.0123456789aeflnrstuE");
        if (!length || length >= sizeof text) r->failed = true;
        else snprintf(text, sizeof text, "%.*s", (int)length, r->at), r->at += length;
    }
    if (r->failed) return;
    char *end = text;
    if (health_read(r, &g->health, key, text)) return;
    if (!strcmp(key, "uuid")) {
        snprintf(g->uuid_text, sizeof g->uuid_text, "%.47s", text);
        r->failed |= !uuid_read(text, g->uuid);
    } else if (!strcmp(key, "name")) {
        snprintf(g->name, sizeof g->name, "%s%.80s", strncmp(text, "Emulated", 8) ? "Emulated " : "", text);
    } else if (!strcmp(key, "memory_bytes")) {
        g->memory_bytes = strtoull(text, &end, 10);
        r->failed |= *end != '\0' || !g->memory_bytes || text[0] == '-';
    } else if (!strcmp(key, "reserved_bytes") || !strcmp(key, "context_bytes")) {
        uint64_t *to = key[0] == 'r' ? &g->reserved_bytes : &g->context_bytes;
        *to = strtoull(text, &end, 10);
        r->failed |= *end != '\0' || text[0] == '-';
    } else if (!strcmp(key, "sm_count")) {
        g->sm_count = (int)strtol(text, &end, 10);
        r->failed |= *end != '\0' || g->sm_count < 1;
    } else if (!strcmp(key, "peer_group")) {
        g->peer_group = (int)strtol(text, &end, 10);
        r->failed |= *end != '\0' || g->peer_group < 0;
    } else if (!strcmp(key, "mig")) {
        r->failed |= !instances_read(text, g);
    } else if (!strcmp(key, "compute_capability")) {
        r->failed |= sscanf(text, "%d.%d", &g->capability_major, &g->capability_minor) != 2;
    } else if (!strcmp(key, "pci_bus_id")) {
        r->failed |= sscanf(text, "%x:%x:%x.0", &g->pci_domain, &g->pci_bus, &g->pci_device) != 3;
        snprintf(g->pci_bus_id, sizeof g->pci_bus_id, "%08X:%02X:%02X.0", g->pci_domain, g->pci_bus, g->pci_device);
    }
}

static int parse(const char *text, struct gpu gpus[MAX_GPUS]) {
    struct reader r = {.at = text};
    char key[64];
    int count = 0;
    need(&r, '{');
    string(&r, key, sizeof key);
    need(&r, ':');
    if (strcmp(key, "gpus")) r.failed = true;
    need(&r, '[');
    if (!r.failed && is(&r, ']')) return 0;
    do {
        if (count == MAX_GPUS) r.failed = true;
        if (r.failed) return -1;
        struct gpu *g = &gpus[count];
        *g = (struct gpu){.sm_count = 1, .capability_major = 7, .health = unsaid, .parent = -1};
        need(&r, '{');
        do {
            string(&r, key, sizeof key);
            need(&r, ':');
            if (!r.failed) value(&r, g, key);
        } while (!r.failed && is(&r, ','));
        need(&r, '}');
        if (!g->name[0] || !g->uuid_text[0] || !g->memory_bytes || !g->pci_bus_id[0]) r.failed = true;
        if (g->reserved_bytes >= g->memory_bytes || g->health.slow_percent > SLOWEST_PERCENT) r.failed = true;
        count++;
    } while (!r.failed && is(&r, ','));
    need(&r, ']');
    need(&r, '}');
    return r.failed ? -1 : count;
}

__attribute__((visibility("default"))) int elasticAiEmulated(void) {
    return 1;
}

int config_read(struct gpu gpus[MAX_GPUS], int *all) {
    static char text[65536];
    const char *path = getenv("ELASTIC_AI_EMULATED_GPUS");
    if (!path || !*path) path = PATH;
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "elastic-ai: no emulated GPU is described: %s: %s\n", path, strerror(errno));
        return -1;
    }
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    int count = parse(text, gpus);
    if (count >= 0) *all = expand(gpus, count);
    if (count >= 0 && *all < 0) count = -1;
    if (count < 0)
        fprintf(stderr,
                "elastic-ai: %s: want {\"gpus\": [{\"uuid\": \"GPU-...\", \"name\", \"memory_bytes\", \"sm_count\", "
                "\"pci_bus_id\"}, ...]}, %d at most with their MIG instances\n",
                path, MAX_GPUS);
    return count;
}
