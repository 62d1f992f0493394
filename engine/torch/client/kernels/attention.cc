// Attention: see attention.h. torch's own function asks a table of the device which kernel is best, and calls that kernel, whose
// backward is its own. On a GPU the table's answer comes from the server; where the server computes on processors, the choice is
// that of processors, so that results have the bits of a native run there.
#include "attention.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SDPBackend.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_map>

#include "client/operators/call.h"
#include "client/operators/encode.h"

namespace eat {

namespace {

using at::Tensor;
using Mask = std::optional<Tensor>;
using Scale = std::optional<double>;

constexpr size_t MOST_CHOICES = 4096;  // remembered

// torch's convert_boolean_attn_mask
Mask added_mask(const Mask& mask, at::ScalarType dtype) {
  if (!mask || !mask->defined() || mask->scalar_type() != at::kBool) return mask;
  Tensor made = at::zeros_like(*mask, mask->options().dtype(dtype));
  made.masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
  return made;
}

constexpr int64_t SOME_SIZE = 16;  // stands for one that torch.compile leaves open: no choice depends on it

// torch.compile traces with tensors that have no memory, under modes that would take what is made here for theirs.
const c10::DispatchKeySet TRACING{c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::Functionalize};

bool is_traced(const Tensor& tensor) { return tensor.unsafeGetTensorImpl()->key_set().has_any(TRACING); }

// A tensor of the same geometry whose memory nobody touches. It wants a gradient where the tensor does: a processor has a fused
// kernel for no mask of that kind.
Tensor same_on(at::Device device, const Tensor& tensor) {
  auto sizes = tensor.sym_sizes(), strides = tensor.sym_strides();
  c10::SmallVector<int64_t, 5> plain, laid;
  bool open = false;
  for (const c10::SymInt& size : sizes) open |= !size.maybe_as_int(), plain.push_back(size.maybe_as_int().value_or(SOME_SIZE));
  for (const c10::SymInt& stride : strides) open |= !stride.maybe_as_int(), laid.push_back(stride.maybe_as_int().value_or(SOME_SIZE));
  std::vector<int64_t> strided = open ? at::detail::defaultStrides(plain) : std::vector<int64_t>(laid.begin(), laid.end());
  OnDevice on(device.is_cuda() ? device.index() : -1);
  Tensor made = device.is_cpu() ? at::detail::empty_strided_cpu(plain, strided, tensor.scalar_type())
                                : at::detail::empty_strided_generic(plain, strided, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                                    tensor.scalar_type());
  return made.set_requires_grad(tensor.requires_grad());
}

Tensor same_on_cpu(const Tensor& tensor) { return same_on(at::kCPU, tensor); }

// The choice of torch's own function for processors.
int64_t processor_choice(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& mask, double dropout, bool causal, Scale scale,
                         bool grouped) {
  c10::impl::ExcludeDispatchKeyGuard plain(TRACING);
  Mask here = mask && mask->defined() ? Mask(same_on_cpu(*mask)) : std::nullopt;
  return at::_fused_sdp_choice(same_on_cpu(query), same_on_cpu(key), same_on_cpu(value), here, dropout, causal, scale, grouped);
}

// Tensors that vmap holds have no memory of their own: others of their geometry, for the server to look at.
Tensor with_memory(const Tensor& tensor) {
  if (!tensor.defined() || tensor.has_storage()) return tensor;
  OnDevice on(tensor.device().index());
  Tensor made = at::detail::empty_strided_generic(tensor.sizes(), tensor.strides(), device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                  tensor.scalar_type());
  return made.set_requires_grad(tensor.requires_grad());
}

// The server's choice for these tensors, asked once for each geometry and setting.
int64_t server_choice(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& mask, double dropout, bool causal, Scale scale,
                      bool grouped) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_fused_sdp_choice", "");
  static const OperatorInfo info(op, 0);
  static std::mutex mutex;
  static std::unordered_map<std::string, int64_t> choices;
  if (device(query.device().index()).processor) return processor_choice(query, key, value, mask, dropout, causal, scale, grouped);
  if (is_traced(query)) {
    c10::impl::ExcludeDispatchKeyGuard plain(TRACING);
    Mask here = mask && mask->defined() ? Mask(same_on(query.device(), *mask)) : std::nullopt;
    return server_choice(same_on(query.device(), query), same_on(query.device(), key), same_on(query.device(), value), here, dropout, causal, scale, grouped);
  }
  Mask there = mask ? Mask(with_memory(*mask)) : std::nullopt;
  std::vector<c10::IValue> stack{with_memory(query), with_memory(key), with_memory(value), there, dropout, causal, scale, grouped};
  BorrowedEncoder encoded;
  encoded->encode(info, stack.data());
  Flags flags = read_flags();
  std::string wanted = encoded->key + encoded->payload;
  wanted.append(reinterpret_cast<const char*>(flags.data()), sizeof flags);
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = choices.find(wanted); found != choices.end()) return found->second;
  }
  call_remote(op, &stack);
  int64_t choice = stack.back().toInt();
  std::lock_guard<std::mutex> lock(mutex);
  if (choices.size() >= MOST_CHOICES) choices.clear();
  return choices[wanted] = choice;
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const Mask& mask, double dropout, bool causal, Scale scale,
                 bool grouped) {
  if (!is_remote(query) || !device(query.device().index()).processor) {
    return at::native::scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale, grouped);
  }
  int64_t choice = processor_choice(query, key, value, mask, dropout, causal, scale, grouped);
  Mask added = added_mask(mask, query.scalar_type());
  if (choice == static_cast<int64_t>(at::SDPBackend::flash_attention)) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, added, scale));
  }
  return std::get<0>(at::_scaled_dot_product_attention_math(query, key, value, added, dropout, causal, std::nullopt, scale, grouped));
}

}  // namespace

void register_attention(torch::Library& autograd, torch::Library& plain) {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&server_choice);
  plain.impl("_fused_sdp_choice", &server_choice);
  autograd.impl("scaled_dot_product_attention", &attention);
  plain.impl("scaled_dot_product_attention", &attention);
}

}  // namespace eat
