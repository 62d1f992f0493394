// Recurrent networks as processors compute them: see cells.h. A network of a kind that is refused (counts, shapes, devices) goes to
// torch's own function, whose errors are the right ones.
#include "cells.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_cell_native.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm_cell_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <torch/library.h>

#include <algorithm>

#include "client/tensors/memory.h"
#include "recurrent.h"

namespace eat {

namespace {

using at::Tensor;
using at::TensorList;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

struct State {
  Tensor h, c;  // c of LSTM alone
  State narrow(int64_t from, int64_t to) const {
    return {h.narrow(0, from, to - from), c.defined() ? c.narrow(0, from, to - from) : Tensor()};
  }
};

State joined(const std::vector<State>& states) {
  std::vector<Tensor> h, c;
  for (const State& one : states) h.push_back(one.h), c.push_back(one.c);
  return {at::cat(h, 0), c[0].defined() ? at::cat(c, 0) : Tensor()};
}

// Of one layer in one direction.
struct Weights {
  Tensor input, hidden, input_bias, hidden_bias, projection;
  Tensor of_input(const Tensor& x) const { return at::linear(x, input, input_bias); }
  Tensor of_hidden(const Tensor& h) const { return at::linear(h, hidden, hidden_bias); }
};

// One step. `gates`: what the weights made of the input, or undefined: then `x` is the input.
State step(Cell kind, const Tensor& gates, const Tensor& x, const State& before, const Weights& weights) {
  if (kind == Cell::GRU) {
    auto from_input = (gates.defined() ? gates : weights.of_input(x)).unsafe_chunk(3, 1);
    auto from_hidden = weights.of_hidden(before.h).unsafe_chunk(3, 1);
    Tensor reset = from_hidden[0].add_(from_input[0]).sigmoid_();
    Tensor update = from_hidden[1].add_(from_input[1]).sigmoid_();
    Tensor candidate = from_input[2].add(from_hidden[2].mul_(reset)).tanh_();
    return {(before.h - candidate).mul_(update).add_(candidate), {}};
  }
  Tensor sum = weights.of_hidden(before.h);
  sum.add_(gates.defined() ? gates : weights.of_input(x));
  if (kind != Cell::LSTM) return {kind == Cell::TANH ? at::tanh(sum) : at::relu(sum), {}};
  auto part = sum.unsafe_chunk(4, 1);
  Tensor in = part[0].sigmoid_(), forget = part[1].sigmoid_(), cell = part[2].tanh_(), out = part[3].sigmoid_();
  Tensor c = (forget * before.c).add_(in * cell);
  Tensor h = out * c.tanh();
  if (weights.projection.defined()) h = at::matmul(h, weights.projection.t());
  return {h, c};
}

struct Passed {
  Tensor output;
  State last;
};

// All steps in one direction over a padded sequence.
Passed pass(Cell kind, const Tensor& input, State state, const Weights& weights, bool backwards) {
  auto steps = weights.of_input(input).unbind(0);
  TORCH_CHECK(!steps.empty(), "Expected sequence length to be larger than 0 in RNN");
  if (backwards) std::reverse(steps.begin(), steps.end());
  std::vector<Tensor> outputs;
  for (const Tensor& gates : steps) {
    state = step(kind, gates, {}, state, weights);
    outputs.push_back(state.h);
  }
  if (backwards) std::reverse(outputs.begin(), outputs.end());
  return {at::stack(outputs, 0), state};
}

// The same over a packed sequence: the batch shrinks as sequences end.
Passed pass_packed(Cell kind, const Tensor& data, at::IntArrayRef batches, State state, const Weights& weights) {
  Tensor all = weights.of_input(data);
  std::vector<Tensor> outputs;
  std::vector<State> ended;
  int64_t offset = 0, before = batches[0];
  for (int64_t batch : batches) {
    Tensor gates = all.narrow(0, offset, batch);
    offset += batch;
    if (batch < before) {
      ended.push_back(state.narrow(batch, before));
      state = state.narrow(0, batch);
    }
    before = batch;
    state = step(kind, gates, {}, state, weights);
    outputs.push_back(state.h);
  }
  ended.push_back(state);
  std::reverse(ended.begin(), ended.end());
  return {at::cat(outputs, 0), joined(ended)};
}

// And from its end: the batch grows as sequences begin.
Passed pass_packed_back(Cell kind, const Tensor& data, at::IntArrayRef batches, const State& first, const Weights& weights) {
  Tensor all = weights.of_input(data);
  std::vector<Tensor> outputs;
  int64_t offset = data.size(0), before = batches.back();
  State state = first.narrow(0, before);
  for (auto batch = batches.rbegin(); batch != batches.rend(); ++batch) {
    if (*batch > before) state = joined({state, first.narrow(before, *batch)});
    offset -= *batch;
    before = *batch;
    state = step(kind, all.narrow(0, offset, *batch), {}, state, weights);
    outputs.push_back(state.h);
  }
  std::reverse(outputs.begin(), outputs.end());
  return {at::cat(outputs, 0), state};
}

struct Shape {
  bool biases;
  int64_t layers;
  double dropout;
  bool train, both_ways;
  int64_t directions() const { return both_ways ? 2 : 1; }
};

// What is computed here: a network that a server of processors has, with all its parts there.
bool takes(Cell kind, const Tensor& input, TensorList hidden, TensorList weights, const Shape& shape) {
  if (!is_remote(input) || !device(input.device().index()).processor) return false;
  int64_t passes = shape.layers * shape.directions();
  size_t each = shape.biases ? 4 : 2;
  if (hidden.size() != (kind == Cell::LSTM ? 2 : 1)) return false;
  for (const Tensor& state : hidden) {
    if (!state.defined() || state.device() != input.device() || state.dim() < 1 || state.size(0) != passes) return false;
    if (kind == Cell::LSTM && state.dim() != 3) return false;
  }
  if (kind == Cell::LSTM && hidden[0].size(2) != hidden[1].size(2)) each++;
  if (weights.size() != static_cast<size_t>(passes) * each) return false;
  return std::all_of(weights.begin(), weights.end(), [&](const Tensor& one) { return one.defined() && one.device() == input.device(); });
}

Three run(Cell kind, Tensor input, const std::optional<at::IntArrayRef>& batches, TensorList hidden, TensorList given, const Shape& shape) {
  size_t each = given.size() / static_cast<size_t>(shape.layers * shape.directions());
  auto weights = [&](int64_t index) {
    auto own = given.slice(static_cast<size_t>(index) * each, each);
    return Weights{own[0], own[1], shape.biases ? own[2] : Tensor(), shape.biases ? own[3] : Tensor(), each % 2 ? own[each - 1] : Tensor()};
  };
  auto h = hidden[0].unbind(0);
  auto c = hidden.size() > 1 ? hidden[1].unbind(0) : std::vector<Tensor>(h.size());
  std::vector<Tensor> hy, cy;
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < shape.directions(); direction++) {
      int64_t index = layer * shape.directions() + direction;
      State first{h[static_cast<size_t>(index)], c[static_cast<size_t>(index)]};
      Passed passed = !batches    ? pass(kind, input, first, weights(index), direction > 0)
                      : direction ? pass_packed_back(kind, input, *batches, first, weights(index))
                                  : pass_packed(kind, input, *batches, first, weights(index));
      outputs.push_back(passed.output);
      hy.push_back(passed.last.h);
      cy.push_back(passed.last.c);
    }
    input = shape.both_ways ? at::cat(outputs, -1) : outputs[0];
    if (shape.dropout != 0 && shape.train && layer < shape.layers - 1) input = at::dropout(input, shape.dropout, true);
  }
  Tensor last = at::stack(hy, 0);
  return {input, last, kind == Cell::LSTM ? at::stack(cy, 0) : Tensor()};
}

