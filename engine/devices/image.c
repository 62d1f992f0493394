/* Code images: PTX text, as any CUDA driver takes it. What an emulated device runs instead of it is a host module of the
 * same source, which either follows the text in comments (so that one file suits every driver) or lies beside this
 * library under the text's hash. In comments:
 *
 *     //.elastic-ai-host VERSION MACHINE BYTES HASH
 *     //BASE64...
 *     //.elastic-ai-host-end
 */
#define _GNU_SOURCE
#include "image.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define BEGIN "//.elastic-ai-host "
#define END "//.elastic-ai-host-end"
#define MOST_BYTES ((size_t)16 << 20) /* of a host module */
_Static_assert(EMULATED_CUDA_VERSION >= 13000 && EMULATED_CUDA_VERSION < 14000, "the PTX of another CUDA is not known here");
#define NEWEST_PTX (90 + EMULATED_CUDA_VERSION % 1000 / 10) /* PTX ISA 9.0 came with CUDA 13.0, 9.1 with 13.1 */
#define SAY(...) snprintf(log, LOG_BYTES, __VA_ARGS__)

static int digit(char c) {
    const char *digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", *found = strchr(digits, c);
    return c && found ? (int)(found - digits) : -1;
}

/* Base64 in comment lines up to END: `bytes` of them, or false. */
static bool decode(const char *at, unsigned char *to, size_t bytes) {
    uint32_t held = 0;
    int bits = 0;
    size_t count = 0;
    for (;;) {
        if (strncmp(at, "//", 2)) return false;
        if (!strncmp(at, END, strlen(END))) return count == bytes;
        for (at += 2; *at && *at != '\n' && *at != '='; at++) {
            int value = digit(*at);
            if (value < 0) return false;
            held = held << 6 | (uint32_t)value;
            bits += 6;
            if (bits < 8) continue;
            bits -= 8;
            if (count == bytes) return false;
            to[count++] = (unsigned char)(held >> bits);
        }
        at += strspn(at, "=");
        if (*at++ != '\n') return false;
    }
}

/* The shared object of an image, in a file that only this process has. -1: `log` says why. */
static int unpack(const char *at, char log[LOG_BYTES]) {
    unsigned version;
    char machine[32];
    unsigned long long bytes, hash;
    struct utsname here;
    const char *line = strchr(at, '\n');
    if (!line || sscanf(at, BEGIN "%u %31s %llu %llx", &version, machine, &bytes, &hash) != 4)
        return SAY("the host module's first line is damaged"), -1;
    if (version != HOST_MODULE_VERSION)
        return SAY("the host module is of version %u, and this device takes %u", version, HOST_MODULE_VERSION), -1;
    if (uname(&here) || strcmp(machine, here.machine))
        return SAY("the host module is for %s, and this machine is %s", machine, here.machine), -1;
    if (!bytes || bytes > MOST_BYTES) return SAY("the host module says that it has %llu bytes", bytes), -1;
    unsigned char *data = malloc(bytes);
    if (!data || !decode(line + 1, data, bytes) || host_module_hash(data, bytes) != hash) {
        free(data);
        return SAY("the host module is damaged"), -1;
    }
    int file = memfd_create("elastic-ai-host", MFD_CLOEXEC);
    for (size_t done = 0; file >= 0 && done < bytes;) {
        ssize_t wrote = write(file, data + done, bytes - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) close(file), file = -1;
        else done += (size_t)wrote;
    }
    free(data);
    if (file < 0) SAY("the host module cannot be held: %s", strerror(errno));
    return file;
}

/* A copy of the installed module, so that every context has variables of its own. -1: there is none. */
static int installed(uint64_t hash) {
    Dl_info about;
    char path[512];
    if (!dladdr(BEGIN, &about) || !about.dli_fname) return -1;
    const char *slash = strrchr(about.dli_fname, '/');
    int folder = slash ? (int)(slash - about.dli_fname) : 1;
    snprintf(path, sizeof path, "%.*s/elastic-ai-kernels-%016llx.so", folder, slash ? about.dli_fname : ".",
             (unsigned long long)hash);
    int from = open(path, O_RDONLY | O_CLOEXEC), file = -1;
    struct stat size;
    if (from >= 0 && !fstat(from, &size) && size.st_size <= (off_t)MOST_BYTES) {
        void *data = mmap(NULL, (size_t)size.st_size, PROT_READ, MAP_PRIVATE, from, 0);
        file = data == MAP_FAILED ? -1 : memfd_create("elastic-ai-host", MFD_CLOEXEC);
        if (file >= 0 && write(file, data, (size_t)size.st_size) != size.st_size) close(file), file = -1;
        if (data != MAP_FAILED) munmap(data, (size_t)size.st_size);
    }
    if (from >= 0) close(from);
    return file;
}

static bool checked(const struct host_module *m, uint64_t hash) {
    bool fine = m && m->magic == HOST_MODULE_MAGIC && m->version == HOST_MODULE_VERSION && m->ptx_hash == hash;
    for (uint32_t i = 0; fine && i < m->kernel_count; i++) {
        const struct host_kernel *k = &m->kernels[i];
        fine = k->name && k->run && k->param_bytes <= 4096; /* CUDA C++ Programming Guide: of kernel parameters */
        for (uint32_t p = 0; fine && p < k->param_count; p++)
            fine = k->params[p].bytes && k->params[p].offset + k->params[p].bytes <= k->param_bytes;
    }
    return fine;
}

