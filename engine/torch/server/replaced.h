// Operators that torch has for GPUs alone, and what a server on processors does instead.
#pragma once

#include <ATen/core/stack.h>

#include <string>

namespace eat {

bool is_replaced(const std::string& name);
// As a boxed kernel: takes the arguments from the stack and leaves the results.
void call_replaced(const std::string& name, torch::jit::Stack& stack);
// Why a server on processors has not got it, or "" where it has.
std::string only_with_gpu(const std::string& name, const std::string& torch_says);

}  // namespace eat
