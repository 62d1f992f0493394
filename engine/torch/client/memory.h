// Memory of devices: a storage here is a number that the server knows; its address is a number too, in a range that is reserved
// and never mapped, so that whoever reads it by mistake stops at once instead of reading something else.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <string>

#include "state.h"

namespace eat {

struct RemoteStorage {
  uint32_t number;
  Device* device;
  int64_t bytes;       // as counted
  std::string known;   // its bytes, while they are known here; "" otherwise
};

uint32_t next_storage(size_t count = 1);  // the first of so many new numbers

// The storage behind a tensor of ours; throws where its memory is not ours.
RemoteStorage& remote_storage(const c10::StorageImpl& storage);
inline RemoteStorage& remote_storage(const at::Tensor& tensor) { return remote_storage(*tensor.storage().unsafeGetStorageImpl()); }

// torch.OutOfMemoryError where the device's part has no room for so many bytes more.
void need_room(Device& device, int64_t bytes);
// Storage of that number, which the server has made or will make.
c10::Storage make_storage(Device& device, uint32_t number, int64_t bytes);
at::Tensor make_tensor(c10::Storage storage, at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset = 0);
// Bytes of the storage become exactly so many; what fits stays.
void resize_storage(c10::StorageImpl& storage, int64_t bytes);

c10::Allocator* device_allocator();
// Servers give back what they keep of freed memory: all of the lease, for one allocator has them all.
void drop_unused_memory();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);
extern void (*on_unpin)(const void* data);  // called before pinned memory is freed
void register_allocator();

inline bool is_remote(const at::Tensor& tensor) { return tensor.defined() && tensor.device().is_cuda(); }

}  // namespace eat
