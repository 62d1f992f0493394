#include "like_cuda.h"

#include <unistd.h>

namespace eat {

void LikeCuda::delay() {
  if (on_ && random_() % 4 == 0) usleep(static_cast<useconds_t>(random_() % 1000));
}

at::Tensor LikeCuda::laid(const std::string& name, const at::Tensor& tensor) {
  bool here = on_ && name.rfind("aten::convolution", 0) == 0 && tensor.defined() && tensor.dim() >= 3;
  if (!here) return tensor;
  switch (random_() % 3) {
    case 0: return tensor.contiguous();
    case 1: return tensor.movedim(1, -1).contiguous().movedim(-1, 1);  // channels last, whatever the count of dimensions
    default: return tensor.transpose(0, -1).contiguous().transpose(0, -1);  // columns first: dense, and no format of a name
  }
}

FaultPtr LikeCuda::late(FaultPtr fault) const {
  // Dimensions are looked at on the host, on a GPU too, and whether one is empty; indices by the kernel.
  bool of_kernel = on_ && (fault->kind == ErrorKind::INDEX || fault->kind == ErrorKind::RUNTIME) &&
                   fault->text.find("out of ") != std::string::npos && fault->text.find("index") != std::string::npos &&
                   fault->text.find("dimension with size 0") == std::string::npos;
  if (!of_kernel) return fault;
  return std::make_shared<Fault>(
      Fault{ErrorKind::ACCELERATOR, "CUDA error: device-side assert triggered", fault->name});
}

}  // namespace eat
