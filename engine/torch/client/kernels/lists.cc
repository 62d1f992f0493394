// See lists.h.
#include "lists.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <torch/library.h>

#include "client/operators/call.h"
#include "client/tensors/memory.h"

namespace eat {

namespace {

using at::TensorList;

bool all_remote(TensorList one, TensorList other) {
  auto same = [&](const at::Tensor& tensor) { return is_remote(tensor) && tensor.device() == one[0].device(); };
  return std::all_of(one.begin(), one.end(), same) && std::all_of(other.begin(), other.end(), same);
}

// From and to a processor too, one by one.
void copy_(TensorList self, TensorList from, bool non_blocking) {
  if (self.size() != from.size() || all_remote(self, from)) {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_foreach_copy_", "");
    std::vector<c10::IValue> stack{c10::List<at::Tensor>(self.vec()), c10::List<at::Tensor>(from.vec()), non_blocking};
    return call_remote(op, &stack);
  }
  for (size_t i = 0; i < self.size(); i++) self[i].copy_(from[i], non_blocking);
}

// Numbers in a tensor on the processor: torch makes numbers of them too, for a GPU.
std::vector<at::Scalar> numbers(const at::Tensor& scalars, TensorList self) {
  return at::native::convert_tensor_to_scalar_list(scalars, static_cast<int64_t>(self.size()));
}
std::vector<at::Tensor> addcdiv(TensorList self, TensorList one, TensorList two, const at::Tensor& scalars) {
  return at::_foreach_addcdiv(self, one, two, numbers(scalars, self));
}
void addcdiv_(TensorList self, TensorList one, TensorList two, const at::Tensor& scalars) {
  at::_foreach_addcdiv_(self, one, two, numbers(scalars, self));
}
std::vector<at::Tensor> addcmul(TensorList self, TensorList one, TensorList two, const at::Tensor& scalars) {
  return at::_foreach_addcmul(self, one, two, numbers(scalars, self));
}
void addcmul_(TensorList self, TensorList one, TensorList two, const at::Tensor& scalars) {
  at::_foreach_addcmul_(self, one, two, numbers(scalars, self));
}

}  // namespace

void register_lists(torch::Library& library) {
  library.impl("_foreach_copy_", &copy_);
  library.impl("_foreach_addcdiv.Tensor", &addcdiv);
  library.impl("_foreach_addcdiv_.Tensor", &addcdiv_);
  library.impl("_foreach_addcmul.Tensor", &addcmul);
  library.impl("_foreach_addcmul_.Tensor", &addcmul_);
}

}  // namespace eat
