// Images as bytes: see packing.h.
#include "packing.h"

#include <mutex>
#include <set>
#include <vector>

namespace eat {

std::atomic<int64_t> packed_uploads{0};

namespace {

constexpr size_t MOST_SHAPES = 4096;  // of those that had no packed form; then they are tried again
constexpr int64_t MOST_COLOURS = 4;   // a dimension of so many is taken for channels

std::atomic<uint32_t> next{1};

// Channels first, last, or none.
Layout layout_of(const at::Tensor& tensor) {
  auto element = static_cast<uint8_t>(tensor.element_size());
  auto sizes = tensor.sizes();
  auto count = static_cast<uint64_t>(tensor.numel());
  auto channels = [&](size_t dim) { return static_cast<uint32_t>(sizes[dim]); };
  if (sizes.size() == 4 || sizes.size() == 3) {
    size_t first = sizes.size() - 3, last = sizes.size() - 1;
    if (sizes[first] > 1 && sizes[first] <= MOST_COLOURS) {
      auto inner = static_cast<uint64_t>(sizes[first + 1] * sizes[first + 2]);
      return {element, channels(first), count / channels(first) / inner, inner};
    }
    if (sizes[last] > 1 && sizes[last] <= MOST_COLOURS) return {element, channels(last), count / channels(last), 1};
  }
  return {element, 1, 1, count};
}

}  // namespace

std::optional<Packed> packed_form(const at::Tensor& tensor, const char* data) {
  if (!at::isFloatingType(tensor.scalar_type()) || tensor.element_size() > 4 || tensor.element_size() < 2) return {};
  static std::mutex mutex;
  static auto* without = new std::set<std::vector<int64_t>>;
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape.push_back(static_cast<int64_t>(tensor.scalar_type()));
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (without->count(shape)) return {};
  }
  auto packed = pack(data, layout_of(tensor));
  if (packed && packed->size() <= MOST_STAGED_ONE) return packed;
  std::lock_guard<std::mutex> lock(mutex);
  if (without->size() == MOST_SHAPES) without->clear();
  without->insert(shape);
  return {};
}

uint32_t next_staged() { return next++; }

void send_use(const RemoteStorage& storage, int64_t offset, int64_t count, uint32_t number, Form form) {
  Writer message;
  size_t began = message.begin(ToServer::USE);
  message.put(number);
  message.put(form);
  message.put(storage.number);
  message.put<uint64_t>(static_cast<uint64_t>(offset));
  message.put<uint64_t>(static_cast<uint64_t>(count));
  message.end(began);
  storage.device->connection().send(storage.device->there, message.bytes);
}

void send_packed(const RemoteStorage& storage, int64_t offset, int64_t count, Packed packed) {
  Connection& connection = storage.device->connection();
  auto kept = std::make_shared<Packed>(std::move(packed));
  // One at a time, so that no more than one is staged beside what is ahead: the server has a limit for all.
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  uint32_t number = next_staged();
  connection.send_idle(number, kept->data(), kept->size(), kept);
  connection.send_now(number);
  send_use(storage, offset, count, number, PACKED);
  packed_uploads++;
}

}  // namespace eat
