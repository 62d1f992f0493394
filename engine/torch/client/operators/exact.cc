// Exact operators on known values: see exact.h.
#include "exact.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "values.h"

namespace eat {

namespace {

bool integral(const at::Tensor& tensor) { return at::isIntegralType(tensor.scalar_type(), true); }
bool common_float(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble; }

// Not with torch.set_flush_denormal: the other machine's unit has a setting of its own.
bool subnormals_count() {
  volatile float least = FLT_TRUE_MIN;
  return least * 1.0f > 0.0f;
}

// Whether that tensor may be computed with, seen from outside.
bool usable(const at::Tensor& tensor, Exact kind) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_conj() || tensor.is_neg() || tensor.numel() == 0) return false;
  if (!integral(tensor) && (kind == Exact::INTEGERS || !common_float(tensor))) return false;
  if (is_remote(tensor)) return remote_storage(tensor).is_known();
  return tensor.device().is_cpu() && tensor.dim() == 0;
}

bool fits(int64_t number, at::ScalarType type) {
  switch (type) {
    case at::kByte: return number >= 0 && number <= UINT8_MAX;
    case at::kChar: return number >= INT8_MIN && number <= INT8_MAX;
    case at::kShort: return number >= INT16_MIN && number <= INT16_MAX;
    case at::kInt: return number >= INT32_MIN && number <= INT32_MAX;
    case at::kFloat: return std::abs(number) <= (int64_t(1) << 24);
    case at::kDouble: return std::abs(number) <= (int64_t(1) << 53);
    default: return type == at::kLong || type == at::kBool;
  }
}

// A number that is the same in the tensor's type: no kernel has to round or wrap it.
bool fits(const c10::IValue& number, const at::Tensor& tensor) {
  if (number.isBool()) return true;
  if (number.isInt()) return fits(number.toInt(), tensor.scalar_type());
  if (!number.isDouble() || integral(tensor)) return false;
  double value = number.toDouble();
  return tensor.scalar_type() == at::kDouble || !std::isfinite(value) ||
         (std::abs(value) <= FLT_MAX && static_cast<double>(static_cast<float>(value)) == value);
}

// The tensor's elements here; undefined where they are known no more.
at::Tensor here(const at::Tensor& tensor) {
  if (!is_remote(tensor)) return tensor;
  RemoteStorage& storage = remote_storage(tensor);
  int64_t last = tensor.storage_offset();
  for (int64_t i = 0; i < tensor.dim(); i++) last += (tensor.size(i) - 1) * tensor.stride(i);
  auto bytes = std::make_shared<std::string>(static_cast<size_t>(storage.bytes), '\0');  // a copy: the original goes with a write
  if ((last + 1) * static_cast<int64_t>(tensor.element_size()) > storage.bytes || !take_known(storage, 0, bytes->data(), bytes->size())) return {};
  char* data = bytes->data() + tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
  return at::from_blob(data, tensor.sizes(), tensor.strides(), [bytes](void*) {}, at::TensorOptions(tensor.scalar_type()).device(at::kCPU));
}

}  // namespace

std::vector<c10::IValue> known_arguments(const OperatorInfo& info, const c10::IValue* arguments) {
  // First without copying: most have an argument that is not known.
  const at::Tensor* first = nullptr;
  std::optional<at::Tensor> number;  // on the processor, as a Python number is
  auto takes = [&](const at::Tensor& tensor) {
    if (!usable(tensor, info.exact)) return false;
    if (!first) first = &tensor;
    if (!is_remote(tensor)) number = tensor;
    if (number && integral(*number)) {
      int64_t value = number->item<int64_t>();
      if (!fits(value, tensor.scalar_type()) || !fits(value, first->scalar_type())) return false;
    }
    // Two types would be converted before the test, and floats rounded.
    return (integral(*first) && integral(tensor)) || first->scalar_type() == tensor.scalar_type();
  };
  for (size_t i = 0; i < info.arguments.size(); i++) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      if (!takes(value.toTensor())) return {};
    } else if (value.isTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (!takes(element.toTensor())) return {};
      }
    } else if (value.isDevice() || value.isGenerator() || value.isComplexDouble() || value.isOptionalTensorList()) {
      return {};
    } else if (info.arguments[i].number && value.isScalar()) {
      if (!first || !fits(value, *first)) return {};
    }
  }
  if (!first || (!integral(*first) && !subnormals_count())) return {};
  std::vector<c10::IValue> local;
  for (size_t i = 0; i < info.arguments.size(); i++) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      at::Tensor one = here(value.toTensor());
      if (!one.defined()) return {};
      local.emplace_back(std::move(one));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& element : value.toListRef()) {
        at::Tensor one = here(element.toTensor());
        if (!one.defined()) return {};
        list.push_back(std::move(one));
      }
      local.emplace_back(std::move(list));
    } else {
      local.push_back(value);
    }
  }
  return local;
}

void compute_known(const c10::OperatorHandle& op, std::vector<c10::IValue> arguments, const at::Tensor& output) {
  RemoteStorage& storage = remote_storage(output);
  if (!output.is_contiguous() || static_cast<int64_t>(output.nbytes()) != storage.bytes || storage.bytes > MOST_KNOWN || !storage.bytes) return;
  if (!integral(output)) return;
  try {
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard plain(c10::autocast_dispatch_keyset);
    op.callBoxed(&arguments);
    at::Tensor result = arguments.at(0).toTensor().contiguous();
    if (result.sizes() != output.sizes() || result.scalar_type() != output.scalar_type()) return;
    know(storage, 0, static_cast<const char*>(result.const_data_ptr()), result.nbytes());
    values_computed++;
  } catch (const std::exception&) {  // the server says it
  }
}

}  // namespace eat
