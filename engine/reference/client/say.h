/* What goes wrong, for people: one sentence on stderr. */
#ifndef ELASTIC_AI_SAY_H
#define ELASTIC_AI_SAY_H

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
