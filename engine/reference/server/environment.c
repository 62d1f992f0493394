/* What the server says of itself: devices, limits, what the asking client has there, and the CUDA settings that it was
 * started with. */
#define _GNU_SOURCE
#include "environment.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "accounts.h"
#include "driver.h"
#include "handles.h"
#include "options.h"
#include "session.h"
#include "../../shared/verbs/verbs.h"

struct text {
    char *at;
    size_t left;
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(t->at, t->left, format, arguments);
    va_end(arguments);
    size_t step = length < 0 ? 0 : (size_t)length < t->left ? (size_t)length : t->left - 1;
    t->at += step;
    t->left -= step;
}

static void put_string(struct text *t, const char *s, size_t length) {
    put(t, "\"");
    for (size_t i = 0; i < length && t->left > 16; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\') put(t, "\\%c", c);
        else if (c < 32 || c > 126) put(t, "\\u%04x", c);
        else put(t, "%c", c);
    }
    put(t, "\"");
}

size_t environment(char *to, size_t size) {
    struct text t = {to, size};
    put(&t, "{\"engine\": \"reference\", \"release\": \"%s\", \"transport\": \"%s\", \"pid\": %d, \"child\": %d, \"uid\": %u, "
        "\"data_connections\": %u, ",
        ENGINE_RELEASE, session.link.verbs ? "verbs" : "tcp", getppid(), getpid(), getuid(), session.lanes.count);
    if (session.link.verbs) {
        struct verbs_port where;
        verbs_where(session.link.verbs, &where);
        put(&t, "\"verbs\": {\"device\": \"%s\", \"port\": %u, \"gid_index\": %u, \"mtu_bytes\": %u}, ", where.device,
            where.port, where.gid_index, where.mtu_bytes);
    }
    put(&t, "\"memory_limit_bytes\": ");
    if (options.memory_limit) put(&t, "%llu", (unsigned long long)options.memory_limit);
    else put(&t, "null");
    put(&t, ", \"context_bytes\": %llu, ", (unsigned long long)options.context_bytes);
    put(&t, "\"objects\": {\"contexts\": %llu, \"streams\": %llu, \"events\": %llu, \"staging_events\": %llu, \"modules\": %llu}",
        (unsigned long long)handles_count(CONTEXT), (unsigned long long)handles_count(STREAM),
        (unsigned long long)handles_count(EVENT), (unsigned long long)staging_events(), (unsigned long long)handles_count(MODULE));
    put(&t, ", \"devices\": [");
    for (int i = 0; i < session.devices; i++) {
        const struct device_info *d = &session.info[i];
        put(&t, "%s{\"name\": ", i ? ", " : "");
        put_string(&t, d->name, strlen(d->name));
        put(&t, ", \"uuid\": \"GPU-");
        for (int b = 0; b < 16; b++) put(&t, "%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", d->uuid[b]);
        put(&t, "\", \"memory_bytes\": %llu, \"used_bytes\": %llu}", (unsigned long long)d->total_bytes,
            (unsigned long long)account_used(i));
    }
    put(&t, "], \"emulated\": %s, \"environment\": {", driver.emulated ? "true" : "false");
    bool first = true;
    for (char **e = environ; *e; e++) {
        const char *equals = strchr(*e, '=');
        if (strncmp(*e, "CUDA_", 5) || !equals) continue;
        if (!first) put(&t, ", ");
        first = false;
        put_string(&t, *e, (size_t)(equals - *e));
        put(&t, ": ");
        put_string(&t, equals + 1, strlen(equals + 1));
    }
    put(&t, "}}");
    return (size_t)(t.at - to);
}
