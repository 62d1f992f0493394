// Memory: made, resized, and its bytes up and down.
#include <ATen/Functions.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "../shared/again.h"
#include "../shared/packed.h"
#include "session.h"
#include "uploads.h"

namespace eat {
namespace {

using at::Tensor;

// Messages that are no operators, in errors.
const std::string ALLOCATION = "allocation", UPLOAD = "upload", DOWNLOAD = "download";

Tensor bytes_of(const c10::Storage& storage, uint64_t offset, uint64_t count) {
  Geometry g;
  g.dtype = c10::kByte;
  g.sizes = {static_cast<int64_t>(count)};
  g.strides = {1};
  g.offset = static_cast<int64_t>(offset);
  return make_tensor(g, 0, storage);
}

Tensor new_bytes(c10::Device device, uint64_t count, bool pinned = false) {
  if (count > uint64_t(INT64_MAX)) throw Refused("so much memory cannot be");
  return at::empty({static_cast<int64_t>(count)}, at::TensorOptions(c10::kByte).device(device).pinned_memory(pinned));
}

bool within(const c10::Storage& storage, uint64_t offset, uint64_t count) {
  return offset <= storage.nbytes() && count <= storage.nbytes() - offset;
}

// Buffers for bytes on their way to or from a GPU: each is used again when its copy has ended.
class Ring {
 public:
  explicit Ring(c10::Device device) : device_(device) {}
  Tensor& take() {
    at_ = (at_ + 1) % SIZE;
    if (!buffers_[at_].defined()) {
      buffers_[at_] = new_bytes(c10::kCPU, MOST_CHUNK, true);
      events_[at_] = std::make_unique<c10::Event>(c10::kCUDA);
    } else {
      events_[at_]->synchronize();
    }
    return buffers_[at_];
  }
  c10::Event& copied(c10::Device on) {
    events_[at_]->record(c10::impl::getDeviceGuardImpl(c10::kCUDA)->getStream(on));
    return *events_[at_];
  }

