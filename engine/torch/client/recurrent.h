// Recurrent networks on servers that compute on processors: the same kernels as a native run there.
#pragma once

namespace torch {
class Library;
}

namespace eat {

void register_recurrent(torch::Library& autograd, torch::Library& plain);

}  // namespace eat
