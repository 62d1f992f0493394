// Recurrent networks: the same kernels as a native run beside the server, oneDNN's on processors, cuDNN's on a GPU.
#pragma once

namespace torch {
class Library;
}

namespace eat {

void register_recurrent(torch::Library& autograd, torch::Library& plain);

}  // namespace eat
