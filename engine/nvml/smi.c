/* nvidia-smi where GPUs are leased, or are a lab's: its options. Where neither is so, or ELASTIC_AI_NVIDIA_SMI=driver says that
 * the machine's own GPUs alone are asked for, it becomes the next nvidia-smi of PATH, which is the driver's. */
#define _GNU_SOURCE
#include "smi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Exit codes of NVIDIA's */
enum { BAD_ARGUMENT = 2, NO_SUCH_GPU = 6, NO_DRIVER = 9 };
#define OWN_ALONE "ELASTIC_AI_NVIDIA_SMI"

static const char help[] =
    "nvidia-smi of the Elastic AI Toolkit: the GPUs of a lease, which are on other machines, or the emulated GPUs of a lab.\n"
    "It tells what the lease or the lab tells of them; what nobody tells is N/A. It changes nothing.\n\n"
    "    nvidia-smi                       a table\n"
    "    -L, --list-gpus                  a line for each GPU\n"
    "    -q, --query                      what is known of each\n"
    "    --query-gpu=FIELD,...            these fields, with --format=csv[,noheader][,nounits]; --help-query-gpu lists them\n"
    "    --query-compute-apps=FIELD,...   processes, with the same\n"
    "    -i, --id=INDEX|UUID,...          of these GPUs alone\n"
    "    -l, --loop=SECONDS               again and again; also -lms, --loop-ms=MILLISECONDS\n"
    "    -h, --help                       this text\n\n"
    "NVIDIA's own nvidia-smi, for GPUs of this machine: " OWN_ALONE "=driver nvidia-smi\n";

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Behind ourselves in PATH, so that two of ours never call each other. Returns where there is none. */
static void become_next(char **argv) {
    struct stat own, other;
    const char *path = getenv("PATH");
    bool behind = false, found = false;
    char name[4096];
    if (!path || stat("/proc/self/exe", &own)) return;
    for (int pass = 0; pass < 2; pass++) { /* are we in it at all? */
        behind = !found && pass;
        for (const char *at = path; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
            snprintf(name, sizeof name, "%.*s/nvidia-smi", (int)strcspn(at, ":"), at);
            if (name[0] != '/' || stat(name, &other) || !S_ISREG(other.st_mode)) continue;
            if (same_file(&own, &other)) found = behind = true;
            else if (behind && pass) execv(name, argv);
        }
    }
}

static int fail(int code, const char *words) {
    fprintf(stderr, "nvidia-smi (Elastic AI): %s\n", words);
    return code;
}

/* What follows `=`, or is the next word. NULL: this option is another one, or nothing follows. */
static const char *argument(char **argv, int *at, const char *brief, const char *name) {
    size_t length = strlen(name);
    const char *word = argv[*at];
    if (!strncmp(word, name, length) && word[length] == '=') return word + length + 1;
    if ((brief && !strcmp(word, brief)) || !strcmp(word, name)) return argv[*at + 1] ? argv[++*at] : NULL;
    return NULL;
}

static bool is_option(const char *word, const char *brief, const char *name) {
    return (brief && !strcmp(word, brief)) || !strcmp(word, name);
}

/* csv, noheader, nounits. */
static bool read_format(const char *text, struct asked *asked) {
    bool csv = false;
    char *own = strdup(text), *rest = own, *word;
    bool good = own != NULL;
    while (good && (word = strsep(&rest, ","))) {
        word += strspn(word, " ");
        if (!strcmp(word, "csv")) csv = true;
        else if (!strcmp(word, "noheader")) asked->no_header = true;
        else if (!strcmp(word, "nounits")) asked->no_units = true;
        else good = false;
    }
    free(own);
    return good && csv;
}

static bool read_period(const char *text, unsigned unit_ms, unsigned *to) {
    char *end;
    errno = 0;
    long found = strtol(text, &end, 10);
    if (end == text || *end || errno || found < 1 || found > 86400000 / (long)unit_ms) return false;
    *to = (unsigned)found * unit_ms;
    return true;
}

