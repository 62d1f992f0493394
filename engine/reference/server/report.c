/* Events as JSON lines on --report-fd. */
#define _GNU_SOURCE
#include "report.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "options.h"

void report(const char *format, ...) {
    char line[512];
    if (options.report_fd < 0) return;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= (int)sizeof line - 1) return;
    line[length] = '\n';
    /* Without waiting, whatever flags the descriptor has: a reader that sleeps must not stop the server. */
    struct pollfd ready = {.fd = options.report_fd, .events = POLLOUT};
    if (poll(&ready, 1, 0) == 1 && write(options.report_fd, line, (size_t)length + 1) < 0) options.report_fd = -1;
}
