// Making tensors, viewing them, giving them another storage or size: see views.h.
#include "views.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorShape.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "client/tensors/memory.h"

namespace eat {

namespace {

using at::Tensor;
using Sizes = c10::SymIntArrayRef;
using Dtype = std::optional<at::ScalarType>;

int64_t number(const c10::SymInt& value) { return value.guard_int(__FILE__, __LINE__); }

void check(std::optional<at::Layout> layout, std::optional<bool> pinned) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "tensors of layout ", *layout,
                              " are not carried to a leased GPU; use dense tensors, or run on the server (toolkit run --where server)");
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
}

Tensor empty(Sizes sizes, Dtype dtype, std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pinned,
             std::optional<at::MemoryFormat> format) {
  check(layout, pinned);
  if (device && device->has_index()) device_unconnected(device->index());
  OnDevice on(device && device->has_index() ? device->index() : -1);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(Sizes sizes, Sizes strides, Dtype dtype, std::optional<at::Layout> layout, std::optional<at::Device> device,
                     std::optional<bool> pinned) {
  check(layout, pinned);
  if (device && device->has_index()) device_unconnected(device->index());
  OnDevice on(device && device->has_index() ? device->index() : -1);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype));
}

Tensor as_strided(const Tensor& self, Sizes sizes, Sizes strides, std::optional<c10::SymInt> offset) {
  std::optional<int64_t> plain;
  if (offset) plain = number(*offset);
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), plain);
}
Tensor view(const Tensor& self, Sizes sizes) { return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes)); }
Tensor reshape_alias(const Tensor& self, Sizes sizes, Sizes strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

const Tensor& resize_(const Tensor& self, Sizes sizes, std::optional<at::MemoryFormat> format) {
  auto plain = C10_AS_INTARRAYREF_SLOW(sizes);
  if (self.sizes() != plain) {
    auto bytes = at::detail::computeStorageNbytesContiguous(plain, self.element_size(), self.storage_offset());
    set_geometry(self, plain, at::detail::defaultStrides(plain), static_cast<int64_t>(bytes));
  }
  if (format && *format != at::MemoryFormat::Preserve) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  TORCH_CHECK(!format || *format != at::MemoryFormat::Preserve, "Unsupported memory format ", *format);
  return self;
}

// As torch's own for CUDA.
void same_device(const Tensor& self, const c10::Storage& storage) {
  at::Device own = self.storage().device(), other = storage.device();
  TORCH_CHECK(own == other, "Attempted to set the storage of a tensor on device \"", own, "\" to a storage on different device \"",
              other, "\".  This is no longer allowed; the devices must match.");
}

Tensor& set_storage_at(Tensor& self, c10::Storage storage, c10::SymInt offset, Sizes sizes, Sizes strides) {
  same_device(self, storage);
  auto plain = C10_AS_INTARRAYREF_SLOW(sizes);
  auto given = C10_AS_INTARRAYREF_SLOW(strides);
  std::vector<int64_t> made = given.empty() && !plain.empty() ? at::detail::defaultStrides(plain) : given.vec();
  int64_t first = number(offset);
  TORCH_CHECK(made.size() == plain.size(), "unequal size length (", plain.size(), ") and stride length (", made.size(), ")");
  TORCH_CHECK(first >= 0, "Tensor: invalid storage offset ", first);
  auto bytes = static_cast<int64_t>(at::detail::computeStorageNbytes(plain, made, self.element_size(), static_cast<size_t>(first)));
  if (bytes > static_cast<int64_t>(storage.nbytes())) resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_sizes_and_strides(plain, made, first);
  return self;
}

Tensor& set_tensor(Tensor& self, const Tensor& from) {
  same_device(self, from.storage());
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(from.storage());
  impl->set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
  return self;
}

Tensor& set_storage(Tensor& self, c10::Storage storage) {
  same_device(self, storage);
  int64_t count = static_cast<int64_t>(storage.nbytes() / self.element_size());
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_sizes_and_strides(std::vector<int64_t>{count}, std::vector<int64_t>{1}, 0);
  return self;
}

Tensor& set_nothing(Tensor& self) { return set_tensor(self, at::empty({0}, self.options())); }

bool is_set_to(const Tensor& self, const Tensor& other) {
  return self.storage().is_alias_of(other.storage()) && self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

}  // namespace

void adopt_geometry(const Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t bytes) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides);
  auto& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  RemoteStorage& remote = remote_storage(storage);
  if (bytes <= remote.bytes) return;
  remote.device->memory.allocated += bytes - remote.bytes;
  remote.device->memory.total_allocated += bytes - remote.bytes;
  remote.bytes = bytes;
  storage.set_nbytes(static_cast<size_t>(bytes));
}

void set_geometry(const Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t bytes) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides);
  auto& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  if (bytes > static_cast<int64_t>(storage.nbytes())) resize_storage(storage, bytes);
}

void register_views(torch::Library& library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);
  library.impl("resize_", &resize_);
  library.impl("set_.source_Storage_storage_offset", &set_storage_at);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("set_.source_Storage", &set_storage);
  library.impl("set_", &set_nothing);
  library.impl("is_set_to", &is_set_to);
}

}  // namespace eat
