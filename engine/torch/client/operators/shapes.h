// What an operator will give: by torch's own meta kernel, run here on tensors without memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "operators.h"
#include "client/connection/signatures.h"

namespace eat {

struct Prediction {
  bool known = false;                 // the meta kernel ran
  Results results;
  std::vector<c10::IValue> written;   // the arguments after it: tensors whose sizes an `out=` may have got
};

// Runs the meta kernel; never throws for an error of it.
Prediction predict(const c10::OperatorHandle& op, const OperatorInfo& info, const c10::IValue* arguments);

Belief believe(const at::Tensor& tensor);

}  // namespace eat
