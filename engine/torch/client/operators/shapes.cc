// Meta kernels: see shapes.h.
#include "shapes.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "encode.h"
#include "client/tensors/memory.h"
#include "client/python.h"
#include "rules.h"

namespace eat {

namespace {

using c10::IValue;

// The server's kernel warns as well, in torch's own words.
class Silent final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

at::Tensor meta(const at::Tensor& tensor) {
  if (!is_remote(tensor)) return tensor;
  auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::GetAllocator(at::kMeta), true);
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::Meta), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) made._set_conj(true);
  if (tensor.is_neg()) made._set_neg(true);
  return made;
}

// An `out=` that may be resized without a word: meta kernels in Python warn where no handler of ours hears it.
at::Tensor meta_out(const at::Tensor& tensor) {
  if (!is_remote(tensor) || !tensor.numel()) return meta(tensor);
  return at::detail::empty_meta({0}, tensor.scalar_type());
}

IValue to_meta_out(const IValue& value) {
  if (value.isTensor()) return meta_out(value.toTensor());
  c10::List<at::Tensor> made;
  for (const IValue& one : value.toListRef()) made.push_back(meta_out(one.toTensor()));
  return made;
}

IValue to_meta(const IValue& value, ListOf list) {
  if (value.isTensor()) return meta(value.toTensor());
  if (value.isDevice()) return at::Device(at::kMeta);
  if (value.isGenerator()) return {};
  if (list == ListOf::TENSORS && value.isList()) {
    c10::List<at::Tensor> made;
    for (const IValue& one : value.toListRef()) made.push_back(meta(one.toTensor()));
    return made;
  }
  if (list == ListOf::OPTIONAL_TENSORS && value.isList()) {
    c10::List<std::optional<at::Tensor>> made;
    for (const IValue& one : value.toListRef()) {
      if (one.isNone()) made.push_back(std::nullopt);
      else made.push_back(meta(one.toTensor()));
    }
    return made;
  }
  return value;
}

bool wanted(const OperatorInfo& info, const IValue* arguments, size_t output) {
  if (info.output_mask < 0) return true;
  const IValue& mask = arguments[info.output_mask];
  if (!mask.isList()) return true;
  auto truths = mask.toListRef();
  return output >= truths.size() || truths[output].toBool();
}

}  // namespace

Belief believe(const at::Tensor& tensor) {
  Belief belief;
  belief.defined = tensor.defined();
  if (!belief.defined) return belief;
  belief.dtype = static_cast<uint8_t>(tensor.scalar_type());
  belief.sizes = tensor.sizes().vec();
  if (tensor.is_non_overlapping_and_dense()) belief.strides = tensor.strides().vec();
  else belief.strides = at::detail::defaultStrides(tensor.sizes());
  belief.bytes = static_cast<int64_t>(at::detail::computeStorageNbytes(belief.sizes, belief.strides, tensor.element_size()));
  return belief;
}

Prediction predict(const c10::OperatorHandle& op, const OperatorInfo& info, const IValue* arguments) {
  Prediction made;
  if (auto ruled = by_rule(info, arguments)) {
    counters.rules++;
    made.known = true;
    made.results = std::move(*ruled);
    return made;
  }
  std::vector<IValue> stack;
  for (size_t i = 0; i < info.arguments.size(); i++) {
    bool out = info.arguments[i].out && (arguments[i].isTensor() || info.arguments[i].list == ListOf::TENSORS);
    stack.push_back(out ? to_meta_out(arguments[i]) : to_meta(arguments[i], info.arguments[i].list));
  }
  made.written = stack;
  Silent silent;
  try {
    c10::WarningUtils::WarningHandlerGuard warnings(&silent);
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    op.callBoxed(&stack);
  } catch (const std::exception&) {
    clear_exception();
    return made;
  }
  size_t base = stack.size() - info.returns.size();
  for (size_t i = 0; i < info.returns.size(); i++) {
    const ReturnInfo& result = info.returns[i];
    if (result.alias >= 0) {
      made.results.counts.push_back(0);
      continue;
    }
    const IValue& value = stack[base + i];
    size_t before = made.results.outputs.size();
    if (result.kind == ReturnInfo::TENSOR) {
      made.results.outputs.push_back(wanted(info, arguments, i) ? believe(value.toTensor()) : Belief());
    } else if (result.kind == ReturnInfo::TENSORS) {
      for (const IValue& one : value.toListRef()) made.results.outputs.push_back(believe(one.toTensor()));
    }
    made.results.counts.push_back(static_cast<int>(made.results.outputs.size() - before));
  }
  for (const Belief& belief : made.results.outputs) {
    need_carried(belief.sizes.size(), info.name);
    made.results.bytes += belief.bytes;
  }
  made.known = true;
  return made;
}

}  // namespace eat
