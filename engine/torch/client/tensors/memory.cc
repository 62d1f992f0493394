// The allocator of devices, the one of pinned memory, and what is counted: see memory.h.
#include "memory.h"

#include "client/kernels/random.h"
#include "client/operators/record.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <sys/mman.h>

#include <map>
#include <memory>
#include <mutex>

#include "shared/again.h"

namespace eat {

void (*on_unpin)(const void* data) = nullptr;

namespace {

constexpr uint64_t GRAIN = 512;  // addresses of storages differ by a multiple, as CUDA's do
constexpr uint64_t FALLBACK = 0x100000000000;

std::atomic<uint32_t> next_number{1};
std::atomic<uint64_t> next_address{0};

struct Range {
  uint64_t begin = FALLBACK, bytes = uint64_t(1) << 44;
  Range() {
    for (int bits = 44; bits >= 36; bits--) {
      void* got = mmap(nullptr, size_t(1) << bits, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (got == MAP_FAILED) continue;  // a limit of address space
      begin = reinterpret_cast<uint64_t>(got);
      bytes = uint64_t(1) << bits;
      return;
    }
  }
};

void* new_address(int64_t bytes) {
  static const Range range;
  uint64_t count = (static_cast<uint64_t>(bytes) / GRAIN + 1) * GRAIN;
  return reinterpret_cast<void*>(range.begin + next_address.fetch_add(count) % range.bytes);
}

void count_new(Memory& memory, int64_t bytes) {
  memory.allocations++;
  memory.total_allocated += bytes;
  int64_t now = memory.allocated += bytes, peak = memory.peak;
  while (now > peak && !memory.peak.compare_exchange_weak(peak, now)) {
  }
}

void count_gone(Memory& memory, int64_t bytes) {
  memory.allocated -= bytes;
  memory.total_freed += bytes;
}

void send_number(Device& device, ToServer kind, uint32_t number, const int64_t* bytes) {
  Writer message;
  size_t began = message.begin(kind);
  message.put(number);
  if (bytes) message.put<uint64_t>(static_cast<uint64_t>(*bytes));
  message.end(began);
  device.connection().send(device.there, message.bytes);
}

void release(void* context) {
  auto* storage = static_cast<RemoteStorage*>(context);
  if (!in_fork()) {
    storage->device->memory.frees++;
    count_gone(storage->device->memory, storage->bytes);
    try {
      send_number(*storage->device, ToServer::FREE, storage->number, nullptr);
      if (recorder) recorder->free(storage->number);
    } catch (const std::exception&) {  // the server is gone, and the storage with it
    }
  }
  delete storage;
}

c10::DataPtr pointer(Device& device, uint32_t number, int64_t bytes) {
  count_new(device.memory, bytes);
  auto* storage = new RemoteStorage{number, &device, bytes};
  return {new_address(bytes), storage, &release, at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device.number))};
}

// c10's statistics have a figure for all, small and large pool; here all is one pool.
void fill(c10::CachingAllocator::StatArray& to, int64_t current, int64_t peak, int64_t allocated, int64_t freed) {
  auto& all = to[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  all.current = current;
  all.peak = peak;
  all.allocated = allocated;
  all.freed = freed;
}

class RemoteAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t count) override {
    Device& device = eat::device(-1);
    auto bytes = static_cast<int64_t>(count);
    need_room(device, bytes);
    wait_for_queue(device);
    uint32_t number = next_storage();
    send_number(device, ToServer::ALLOC, number, &bytes);
    counters.local++;
    if (recorder) recorder->allocate(device, number, bytes);
    return pointer(device, number, bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "memory of a leased GPU cannot be copied by its address; copy the tensor (copy_, clone)");
  }
  bool initialized() override { return is_connected(); }
  void emptyCache(c10::MempoolId_t) override { drop_unused_memory(); }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const Memory& memory = device_unconnected(index).memory;
    int64_t count = memory.allocations - memory.frees;
    for (auto* array : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      fill(*array, memory.allocated, memory.peak, memory.total_allocated, memory.total_freed);
    }
    for (auto* array : {&stats.allocation, &stats.segment, &stats.active}) fill(*array, count, count, memory.allocations, memory.frees);
    stats.num_ooms = memory.refused;
    stats.num_device_alloc = memory.allocations;
    stats.num_device_free = memory.frees;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    Memory& memory = device_unconnected(index).memory;
    memory.total_allocated = memory.allocated.load();
    memory.total_freed = 0;
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    Memory& memory = device_unconnected(index).memory;
    memory.peak = memory.allocated.load();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    Device& device = eat::device(index);
    int64_t total = device.total_bytes, used = device.memory.allocated;
    return {static_cast<size_t>(std::max<int64_t>(total - used, 0)), static_cast<size_t>(total)};
  }
};

