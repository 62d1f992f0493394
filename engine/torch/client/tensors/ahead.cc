// Sending ahead: see ahead.h.
#include "ahead.h"

#include <ATen/ops/_pin_memory_native.h>

#include <deque>
#include <mutex>

#include "shared/again.h"
#include "shared/packed.h"
#include "packing.h"

namespace eat {

std::atomic<int64_t> ahead_bytes{0};

namespace {

constexpr size_t MOST_AHEAD = MOST_STAGED / 2;  // bytes that are ahead; beyond it the oldest is dropped

struct Ahead {
  const char* address = nullptr;  // the pinned memory; compared, never read by it
  size_t count = 0;
  std::shared_ptr<char[]> before;  // its bytes then: what the memory is compared with
  std::shared_ptr<Packed> packed;  // what is sent, unless it is these bytes
  uint32_t number = 0;
  Server* server = nullptr;
};

std::mutex mutex;
size_t held = 0;

std::deque<Ahead>& all() {  // the oldest first
  static auto* one = new std::deque<Ahead>;
  return *one;
}

void drop(const Ahead& one) {
  Connection& connection = one.server->connection;
  if (!connection.stop_idle(one.number)) return;
  Writer message;
  size_t began = message.begin(ToServer::DROP);
  message.put(Dropped::STAGED);
  message.put(one.number);
  message.end(began);
  try {
    connection.send(0, message.bytes);
  } catch (const std::exception&) {  // the server is gone, and what was sent with it
  }
}

// With the mutex held: takes those out that `wanted` says.
template <class Wanted>
std::vector<Ahead> take(Wanted wanted) {
  std::vector<Ahead> taken;
  auto& list = all();
  for (auto one = list.begin(); one != list.end();) {
    if (!wanted(*one)) {
      ++one;
      continue;
    }
    held -= one->count;
    taken.push_back(std::move(*one));
    one = list.erase(one);
  }
  return taken;
}

void forget(const void* address) {
  if (in_fork()) return;
  std::vector<Ahead> gone;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (all().empty()) return;
    gone = take([&](const Ahead& one) { return one.address == address; });
  }
  for (const Ahead& one : gone) drop(one);
}

void send_ahead(const at::Tensor& pinned) {
  auto count = static_cast<size_t>(pinned.nbytes());
  if (count < LEAST_AHEAD || count > MOST_STAGED_ONE || in_fork() || !pinned.is_contiguous()) return;
  if (!is_connected() || !is_connected(device_unconnected(-1))) return;
  const char* address = static_cast<const char*>(pinned.const_data_ptr());
  Ahead made{address, count, memory_again(count), {}, next_staged(), device(-1).server};
  if (!made.before) return;
  memcpy(made.before.get(), address, count);
  if (auto packed = packed_form(pinned, made.before.get())) made.packed = std::make_shared<Packed>(std::move(*packed));
  std::vector<Ahead> gone;
  {
    std::lock_guard<std::mutex> lock(mutex);
    gone = take([&](const Ahead& one) { return one.address == address || held + count > MOST_AHEAD; });
    Connection& connection = made.server->connection;
    if (made.packed) connection.send_idle(made.number, made.packed->data(), made.packed->size(), made.packed);
    else connection.send_idle(made.number, made.before.get(), count, made.before);
    held += count;
    all().push_back(made);
  }
  counters.ahead++;
  for (const Ahead& one : gone) drop(one);
}

}  // namespace

at::Tensor pin_memory(const at::Tensor& self, std::optional<at::Device> device) {
  at::Tensor pinned = at::native::_pin_memory(self, device);
  on_unpin = &forget;
  try {
    send_ahead(pinned);
  } catch (const std::exception&) {  // the copy to the device says what is wrong
  }
  return pinned;
}

bool use_ahead(const RemoteStorage& storage, int64_t offset, const char* data, int64_t count) {
  std::vector<Ahead> taken;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (all().empty()) return false;
    taken = take([&](const Ahead& one) {
      return one.address == data && one.count == static_cast<size_t>(count) && one.server == storage.device->server;
    });
  }
  if (taken.empty()) return false;
  const Ahead& one = taken.front();
  if (memcmp(one.before.get(), data, one.count) != 0) {
    drop(one);
    return false;
  }
  storage.device->connection().send_now(one.number);
  send_use(storage, offset, count, one.number, one.packed ? PACKED : Form::PLAIN);
  if (one.packed) packed_uploads++;
  ahead_bytes += static_cast<int64_t>(one.packed ? one.packed->size() : one.count);
  counters.ahead_used++;
  return true;
}

}  // namespace eat
