#include "replaced.h"

namespace eat {

bool is_replaced(const std::string&) { return false; }
void call_replaced(const std::string&, torch::jit::Stack&) {}
std::string only_with_gpu(const std::string&, const std::string&) { return ""; }

}  // namespace eat
