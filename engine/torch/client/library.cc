// Functions for Python that have tensors or generators: the operators `elastic_ai::`.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "client/operators/graphs.h"
#include "client/tensors/memory.h"
#include "client/kernels/random.h"
#include "client/tensors/together.h"

namespace eat {

namespace {

// Bytes of the tensor's storage become exactly so many; what fits stays.
void resize_storage_(at::Tensor& self, int64_t bytes) {
  TORCH_CHECK(bytes >= 0, "a storage of ", bytes, " bytes");
  resize_storage(*self.storage().unsafeGetStorageImpl(), bytes);
}

std::optional<at::Generator> default_generator_of(int64_t number) { return default_generator(static_cast<int>(number)); }

int64_t collective(at::TensorList outputs, at::TensorList inputs, int64_t number, int64_t group, std::string_view name, std::string_view operation,
                   int64_t root, int64_t tag, at::IntArrayRef output_rows, at::IntArrayRef input_rows) {
  Joint one;
  one.group = static_cast<uint32_t>(group);
  one.name = name;
  one.operation = operation;
  one.root = static_cast<int>(root);
  one.tag = static_cast<int>(tag);
  one.output_rows = output_rows.vec();
  one.input_rows = input_rows.vec();
  one.outputs = outputs.vec();
  one.inputs = inputs.vec();
  return begin_work(device(static_cast<int>(number)), one);
}

}  // namespace

}  // namespace eat

TORCH_LIBRARY(elastic_ai, library) {
  library.def("resize_storage_(Tensor(a!) self, int bytes) -> ()");
  library.def(
      "collective(Tensor[] outputs, Tensor[] inputs, int device, int group, str name, str operation, int root, int tag, int[] output_rows, int[] "
      "input_rows) -> int",
      &eat::collective);
  library.def("default_generator(int device) -> Generator?", &eat::default_generator_of);
  eat::define_graphs(library);
}

TORCH_LIBRARY_IMPL(elastic_ai, CUDA, library) { library.impl("resize_storage_", &eat::resize_storage_); }
