#include "replaced.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <unordered_map>

namespace eat {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::push;
using torch::jit::Stack;

c10::ScalarType dtype_of(const IValue& value) { return static_cast<c10::ScalarType>(value.toInt()); }

// Products of half precision with results of full: operands are made full first, which is exact.
void mm_dtype(Stack& stack) {
  auto [a, b, dtype] = take<3>(stack);
  push(stack, at::mm(a.toTensor().to(dtype_of(dtype)), b.toTensor().to(dtype_of(dtype))));
}

void bmm_dtype(Stack& stack) {
  auto [a, b, dtype] = take<3>(stack);
  push(stack, at::bmm(a.toTensor().to(dtype_of(dtype)), b.toTensor().to(dtype_of(dtype))));
}

void addmm_dtype(Stack& stack) {
  auto [self, a, b, dtype, beta, alpha] = take<6>(stack);
  auto to = dtype_of(dtype);
  push(stack, at::addmm(self.toTensor().to(to), a.toTensor().to(to), b.toTensor().to(to), beta.toScalar(), alpha.toScalar()));
}

void baddbmm_dtype(Stack& stack) {
  auto [self, a, b, dtype, beta, alpha] = take<6>(stack);
  auto to = dtype_of(dtype);
  push(stack, at::baddbmm(self.toTensor().to(to), a.toTensor().to(to), b.toTensor().to(to), beta.toScalar(), alpha.toScalar()));
}

// softmax of half precision with a result of full, as autocast asks for it.
template <Tensor (*softmax)(const Tensor&, int64_t, bool)>
void softmax_to_float(Stack& stack) {
  auto [self, dim, to_float] = take<3>(stack);
  auto tensor = self.toTensor();
  push(stack, softmax(to_float.toBool() ? tensor.to(c10::kFloat) : tensor, dim.toInt(), false));
}

template <Tensor (*backward)(const Tensor&, const Tensor&, int64_t, c10::ScalarType)>
void softmax_to_float_backward(Stack& stack) {
  auto [gradient, output, dim, dtype] = take<4>(stack);
  auto tensor = gradient.toTensor();
  push(stack, backward(tensor, output.toTensor(), dim.toInt(), tensor.scalar_type()).to(dtype_of(dtype)));
}

// Attention without dropout: the kernel that processors have for it.
bool plain_attention(const IValue& dropout) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout.toDouble() == 0, "attention with dropout inside its kernel is only with a GPU");
  return true;
}

std::optional<double> scale_of(const IValue& value) { return value.toOptional<double>(); }

Tensor no_state() { return at::zeros({2}, c10::kLong); }

void flash_attention(Stack& stack) {
  auto [q, k, v, dropout, causal, debug, scale] = take<7>(stack);
  plain_attention(dropout);
  auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      q.toTensor(), k.toTensor(), v.toTensor(), 0, causal.toBool(), std::nullopt, scale_of(scale));
  push(stack, output, logsumexp, Tensor(), Tensor(), q.toTensor().size(2), k.toTensor().size(2), no_state(),
       at::empty({}, c10::kLong), Tensor());
}

void flash_attention_backward(Stack& stack) {
  auto [gradient, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout, causal, seed, offset, scale] = take<15>(stack);
  plain_attention(dropout);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient.toTensor(), q.toTensor(), k.toTensor(), v.toTensor(), out.toTensor(), logsumexp.toTensor(), 0, causal.toBool(),
      std::nullopt, scale_of(scale));
  push(stack, dq, dk, dv);
}

void efficient_attention(Stack& stack) {
  auto [q, k, v, bias, want_sum, dropout, causal, scale] = take<8>(stack);
  plain_attention(dropout);
  auto mask = tensor_or_none(bias);
  auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      q.toTensor(), k.toTensor(), v.toTensor(), 0, causal.toBool(),
      mask.defined() ? std::optional<Tensor>(mask) : std::nullopt, scale_of(scale));
  push(stack, output, logsumexp, at::empty({}, c10::kLong), at::empty({}, c10::kLong));
}

void efficient_attention_backward(Stack& stack) {
  auto [gradient, q, k, v, bias, out, logsumexp, seed, offset, dropout, wanted, causal, scale] = take<13>(stack);
  plain_attention(dropout);
  auto mask = tensor_or_none(bias);
  TORCH_CHECK_NOT_IMPLEMENTED(!wanted.toBoolList().get(3), "the gradient of an attention's mask is only with a GPU");
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient.toTensor(), q.toTensor(), k.toTensor(), v.toTensor(), out.toTensor(), logsumexp.toTensor(), 0, causal.toBool(),
      mask.defined() ? std::optional<Tensor>(mask) : std::nullopt, scale_of(scale));
  push(stack, dq, dk, dv, Tensor());
}