// A padded one, whose batch may be its first dimension.
Three run_padded(Cell kind, const Tensor& input, TensorList hidden, TensorList weights, const Shape& shape, bool batch_first) {
  auto [output, h, c] = run(kind, batch_first ? input.transpose(0, 1) : input, std::nullopt, hidden, weights, shape);
  if (batch_first) output = kind == Cell::LSTM ? output.transpose(0, 1) : output.transpose_(0, 1);
  return {output, h, c};
}

using Padded = Two (*)(const Tensor&, const Tensor&, TensorList, bool, int64_t, double, bool, bool, bool);
using Packed = Two (*)(const Tensor&, const Tensor&, const Tensor&, TensorList, bool, int64_t, double, bool, bool);

template <Cell KIND, Padded OWN>
Two padded(const Tensor& input, const Tensor& hx, TensorList weights, bool biases, int64_t layers, double dropout, bool train, bool both_ways,
           bool batch_first) {
  Shape shape{biases, layers, dropout, train, both_ways};
  if (!takes(KIND, input, hx, weights, shape)) return OWN(input, hx, weights, biases, layers, dropout, train, both_ways, batch_first);
  auto [output, h, c] = run_padded(KIND, input, hx, weights, shape, batch_first);
  return {output, h};
}

template <Cell KIND, Packed OWN>
Two packed(const Tensor& data, const Tensor& sizes, const Tensor& hx, TensorList weights, bool biases, int64_t layers, double dropout,
           bool train, bool both_ways) {
  Shape shape{biases, layers, dropout, train, both_ways};
  if (!takes(KIND, data, hx, weights, shape)) return OWN(data, sizes, hx, weights, biases, layers, dropout, train, both_ways);
  auto [output, h, c] = run(KIND, data, batches_of(sizes), hx, weights, shape);
  return {output, h};
}

