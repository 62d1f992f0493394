// Memory of devices: a storage here is a number that the server knows; its address is a number too, in a range that is reserved
// and never mapped, so that whoever reads it by mistake stops at once instead of reading something else.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <mutex>
#include <string>

#include "client/connection/state.h"

namespace eat {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
inline WeakStorage no_storage() { return WeakStorage(c10::intrusive_ptr<c10::StorageImpl>()); }

// Of the members of a storage that say so, by several threads.
extern std::mutex known_mutex;

struct RemoteStorage {
  uint32_t number;
  Device* device;
  int64_t bytes;       // as counted

  // What is known here of its bytes: values.h.
  static constexpr uint64_t NEVER = UINT64_MAX;
  std::atomic<uint64_t> writes{0};         // since it was made
  std::atomic<uint64_t> known_at{NEVER};   // `known` are its bytes after so many writes
  std::string known{};                     // with known_mutex
  bool came_along = false;                 // `known` did, and was not read yet; with known_mutex
  std::shared_ptr<Mark> made_by{};         // the signature, of small outputs
  WeakStorage tested = no_storage();       // what a test was made of

  // Called when a message that writes there, or may, is in the queue: not before, for what another thread asks until then is
  // answered with the bytes before it, and they must count as such.
  // Gives the new count.
  uint64_t written() { return writes.fetch_add(1, std::memory_order_acq_rel) + 1; }
  bool is_known() const { return known_at.load(std::memory_order_acquire) == writes.load(std::memory_order_acquire); }
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
