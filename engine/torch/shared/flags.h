// torch's global settings that kernels read. They hold for the process in which they are set, which is the client's;
// the kernels run in the server's. So the client reads them before a call and tells what differs from what it told
// last, in order with the calls, and the server applies it.
#pragma once

#include <array>
#include <cstdint>

#include "wire.h"

namespace eat {

// Numbers of the wire: never given to another setting.
enum class Flag : uint16_t {
  DEFAULT_DTYPE,
  DETERMINISTIC,  // 0, 1; 2: only warn
  FILL_UNINITIALIZED,
  CUDNN_ENABLED,
  CUDNN_BENCHMARK,
  CUDNN_BENCHMARK_LIMIT,
  CUDNN_DETERMINISTIC,
  MATMUL_PRECISION,  // that of set_float32_matmul_precision
  PRECISION_GENERIC,  // this and the next eight: Float32Precision of a backend and a kind of operator
  PRECISION_CUDA_ALL,
  PRECISION_CUDA_CONV,
  PRECISION_CUDA_RNN,
  PRECISION_CUDA_MATMUL,
  PRECISION_MKLDNN_ALL,
  PRECISION_MKLDNN_CONV,
  PRECISION_MKLDNN_RNN,
  PRECISION_MKLDNN_MATMUL,
  FP16_REDUCTION,  // CuBLASReductionOption
  BF16_REDUCTION,
  FP16_ACCUMULATION,
  SDP_FLASH,
  SDP_EFFICIENT,
  SDP_MATH,
  SDP_CUDNN,
  SDP_REDUCED_MATH,
  SDP_PRIORITY,  // SDPBackend + 1, 4 bits each, the first the lowest
  LINALG_BACKEND,
  BLAS_BACKEND,
  WARN_ALWAYS,
  MKLDNN_ENABLED,  // this and the next two: read by kernels on processors, so in a lab
  MKLDNN_DETERMINISTIC,
  FP16_REDUCTION_CPU,
  COUNT,
};
constexpr size_t FLAGS = static_cast<size_t>(Flag::COUNT);

// A setting that this release of torch cannot tell (because old and new names of it were mixed) is UNKNOWN, and not sent.
constexpr int64_t UNKNOWN_FLAG = INT64_MIN;

using Flags = std::array<int64_t, FLAGS>;

// All of them, as they are in this process. Some 0.2 us.
Flags read_flags();

// The body of a FLAGS message with those of `now` that differ from `told`; how many they are.
size_t put_flags(Writer& to, const Flags& now, const Flags& told);

// Applies what a FLAGS message says. WireError where it is none; torch's own errors where it refuses a value. A flag
// that a newer client knows and this server does not is passed over.
void apply_flags(Reader& from);

}  // namespace eat
