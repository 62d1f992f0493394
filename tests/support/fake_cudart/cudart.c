/* A CUDA runtime without a GPU, for tests of what stands in front of one.
 *
 * Its device's memory is a file that processes share (FAKE_CUDART_MEMORY): what one has written there is there for the
 * next, whoever frees it or dies, as nothing in CUDA's documents rules out. What is begun on a stream happens when
 * somebody waits for that stream: who does not wait sees what was there before. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 65536, MOST_PAGES = 4096, MOST_PENDING = 64, DEVICES = 2 };

struct page {
    pid_t owner;
    int first; /* pages of the block that begins here */
};
struct state {
    struct page pages[DEVICES][MOST_PAGES];
};
struct work {
    void *data, *stream;
    size_t bytes;
    int value;
};

static struct work pending[MOST_PENDING];
static int waiting, device, next_stream = 1;
static struct state *state;
static char *memory;
static size_t pages;
static int file = -1;

static void start(void) {
    if (file >= 0)
        return;
    const char *path = getenv("FAKE_CUDART_MEMORY");
    struct stat about;
    file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0 || fstat(file, &about))
        exit(99);
    pages = ((size_t)about.st_size - sizeof *state) / PAGE / DEVICES;
    memory = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED || pages > MOST_PAGES)
        exit(99);
    state = (struct state *)(memory + pages * PAGE * DEVICES);
}

/* Another open file for each process, so that the lock is its own. */
static void lock(void) {
    static pid_t of;
    start();
    if (of != getpid()) {
        file = open(getenv("FAKE_CUDART_MEMORY"), O_RDWR | O_CLOEXEC);
        of = getpid();
    }
    flock(file, LOCK_EX);
}
static void unlock(void) { flock(file, LOCK_UN); }

static int is_free(const struct page *p) { return !p->owner || (kill(p->owner, 0) && errno == ESRCH); }

int cudaGetDevice(int *now) {
    *now = device;
    return 0;
}
int cudaSetDevice(int to) {
    if (to < 0 || to >= DEVICES)
        return 101;
    device = to;
    return 0;
}
int cudaGetDeviceCount(int *count) {
    *count = DEVICES;
    return 0;
}

int cudaMalloc(void **where, size_t bytes) {
    size_t wanted = (bytes + PAGE - 1) / PAGE, run = 0;
    lock();
    for (size_t i = 0; i < pages; i++) {
        run = is_free(&state->pages[device][i]) ? run + 1 : 0;
        if (run < wanted)
            continue;
        size_t first = i + 1 - run;
        for (size_t j = first; j <= i; j++)
            state->pages[device][j] = (struct page){getpid(), j == first ? (int)run : 0};
        *where = memory + ((size_t)device * pages + first) * PAGE;
        unlock();
        return 0;
    }
    unlock();
    return 2;
}

static void run(void *stream, int all) {
    int left = 0;
    for (int i = 0; i < waiting; i++) {
        if (all || pending[i].stream == stream)
            memset(pending[i].data, pending[i].value, pending[i].bytes);
        else
            pending[left++] = pending[i];
    }
    waiting = left;
}

int cudaDeviceSynchronize(void) {
    run(NULL, 1);
    return getenv("FAKE_CUDART_BROKEN") ? 710 : 0;
}
int cudaStreamCreateWithFlags(void **stream, unsigned flags) {
    (void)flags;
    *stream = (void *)(intptr_t)next_stream++;
    return 0;
}
int cudaStreamSynchronize(void *stream) {
    run(stream, 0);
    return 0;
}
int cudaMemsetAsync(void *data, int value, size_t bytes, void *stream) {
    if (waiting == MOST_PENDING)
        run(NULL, 1);
    pending[waiting++] = (struct work){data, stream, bytes, value};
    return 0;
}

/* What happens as soon as memory is free and before the caller knows: another thread's turn. Once. */
static void (*after_free)(void);
void cudaFakeAfterFree(void (*run)(void)) { after_free = run; }

int cudaFree(void *data) {
    void (*then)(void) = after_free;
    if (!data)
        return 0;
    cudaDeviceSynchronize();
    lock();
    size_t first = (size_t)((char *)data - memory) / PAGE % pages, of = (size_t)((char *)data - memory) / PAGE / pages;
    struct page *p = of < DEVICES ? &state->pages[of][first] : NULL;
    int known = p && p->owner == getpid() && p->first > 0 && (size_t)((char *)data - memory) % PAGE == 0;
    for (int n = known ? p->first : 0, i = 0; i < n; i++)
        p[i] = (struct page){0};
    unlock();
    after_free = NULL;
    if (then)
        then();
    return known ? 0 : 1;
}

int cudaMemGetInfo(size_t *left, size_t *total) {
    lock();
    *left = 0;
    for (size_t i = 0; i < pages; i++)
        *left += is_free(&state->pages[device][i]) ? PAGE : 0;
    *total = pages * PAGE;
    unlock();
    return 0;
}

/* Pinned memory is the host's: with old bytes in it, in a place that the test can look at afterwards. */
int cudaHostAlloc(void **where, size_t bytes, unsigned flags) {
    (void)flags;
    *where = malloc(bytes);
    memset(*where, 0xa5, bytes);
    return 0;
}
int cudaMallocHost(void **where, size_t bytes) { return cudaHostAlloc(where, bytes, 0); }
/* It stays, so that a test can look at what it was left with. */
int cudaFreeHost(void *data) {
    (void)data;
    return 0;
}

#define GIVES_UNSEEN(name) int name(void **where) { *where = memory; return 0; }
GIVES_UNSEEN(cudaMallocAsync)
GIVES_UNSEEN(cudaMallocFromPoolAsync)
GIVES_UNSEEN(cudaMallocManaged)
GIVES_UNSEEN(cudaMallocPitch)
GIVES_UNSEEN(cudaMalloc3D)
GIVES_UNSEEN(cudaMallocArray)
GIVES_UNSEEN(cudaMalloc3DArray)
GIVES_UNSEEN(cudaMallocMipmappedArray)
GIVES_UNSEEN(cudaMemPoolCreate)

static int driver(void) { return 0; }
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                     int *status) {
    (void)name, (void)version, (void)flags;
    *function = (void *)driver;
    *status = 0;
    return 0;
}