Three lstm_packed(const Tensor& data, const Tensor& sizes, TensorList hidden, TensorList weights, bool biases, int64_t layers, double dropout,
                  bool train, bool both_ways) {
  Shape shape{biases, layers, dropout, train, both_ways};
  if (!takes(Cell::LSTM, data, hidden, weights, shape)) {
    return at::native::lstm(data, sizes, hidden, weights, biases, layers, dropout, train, both_ways);
  }
  return run(Cell::LSTM, data, batches_of(sizes), hidden, weights, shape);
}

// One cell: torch's own function checks shapes, and has the error.
bool takes_cell(const Tensor& input, TensorList hidden, const Tensor& w_ih, const Tensor& w_hh, int64_t gates) {
  if (!is_remote(input) || !device(input.device().index()).processor || input.dim() != 2 || w_ih.dim() != 2 || w_hh.dim() != 2) return false;
  int64_t size = w_hh.size(1);
  for (const Tensor& state : hidden) {
    if (state.dim() != 2 || state.size(0) != input.size(0) || state.size(1) != size || state.device() != input.device()) return false;
  }
  return input.size(1) == w_ih.size(1) && w_ih.size(0) == gates * size && w_hh.size(0) == gates * size;
}

Two lstm_cell(const Tensor& input, TensorList hidden, const Tensor& w_ih, const Tensor& w_hh, const std::optional<Tensor>& b_ih,
              const std::optional<Tensor>& b_hh) {
  if (hidden.size() != 2 || !takes_cell(input, hidden, w_ih, w_hh, 4)) return at::native::lstm_cell(input, hidden, w_ih, w_hh, b_ih, b_hh);
  State made = step(Cell::LSTM, {}, input, {hidden[0], hidden[1]}, {w_ih, w_hh, b_ih.value_or(Tensor()), b_hh.value_or(Tensor()), {}});
  return {made.h, made.c};
}

Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const std::optional<Tensor>& b_ih,
                const std::optional<Tensor>& b_hh) {
  if (!takes_cell(input, hx, w_ih, w_hh, 3)) return at::native::gru_cell(input, hx, w_ih, w_hh, b_ih, b_hh);
  return step(Cell::GRU, {}, input, {hx, {}}, {w_ih, w_hh, b_ih.value_or(Tensor()), b_hh.value_or(Tensor()), {}}).h;
}

}  // namespace

std::optional<Three> lstm_steps(const Tensor& input, TensorList hidden, TensorList weights, bool biases, int64_t layers, double dropout,
                                bool train, bool both_ways, bool batch_first) {
  Shape shape{biases, layers, dropout, train, both_ways};
  if (!takes(Cell::LSTM, input, hidden, weights, shape)) return std::nullopt;
  return run_padded(Cell::LSTM, input, hidden, weights, shape, batch_first);
}

void register_cells(torch::Library& library) {
  library.impl("gru.input", &padded<Cell::GRU, at::native::gru>);
  library.impl("gru.data", &packed<Cell::GRU, at::native::gru>);
  library.impl("rnn_tanh.input", &padded<Cell::TANH, at::native::rnn_tanh>);
  library.impl("rnn_tanh.data", &packed<Cell::TANH, at::native::rnn_tanh>);
  library.impl("rnn_relu.input", &padded<Cell::RELU, at::native::rnn_relu>);
  library.impl("rnn_relu.data", &packed<Cell::RELU, at::native::rnn_relu>);
  library.impl("lstm.data", &lstm_packed);
  library.impl("lstm_cell", &lstm_cell);
  library.impl("gru_cell", &gru_cell);
}

}  // namespace eat