 private:
  static constexpr size_t SIZE = 8;
  c10::Device device_;
  Tensor buffers_[SIZE];
  std::unique_ptr<c10::Event> events_[SIZE];
  size_t at_ = 0;
};

Ring& ring(c10::Device device) {
  static Ring one(device);
  return one;
}

}  // namespace

Held Session::allocated(uint64_t count) {
  try {
    return {new_bytes(device_, count).storage(), telling.broken()};
  } catch (const std::exception&) {
    auto fault = fault_now(ALLOCATION);
    telling.keep(fault);
    return {c10::Storage(), fault};
  }
}

void Session::alloc(Reader& body) {
  auto number = body.get<uint32_t>();
  storages.add(number, allocated(body.get<uint64_t>()));
}

void Session::put_constant(Held& held, uint64_t offset, const char* bytes, uint64_t count) {
  if (!held.has_memory()) return;  // what spoiled it has been, or will be, told
  if (!within(held.storage, offset, count)) return telling.keep(held.fault = own_fault(UPLOAD, "an upload reaches beyond its storage"));
  if (!count) return;
  try {
    bytes_of(held.storage, offset, count).copy_(bytes_at(bytes, count));
  } catch (const std::exception&) {
    telling.keep(held.fault = fault_now(UPLOAD));
  }
}

void Session::resize(Reader& body) {
  auto number = body.get<uint32_t>();
  auto count = body.get<uint64_t>();
  Held* held = storages.find(number);
  if (!held || !held->has_memory()) return;
  try {
    auto made = new_bytes(held->storage.device(), count);
    auto keep = std::min<uint64_t>(count, held->storage.nbytes());
    if (keep) bytes_of(made.storage(), 0, keep).copy_(bytes_of(held->storage, 0, keep));
    held->storage = made.storage();
  } catch (const std::exception&) {
    held->fault = fault_now(ALLOCATION);
    telling.keep(held->fault);
  }
}

// What torch keeps of freed memory goes back, for other sessions of the lease to have.
void Session::drop_unused_memory() {
  if (!device_.is_cuda()) return drop_memory_again();
  try {
    c10::getDeviceAllocator(c10::kCUDA)->emptyCache();
  } catch (const std::exception&) {
    telling.keep(fault_now(ALLOCATION));
  }
}

void Session::up(uint32_t length) {
  struct __attribute__((packed)) {
    uint32_t number;
    uint64_t offset;
  } head;
  if (length < sizeof head || length - sizeof head > MOST_CHUNK) throw WireError("an upload has no such length");
  link_.read(&head, sizeof head);
  uint64_t count = length - sizeof head;
  Held* held = storages.find(head.number);
  if (!held || !held->has_memory() || !within(held->storage, head.offset, count)) {
    link_.skip(count);
    if (held && held->fault) return;  // it has been, or will be, told why
    telling.keep(own_fault(UPLOAD, held ? "an upload reaches beyond its storage"
                                        : "there is no storage " + std::to_string(head.number)));
    return;
  }
  if (!count) return;
  auto on = held->storage.device();
  if (on.is_cpu()) {
    link_.read(static_cast<char*>(held->storage.mutable_data()) + head.offset, count);
    return;
  }
  Tensor* buffer;
  try {
    buffer = &ring(on).take();
  } catch (const std::exception&) {
    link_.skip(count);
    telling.keep(held->fault = fault_now(UPLOAD));
    return;
  }
  link_.read(buffer->mutable_data_ptr(), count);
  try {
    bytes_of(held->storage, head.offset, count).copy_(bytes_of(buffer->storage(), 0, count), true);
    ring(on).copied(on);
  } catch (const std::exception&) {
    telling.keep(held->fault = fault_now(UPLOAD));
  }
}

// What was staged, into a storage: an UP whose bytes are here already.
void Session::use(Reader& body) {
  Staged staged = staging_.take(body.get<uint32_t>());
  auto form = body.get<uint8_t>();
  auto number = body.get<uint32_t>();
  auto offset = body.get<uint64_t>(), count = body.get<uint64_t>();
  bool packed = form == static_cast<uint8_t>(PACKED);
  if (!packed && form != static_cast<uint8_t>(Form::PLAIN)) throw WireError("staged bytes have no such form");
  Held* held = storages.find(number);
  const char* why = nullptr;
  if (!held) why = "it is for a storage that there is not";
  else if (held->has_memory() && !within(held->storage, offset, count)) why = "it reaches beyond its storage";
  else if (!staged.whole()) why = staged.total ? "it did not come whole, or the server has no memory for it" : "nothing is staged by that number";
  else if (!packed && staged.total != count) why = "another number of bytes is staged";
  if (why || !held->has_memory()) {
    if (held && held->fault && !held->has_memory()) return;  // it has been, or will be, told why
    FaultPtr fault = own_fault(UPLOAD, why ? why : "its storage has no memory");
    if (held && !held->spoiled()) held->fault = fault;  // its bytes are not what the client thinks
    return telling.keep(fault);
  }
  const char* bytes = staged.bytes.get();
  const c10::Storage& to = held->storage;
  bool here = to.device().is_cpu();
  try {
    if (!packed) {
      if (here) memcpy(static_cast<char*>(to.mutable_data()) + offset, bytes, count);
      else uploads_.copy(to, offset, staged.bytes, count);
      return;
    }
    Unpacking unpacking(bytes, staged.total, count);
    if (offset % unpacking.element()) throw WireError("packed floats begin between two of them");
    if (!here) uploads_.expand(to, offset, staged.bytes, unpacking);
    else if (settings.like_cuda) look_up(to, offset, bytes_at(unpacking.indices(), count / unpacking.element()), unpacking);
    else unpacking.get(static_cast<char*>(to.mutable_data()) + offset, 0, count / unpacking.element());
  } catch (const WireError&) {
    throw;
  } catch (const std::exception&) {
    telling.keep(held->fault = fault_now(UPLOAD));
  }
}

void Session::down(Reader& body) {
  auto tag = body.get<uint32_t>();
  auto number = body.get<uint32_t>();
  auto offset = body.get<uint64_t>();
  auto count = body.get<uint64_t>();
  Held* held = storages.find(number);
  FaultPtr fault = telling.broken();
  if (!fault) fault = held ? held->spoiled() : own_fault(DOWNLOAD, "there is no storage " + std::to_string(number));
  if (!fault && !within(held->storage, offset, count))
    fault = own_fault(DOWNLOAD, "a download reaches beyond its storage");
  struct __attribute__((packed)) Head {
    ToClient kind;
    uint32_t length, tag;
    uint64_t offset;
  };
  auto send = [&](uint64_t done, uint64_t step, const void* data) {
    Head head{ToClient::DATA, static_cast<uint32_t>(sizeof head - 5 + step), tag, done};
    link_.write({{&head, sizeof head}, {const_cast<void*>(data), step}});
  };
  if (!fault && count && held->storage.device().is_cpu()) {
    const char* data = static_cast<const char*>(held->storage.data()) + offset;
    for (uint64_t done = 0; done < count; done += MOST_CHUNK)
      send(done, std::min<uint64_t>(MOST_CHUNK, count - done), data + done);
  } else if (!fault && count) {
    // One chunk is copied while the one before it is sent.
    auto on = held->storage.device();
    try {
      struct Ready {
        Tensor* buffer;
        c10::Event* copied;
        uint64_t done, step;
      } before{nullptr, nullptr, 0, 0};
      auto finish = [&] {
        if (!before.buffer) return;
        {
          Running running(watch_, DOWNLOAD);  // the device, and not a client that takes its bytes slowly
          before.copied->synchronize();
        }
        send(before.done, before.step, before.buffer->const_data_ptr());
      };
      for (uint64_t done = 0; done < count; done += MOST_CHUNK) {
        auto step = std::min<uint64_t>(MOST_CHUNK, count - done);
        Tensor& buffer = ring(on).take();
        bytes_of(buffer.storage(), 0, step).copy_(bytes_of(held->storage, offset + done, step), true);
        auto& copied = ring(on).copied(on);
        finish();
        before = {&buffer, &copied, done, step};
      }
      finish();
    } catch (const c10::Error&) {
      fault = fault_now(DOWNLOAD);
      if (fault->kind == ErrorKind::ACCELERATOR) telling.keep(fault);
    }
  }
  answer(tag, std::string(), false, fault);
}

void Session::peer_copy(Reader& body) {
  auto to = body.get<uint32_t>();
  body.get<uint8_t>();
  auto to_offset = body.get<uint64_t>();
  auto from = body.get<uint32_t>();
  body.get<uint8_t>();
  auto from_offset = body.get<uint64_t>();
  auto count = body.get<uint64_t>();
  Held *target = storages.find(to), *source = storages.find(from);
  FaultPtr fault = telling.broken();
  if (!fault && source) fault = source->spoiled();
  if (!fault && !(source && target && target->has_memory() && within(source->storage, from_offset, count) &&
                  within(target->storage, to_offset, count)))
    telling.keep(fault = own_fault("copy between devices", "it reaches beyond its storages"));
  if (!fault && count) {
    try {
      bytes_of(target->storage, to_offset, count).copy_(bytes_of(source->storage, from_offset, count), true);
    } catch (const c10::Error&) {
      telling.keep(fault = fault_now("copy between devices"));
    }
  }
  if (fault && target && !target->spoiled()) target->fault = fault;
}

}  // namespace eat
