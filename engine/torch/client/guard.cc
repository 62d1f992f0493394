// torch's guard of the device type, with streams and events: see guard.h. A device has one stream, in order; the streams that a
// program makes are names of it.
#include "guard.h"

#include <mutex>

#include "client/tensors/memory.h"
#include "client/kernels/random.h"
#include "client/tensors/together.h"

namespace eat {

namespace {

constexpr int64_t FIRST_STREAM = 1;  // 0 is the default stream; as torch's own ids, never given twice
std::atomic<int64_t> next_stream{FIRST_STREAM};
std::atomic<uint32_t> next_event{1};
thread_local std::vector<int64_t> streams;  // the current stream's id of each device

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return at::kCUDA; }
  at::Device exchangeDevice(at::Device device) const override { return index(set_current_device(device.index())); }
  at::Device getDevice() const override { return index(current_device()); }
  void setDevice(at::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(at::Device device) const noexcept override { set_current_device_unchecked(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
  c10::DeviceCapability getDeviceCapability(at::Device) const override { return {}; }

  c10::Stream getStream(at::Device device) const override { return stream(device, current(device)); }
  c10::Stream getDefaultStream(at::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, full(device)); }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool) const override { return stream(device, next_stream++); }
  c10::Stream getNewStream(at::Device device, int) const override { return stream(device, next_stream++); }
  c10::Stream exchangeStream(c10::Stream given) const override {
    int64_t& place = current(given.device());
    int64_t before = place;
    place = given.id();
    return stream(given.device(), before);
  }
  // Waits: an answer that is under way is of what was asked before, so a loop that asks anew each time would never end.
  bool queryStream(const c10::Stream& stream) const override {
    synchronize(device(stream.device_index()));
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override { synchronize(device(stream.device_index())); }
  void synchronizeDevice(const c10::DeviceIndex index) const override { synchronize(device(index)); }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    Device& where = device(stream.device_index());
    auto* one = static_cast<RemoteEvent*>(*event);
    if (!one) *event = one = new RemoteEvent{new_event_number(), &where, {}, 0, 0};
    one->device = &where;
    one->work = is_work_stream(stream.id()) ? static_cast<uint32_t>(stream.id() - WORK_STREAM) : 0;
    if (!one->work) record_event(*one);
  }
  // One stream in order: what follows waits anyway, but for collectives.
  void block(void* event, const c10::Stream&) const override {
    auto* one = static_cast<RemoteEvent*>(event);
    if (one && one->work) wait_work(*one->device, one->work);
  }
  bool queryEvent(void* event) const override { return !event || query_event(*static_cast<RemoteEvent*>(event)); }
  void synchronizeEvent(void* event) const override {
    if (event) wait_event(*static_cast<RemoteEvent*>(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (!event) return;
    auto* one = static_cast<RemoteEvent*>(event);
    drop_event(*one);
    delete one;
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    TORCH_CHECK(from && to, "Both events must be recorded before calculating elapsed time.");
    double began_ms = wait_event(*static_cast<RemoteEvent*>(from));
    return wait_event(*static_cast<RemoteEvent*>(to)) - began_ms;
  }

 private:
  static at::Device index(int device) { return {at::kCUDA, static_cast<c10::DeviceIndex>(device)}; }
  static at::Device full(at::Device device) { return device.has_index() ? device : index(current_device()); }
  static int64_t& current(at::Device device) {
    auto at = static_cast<size_t>(full(device).index());
    if (streams.size() <= at) streams.resize(at + 1);
    return streams[at];
  }
  static c10::Stream stream(at::Device device, int64_t id) { return c10::Stream(c10::Stream::UNSAFE, full(device), id); }
};

}  // namespace

uint32_t new_event_number() { return next_event++; }

void record_event(RemoteEvent& event) {
  event.ticket.reset();
  event.after = event.device->connection().asked_tag();
  Writer message;
  size_t began = message.begin(ToServer::EVENT);
  message.put(event.number);
  message.end(began);
  event.device->connection().send(event.device->there, message.bytes);
}

static void ask_event(RemoteEvent& event) {
  if (event.ticket) return;
  Connection& connection = event.device->connection();
  event.ticket = connection.ticket();
  Writer message;
  size_t began = message.begin(ToServer::EVENT_WAIT);
  message.put(event.ticket->tag);
  message.put(event.number);
  message.end(began);
  connection.send(event.device->there, message.bytes);
}

void use_work_stream(int number, uint32_t work) {
  auto at = static_cast<size_t>(number);
  if (streams.size() <= at) streams.resize(at + 1);
  streams[at] = work ? WORK_STREAM + work : 0;
}

// An event that stands for a collective becomes one behind it.
static void settle(RemoteEvent& event) {
  if (!event.work) return;
  wait_work(*event.device, event.work);
  event.work = 0;
  record_event(event);
}

bool query_event(RemoteEvent& event) {
  settle(event);
  if (event.device->connection().answered_tag() > event.after) return true;
  ask_event(event);
  return event.device->connection().is_done(*event.ticket);
}

double wait_event(RemoteEvent& event) {
  settle(event);
  ask_event(event);
  wait_for(*event.device, *event.ticket);
  return Reader(event.ticket->body).get<double>();
}

void drop_event(RemoteEvent& event) {
  if (in_fork()) return;
  try {
    drop(*event.device, Dropped::EVENT, event.number);
  } catch (const std::exception&) {  // the server is gone, and the event with it
  }
}

void register_guard() { c10::impl::DeviceGuardImplRegistrar registrar(at::kCUDA, new Guard); }

}  // namespace eat
