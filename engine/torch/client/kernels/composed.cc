// See composed.h. torch's own function for all devices is called by its name, so its arithmetic is nowhere written again.
#include "composed.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/dropout_native.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "client/tensors/memory.h"

namespace eat {

namespace {

using at::Tensor;
using c10::DispatchKey;

// Where they do not fit, torch's function for all devices has the error.
bool fits(const Tensor& input, c10::SymIntArrayRef shape, const std::optional<Tensor>& weight) {
  if (shape.empty() || input.dim() < static_cast<int64_t>(shape.size())) return false;
  if (weight && weight->defined() && weight->sym_sizes() != shape) return false;
  return input.sym_sizes().slice(static_cast<size_t>(input.dim()) - shape.size()) == shape;
}

Tensor rms_norm(const Tensor& input, c10::SymIntArrayRef shape, const std::optional<Tensor>& weight, std::optional<double> eps) {
  static const auto whole = c10::Dispatcher::singleton().findSchemaOrThrow("aten::rms_norm", "");
  static const auto fused = c10::Dispatcher::singleton().findSchema({"aten::_fused_rms_norm", ""});
  bool composed = is_remote(input) && device(input.device().index()).processor && fused && fits(input, shape, weight) &&
                  fused->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  torch::jit::Stack stack;
  torch::jit::push(stack, input, shape, weight, eps);
  (composed ? *fused : whole).callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, stack);
  return stack.at(0).toTensor();
}

// Under vmap and grad of torch.func, whose dropout is another one than torch's; outside them the server's fused one has a processor's
// bits.
Tensor dropout_of_func(const Tensor& input, double p, bool train) {
  bool composed = is_remote(input) && device(input.device().index()).processor && train && p > 0 && p < 1 && input.sym_numel() != 0;
  if (!composed) return at::native::dropout(input, p, train);
  Tensor noise = at::bernoulli(at::empty({}, input.options()).expand_symint(input.sym_sizes()), 1 - p);
  return input * noise.div_(1 - p);
}

}  // namespace

void register_composed(torch::Library& of_func, torch::Library& autograd, torch::Library& plain) {
  of_func.impl("dropout", &dropout_of_func);
  autograd.impl("rms_norm", &rms_norm);
  plain.impl("rms_norm", &rms_norm);
}

}  // namespace eat
