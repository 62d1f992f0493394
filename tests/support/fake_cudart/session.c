/* What the launcher loads for its PyTorch, in its place: a session that takes memory as its client says.
 *
 * The client sends a letter and a number; the answer is a line. m MIB: take so much; w BYTE: write it over all that was
 * taken; f N: give the N-th back; i: what is free and what there is; e: never answer. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMemGetInfo(size_t *, size_t *);
int cudaMemsetAsync(void *, int, size_t, void *);
int cudaDeviceSynchronize(void);

int eats_wire_version(void) { return WIRE_VERSION; }
void eats_groups(void *made_by) { (void)made_by; }
size_t eats_account_bytes(void) { return 4096; }
void eats_account_make(void *account, uint64_t limit) { (void)account, (void)limit; }
void eats_account_clear(void *account, size_t row) { (void)account, (void)row; }
int eats_operators(const char *lines, int cpu) { return (void)lines, (void)cpu, 1; }

int eats_verbs_check(const char *address, char *why, size_t bytes) { return (void)address, (void)why, (void)bytes, -1; }
void *eats_verbs_take(int fd, unsigned *port, char *words, size_t bytes) {
    return (void)fd, (void)port, (void)words, (void)bytes, NULL;
}

int eats_serve(int fd, void *carrier, int cuda, int devices, void *account, size_t row, double busy, int64_t like, const char *version,
               const char *json, char *why, size_t why_bytes) {
    (void)carrier, (void)cuda, (void)devices, (void)account, (void)row, (void)busy, (void)like, (void)version, (void)json, (void)why_bytes;
    static struct {
        unsigned char *data;
        size_t bytes;
    } taken[64];
    int count = 0, error;
    size_t left, total, others;
    struct __attribute__((packed)) {
        char what;
        uint32_t number;
    } said;
    char line[80];
    why[0] = '\0';
    while (read(fd, &said, sizeof said) == sizeof said) {
        snprintf(line, sizeof line, "0\n");
        if (said.what == 'm') {
            taken[count].bytes = (size_t)said.number << 20;
            error = cudaMalloc((void **)&taken[count].data, taken[count].bytes);
            others = 0;
            for (size_t i = 0; !error && i < taken[count].bytes; i++)
                others += taken[count].data[i] != 0;
            count += !error;
            snprintf(line, sizeof line, "%d %zu\n", error, others);
        } else if (said.what == 'w') {
            for (int i = 0; i < count; i++)
                cudaMemsetAsync(taken[i].data, (int)said.number, taken[i].bytes, (void *)77);
            cudaDeviceSynchronize();
        } else if (said.what == 'f') {
            snprintf(line, sizeof line, "%d\n", cudaFree(taken[said.number].data));
        } else if (said.what == 'i') {
            error = cudaMemGetInfo(&left, &total);
            snprintf(line, sizeof line, "%d %zu %zu\n", error, left, total);
        } else {
            for (;;)
                pause();
        }
        if (write(fd, line, strlen(line)) < 0)
            break;
    }
    return 0;
}
