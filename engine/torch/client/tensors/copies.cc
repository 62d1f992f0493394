// Copies up, down, and on the device: see copies.h.
#include "copies.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>

#include "ahead.h"
#include "client/operators/call.h"
#include "memory.h"
#include "packing.h"
#include "client/python.h"
#include "client/operators/record.h"
#include "together.h"
#include "client/operators/values.h"

namespace eat {

namespace {

using at::Tensor;

constexpr int64_t COPIED = 64 << 10;  // an upload up to so many bytes is copied into the queue; a longer one is sent from where it lies

Tensor plain(const Tensor& tensor) { return tensor.is_conj() || tensor.is_neg() ? tensor.resolve_conj().resolve_neg() : tensor; }

bool pinned(const Tensor& tensor) { return tensor.device().is_cpu() && tensor.numel() && is_pinned(tensor.const_data_ptr()); }

std::shared_ptr<void> hold(const Tensor& tensor) { return std::make_shared<c10::Storage>(tensor.storage()); }

}  // namespace

void send_bytes(const Tensor& to, const Tensor& from, bool later) {
  auto count = static_cast<int64_t>(from.nbytes());
  if (!count) return;
  RemoteStorage& storage = remote_storage(to);
  Connection& connection = storage.device->connection();
  const char* data = static_cast<const char*>(from.const_data_ptr());
  int64_t offset = to.storage_offset() * static_cast<int64_t>(to.element_size());
  connection.traffic.up_bytes += count;
  struct Written {
    RemoteStorage& storage;
    ~Written() { storage.written(); }  // also where the user interrupts a copy that is half sent
  };
  Writer message;
  auto head = [&](int64_t done, int64_t part) {
    message.bytes.clear();
    size_t began = message.begin(ToServer::UP);
    message.put(storage.number);
    message.put<uint64_t>(static_cast<uint64_t>(offset + done));
    auto length = static_cast<uint32_t>(message.bytes.size() - began + static_cast<size_t>(part));
    memcpy(&message.bytes[began - sizeof length], &length, sizeof length);
  };
  if (count <= COPIED) {
    wait_for_queue(*storage.device);
    head(0, count);
    message.put(data, static_cast<size_t>(count));
    uint64_t before = storage.writes;
    connection.send(storage.device->there, message.bytes);
    if (recorder) recorder->upload(from, storage.number, offset, data, count);
    bool whole = offset == 0 && count == storage.bytes && count <= MOST_KNOWN;
    // Where another thread writes there at the same time, nobody knows which was first.
    if (uint64_t now = storage.written(); whole && now == before + 1) know(storage, now, message.bytes.data() + message.bytes.size() - count, static_cast<size_t>(count));
    return;
  }
  Written written{storage};
  if (count >= LEAST_AHEAD && use_ahead(storage, offset, data, count)) return;
  std::shared_ptr<void> keep = hold(from);
  try {
    WithoutLock released;
    if (count >= LEAST_PACKED) {
      if (auto packed = packed_form(from, data)) return send_packed(storage, offset, count, std::move(*packed));
    }
    for (int64_t done = 0; done < count;) {
      int64_t part = std::min<int64_t>(count - done, MOST_CHUNK);
      bool last = done + part == count;
      head(done, part);
      connection.send_with(storage.device->there, message.bytes, data + done, static_cast<size_t>(part), keep, last && !later);
      done += part;
    }
  } catch (const Interrupted&) {
    throw_python_exception();
  }
}

Tensor upload(const Tensor& tensor, Device& device) {
  auto made = at::empty(tensor.sizes(), tensor.options().device(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device.number))));
  send_bytes(made, plain(tensor).contiguous(), false);
  return made;
}

void fetch_bytes(const Tensor& to, const Tensor& from, bool later) {
  auto count = static_cast<uint64_t>(to.nbytes());
  if (!count) return;
  RemoteStorage& storage = remote_storage(from);
  auto offset = static_cast<uint64_t>(from.storage_offset()) * from.element_size();
  auto* data = static_cast<char*>(to.mutable_data_ptr());
  if (take_known(storage, offset, data, count)) {
    if (recorder) recorder->cannot("it reads a value");
    return;
  }
  Device& device = eat::device(storage.device->number);  // in a child of fork it says what is wrong
  std::optional<Along> along;
  if (!later) along.emplace(*storage.device, &storage);
  auto ticket = device.connection().ticket(data, count, hold(to), later);
  Writer message;
  if (along) message.bytes = along->messages;
  size_t began = message.begin(ToServer::DOWN);
  message.put(ticket->tag);
  message.put(storage.number);
  message.put(offset);
  message.put(count);
  message.end(began);
  device.connection().send(device.there, message.bytes);
  if (!along) return;
  wait_only(device, *ticket);
  along->arrived();
  raise_answer(device, *ticket);
}

