/* One connection, from welcome to its end. */
#ifndef ELASTIC_AI_CHILD_H
#define ELASTIC_AI_CHILD_H

_Noreturn void serve(int fd, int child, const char *peer);

#endif
