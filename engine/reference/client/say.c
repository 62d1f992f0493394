#define _GNU_SOURCE
#include "say.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void say(const char *format, ...) {
    char line[1024] = "elastic-ai: ";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + 12, sizeof line - 14, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    if (write(2, line, strlen(line)) < 0) return; /* nowhere to say it */
}
