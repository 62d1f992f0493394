// See recurrent.h. On a GPU with cuDNN torch's own functions go to a table of kernels that only a wheel with CUDA fills: here it is
// filled with one operator of the server. The weights are not one piece of memory there, so cuDNN gathers them at each call.
// On processors, LSTM: torch's own function takes oneDNN's layers for tensors on the CPU and fused CUDA cells for
// tensors on CUDA. Where the server computes on processors, this follows torch's function for the CPU (ATen/native/mkldnn/RNN.cpp).
#include "recurrent.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/_cudnn_init_dropout_state.h>
#include <ATen/ops/_cudnn_rnn.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_map>

#include "cells.h"
#include "client/tensors/memory.h"
#include "random.h"

namespace eat {

namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// torch's use_mkldnn, asked of the server's processor.
bool takes_dtype(const Device& device, at::ScalarType dtype) {
  return dtype == at::kFloat || (dtype == at::kBFloat16 && device.onednn_bf16) || (dtype == at::kHalf && device.onednn_fp16 && !at::GradMode::is_enabled());
}

bool by_layers(const Tensor& input, at::TensorList hidden) {
  if (!is_remote(input)) return false;
  const Device& device = eat::device(input.device().index());
  return device.processor && at::globalContext().userEnabledMkldnn() && at::globalContext().hasMKLDNN() &&
         takes_dtype(device, input.scalar_type()) && input.numel() > 0 && hidden.size() == 2 && hidden[0].dim() == 3 && hidden[1].dim() == 3 &&
         hidden[0].size(2) == hidden[1].size(2);
}

Three lstm(const Tensor& given, at::TensorList hidden, at::TensorList weights, bool biases, int64_t layers, double dropout, bool train,
           bool both_ways, bool batch_first) {
  if (!by_layers(given, hidden)) {
    if (auto made = lstm_steps(given, hidden, weights, biases, layers, dropout, train, both_ways, batch_first)) return *made;
    return at::native::lstm(given, hidden, weights, biases, layers, dropout, train, both_ways, batch_first);
  }
  Tensor input = (batch_first ? given.transpose(0, 1) : given).contiguous();
  Tensor hx = hidden[0].contiguous(), cx = hidden[1].contiguous();
  int64_t directions = both_ways ? 2 : 1, each = biases ? 4 : 2;
  std::vector<Tensor> hy, cy;
  for (int64_t layer = 0; layer < layers; layer++) {
    std::vector<Tensor> output;
    for (int64_t direction = 0; direction < directions; direction++) {
      int64_t index = layer * directions + direction;
      at::TensorList own = weights.slice(static_cast<size_t>(index * each), static_cast<size_t>(each));
      Tensor none = biases ? Tensor() : at::zeros(own[0].sizes(), own[0].options());
      auto [out, h, c, workspace] =
          at::mkldnn_rnn_layer(input, own[0], own[1], biases ? own[2] : none, biases ? own[3] : none, hx[index], cx[index], direction > 0, {},
                               static_cast<int64_t>(Cell::LSTM), hx.size(2), layers, biases, both_ways, batch_first, train);
      output.push_back(out);
      hy.push_back(h);
      cy.push_back(c);
    }
    input = directions == 1 ? output[0] : at::cat(output, -1);
    if (dropout != 0 && train && layer < layers - 1) input = at::dropout(input, dropout, true);
  }
  if (batch_first) input = input.transpose(0, 1);
  return {input, at::stack(hy, 0), at::stack(cy, 0)};
}

// Autocast on processors casts for this layer, and autocast on CUDA does not know it.
std::tuple<Tensor, Tensor, Tensor, Tensor> layer_autocast(const Tensor& input, const Tensor& w0, const Tensor& w1, const Tensor& w2,
                                                          const Tensor& w3, const Tensor& hx, const Tensor& cx, bool reverse,
                                                          at::IntArrayRef batches, int64_t mode, int64_t hidden, int64_t layers, bool biases,
                                                          bool both_ways, bool batch_first, bool train) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  auto dtype = at::autocast::get_autocast_dtype(at::kCUDA);
  auto cast = [&](const Tensor& one) { return at::autocast::cached_cast(dtype, one, c10::DeviceType::CUDA); };
  return at::mkldnn_rnn_layer(cast(input), cast(w0), cast(w1), cast(w2), cast(w3), cast(hx), cast(cx), reverse, batches, mode, hidden, layers,
                              biases, both_ways, batch_first, train);
}

struct Dropping {
  Tensor state;
  uint64_t seedings = 0;
};

