// Cells of recurrent networks. Each step is that of torch's generic cell, in its order, and each gradient that of its
// autograd formula, so that results have the bits that the module has on processors.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <unordered_map>

#include "replaced.h"

namespace eat {
namespace {

using at::Tensor;
using torch::jit::push;
using torch::jit::Stack;

Tensor with_bias(const Tensor& gates, const Tensor& bias) { return bias.defined() ? gates + bias : gates.clone(); }

void lstm_cell(Stack& stack) {
  auto [input, hidden, cx, input_bias, hidden_bias] = take<5>(stack);
  auto gates = with_bias(hidden.toTensor(), tensor_or_none(hidden_bias));
  gates.add_(with_bias(input.toTensor(), tensor_or_none(input_bias)));
  auto part = gates.unsafe_chunk(4, 1);
  auto in = part[0].sigmoid_(), forget = part[1].sigmoid_(), cell = part[2].tanh_(), out = part[3].sigmoid_();
  auto cy = (forget * cx.toTensor()).add_(in * cell);
  auto hy = out * cy.tanh();
  push(stack, hy, cy, at::cat({in, forget, cell, out}, 1));
}

void lstm_cell_backward(Stack& stack) {
  auto [gradient_hy, gradient_cy, cx, cy, workspace, has_bias] = take<6>(stack);
  auto hy = tensor_or_none(gradient_hy), gradient = tensor_or_none(gradient_cy);
  if (!hy.defined() && !gradient.defined()) {
    push(stack, Tensor(), Tensor(), Tensor());
    return;
  }
  auto part = workspace.toTensor().unsafe_chunk(4, 1);
  auto tanh = cy.toTensor().tanh();
  auto out = at::zeros_like(tanh);
  if (hy.defined()) {
    out = hy * tanh;
    auto through = at::tanh_backward(hy * part[3], tanh);
    gradient = gradient.defined() ? gradient + through : through;
  }
  auto gates = at::cat({at::sigmoid_backward(gradient * part[2], part[0]), at::sigmoid_backward(gradient * cx.toTensor(), part[1]),
                        at::tanh_backward(gradient * part[0], part[2]), at::sigmoid_backward(out, part[3])}, 1);
  push(stack, gates, gradient * part[1], has_bias.toBool() ? gates.sum(0, false) : Tensor());
}

void gru_cell(Stack& stack) {
  auto [input, hidden, hx, input_bias, hidden_bias] = take<5>(stack);
  auto igates = with_bias(input.toTensor(), tensor_or_none(input_bias)).unsafe_chunk(3, 1);
  auto hgates = with_bias(hidden.toTensor(), tensor_or_none(hidden_bias)).unsafe_chunk(3, 1);
  auto reset = hgates[0].add_(igates[0]).sigmoid_(), update = hgates[1].add_(igates[1]).sigmoid_();
  auto candidate_hidden = hgates[2].clone();
  auto candidate = igates[2].add(hgates[2].mul_(reset)).tanh_();
  auto before = hx.toTensor();
  push(stack, (before - candidate).mul_(update).add_(candidate), at::cat({reset, update, candidate, before, candidate_hidden}, 1));
}

void gru_cell_backward(Stack& stack) {
  auto [gradient_hy, workspace, has_bias] = take<3>(stack);
  auto part = workspace.toTensor().unsafe_chunk(5, 1);
  const auto &reset = part[0], &update = part[1], &candidate = part[2], &hx = part[3], &hidden = part[4];
  auto gradient = gradient_hy.toTensor();
  auto to_hx = gradient * update;
  auto to_update = at::sigmoid_backward(gradient * (hx - candidate), update);
  auto to_candidate = at::tanh_backward(gradient - to_hx, candidate);
  auto to_reset = at::sigmoid_backward(to_candidate * hidden, reset);
  auto igates = at::cat({to_reset, to_update, to_candidate}, 1);
  auto hgates = at::cat({to_reset, to_update, to_candidate * reset}, 1);
  bool biased = has_bias.toBool();
  push(stack, igates, hgates, to_hx, biased ? igates.sum(0, false) : Tensor(), biased ? hgates.sum(0, false) : Tensor());
}

}  // namespace

Replacement replaced_cell(const std::string& name) {
  static const std::unordered_map<std::string, Replacement> table = {
      {"aten::_thnn_fused_lstm_cell", lstm_cell},
      {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
      {"aten::_thnn_fused_gru_cell", gru_cell},
      {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward},
  };
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace eat
