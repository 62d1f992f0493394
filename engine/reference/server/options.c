/* Arguments of the server, and its token. */
#define _GNU_SOURCE
#include "options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options options = {.bind = "127.0.0.1", .transport = "tcp", .tcp = true, .report_fd = -1};

static const char usage[] =
    "usage: elastic-ai-refserver --token-file FILE --allow IP[,IP...] [--bind ADDR] [--port N] [--port-file FILE]\n"
    "           [--memory-limit BYTES] [--context-bytes BYTES] [--idle-timeout SECONDS] [--report-fd N]\n"
    "           [--transport tcp|verbs|tcp,verbs]\n"
    "       elastic-ai-refserver --version\n"
    "\n"
    "The reference engine's server (release " ENGINE_RELEASE "): the driver API of this machine's CUDA devices,\n"
    "those of CUDA_VISIBLE_DEVICES, for clients at the given addresses that know the token. Not for production.\n"
    "\n"
    "  --bind ADDR          address to listen on (127.0.0.1)\n"
    "  --port N             0: any free port (0)\n"
    "  --port-file FILE     gets the port when the server listens\n"
    "  --token-file FILE    first line: the token, 16 to 255 characters\n"
    "  --allow IP,...       clients' addresses; all others are turned away\n"
    "  --memory-limit BYTES of each device, for all connections together\n"
    "  --context-bytes BYTES what a context takes of a device (0); it counts against the limit\n"
    "  --idle-timeout S     end after S seconds without a connection\n"
    "  --report-fd N        events as JSON lines\n"
    "  --transport LIST     what clients may have (tcp); verbs needs an RDMA port with the address ADDR\n";

static _Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

static _Noreturn void refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("elastic-ai-refserver: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    exit(2);
}

static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || text[0] < '0' || text[0] > '9' || value < least || value > most)
        refuse("--%s %s: give a whole number from %llu to %llu", option, text, (unsigned long long)least,
               (unsigned long long)most);
    return value;
}

static void allow(char *list) {
    char *rest = list;
    for (char *one; (one = strsep(&rest, ","));) {
        struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
        if (options.allowed_count == MAX_ALLOWED) refuse("--allow: more than %d addresses", MAX_ALLOWED);
        if (inet_pton(AF_INET, one, &address.s6_addr[12]) != 1 && inet_pton(AF_INET6, one, &address) != 1)
            refuse("--allow: '%s' is no IP address", one);
        options.allowed[options.allowed_count++] = address;
    }
}

static void offer(const char *list) {
    options.transport = list;
    options.tcp = !strcmp(list, "tcp") || !strcmp(list, "tcp,verbs");
    options.verbs = !strcmp(list, "verbs") || !strcmp(list, "tcp,verbs");
    if (!options.tcp && !options.verbs) refuse("--transport %s: give tcp, verbs or tcp,verbs", list);
}

static void read_token(void) {
    char line[WIRE_TOKEN + 2] = "";
    FILE *file = fopen(options.token_file, "re");
    if (!file) refuse("--token-file %s: %s", options.token_file, strerror(errno));
    setvbuf(file, NULL, _IONBF, 0); /* no copy of the token in the heap */
    if (!fgets(line, sizeof line, file)) line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\r\n")] = '\0';
    size_t length = strlen(line);
    if (length < 16 || length >= WIRE_TOKEN)
        refuse("--token-file %s: its first line must have 16 to %d characters", options.token_file, WIRE_TOKEN - 1);
    memcpy(options.token, line, length);
    explicit_bzero(line, sizeof line);
}

void read_options(int argc, char **argv) {
    static const struct option known[] = {
        {"bind", required_argument, NULL, 'b'},          {"port", required_argument, NULL, 'p'},
        {"port-file", required_argument, NULL, 'f'},     {"token-file", required_argument, NULL, 't'},
        {"allow", required_argument, NULL, 'a'},         {"memory-limit", required_argument, NULL, 'm'},
        {"context-bytes", required_argument, NULL, 'c'}, {"idle-timeout", required_argument, NULL, 'i'},
        {"report-fd", required_argument, NULL, 'r'},     {"transport", required_argument, NULL, 'T'},
        {"help", no_argument, NULL, 'h'},                {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'b': options.bind = optarg; break;
        case 'p': options.port = (int)number("port", optarg, 0, 65535); break;
        case 'f': options.port_file = optarg; break;
        case 't': options.token_file = optarg; break;
        case 'a': allow(optarg); break;
        case 'm': options.memory_limit = number("memory-limit", optarg, 1, UINT64_MAX / 2); break;
        case 'c': options.context_bytes = number("context-bytes", optarg, 0, UINT64_MAX / 2); break;
        case 'i': options.idle_timeout_s = (int)number("idle-timeout", optarg, 1, 1000000); break;
        case 'r':
            options.report_fd = (int)number("report-fd", optarg, 1, 1 << 20);
            if (fcntl(options.report_fd, F_GETFL) < 0) refuse("--report-fd %s: %s", optarg, strerror(errno));
            fcntl(options.report_fd, F_SETFD, FD_CLOEXEC);
            break;
        case 'T': offer(optarg); break;
        case 'h': fputs(usage, stdout); exit(0);
        case 'v': puts(ENGINE_RELEASE); exit(0);
        default: fputs("see elastic-ai-refserver --help\n", stderr); exit(2);
        }
    }
    if (optind < argc) refuse("'%s' is no option; see --help", argv[optind]);
    if (!options.token_file) refuse("--token-file is missing; see --help");
    if (!options.allowed_count) refuse("--allow is missing: name the clients' addresses");
    read_token();
}
