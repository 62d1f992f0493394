// Operators that torch has for GPUs alone, and what a server on processors computes instead: the generic form of each,
// with the results that torch's own modules have on processors. All others are "only with a GPU".
#pragma once

#include <ATen/core/stack.h>

#include <string>

namespace eat {

using Replacement = void (*)(torch::jit::Stack&);

// As a boxed kernel: takes the arguments from the stack and leaves the results. nullptr: there is none.
Replacement replacement(const std::string& name);

// By kind, see there.
Replacement replaced_cell(const std::string& name);  // of recurrent networks
Replacement replaced_norm(const std::string& name);  // batch norm that processes share

// Takes a number of arguments off the stack, in their order.
template <size_t N>
std::array<c10::IValue, N> take(torch::jit::Stack& stack) {
  std::array<c10::IValue, N> taken;
  for (size_t i = 0; i < N; i++) taken[i] = std::move(stack[stack.size() - N + i]);
  stack.resize(stack.size() - N);
  return taken;
}
inline at::Tensor tensor_or_none(const c10::IValue& value) { return value.isNone() ? at::Tensor() : value.toTensor(); }

}  // namespace eat
