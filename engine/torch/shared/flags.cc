#include "flags.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>

namespace eat {
namespace {

using at::Context;

constexpr auto FIRST_PRECISION = static_cast<size_t>(Flag::PRECISION_GENERIC);
using Backend = at::Float32Backend;
using Op = at::Float32Op;
constexpr std::pair<Backend, Op> PRECISIONS[] = {
    {Backend::GENERIC, Op::ALL}, {Backend::CUDA, Op::ALL},      {Backend::CUDA, Op::CONV},
    {Backend::CUDA, Op::RNN},    {Backend::CUDA, Op::MATMUL},   {Backend::MKLDNN, Op::ALL},
    {Backend::MKLDNN, Op::CONV}, {Backend::MKLDNN, Op::RNN},    {Backend::MKLDNN, Op::MATMUL},
};

int64_t sdp_priority(Context& context) {
  int64_t packed = 0;
  int at = 0;
  for (auto backend : context.sDPPriorityOrder()) packed |= (static_cast<int64_t>(backend) + 1) << (4 * at++);
  return packed;
}

void set_sdp_priority(Context& context, int64_t packed) {
  std::vector<int64_t> order;
  for (size_t i = 0; i < at::num_sdp_backends; i++) order.push_back(((packed >> (4 * i)) & 15) - 1);
  context.setSDPPriorityOrder(order);
}

// torch throws where a program has mixed old and new names of the precision of matrix products.
template <class Read>
int64_t or_unknown(Read read) {
  try {
    return static_cast<int64_t>(read());
  } catch (const c10::Error&) {
    return UNKNOWN_FLAG;
  }
}

const char* const MATMUL[] = {"highest", "high", "medium"};

int64_t within(int64_t value, int64_t most) {
  if (value < 0 || value > most) throw WireError("a flag has no such value");
  return value;
}

void set_reduction(Context& context, bool bf16, int64_t value) {
  auto option = static_cast<at::CuBLASReductionOption>(within(value, 2));
  bool reduced = option == at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK;
  bool split = option != at::CuBLASReductionOption::DisallowReducedPrecisionDisallowSplitK;
  if (bf16) context.setAllowBF16ReductionCuBLAS(reduced, split);
  else context.setAllowFP16ReductionCuBLAS(reduced, split);
}

void apply(Context& context, size_t flag, int64_t value) {
  if (flag >= FIRST_PRECISION && flag < FIRST_PRECISION + std::size(PRECISIONS)) {
    auto [backend, op] = PRECISIONS[flag - FIRST_PRECISION];
    context.setFloat32Precision(backend, op, static_cast<at::Float32Precision>(within(value, 4)));
    return;
  }
  switch (static_cast<Flag>(flag)) {
    case Flag::DEFAULT_DTYPE: {
      auto dtype = static_cast<c10::ScalarType>(within(value, static_cast<int64_t>(c10::ScalarType::NumOptions) - 1));
      if (!c10::isFloatingType(dtype)) throw WireError("the default dtype is a floating one");
      c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
      break;
    }
    case Flag::DETERMINISTIC: context.setDeterministicAlgorithms(within(value, 2) > 0, value == 2); break;
    case Flag::FILL_UNINITIALIZED: context.setDeterministicFillUninitializedMemory(within(value, 1)); break;
    case Flag::CUDNN_ENABLED: context.setUserEnabledCuDNN(within(value, 1)); break;
    case Flag::CUDNN_BENCHMARK: context.setBenchmarkCuDNN(within(value, 1)); break;
    case Flag::CUDNN_BENCHMARK_LIMIT: context.setBenchmarkLimitCuDNN(static_cast<int>(within(value, 1000))); break;
    case Flag::CUDNN_DETERMINISTIC: context.setDeterministicCuDNN(within(value, 1)); break;
    case Flag::MATMUL_PRECISION: context.setFloat32MatmulPrecision(MATMUL[within(value, 2)]); break;
    case Flag::FP16_REDUCTION: set_reduction(context, false, value); break;
    case Flag::BF16_REDUCTION: set_reduction(context, true, value); break;
    case Flag::FP16_ACCUMULATION: context.setAllowFP16AccumulationCuBLAS(within(value, 1)); break;
    case Flag::SDP_FLASH: context.setSDPUseFlash(within(value, 1)); break;
    case Flag::SDP_EFFICIENT: context.setSDPUseMemEfficient(within(value, 1)); break;
    case Flag::SDP_MATH: context.setSDPUseMath(within(value, 1)); break;
    case Flag::SDP_CUDNN: context.setSDPUseCuDNN(within(value, 1)); break;
    case Flag::SDP_REDUCED_MATH: context.setAllowFP16BF16ReductionMathSDP(within(value, 1)); break;
    case Flag::SDP_PRIORITY: set_sdp_priority(context, value); break;
    case Flag::LINALG_BACKEND: context.setLinalgPreferredBackend(static_cast<at::LinalgBackend>(within(value, 2))); break;
    case Flag::BLAS_BACKEND: context.setBlasPreferredBackend(static_cast<at::BlasBackend>(within(value, 2))); break;
    case Flag::WARN_ALWAYS: c10::WarningUtils::set_warnAlways(within(value, 1)); break;
    case Flag::MKLDNN_ENABLED: context.setUserEnabledMkldnn(within(value, 1)); break;
    case Flag::MKLDNN_DETERMINISTIC: context.setDeterministicMkldnn(within(value, 1)); break;
    case Flag::FP16_REDUCTION_CPU: context.setAllowFP16ReductionCPU(within(value, 1)); break;
    default: break;  // of a newer client
  }
}

}  // namespace

Flags read_flags() {
  Context& context = at::globalContext();
  Flags flags;
  auto set = [&](Flag flag, int64_t value) { flags[static_cast<size_t>(flag)] = value; };
  set(Flag::DEFAULT_DTYPE, static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
  set(Flag::DETERMINISTIC, !context.deterministicAlgorithms() ? 0 : context.deterministicAlgorithmsWarnOnly() ? 2 : 1);
  set(Flag::FILL_UNINITIALIZED, context.deterministicFillUninitializedMemory());
  set(Flag::CUDNN_ENABLED, context.userEnabledCuDNN());
  set(Flag::CUDNN_BENCHMARK, context.benchmarkCuDNN());
  set(Flag::CUDNN_BENCHMARK_LIMIT, context.benchmarkLimitCuDNN());
  set(Flag::CUDNN_DETERMINISTIC, context.deterministicCuDNN());
  set(Flag::MATMUL_PRECISION, or_unknown([&] { return context.float32MatmulPrecision(); }));
  for (size_t i = 0; i < std::size(PRECISIONS); i++) {
    auto [backend, op] = PRECISIONS[i];
    flags[FIRST_PRECISION + i] = or_unknown([&, b = backend, o = op] { return context.float32Precision(b, o); });
  }
  set(Flag::FP16_REDUCTION, static_cast<int64_t>(context.allowFP16ReductionCuBLAS()));
  set(Flag::BF16_REDUCTION, static_cast<int64_t>(context.allowBF16ReductionCuBLAS()));
  set(Flag::FP16_ACCUMULATION, context.allowFP16AccumulationCuBLAS());
  set(Flag::SDP_FLASH, context.userEnabledFlashSDP());
  set(Flag::SDP_EFFICIENT, context.userEnabledMemEfficientSDP());
  set(Flag::SDP_MATH, context.userEnabledMathSDP());
  set(Flag::SDP_CUDNN, context.userEnabledCuDNNSDP());
  set(Flag::SDP_REDUCED_MATH, context.allowFP16BF16ReductionMathSDP());
  set(Flag::SDP_PRIORITY, sdp_priority(context));
  set(Flag::LINALG_BACKEND, static_cast<int64_t>(context.linalgPreferredBackend()));
  set(Flag::BLAS_BACKEND, static_cast<int64_t>(context.blasPreferredBackend()));
  set(Flag::WARN_ALWAYS, c10::WarningUtils::get_warnAlways());
  set(Flag::MKLDNN_ENABLED, context.userEnabledMkldnn());
  set(Flag::MKLDNN_DETERMINISTIC, context.deterministicMkldnn());
  set(Flag::FP16_REDUCTION_CPU, context.allowFP16ReductionCPU());
  return flags;
}

size_t put_flags(Writer& to, const Flags& now, const Flags& told) {
  size_t at = to.bytes.size();
  to.put<uint16_t>(0);
  uint16_t count = 0;
  for (size_t i = 0; i < FLAGS; i++) {
    if (now[i] == told[i] || now[i] == UNKNOWN_FLAG) continue;
    to.put<uint16_t>(static_cast<uint16_t>(i));
    to.put<int64_t>(now[i]);
    count++;
  }
  memcpy(&to.bytes[at], &count, sizeof count);
  return count;
}

void apply_flags(Reader& from) {
  auto count = from.get<uint16_t>();
  for (size_t i = 0; i < count; i++) {
    auto flag = from.get<uint16_t>();
    apply(at::globalContext(), flag, from.get<int64_t>());
  }
}

}  // namespace eat