// p is the part that is kept.
void fused_dropout(Stack& stack) {
  auto [self, p, generator] = take<3>(stack);
  auto tensor = self.toTensor();
  auto mask = at::empty_like(tensor, tensor.options().dtype(c10::kByte)).bernoulli_(p.toDouble(), generator.toOptional<at::Generator>());
  push(stack, tensor * mask * (1.0 / p.toDouble()), mask);
}

void masked_scale(Stack& stack) {
  auto [self, mask, scale] = take<3>(stack);
  push(stack, self.toTensor() * mask.toTensor() * scale.toDouble());
}

// Depthwise convolutions are convolutions with as many groups as channels.
void depthwise(Stack& stack) {
  auto [self, weight, kernel, bias, stride, padding, dilation] = take<7>(stack);
  std::vector<int64_t> none(kernel.toIntList().size(), 0);
  auto tensor = self.toTensor();
  push(stack, at::convolution(tensor, weight.toTensor(), tensor_or_none(bias), stride.toIntVector(), padding.toIntVector(),
                              dilation.toIntVector(), false, none, tensor.size(1)));
}

// Of whole numbers: a GPU divides them as C++ does, and processors refuse that.
void whole_addcdiv_(const Tensor& self, const Tensor& one, const Tensor& two, const at::Scalar& value) {
  if (!c10::isIntegralType(self.scalar_type(), true)) self.addcdiv_(one, two, value);
  else self.add_(at::div(one, two, "trunc").mul_(value.toLong()));
}

template <bool LIST>
void foreach_addcdiv_(Stack& stack) {
  auto [self, one, two, values] = take<4>(stack);
  auto to = self.toTensorVector(), a = one.toTensorVector(), b = two.toTensorVector();
  bool whole = std::any_of(to.begin(), to.end(), [](const Tensor& t) { return c10::isIntegralType(t.scalar_type(), true); });
  std::vector<at::Scalar> numbers;
  if constexpr (LIST) for (const IValue& v : values.toListRef()) numbers.push_back(v.toScalar());
  else numbers.assign(to.size(), values.toScalar());
  if (!whole || a.size() != to.size() || b.size() != to.size() || numbers.size() != to.size()) {
    if constexpr (LIST) at::_foreach_addcdiv_(to, a, b, numbers);
    else at::_foreach_addcdiv_(to, a, b, values.toScalar());
    return;
  }
  for (size_t i = 0; i < to.size(); i++) whole_addcdiv_(to[i], a[i], b[i], numbers[i]);
}

const std::unordered_map<std::string, Replacement> TABLE = {
    {"aten::mm.dtype", mm_dtype},
    {"aten::bmm.dtype", bmm_dtype},
    {"aten::addmm.dtype", addmm_dtype},
    {"aten::baddbmm.dtype", baddbmm_dtype},
    {"aten::_softmax", softmax_to_float<at::_softmax>},
    {"aten::_log_softmax", softmax_to_float<at::_log_softmax>},
    {"aten::_softmax_backward_data", softmax_to_float_backward<at::_softmax_backward_data>},
    {"aten::_log_softmax_backward_data", softmax_to_float_backward<at::_log_softmax_backward_data>},
    {"aten::_scaled_dot_product_flash_attention", flash_attention},
    {"aten::_scaled_dot_product_flash_attention_backward", flash_attention_backward},
    {"aten::_scaled_dot_product_efficient_attention", efficient_attention},
    {"aten::_scaled_dot_product_efficient_attention_backward", efficient_attention_backward},
    {"aten::_foreach_addcdiv_.Scalar", foreach_addcdiv_<false>},
    {"aten::_foreach_addcdiv_.ScalarList", foreach_addcdiv_<true>},
    {"aten::_fused_dropout", fused_dropout},
    {"aten::_masked_scale", masked_scale},
    {"aten::_conv_depthwise2d", depthwise},
    {"aten::conv_depthwise3d", depthwise},
};

}  // namespace

Replacement replacement(const std::string& name) {
  if (auto found = TABLE.find(name); found != TABLE.end()) return found->second;
  if (auto cell = replaced_cell(name)) return cell;
  return replaced_norm(name);
}

}  // namespace eat