// The state of cuDNN's dropout, one for each device, made anew after the generator was seeded, as torch does.
Tensor dropout_state(const Tensor& input, double dropout, bool train) {
  static std::mutex mutex;
  static auto* kept = new std::unordered_map<int, Dropping>;
  std::lock_guard<std::mutex> lock(mutex);
  int device = input.device().index();
  Dropping& here = (*kept)[device];
  uint64_t now = seedings(device);
  if (train && dropout > 0 && (!here.state.defined() || here.seedings != now)) {
    int64_t seed = at::empty({}, input.options().dtype(at::kLong)).random_(default_generator(device)).item<int64_t>();
    here = {at::_cudnn_init_dropout_state(dropout, train, seed, input.options().dtype(at::kByte)), now};
  }
  return here.state;
}

struct Network {
  at::TensorList weights;
  bool biases;
  int64_t layers;
  double dropout;
  bool train, both_ways, batch_first;
};

Three by_cudnn(Cell mode, const Tensor& input, const Tensor& hx, const Tensor& cx, const Network& of, at::IntArrayRef batches) {
  bool projected = cx.defined() && cx.size(2) != hx.size(2);
  auto [output, hy, cy, reserve, weights] =
      at::_cudnn_rnn(input, of.weights, (of.biases ? 4 : 2) + projected, std::nullopt, hx, cx, static_cast<int64_t>(mode), projected ? cx.size(2) : hx.size(2),
                     projected ? hx.size(2) : 0, of.layers, of.batch_first, of.dropout, of.train, of.both_ways, batches,
                     dropout_state(input, of.dropout, of.train));
  return {output, hy, cy};
}

template <Cell MODE>
void padded(Tensor& output, Tensor& hy, const Tensor& input, const Tensor& hx, at::TensorList weights, bool biases, int64_t layers,
            double dropout, bool train, bool both_ways, bool batch_first) {
  std::tie(output, hy, std::ignore) = by_cudnn(MODE, input, hx, {}, {weights, biases, layers, dropout, train, both_ways, batch_first}, {});
}

template <Cell MODE>
void packed(Tensor& output, Tensor& hy, const Tensor& input, const Tensor& sizes, const Tensor& hx, at::TensorList weights, bool biases,
            int64_t layers, double dropout, bool train, bool both_ways) {
  Network of{weights, biases, layers, dropout, train, both_ways, false};
  std::tie(output, hy, std::ignore) = by_cudnn(MODE, input, hx, {}, of, batches_of(sizes));
}

void lstm_padded(Tensor& output, Tensor& hy, Tensor& cy, const Tensor& input, at::TensorList hidden, at::TensorList weights, bool biases,
                 int64_t layers, double dropout, bool train, bool both_ways, bool batch_first) {
  Network of{weights, biases, layers, dropout, train, both_ways, batch_first};
  std::tie(output, hy, cy) = by_cudnn(Cell::LSTM, input, hidden[0], hidden[1], of, {});
}

void lstm_packed(Tensor& output, Tensor& hy, Tensor& cy, const Tensor& input, const Tensor& sizes, at::TensorList hidden,
                 at::TensorList weights, bool biases, int64_t layers, double dropout, bool train, bool both_ways) {
  Network of{weights, biases, layers, dropout, train, both_ways, false};
  std::tie(output, hy, cy) = by_cudnn(Cell::LSTM, input, hidden[0], hidden[1], of, batches_of(sizes));
}

}  // namespace

at::IntArrayRef batches_of(const Tensor& sizes) {
  TORCH_CHECK(sizes.dim() == 1, "batch_sizes tensor should be 1D");
  TORCH_CHECK(sizes.device().is_cpu(), "batch_sizes tensor should be on CPU, but got ", sizes.device());
  return {sizes.const_data_ptr<int64_t>(), static_cast<size_t>(sizes.size(0))};
}

void register_recurrent(torch::Library& autocast, torch::Library& autograd, torch::Library& plain) {
  at::native::lstm_cudnn_stub.set_cuda_dispatch_ptr(&lstm_padded);
  at::native::lstm_packed_cudnn_stub.set_cuda_dispatch_ptr(&lstm_packed);
  at::native::gru_cudnn_stub.set_cuda_dispatch_ptr(&padded<Cell::GRU>);
  at::native::gru_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed<Cell::GRU>);
  at::native::rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(&padded<Cell::TANH>);
  at::native::rnn_tanh_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed<Cell::TANH>);
  at::native::rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(&padded<Cell::RELU>);
  at::native::rnn_relu_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed<Cell::RELU>);
  autocast.impl("mkldnn_rnn_layer", &layer_autocast);
  autograd.impl("lstm.input", &lstm);
  plain.impl("lstm.input", &lstm);
  register_cells(autograd);
  register_cells(plain);
}

}  // namespace eat