/* -1, or the exit code. */
static int read_options(char **argv, struct asked *asked) {
    const char *format = NULL, *text;
    static char words[256];
    for (int at = 1; argv[at]; at++) {
        const char *word = argv[at];
        if (is_option(word, "-h", "--help")) return fputs(help, stdout), 0;
        if (is_option(word, NULL, "--help-query-gpu")) return list_fields(), 0;
        if (is_option(word, "-L", "--list-gpus")) asked->list = true;
        else if (is_option(word, "-q", "--query")) asked->query = true;
        else if ((text = argument(argv, &at, NULL, "--query-gpu"))) asked->fields = text;
        else if ((text = argument(argv, &at, NULL, "--query-compute-apps"))) asked->of_processes = text;
        else if ((text = argument(argv, &at, NULL, "--format"))) format = text;
        else if ((text = argument(argv, &at, "-i", "--id"))) asked->chosen = text;
        else if ((text = argument(argv, &at, "-l", "--loop"))) {
            if (!read_period(text, 1000, &asked->every_ms)) return fail(BAD_ARGUMENT, "--loop: a number of seconds, at least 1");
        } else if ((text = argument(argv, &at, "-lms", "--loop-ms"))) {
            if (!read_period(text, 1, &asked->every_ms)) return fail(BAD_ARGUMENT, "--loop-ms: a number of milliseconds, at least 1");
        } else {
            snprintf(words, sizeof words, "%.100s is not here%s; --help says what is", word,
                     argv[at + 1] || word[0] != '-' ? "" : ", or something has to follow it");
            return fail(BAD_ARGUMENT, words);
        }
    }
    if (asked->list + asked->query + !!asked->fields + !!asked->of_processes > 1)
        return fail(BAD_ARGUMENT, "one of -L, -q, --query-gpu and --query-compute-apps at a time");
    bool needs = asked->fields || asked->of_processes;
    if (needs != !!format || (format && !read_format(format, asked)))
        return fail(BAD_ARGUMENT, "--query-gpu and --query-compute-apps need --format=csv[,noheader][,nounits], and nothing else has it");
    return -1;
}

/* Those that -i names stay; -1 where it names another. */
static int choose(const char *chosen, struct shown *gpus, int count) {
    static struct shown kept[MAX_SHOWN];
    int number = 0;
    char *own = strdup(chosen), *rest = own, *word;
    while (own && (word = strsep(&rest, ","))) {
        int at = 0;
        char index[16];
        for (; at < count; at++) {
            nvmlPciInfo_t pci;
            snprintf(index, sizeof index, "%u", gpus[at].index);
            if (!strcmp(word, index) || !strcasecmp(word, gpus[at].uuid)) break;
            if (ask_pci(&gpus[at], &pci) && (!strcasecmp(word, pci.busId) || !strcasecmp(word, pci.busIdLegacy))) break;
        }
        if (at == count || number == MAX_SHOWN) {
            fprintf(stderr, "No devices were found: there is no GPU %.100s here\n", word);
            number = -1;
            break;
        }
        kept[number++] = gpus[at];
    }
    free(own);
    if (number > 0) memcpy(gpus, kept, (size_t)number * sizeof *kept);
    return number;
}

/* What the servers say of the GPUs' use comes some tenths of a second after the start of the lease's program. */
static void await_use(void) {
    const char *path = getenv("ELASTIC_AI_GPUS_USE"), *end = path ? strrchr(path, '/') : NULL;
    char folder[4096];
    struct stat about;
    if (!end) return;
    snprintf(folder, sizeof folder, "%.*s", (int)(end - path), path);
    for (int i = 0; i < 20 && stat(path, &about); i++) {
        if (stat(folder, &about) || time(NULL) - about.st_mtime > 2) return;
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
}

static int show(const struct asked *asked) {
    static struct shown gpus[MAX_SHOWN];
    int all = gpus_all(gpus), count = all;
    if (all < 0) return fail(NO_DRIVER, "the GPUs cannot be counted");
    if (asked->chosen) count = choose(asked->chosen, gpus, all);
    if (count < 0) return NO_SUCH_GPU;
    if (asked->fields) return query_gpus(asked, gpus, count, all);
    if (asked->of_processes) return query_processes(asked, gpus, count);
    if (!count) return puts("No devices were found"), NO_SUCH_GPU;
    if (asked->list) show_list(gpus, count);
    else if (asked->query) show_log(gpus, count);
    else show_table(gpus, count);
    return 0;
}

int main(int argc, char **argv) {
    struct asked asked = {0};
    const char *own_alone = getenv(OWN_ALONE);
    (void)argc;
    if (own_alone && !strcmp(own_alone, "driver")) {
        become_next(argv);
        return fail(NO_DRIVER, "this machine has no nvidia-smi of a driver's own");
    }
    const char *why = nvml_load() ? nvml_start() : "no lease and no lab is here, and no nvidia-smi of a driver's own";
    if (*why) {
        become_next(argv);
        if (argv[1] && is_option(argv[1], "-h", "--help")) return fputs(help, stdout), 0;
        return fail(NO_DRIVER, why);
    }
    int code = read_options(argv, &asked);
    if (code >= 0) return code;
    await_use();
    for (;;) {
        code = show(&asked);
        if (fflush(stdout)) return 1; /* nobody reads it any more */
        if (code || !asked.every_ms) return code;
        struct timespec pause = {asked.every_ms / 1000, (long)(asked.every_ms % 1000) * 1000000};
        nanosleep(&pause, NULL);
        asked.no_header |= asked.fields != NULL;
    }
}
