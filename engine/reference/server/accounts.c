/* How much memory the children hold. */
#define _GNU_SOURCE
#include "accounts.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "options.h"
#include "../wire.h"

static struct accounts {
    pthread_mutex_t mutex;
    uint64_t used[MAX_CHILDREN][MAX_DEVICES];
} *accounts;

void accounts_make(void) {
    pthread_mutexattr_t shared;
    accounts = mmap(NULL, sizeof *accounts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (accounts == MAP_FAILED) {
        perror("elastic-ai-refserver: memory accounts");
        exit(1);
    }
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&accounts->mutex, &shared);
}

static void lock(void) {
    /* A holder that died left every row as it was or as it wanted it: each is written by one store. */
    if (pthread_mutex_lock(&accounts->mutex) == EOWNERDEAD) pthread_mutex_consistent(&accounts->mutex);
}

static uint64_t sum(int device) {
    uint64_t total = 0;
    for (int i = 0; i < MAX_CHILDREN; i++) total += accounts->used[i][device];
    return total;
}

bool account_take(int child, int device, uint64_t bytes) {
    lock();
    bool fits = !options.memory_limit || (bytes <= options.memory_limit && sum(device) <= options.memory_limit - bytes);
    if (fits) accounts->used[child][device] += bytes;
    pthread_mutex_unlock(&accounts->mutex);
    return fits;
}

void account_give(int child, int device, uint64_t bytes) {
    lock();
    accounts->used[child][device] -= bytes;
    pthread_mutex_unlock(&accounts->mutex);
}

void account_clear(int child) {
    lock();
    memset(accounts->used[child], 0, sizeof accounts->used[child]);
    pthread_mutex_unlock(&accounts->mutex);
}

uint64_t account_used(int device) {
    lock();
    uint64_t total = sum(device);
    pthread_mutex_unlock(&accounts->mutex);
    return total;
}
