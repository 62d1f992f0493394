/* Events for whoever started the server. */
#ifndef ELASTIC_AI_REPORT_H
#define ELASTIC_AI_REPORT_H

/* One JSON line; drops it rather than block. */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
