/* For kernels in CUDA C++ that nvcc compiles to PTX and g++ to a host module of the emulated devices. Include it first, and
 * say at the end of the source which kernels and __device__ variables there are:
 *
 *     HOST_MODULE(KERNELS(KERNEL(scale), KERNEL(sum)), GLOBALS(GLOBAL(table)))
 *
 * A host module has threads, blocks, barriers of a block, static and dynamic shared memory, and the atomics below. It has
 * no warps (no shuffles, no votes), no textures, no barrier over the grid. Blocks run one after the other. Both
 * compilers are told to round each product and each sum by itself (-fmad=false, -ffp-contract=off), so that kernels
 * made of + - * / alone give the same bits on a GPU. */
#ifndef ELASTIC_AI_KERNEL_H
#define ELASTIC_AI_KERNEL_H

#ifdef __CUDACC__

#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#define HOST_MODULE(...)

#else

#include <math.h>

#include <utility>

#include "../devices/host_module.h"

#define __global__ __attribute__((visibility("hidden")))
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
/* The threads of a block are fibres of one thread of the host. */
#define __shared__ static thread_local
#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(elastic::calls->shared())
#define threadIdx (elastic::self->thread)
#define blockIdx (elastic::self->block)
#define blockDim (elastic::self->block_size)
#define gridDim (elastic::self->grid_size)

namespace elastic {

static thread_local const host_thread *self;
static thread_local const host_calls *calls;

template <class... Types> struct Layout {
    host_param params[sizeof...(Types) + 1] = {};
    uint32_t bytes = 0;
    constexpr Layout() {
        constexpr uint32_t sizes[] = {sizeof(Types)..., 0}, aligned[] = {alignof(Types)..., 1};
        for (unsigned i = 0; i < sizeof...(Types); i++) {
            bytes = (bytes + aligned[i] - 1) / aligned[i] * aligned[i];
            params[i] = host_param{bytes, sizes[i]};
            bytes += sizes[i];
        }
    }
};

template <auto kernel> struct Entry;
template <class... Types, void (*kernel)(Types...)> struct Entry<kernel> {
    static constexpr Layout<Types...> layout{};
    template <size_t... at> static void call(const unsigned char *params, std::index_sequence<at...>) {
        kernel(*reinterpret_cast<const Types *>(params + layout.params[at].offset)...);
    }
    static void run(const unsigned char *params, const host_thread *thread, const host_calls *given) {
        self = thread;
        calls = given;
        call(params, std::index_sequence_for<Types...>{});
    }
    static constexpr host_kernel described(const char *name) {
        return host_kernel{name, run, layout.params, sizeof...(Types), layout.bytes};
    }
};

} // namespace elastic

static inline void __syncthreads() {
    const host_thread *mine = elastic::self;
    elastic::calls->barrier(); /* others run meanwhile */
    elastic::self = mine;
}

static inline int __float_as_int(float value) {
    int bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float __int_as_float(int bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

template <class Type> static inline Type min(Type a, Type b) { return b < a ? b : a; }
template <class Type> static inline Type max(Type a, Type b) { return a < b ? b : a; }
template <class Type> static inline Type __ldg(const Type *from) { return *from; }
template <class Type> static inline Type atomicAdd(Type *to, Type value) {
    return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <class Type> static inline Type atomicExch(Type *to, Type value) {
    return __atomic_exchange_n(to, value, __ATOMIC_RELAXED);
}
template <class Type> static inline Type atomicCAS(Type *to, Type expected, Type value) {
    __atomic_compare_exchange_n(to, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
template <> inline float atomicAdd(float *to, float value) {
    int *bits = reinterpret_cast<int *>(to), old = *bits, seen;
    while ((seen = atomicCAS(bits, old, __float_as_int(__int_as_float(old) + value))) != old) old = seen;
    return __int_as_float(old);
}
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#define KERNEL(name) elastic::Entry<&name>::described(#name)
#define KERNELS(...) __VA_ARGS__
#define GLOBAL(name) host_global{#name, const_cast<void *>(static_cast<const volatile void *>(&name)), sizeof(name)}
#define GLOBALS(...) __VA_ARGS__ __VA_OPT__(, )
#define HOST_MODULE(kernels_, globals_) \
    static const host_kernel elastic_kernels[] = {kernels_}; \
    static const host_global elastic_globals[] = {globals_ host_global{nullptr, nullptr, 0}}; \
    extern "C" __attribute__((visibility("default"))) const host_module elasticAiHostModule = { \
        HOST_MODULE_MAGIC, HOST_MODULE_VERSION, PTX_HASH, elastic_kernels, elastic_globals, \
        sizeof elastic_kernels / sizeof *elastic_kernels, sizeof elastic_globals / sizeof *elastic_globals - 1};

#endif
#endif