/* The targets that ptxas 13.1 knows; it takes all older PTX. */
static bool known_target(int target) {
    static const int known[] = {10, 11, 12, 13, 20, 30, 32, 35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90,
                                100, 101, 103, 110, 120, 121};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == target) return true;
    return false;
}

/* The header of PTX: .version, .target, .address_size; and that it is whole. */
static CUresult look(const char *ptx, int *target, char log[LOG_BYTES]) {
    unsigned major, minor, size;
    const char *version = strstr(ptx, ".version"), *for_ = strstr(ptx, ".target"), *address = strstr(ptx, ".address_size");
    if (!version || sscanf(version, ".version %u.%u", &major, &minor) != 2)
        return SAY("ptxas fatal: no PTX: it has no .version"), CUDA_ERROR_INVALID_IMAGE;
    if (major * 10 + minor > NEWEST_PTX) {
        SAY("ptxas fatal: PTX .version %u.%u is newer than this driver's %d.%d", major, minor, NEWEST_PTX / 10, NEWEST_PTX % 10);
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    }
    if (!for_ || sscanf(for_, ".target sm_%d", target) != 1)
        return SAY("ptxas fatal: PTX has no .target"), CUDA_ERROR_INVALID_PTX;
    if (!known_target(*target)) return SAY("ptxas fatal: Unknown .target 'sm_%d'", *target), CUDA_ERROR_INVALID_PTX;
    if (!address || sscanf(address, ".address_size %u", &size) != 1 || size != 64)
        return SAY("ptxas fatal: PTX is not for addresses of 64 bits"), CUDA_ERROR_INVALID_PTX;
    int depth = 0, line = 1;
    for (const char *at = ptx; *at && depth >= 0; at++) {
        if (at[0] == '/' && at[1] == '/') at += strcspn(at, "\n");
        if (!*at) break;
        depth += (*at == '{') - (*at == '}');
        line += *at == '\n';
    }
    if (depth) return SAY("ptxas fatal: line %d: parsing error: unbalanced braces", line), CUDA_ERROR_INVALID_PTX;
    return CUDA_SUCCESS;
}

/* The kernel's `.entry` in the PTX, behind its name; NULL: there is none. */
static const char *entry(const char *ptx, const char *kernel) {
    size_t length = strlen(kernel);
    for (const char *at = ptx; (at = strstr(at, ".entry")) != NULL;) {
        at += strlen(".entry");
        at += strspn(at, " \t\n");
        if (!strncmp(at, kernel, length) && strchr("( \t\n", at[length])) return at + length;
    }
    return NULL;
}

CUresult image_load(const char *text, struct image *to, char log[LOG_BYTES]) {
    *to = (struct image){.file = -1};
    if (!strncmp(text, "\177ELF", 4) || !strncmp(text, "\x50\xed", 2) || !strncmp(text, "\xb1\x43", 2)) {
        SAY("an emulated device runs no cubin and no fatbin: it takes PTX with a host module");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    const char *host = strstr(text, "\n" BEGIN);
    to->ptx = host ? strndup(text, (size_t)(host + 1 - text)) : strdup(text);
    if (!to->ptx) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult status = look(to->ptx, &to->target, log);
    uint64_t hash = host_module_hash(to->ptx, strlen(to->ptx));
    if (!status) to->file = host ? unpack(host + 1, log) : installed(hash);
    if (!status && to->file < 0) {
        if (!host) SAY("an emulated device runs kernels by their host module, and there is none for this PTX");
        status = host ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (!status) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", to->file);
        to->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!to->library) SAY("the host module does not load: %.400s", dlerror()), status = CUDA_ERROR_INVALID_IMAGE;
    }
    if (!status) {
        to->module = dlsym(to->library, HOST_MODULE_SYMBOL);
        if (!checked(to->module, hash)) SAY("the host module is not of this PTX"), status = CUDA_ERROR_INVALID_IMAGE;
    }
    for (uint32_t i = 0; !status && i < to->module->kernel_count; i++) {
        if (entry(to->ptx, to->module->kernels[i].name)) continue;
        SAY("the PTX has no .entry %.100s, which the host module has", to->module->kernels[i].name);
        status = CUDA_ERROR_INVALID_IMAGE;
    }
    if (status) image_unload(to);
    return status;
}

CUresult image_fits(const struct image *image, int capability, char log[LOG_BYTES]) {
    if (image->target <= capability) return CUDA_SUCCESS;
    SAY("ptxas fatal: PTX is for sm_%d, and this device is sm_%d", image->target, capability);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

void image_unload(struct image *image) {
    if (image->library) dlclose(image->library);
    if (image->file >= 0) close(image->file);
    free(image->ptx);
    *image = (struct image){.file = -1};
}

int image_shared_bytes(const struct image *image, const char *kernel) {
    const char *at = entry(image->ptx, kernel), *body = at ? strchr(at, '{') : NULL;
    int total = 0, depth = 0;
    for (at = body; at && *at; at++) {
        int align, bytes;
        depth += (*at == '{') - (*at == '}');
        if (!depth) break;
        if (*at == '.' && !strncmp(at, ".shared .align", 14) &&
            sscanf(at, ".shared .align %d .b8 %*[^[][%d]", &align, &bytes) == 2 && align > 0)
            total = (total + align - 1) / align * align + bytes;
    }
    return total;
}
