// Taking the dispatch key CUDA.
#pragma once

#include <string>

namespace eat {

// Registers everything, once per process.
void register_all();
int registered();
// Operators, one a line, whose kernel for CUDA is not ours although torch has one registered; "" is right.
std::string foreign();

}  // namespace eat
