// Where torch asks whether there is a cuDNN to choose between kernels, and the choice is the server's GPU's.
#pragma once

namespace torch {
class Library;
}

namespace eat {

// Whether this thread is at such a choice for a GPU that has cuDNN: CUDAHooksInterface::compiledWithCuDNN.
bool chooses_cudnn();

void register_cudnn(torch::Library& autograd, torch::Library& plain);

}  // namespace eat
