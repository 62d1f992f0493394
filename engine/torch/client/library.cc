// Functions for Python that have tensors or generators: the operators `elastic_ai::`.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "graphs.h"
#include "memory.h"
#include "random.h"

namespace eat {

namespace {

// Bytes of the tensor's storage become exactly so many; what fits stays.
void resize_storage_(at::Tensor& self, int64_t bytes) {
  TORCH_CHECK(bytes >= 0, "a storage of ", bytes, " bytes");
  resize_storage(*self.storage().unsafeGetStorageImpl(), bytes);
}

std::optional<at::Generator> default_generator_of(int64_t number) { return default_generator(static_cast<int>(number)); }

}  // namespace

}  // namespace eat

TORCH_LIBRARY(elastic_ai, library) {
  library.def("resize_storage_(Tensor(a!) self, int bytes) -> ()");
  library.def("default_generator(int device) -> Generator?", &eat::default_generator_of);
  eat::define_graphs(library);
}

TORCH_LIBRARY_IMPL(elastic_ai, CUDA, library) { library.impl("resize_storage_", &eat::resize_storage_); }
