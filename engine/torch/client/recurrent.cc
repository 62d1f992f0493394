// LSTM on processors: see recurrent.h. torch's own function takes oneDNN's layers for tensors on the CPU and fused CUDA cells for
// tensors on CUDA. Where the server computes on processors, this follows torch's function for the CPU (ATen/native/mkldnn/RNN.cpp).
#include "recurrent.h"

#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "memory.h"

namespace eat {

namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;

constexpr int64_t MODE_LSTM = 2;  // of oneDNN's kinds of networks

bool by_layers(const Tensor& input, at::TensorList hidden) {
  return is_remote(input) && device(input.device().index()).processor && at::globalContext().userEnabledMkldnn() && at::globalContext().hasMKLDNN() &&
         input.scalar_type() == at::kFloat && input.numel() > 0 && hidden.size() == 2 && hidden[0].dim() == 3 && hidden[1].dim() == 3 &&
         hidden[0].size(2) == hidden[1].size(2);
}

Three lstm(const Tensor& given, at::TensorList hidden, at::TensorList weights, bool biases, int64_t layers, double dropout, bool train,
           bool both_ways, bool batch_first) {
  if (!by_layers(given, hidden)) return at::native::lstm(given, hidden, weights, biases, layers, dropout, train, both_ways, batch_first);
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
                               MODE_LSTM, hx.size(2), layers, biases, both_ways, batch_first, train);
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

}  // namespace

void register_recurrent(torch::Library& autograd, torch::Library& plain) {
  autograd.impl("lstm.input", &lstm);
  plain.impl("lstm.input", &lstm);
}

}  // namespace eat
