// Operators: the function that torch calls for each of them, and the way to the server.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "operators.h"

namespace eat {

// The kernel of one operator.
class RemoteKernel final : public c10::OperatorKernel {
 public:
  explicit RemoteKernel(const c10::OperatorHandle& op);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack);

 private:
  OperatorInfo info_;
};

// Kernel of all operators that have none of their own (TORCH_LIBRARY_IMPL(_, CUDA)).
void call_any(const c10::OperatorHandle& op, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack);

// Runs the operator of that name on the server with these arguments, which stand on the stack; results take their place.
void call_remote(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack);

}  // namespace eat
