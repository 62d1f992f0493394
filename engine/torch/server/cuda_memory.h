/* What the launcher calls of cuda_memory.c, by ctypes (memory.py). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PUBLIC __attribute__((visibility("default")))

enum { EAI_MOST_SESSIONS = 128, EAI_MOST_DEVICES = 32 };

PUBLIC size_t eai_memory_bytes(void);
/* Once, by the launcher, in memory that it shares with its children. limit: bytes of each device, for all sessions
 * together, 0: none; context: what a session's context takes of that. */
PUBLIC void eai_memory_make(void *memory, uint64_t limit, uint64_t context);
/* By a child, before it opens a device. */
PUBLIC void eai_memory_use(void *memory, size_t session);
/* By the launcher, when a child has ended. */
PUBLIC void eai_memory_clear(void *memory, size_t session);
/* What all sessions have of a device, and what this one has. */
PUBLIC uint64_t eai_memory_used(void *memory, int device);
PUBLIC uint64_t eai_memory_held(int device);
/* At a session's end: zeros over all that it has. How many bytes could not be overwritten. */
PUBLIC uint64_t eai_memory_end(void);
