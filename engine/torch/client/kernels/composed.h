// Operators that torch's wheel with CUDA has as one kernel, and processors as several operators: where the server computes
// on processors, it has those several, whichever wheel the program runs with.
#pragma once

namespace torch {
class Library;
}

namespace eat {

void register_composed(torch::Library& of_func, torch::Library& autograd, torch::Library& plain);

}  // namespace eat
