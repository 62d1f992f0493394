// Batch norm and grid sampling: see cudnn.h. Beside a GPU torch takes cuDNN's kernels for them, which give other bits than its own;
// the conditions are torch's own and read by its own functions. Recurrent networks are not among them: a wheel for processors has
// no kernel to go to there.
#include "cudnn.h"

#include <ATen/ops/_batch_norm_impl_index_native.h>
#include <ATen/ops/grid_sampler_native.h>
#include <torch/library.h>

#include "memory.h"

namespace eat {

namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

thread_local bool choosing = false;

struct Choosing {
  explicit Choosing(const Tensor& of) : before(choosing) {
    choosing = is_remote(of) && !device(of.device().index()).processor && device(of.device().index()).cudnn_version > 0;
  }
  ~Choosing() { choosing = before; }
  bool before;
};

std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t> batch_norm(const Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
                                                               const MaybeTensor& mean, const MaybeTensor& var, bool training, double momentum,
                                                               double eps, bool cudnn_enabled) {
  Choosing here(input);
  return at::native::_batch_norm_impl_index(input, weight, bias, mean, var, training, momentum, eps, cudnn_enabled);
}

Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners) {
  Choosing here(input);
  return at::native::grid_sampler(input, grid, interpolation, padding, align_corners);
}

}  // namespace

bool chooses_cudnn() { return choosing; }

void register_cudnn(torch::Library& autograd, torch::Library& plain) {
  for (torch::Library* library : {&autograd, &plain}) {
    library->impl("_batch_norm_impl_index", &batch_norm);
    library->impl("grid_sampler", &grid_sampler);
  }
}

}  // namespace eat
