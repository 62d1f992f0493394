// Sizes of results by own rules, for operators whose arguments grow (a language model's context): torch's meta kernels for them are
// written in Python and cost some 100 us for each new size.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>

#include "operators.h"
#include "client/connection/signatures.h"

namespace eat {

// What the operator gives, where a rule is sure: dense tensors in order of rows, sizes that fit. Else nothing, and the meta kernel
// decides. Whether rule and server agree is checked as for meta kernels: see learn.cc.
std::optional<Results> by_rule(const OperatorInfo& info, const c10::IValue* arguments);

}  // namespace eat
