// Batch norm whose statistics several processes share (torch.nn.SyncBatchNorm).
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <unordered_map>

#include "replaced.h"

namespace eat {
namespace {

using at::Tensor;
using torch::jit::push;
using torch::jit::Stack;

// All dimensions but that of channels.
std::vector<int64_t> others(const Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < input.dim(); i++)
    if (i != 1) dims.push_back(i);
  return dims;
}

Tensor spread(const Tensor& channels, const Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = channels.numel();
  return channels.reshape(shape);
}

void stats(Stack& stack) {
  auto [self, eps] = take<2>(stack);
  auto input = self.toTensor();
  auto [variance, mean] = at::var_mean(input.to(c10::kFloat), others(input), 0, false);
  push(stack, mean, (variance + eps.toDouble()).rsqrt());
}

void elemt(Stack& stack) {
  auto [self, weight, bias, mean, invstd, eps] = take<6>(stack);
  auto input = self.toTensor();
  auto out = (input.to(c10::kFloat) - spread(mean.toTensor(), input)) * spread(invstd.toTensor(), input);
  if (auto w = tensor_or_none(weight); w.defined()) out = out * spread(w, input);
  if (auto b = tensor_or_none(bias); b.defined()) out = out + spread(b, input);
  push(stack, out.to(input.scalar_type()));
}

// mean and invstd: a row for each process.
void gathered(Stack& stack, const Tensor& mean, const Tensor& invstd, const Tensor& running_mean, const Tensor& running_var,
              double momentum, double eps, const Tensor& counts) {
  auto n = counts.to(c10::kFloat).reshape({-1, 1});
  auto all = n.sum();
  auto together = (mean * n).sum(0) / all;
  auto variance = invstd.pow(-2) - eps;
  auto squares = ((variance + (mean - together).pow(2)) * n).sum(0);
  if (running_mean.defined()) running_mean.mul_(1 - momentum).add_(together.to(running_mean.scalar_type()), momentum);
  if (running_var.defined())
    running_var.mul_(1 - momentum).add_((squares / (all - 1)).to(running_var.scalar_type()), momentum);
  push(stack, together, (squares / all + eps).rsqrt());
}

void gather_stats(Stack& stack) {
  auto [self, mean, invstd, running_mean, running_var, momentum, eps, count] = take<8>(stack);
  auto m = mean.toTensor();
  auto counts = at::full({m.size(0)}, count.toInt(), m.options());
  gathered(stack, m, invstd.toTensor(), tensor_or_none(running_mean), tensor_or_none(running_var), momentum.toDouble(),
           eps.toDouble(), counts);
}

void gather_stats_with_counts(Stack& stack) {
  auto [self, mean, invstd, running_mean, running_var, momentum, eps, counts] = take<8>(stack);
  gathered(stack, mean.toTensor(), invstd.toTensor(), tensor_or_none(running_mean), tensor_or_none(running_var),
           momentum.toDouble(), eps.toDouble(), counts.toTensor());
}

void backward_reduce(Stack& stack) {
  auto [gradient, self, mean, invstd, weight, input_g, weight_g, bias_g] = take<8>(stack);
  auto input = self.toTensor();
  auto g = gradient.toTensor().to(c10::kFloat);
  auto sum = g.sum(others(input));
  auto sum_centred = (g * (input.to(c10::kFloat) - spread(mean.toTensor(), input))).sum(others(input));
  auto w = tensor_or_none(weight);
  auto as_weight = [&](const Tensor& t) { return w.defined() ? t.to(w.scalar_type()) : t; };
  push(stack, input_g.toBool() ? sum : Tensor(), input_g.toBool() ? sum_centred : Tensor(),
       weight_g.toBool() ? as_weight(sum_centred * invstd.toTensor()) : Tensor(),
       bias_g.toBool() ? as_weight(sum.clone()) : Tensor());
}

void backward_elemt(Stack& stack) {
  auto [gradient, self, mean, invstd, weight, sum, sum_centred, count] = take<8>(stack);
  auto input = self.toTensor();
  auto all = count.toTensor().to(c10::kFloat).sum();
  auto inv = invstd.toTensor();
  auto centred = input.to(c10::kFloat) - spread(mean.toTensor(), input);
  auto out = gradient.toTensor().to(c10::kFloat) - spread(sum.toTensor() / all, input) -
             centred * spread(inv * inv * sum_centred.toTensor() / all, input);
  out = out * spread(inv, input);
  if (auto w = tensor_or_none(weight); w.defined()) out = out * spread(w, input);
  push(stack, out.to(input.scalar_type()));
}

}  // namespace

Replacement replaced_norm(const std::string& name) {
  static const std::unordered_map<std::string, Replacement> table = {
      {"aten::batch_norm_stats", stats},
      {"aten::batch_norm_elemt", elemt},
      {"aten::batch_norm_gather_stats", gather_stats},
      {"aten::batch_norm_gather_stats_with_counts", gather_stats_with_counts},
      {"aten::batch_norm_backward_reduce", backward_reduce},
      {"aten::batch_norm_backward_elemt", backward_elemt},
  };
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace eat
