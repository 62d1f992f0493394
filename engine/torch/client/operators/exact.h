// Operators whose results follow exactly from small values that are all known here: tests of numbers, and arithmetic of integers. They
// are computed by the server as ever, and here too, so that reading the result costs no round trip. Floats are never computed here,
// for the server's kernels may round otherwise.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "operators.h"

namespace eat {

// The arguments on this machine, where all that the operator reads is known here and its result is the same on every machine; else
// nothing. `info.exact` says that it is such an operator.
std::vector<c10::IValue> known_arguments(const OperatorInfo& info, const c10::IValue* arguments);
// Computes the operator here too: what comes out is known of the output, which is new.
void compute_known(const c10::OperatorHandle& op, std::vector<c10::IValue> arguments, const at::Tensor& output);

}  // namespace eat