namespace {

// Bytes of a contiguous tensor to where a contiguous one of another device of the same server lies.
void send_within(const Tensor& to, const Tensor& from) {
  auto count = static_cast<uint64_t>(from.nbytes());
  if (!count) return;
  RemoteStorage &target = remote_storage(to), &source = remote_storage(from);
  Writer message;
  size_t began = message.begin(ToServer::PEER_COPY);
  message.put(target.number);
  message.put(target.device->there);
  message.put<uint64_t>(static_cast<uint64_t>(to.storage_offset()) * to.element_size());
  message.put(source.number);
  message.put(source.device->there);
  message.put<uint64_t>(static_cast<uint64_t>(from.storage_offset()) * from.element_size());
  message.put(count);
  message.end(began);
  target.device->connection().send(target.device->there, message.bytes);
  target.written();
}

// Between two devices: as bytes, so that dtype and strides are changed on the one that receives.
Tensor& copy_across(Tensor& self, const Tensor& from, bool non_blocking) {
  bool within = remote_storage(self).device->server == remote_storage(from).device->server;
  Tensor source = plain(from).contiguous();
  bool direct = self.is_contiguous() && self.scalar_type() == source.scalar_type() && self.sizes() == source.sizes() && !self.is_conj() && !self.is_neg();
  Tensor there = direct ? self : at::empty(source.sizes(), source.options().device(self.device()));
  if (within) {
    send_within(there, source);
  } else if (source.nbytes() && !copy_between(there, source)) {
    Tensor here = at::empty(source.sizes(), source.options().device(at::kCPU));
    return self.copy_(here.copy_(source));
  }
  if (!direct) copy_(self, there, non_blocking);
  if (sync_mode()) synchronize(*remote_storage(self).device);
  return self;
}

}  // namespace

Tensor& copy_(Tensor& self, const Tensor& from, bool non_blocking) {
  if (self.numel() == 0 && from.numel() == 0) return self;
  if (is_remote(self) && is_remote(from)) {
    if (self.device() != from.device()) return copy_across(self, from, non_blocking);
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    std::vector<c10::IValue> stack{self, from, non_blocking};
    call_remote(op, &stack);
    return self;
  }
  if (is_remote(self)) {
    TORCH_CHECK_NOT_IMPLEMENTED(from.layout() == at::kStrided, "tensors of layout ", from.layout(), " are not carried to a leased GPU");
    Tensor source = plain(from);
    bool same_type = source.scalar_type() == self.scalar_type();
    if (!same_type && source.element_size() > self.element_size()) source = source.to(self.scalar_type()), same_type = true;
    if (self.is_contiguous() && same_type && !self.is_conj() && !self.is_neg() && source.sizes() == self.sizes()) {
      send_bytes(self, source.contiguous(), non_blocking && pinned(source));
      return self;
    }
    return self.copy_(upload(source, *remote_storage(self).device));
  }
  Tensor source = plain(from);
  if (source.scalar_type() != self.scalar_type() && source.element_size() > self.element_size() && !source.is_complex()) {
    source = source.to(self.scalar_type());
  }
  source = source.contiguous();
  bool direct = self.is_contiguous() && self.scalar_type() == source.scalar_type() && self.sizes() == source.sizes() && !self.is_conj() && !self.is_neg();
  if (direct) {
    fetch_bytes(self, source, non_blocking && pinned(self));
    return self;
  }
  Tensor here = at::empty(source.sizes(), source.options().device(at::kCPU));
  fetch_bytes(here, source, false);
  return self.copy_(here);
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  Tensor target = to;
  copy_(target, from, non_blocking);
  return to;
}

at::Scalar item(const Tensor& tensor) {
  TORCH_CHECK(tensor.numel() == 1, "a Tensor with ", tensor.numel(), " elements cannot be converted to Scalar");
  // One element: its strides do not matter, and conjugate or negative bits are resolved here.
  Tensor here = at::detail::empty_cpu({}, tensor.scalar_type());
  fetch_bytes(here, tensor, false);
  if (tensor.is_conj()) here._set_conj(true);
  if (tensor.is_neg()) here._set_neg(true);
  return at::_local_scalar_dense(plain(here));
}

}  // namespace eat