RemoteAllocator& remote_allocator() {
  static auto* one = new RemoteAllocator;  // outlives all tensors
  return *one;
}

// Ordinary memory of the machine that remembers that it was asked for as pinned: it may be sent later, see copies.cc.
struct Pins {
  std::mutex mutex;
  std::map<uintptr_t, size_t> ranges;
};
Pins& pins() {
  static auto* one = new Pins;
  return *one;
}

constexpr size_t LEAST_AGAIN = size_t(1) << 20;  // bytes; as torch keeps pinned memory for the next batch

struct Pinned {
  c10::DataPtr memory;
  std::shared_ptr<char[]> again;
  void* address() const { return again ? again.get() : memory.get(); }
};

void unpin(void* context) {
  auto* pinned = static_cast<Pinned*>(context);
  if (on_unpin) on_unpin(pinned->address());
  {
    std::lock_guard<std::mutex> lock(pins().mutex);
    pins().ranges.erase(reinterpret_cast<uintptr_t>(pinned->address()));
  }
  delete pinned;
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t count) override {
    auto pinned = std::make_unique<Pinned>();
    if (count >= LEAST_AGAIN) pinned->again = memory_again(count);
    if (!pinned->again) pinned->memory = c10::GetCPUAllocator()->allocate(count);  // its error where there is none
    void* address = pinned->address();
    if (address) {
      std::lock_guard<std::mutex> lock(pins().mutex);
      pins().ranges[reinterpret_cast<uintptr_t>(address)] = count;
    }
    return {address, pinned.release(), &unpin, at::Device(at::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }
};

}  // namespace

void drop_unused_memory() {
  for (int number = 0; !in_fork() && number < device_count(); number++) {
    Device& one = device_unconnected(number);
    if (is_connected(one)) drop(one, Dropped::UNUSED_MEMORY, 0);
  }
}

uint32_t next_storage(size_t count) { return next_number.fetch_add(static_cast<uint32_t>(count)); }

RemoteStorage& remote_storage(const c10::StorageImpl& storage) {
  const c10::DataPtr& memory = storage.data_ptr();
  TORCH_CHECK(memory.get_deleter() == &release, "a CUDA tensor whose memory is not of the leased GPU (made by another library?)");
  return *static_cast<RemoteStorage*>(memory.get_context());
}

void need_room(Device& device, int64_t bytes) {
  int64_t total = device.total_bytes, used = device.memory.allocated;
  if (!total || used + bytes <= total) return;
  device.memory.refused++;
  auto gib = [](int64_t count) {
    char text[40];
    bool small = count < (int64_t(1) << 30);
    snprintf(text, sizeof text, "%.2f %s", static_cast<double>(count) / (small ? 1048576.0 : 1073741824.0), small ? "MiB" : "GiB");
    return std::string(text);
  };
  std::string text = c10::str("CUDA out of memory. Tried to allocate ", gib(bytes), ". GPU ", device.number, " has a total capacity of ",
                              gib(total), " (the lease's part) of which ", gib(total - used), " is free.");
  throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text);
}

c10::Storage make_storage(Device& device, uint32_t number, int64_t bytes) {
  return {c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes), pointer(device, number, bytes), &remote_allocator(), true};
}

at::Tensor make_tensor(c10::Storage storage, at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                       c10::scalarTypeToTypeMeta(dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return made;
}

void resize_storage(c10::StorageImpl& storage, int64_t bytes) {
  RemoteStorage& remote = remote_storage(storage);
  Device& device = *remote.device;
  if (bytes > remote.bytes) need_room(device, bytes - remote.bytes);
  send_number(device, ToServer::RESIZE, remote.number, &bytes);
  remote.written();
  if (recorder) recorder->resize(remote.number, bytes);
  if (bytes > remote.bytes) count_new(device.memory, bytes - remote.bytes), device.memory.allocations--;
  else count_gone(device.memory, remote.bytes - bytes);
  remote.bytes = bytes;
  storage.set_nbytes(static_cast<size_t>(bytes));
}

c10::Allocator* device_allocator() { return &remote_allocator(); }

c10::Allocator* pinned_allocator() {
  static auto* one = new PinnedAllocator;
  return one;
}

bool is_pinned(const void* data) {
  std::lock_guard<std::mutex> lock(pins().mutex);
  auto address = reinterpret_cast<uintptr_t>(data);
  auto after = pins().ranges.upper_bound(address);
  if (after == pins().ranges.begin()) return false;
  --after;
  return address < after->first + after->second;
}

void register_allocator() { c10::SetAllocator(at::kCUDA, &remote_allocator(), 10); }

}  // namespace eat
