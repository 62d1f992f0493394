/* ELASTIC_AI_GPUS is JSON, a list of objects. Keys that are not known here are of a newer toolkit, and passed over. */
#define _GNU_SOURCE
#include "lease.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define DEEPEST 8 /* of what is passed over */

struct reader {
    const char *at;
    bool failed;
};

static bool is(struct reader *r, char c) {
    r->at += strspn(r->at, " \t\r\n");
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static void need(struct reader *r, char c) {
    if (!r->failed && !is(r, c)) r->failed = true;
}

static unsigned hex4(struct reader *r) {
    unsigned found = 0;
    for (int i = 0; i < 4; i++) {
        const char *hex = "0123456789abcdef", *digit = *r->at ? strchr(hex, *r->at | 0x20) : NULL;
        if (!digit) {
            r->failed = true;
            return 0;
        }
        found = found << 4 | (unsigned)(digit - hex), r->at++;
    }
    return found;
}

static size_t utf8(unsigned c, char to[4]) {
    if (c < 0x80) return to[0] = (char)c, 1;
    if (c < 0x800) return to[0] = (char)(0xC0 | c >> 6), to[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000)
        return to[0] = (char)(0xE0 | c >> 12), to[1] = (char)(0x80 | (c >> 6 & 63)), to[2] = (char)(0x80 | (c & 63)), 3;
    to[0] = (char)(0xF0 | c >> 18), to[1] = (char)(0x80 | (c >> 12 & 63)), to[2] = (char)(0x80 | (c >> 6 & 63));
    return to[3] = (char)(0x80 | (c & 63)), 4;
}

/* One character behind a backslash. */
static size_t escaped(struct reader *r, char to[4]) {
    static const char from[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    char c = *r->at;
    if (c == 'u') {
        r->at++;
        unsigned code = hex4(r);
        if (code >= 0xD800 && code < 0xDC00 && r->at[0] == '\\' && r->at[1] == 'u') { /* the first half of one */
            r->at += 2;
            code = 0x10000 + ((code - 0xD800) << 10) + ((hex4(r) - 0xDC00) & 0x3FF);
        }
        return code ? utf8(code, to) : 0;
    }
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) {
        r->failed = true;
        return 0;
    }
    r->at++;
    return to[0] = means[found - from], 1;
}

/* A text that is too long for `to` is cut between two characters; control characters are not shown to anybody. */
static void string(struct reader *r, char *to, size_t size) {
    size_t length = 0;
    bool full = false;
    need(r, '"');
    while (!r->failed && *r->at && *r->at != '"') {
        char part[4];
        size_t n = 1;
        if (*r->at == '\\') {
            r->at++;
            n = escaped(r, part);
        } else {
            unsigned char c = (unsigned char)*r->at;
            n = c < 0x80 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
            n = strnlen(r->at, n);
            memcpy(part, r->at, n);
            r->at += n;
        }
        if (n == 1 && ((unsigned char)part[0] < 0x20 || part[0] == 0x7F)) part[0] = ' ';
        full |= length + n >= size;
        if (!full) memcpy(to + length, part, n), length += n;
    }
    to[length] = '\0';
    need(r, '"');
}

/* A whole number that is not negative, or null. */
static int64_t number(struct reader *r) {
    r->at += strspn(r->at, " \t\r\n");
    if (!strncmp(r->at, "null", 4)) return r->at += 4, UNTOLD;
    char *end;
    errno = 0;
    long long found = strtoll(r->at, &end, 10);
    if (end == r->at || errno || found < 0 || *end == '.' || *end == 'e' || *end == 'E') r->failed = true;
    r->at = end;
    return found;
}

static bool flag(struct reader *r) {
    r->at += strspn(r->at, " \t\r\n");
    if (!strncmp(r->at, "true", 4)) return r->at += 4, true;
    if (!strncmp(r->at, "false", 5)) return r->at += 5, false;
    return r->failed = true, false;
}

static void pass(struct reader *r, int deep) {
    char text[8];
    bool list = is(r, '[');
    if (deep > DEEPEST) r->failed = true;
    else if (list || is(r, '{')) {
        char end = list ? ']' : '}';
        if (is(r, end)) return;
        do {
            if (!list) string(r, text, sizeof text), need(r, ':');
            pass(r, deep + 1);
        } while (!r->failed && is(r, ','));
        need(r, end);
    } else if (*r->at == '"') {
        string(r, text, sizeof text);
    } else {
        size_t length = strspn(r->at, "+-.0123456789aeflnrstuE");
        if (!length) r->failed = true;
        r->at += length;
    }
}

static void value(struct reader *r, struct leased *to, const char *key) {
#define TEXT(field) if (!strcmp(key, #field)) { string(r, to->field, sizeof to->field); return; }
    TEXT(uuid) TEXT(name) TEXT(server) TEXT(part) TEXT(driver)
#undef TEXT
    if (!strcmp(key, "memory_bytes")) to->part_bytes = number(r);
    else if (!strcmp(key, "total_bytes")) to->total_bytes = number(r);
    else if (!strcmp(key, "server_index")) to->server_index = number(r);
    else if (!strcmp(key, "cuda")) to->cuda = number(r);
    else if (!strcmp(key, "emulated")) to->emulated = flag(r);
    else if (!strcmp(key, "capability")) {
        char text[16];
        string(r, text, sizeof text);
        if (sscanf(text, "%d.%d", &to->major, &to->minor) != 2) to->major = to->minor = UNTOLD;
    } else pass(r, 0);
}

static int parse(const char *text, struct leased to[MAX_LEASED]) {
    struct reader r = {.at = text};
    int count = 0;
    need(&r, '[');
    if (r.failed || is(&r, ']')) return r.failed ? -1 : 0;
    do {
        if (count == MAX_LEASED) return -1;
        struct leased *one = &to[count++];
        *one = (struct leased){.part_bytes = UNTOLD, .total_bytes = UNTOLD, .server_index = UNTOLD, .cuda = UNTOLD,
                               .major = UNTOLD, .minor = UNTOLD};
        need(&r, '{');
        if (is(&r, '}')) return -1;
        do {
            char key[32];
            string(&r, key, sizeof key);
            need(&r, ':');
            if (!r.failed) value(&r, one, key);
        } while (!r.failed && is(&r, ','));
        need(&r, '}');
        if (!one->uuid[0] || one->part_bytes <= 0) r.failed = true;
    } while (!r.failed && is(&r, ','));
    need(&r, ']');
    r.at += strspn(r.at, " \t\r\n");
    return r.failed || *r.at ? -1 : count;
}

int lease_read(struct leased to[MAX_LEASED]) {
    const char *text = getenv("ELASTIC_AI_GPUS");
    if (!text || !*text) return -1;
    int count = parse(text, to);
    if (count < 0)
        fprintf(stderr, "elastic-ai: ELASTIC_AI_GPUS does not tell the devices of a lease, of which there are %d at most: "
                        "start the program by toolkit run\n", MAX_LEASED);
    return count;
}

static int64_t of_hundred(long long percent) {
    return percent < 0 || percent > 100 ? UNTOLD : percent;
}

struct use lease_use(int device) {
    struct use found = {UNTOLD, UNTOLD, UNTOLD};
    const char *path = getenv("ELASTIC_AI_GPUS_USE");
    FILE *file = path && *path ? fopen(path, "re") : NULL;
    if (!file) return found;
    struct stat about;
    char line[64];
    if (!fstat(fileno(file), &about) && S_ISREG(about.st_mode) && time(NULL) - about.st_mtime <= USE_FRESH_S) {
        for (int at = 0; fgets(line, sizeof line, file); at++) {
            long long used, percent, memory;
            if (at == device && sscanf(line, "%lld %lld %lld", &used, &percent, &memory) == 3)
                found = (struct use){used < 0 ? UNTOLD : used, of_hundred(percent), of_hundred(memory)};
        }
    }
    fclose(file);
    return found;
}
