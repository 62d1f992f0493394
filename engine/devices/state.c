/* Accounts of a node's emulated GPUs. One file, mapped by every process that uses a GPU or asks about one. Each using
 * process has a row, and holds a lock on a byte for it (an open file description lock, fcntl(2)): the kernel drops that
 * when the process ends in whatever way, and a row without its lock counts for nothing. */
#define _GNU_SOURCE
#include "emulated.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH "/dev/shm/elastic-ai-devices"
#define MAGIC 0x45414905u
#define ROWS 512
#define LOCK_ALL 0 /* offsets of locks; the rows' are behind */
#define LOCK_ROW 1

struct state {
    uint32_t magic, unused;
    struct {
        uint64_t busy_ns, copies; /* ever */
        uint64_t asked_ns, asked_busy_ns; /* at the last question */
        uint32_t percent, unused;
    } gpu[MAX_GPUS];
    struct {
        int32_t pid; /* 0: free */
        int32_t objects[COUNTED];
        uint64_t used[MAX_GPUS];
    } row[ROWS];
};

static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;
static struct state *state;
static int file = -1, mine = -1;

uint64_t state_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int lock_byte(int command, int type, off_t at) {
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int done;
    while ((done = fcntl(file, command, &lock)) < 0 && errno == EINTR) {}
    return done < 0 ? -1 : command == F_OFD_GETLK ? lock.l_type != F_UNLCK : 0;
}

static void lock(void) {
    pthread_mutex_lock(&threads);
    lock_byte(F_OFD_SETLKW, F_WRLCK, LOCK_ALL);
}

static void unlock(void) {
    lock_byte(F_OFD_SETLK, F_UNLCK, LOCK_ALL);
    pthread_mutex_unlock(&threads);
}

/* A forked child is no user of the GPUs, and must not keep its parent's row alive. */
static void in_child(void) {
    if (file >= 0) close(file);
    if (state) munmap(state, sizeof *state); /* the mapping, too, holds the file that the lock is of */
    file = mine = -1;
    state = NULL;
}

int state_open(void) {
    const char *path = getenv("ELASTIC_AI_EMULATED_STATE");
    if (!path || !*path) path = PATH;
    pthread_mutex_lock(&threads);
    if (state) {
        pthread_mutex_unlock(&threads);
        return 0;
    }
    /* Not with O_CREAT first: the kernel refuses that for others' files in /dev/shm (fs.protected_regular). */
    file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 && errno == ENOENT) {
        file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0) (void)fchmod(file, 0666); /* every user's processes count */
        else if (errno == EEXIST) file = open(path, O_RDWR | O_CLOEXEC);
    }
    struct stat about;
    if (file >= 0) {
        lock_byte(F_OFD_SETLKW, F_WRLCK, LOCK_ALL);
        if (!fstat(file, &about) && about.st_size < (off_t)sizeof *state && ftruncate(file, sizeof *state)) {
            close(file);
            file = -1;
        }
    }
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED) {
            state = mapped;
            if (state->magic != MAGIC) memset(state, 0, sizeof *state), state->magic = MAGIC;
            static bool handled;
            if (!handled) pthread_atfork(NULL, NULL, in_child);
            handled = true;
        }
        lock_byte(F_OFD_SETLK, F_UNLCK, LOCK_ALL);
    }
    int failed = state ? 0 : -1;
    pthread_mutex_unlock(&threads);
    return failed;
}

static bool alive(int row) {
    return row == mine || lock_byte(F_OFD_GETLK, F_WRLCK, LOCK_ROW + row) > 0;
}

/* Clears rows of processes that have ended, and sums up the others. Called with the lock. */
static uint64_t sum(int gpu) {
    uint64_t total = 0;
    for (int i = 0; i < ROWS; i++) {
        if (!state->row[i].pid) continue;
        if (alive(i)) total += state->row[i].used[gpu];
        else memset(&state->row[i], 0, sizeof state->row[i]);
    }
    return total;
}

static bool have_row(void) {
    for (int i = 0; i < ROWS && mine < 0; i++) {
        if (state->row[i].pid || lock_byte(F_OFD_SETLK, F_WRLCK, LOCK_ROW + i)) continue;
        memset(&state->row[i], 0, sizeof state->row[i]);
        state->row[i].pid = getpid();
        mine = i;
    }
    return mine >= 0;
}

bool state_take(int gpu, uint64_t bytes, uint64_t of) {
    if (!state) return false;
    lock();
    uint64_t used = sum(gpu);
    bool fits = bytes <= of && used <= of - bytes && have_row();
    if (fits) state->row[mine].used[gpu] += bytes;
    unlock();
    return fits;
}

void state_give(int gpu, uint64_t bytes) {
    if (!state || mine < 0) return;
    lock();
    state->row[mine].used[gpu] -= bytes;
    unlock();
}

void state_count(enum counted what, int by) {
    if (!state) return;
    lock();
    if (mine >= 0 || have_row()) state->row[mine].objects[what] += by;
    unlock();
}

uint64_t state_used(int gpu) {
    if (!state) return 0;
    lock();
    uint64_t used = sum(gpu);
    unlock();
    return used;
}

void state_busy(int gpu, uint64_t ns) {
    if (state) __atomic_fetch_add(&state->gpu[gpu].busy_ns, ns, __ATOMIC_RELAXED);
}

void state_copied(int gpu, bool counts) {
    if (!state) return;
    if (counts) __atomic_fetch_add(&state->gpu[gpu].copies, 1, __ATOMIC_RELAXED);
    else __atomic_store_n(&state->gpu[gpu].copies, 0, __ATOMIC_RELAXED);
}

bool state_lost(int gpu, int64_t after) {
    return state && after >= 0 && __atomic_load_n(&state->gpu[gpu].copies, __ATOMIC_RELAXED) >= (uint64_t)after;
}

unsigned state_utilization(int gpu) {
    if (!state) return 0;
    lock();
    uint64_t now = state_now_ns(), busy = __atomic_load_n(&state->gpu[gpu].busy_ns, __ATOMIC_RELAXED);
    uint64_t since = now - state->gpu[gpu].asked_ns;
    if (since >= 100000000u) {
        uint64_t percent = (busy - state->gpu[gpu].asked_busy_ns) * 100 / since;
        state->gpu[gpu].percent = percent > 100 ? 100 : (uint32_t)percent; /* copies of several processes overlap */
        state->gpu[gpu].asked_ns = now;
        state->gpu[gpu].asked_busy_ns = busy;
    }
    unsigned result = state->gpu[gpu].percent;
    unlock();
    return result;
}

int state_holders(int gpu, struct holder *to, int room) {
    int count = 0;
    if (!state) return 0;
    lock();
    sum(gpu);
    for (int i = 0; i < ROWS; i++) {
        if (!state->row[i].pid || !state->row[i].used[gpu]) continue;
        if (count < room) to[count] = (struct holder){state->row[i].pid, state->row[i].used[gpu]};
        count++;
    }
    unlock();
    return count;
}
