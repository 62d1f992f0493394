// Recurrent networks: the same kernels as a native run beside the server, oneDNN's on processors, cuDNN's on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace torch {
class Library;
}

namespace eat {

enum class Cell : int64_t { RELU = 0, TANH = 1, LSTM = 2, GRU = 3 };  // the numbers of cuDNN and of oneDNN

// How many sequences of a packed batch there are at each step: a tensor on the CPU.
at::IntArrayRef batches_of(const at::Tensor& sizes);

// LSTM by the steps of a processor (cells.cc), where the server is one and all arguments fit.
std::optional<std::tuple<at::Tensor, at::Tensor, at::Tensor>> lstm_steps(const at::Tensor& input, at::TensorList hidden, at::TensorList weights,
                                                                         bool biases, int64_t layers, double dropout, bool train,
                                                                         bool both_ways, bool batch_first);

void register_recurrent(torch::Library& autocast, torch::Library& autograd, torch::Library& plain);

}  // namespace eat
