/* A grid of a host module, run by the calling thread: block after block. The threads of a block are fibres, which take
 * turns at its barriers; a fibre whose thread met none goes on with the next thread, so that a kernel without barriers
 * takes one. What a kernel does to this process by mistake ends the kernel alone. */
#undef _FORTIFY_SOURCE /* its longjmp knows no fibres */
#define _GNU_SOURCE
#include "grid.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK_BYTES ((size_t)64 << 10)
#define GUARD_BYTES ((size_t)4 << 10)
#define SIGNAL_STACK_BYTES ((size_t)32 << 10)

struct fiber {
    ucontext_t context;
    struct host_thread who;
    bool made;
};

/* Of a thread that runs grids, for as long as it lives. */
struct runner {
    struct fiber fibers[MAX_BLOCK_THREADS];
    int idle[MAX_BLOCK_THREADS], idle_count; /* numbers of fibres */
    int waiting[MAX_BLOCK_THREADS], waiting_count; /* at the barrier, in the order in which they came */
    int running; /* fibre */
    unsigned next, threads; /* of the block */
    const struct grid *grid;
    struct host_index block;
    ucontext_t scheduler;
    sigjmp_buf escape;
    volatile sig_atomic_t in_kernel;
    char *stacks, *signal_stack, *shared;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Thread_local struct runner *mine;
static const int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, GRID_STOP};
static struct sigaction before[NSIG];

static void on_signal(int number, siginfo_t *about, void *context) {
    struct runner *r = mine;
    if (r && r->in_kernel && (number != GRID_STOP || *r->grid->stop)) siglongjmp(r->escape, number);
    const struct sigaction *old = &before[number];
    if (old->sa_flags & SA_SIGINFO) {
        old->sa_sigaction(number, about, context);
    } else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
        old->sa_handler(number);
    } else if (number != GRID_STOP) { /* the same again, and then as if there were no handler */
        signal(number, SIG_DFL);
        if (about->si_code <= 0) raise(number); /* sent, not made by the instruction */
    }
}

static void runner_free(void *given) {
    struct runner *r = given;
    stack_t none = {.ss_flags = SS_DISABLE}, now;
    if (!sigaltstack(NULL, &now) && now.ss_sp == r->signal_stack) sigaltstack(&none, NULL);
    munmap(r->stacks, MAX_BLOCK_THREADS * (STACK_BYTES + GUARD_BYTES));
    munmap(r->signal_stack, SIGNAL_STACK_BYTES);
    munmap(r->shared, MAX_SHARED_BYTES);
    free(r);
    mine = NULL;
}

static void start(void) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) sigaction(caught[i], &action, &before[caught[i]]);
    pthread_key_create(&key, runner_free);
}

static void *map(size_t bytes, int protection) {
    void *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static bool runner_make(void) {
    pthread_once(&once, start);
    if (mine) return true;
    struct runner *r = calloc(1, sizeof *r);
    if (!r) return false;
    r->stacks = map(MAX_BLOCK_THREADS * (STACK_BYTES + GUARD_BYTES), PROT_NONE);
    r->signal_stack = map(SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE);
    r->shared = map(MAX_SHARED_BYTES, PROT_READ | PROT_WRITE);
    stack_t old, stack = {.ss_sp = r->signal_stack, .ss_size = SIGNAL_STACK_BYTES};
    bool fine = r->stacks && r->signal_stack && r->shared && !sigaltstack(NULL, &old);
    /* Whoever has one of his own keeps it. */
    if (fine && old.ss_flags & SS_DISABLE) fine = !sigaltstack(&stack, NULL);
    if (!fine) {
        if (r->stacks) munmap(r->stacks, MAX_BLOCK_THREADS * (STACK_BYTES + GUARD_BYTES));
        if (r->signal_stack) munmap(r->signal_stack, SIGNAL_STACK_BYTES);
        if (r->shared) munmap(r->shared, MAX_SHARED_BYTES);
        free(r);
        return false;
    }
    mine = r;
    pthread_setspecific(key, r);
    return true;
}

static void barrier(void) {
    struct runner *r = mine;
    struct fiber *f = &r->fibers[r->running];
    r->waiting[r->waiting_count++] = r->running;
    swapcontext(&f->context, &r->scheduler);
}

static void *shared(void) {
    return mine->shared;
}

static const struct host_calls calls = {barrier, shared};

static void work(void) {
    struct runner *r = mine;
    int number = r->running;
    struct fiber *f = &r->fibers[number];
    for (;;) {
        while (r->next < r->threads) {
            unsigned i = r->next++;
            const unsigned *size = r->grid->block;
            f->who = (struct host_thread){{i % size[0], i / size[0] % size[1], i / size[0] / size[1]},
                                          r->block,
                                          {size[0], size[1], size[2]},
                                          {r->grid->grid[0], r->grid->grid[1], r->grid->grid[2]}};
            r->grid->kernel->run(r->grid->params, &f->who, &calls);
        }
        r->idle[r->idle_count++] = number;
        swapcontext(&f->context, &r->scheduler);
    }
}

static bool fiber_make(struct runner *r, int number) {
    char *stack = r->stacks + (size_t)number * (STACK_BYTES + GUARD_BYTES) + GUARD_BYTES;
    struct fiber *f = &r->fibers[number];
    if (!f->made && mprotect(stack, STACK_BYTES, PROT_READ | PROT_WRITE)) return false;
    f->made = true;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, work, 0);
    return true;
}

static void resume(struct runner *r, int number) {
    r->running = number;
    swapcontext(&r->scheduler, &r->fibers[number].context);
}

static CUresult block_run(struct runner *r) {
    int made = r->idle_count, round[MAX_BLOCK_THREADS];
    r->next = 0;
    while (r->next < r->threads) {
        if (!r->idle_count) {
            if (!fiber_make(r, made)) return CUDA_ERROR_OUT_OF_MEMORY;
            r->idle[r->idle_count++] = made++;
        }
        resume(r, r->idle[--r->idle_count]);
    }
    while (r->waiting_count) { /* every thread that is left is at the barrier */
        int count = r->waiting_count;
        memcpy(round, r->waiting, (size_t)count * sizeof *round);
        r->waiting_count = 0;
        for (int i = 0; i < count; i++) resume(r, round[i]);
        if (*r->grid->stop) return CUDA_ERROR_LAUNCH_FAILED;
    }
    return CUDA_SUCCESS;
}

CUresult grid_run(const struct grid *g) {
    if (!runner_make()) return CUDA_ERROR_OUT_OF_MEMORY;
    struct runner *r = mine;
    r->grid = g;
    r->threads = g->block[0] * g->block[1] * g->block[2];
    r->idle_count = r->waiting_count = 0; /* fibres of a kernel that was ended are begun anew */
    int number = sigsetjmp(r->escape, 1);
    if (number) {
        r->in_kernel = 0;
        return number == SIGSEGV || number == SIGBUS ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_LAUNCH_FAILED;
    }
    CUresult status = CUDA_SUCCESS;
    r->in_kernel = 1;
    for (unsigned z = 0; z < g->grid[2] && !status; z++)
        for (unsigned y = 0; y < g->grid[1] && !status; y++)
            for (unsigned x = 0; x < g->grid[0] && !status; x++) {
                r->block = (struct host_index){x, y, z};
                status = *g->stop ? CUDA_ERROR_LAUNCH_FAILED : block_run(r);
            }
    r->in_kernel = 0;
    return status;
}
