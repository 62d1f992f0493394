// Devices, connections at the first use, and errors: see state.h.
#include "state.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <torch/csrc/api/include/torch/version.h>

#include <mutex>
#include <stdexcept>

#include "client/operators/call.h"
#include "client/python.h"
#include "client/kernels/random.h"
#include "client/operators/values.h"

namespace eat {

ClientCounters counters;

namespace {

constexpr int64_t NEVER_TOLD = INT64_MIN + 1;  // differs from every value of a flag

struct Setting {
  std::vector<std::unique_ptr<Server>> servers;
  std::vector<std::unique_ptr<Device>> devices;
  bool sync = false;
};

Setting setting;
std::mutex connecting;
std::atomic<bool> connected{false}, forked{false}, failed{false};
std::mutex untold_mutex;
constexpr size_t MOST_UNTOLD = 64;

std::vector<ToldError>& untold() {
  static auto* one = new std::vector<ToldError>;
  return *one;
}
thread_local int current = 0;

const char* const BAD_FORK =
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method";

Where where_of(const Json& address, const Json& token, double timeout_s, Transport transport) {
  size_t colon = address.text.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.text.size()) {
    throw std::invalid_argument("ELASTIC_AI_TORCH_SERVERS: " + quoted(address.text) + " is not host:port");
  }
  std::string host = address.text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, address.text.substr(colon + 1), token.text, timeout_s, transport};
}

// "" (not said) is TCP.
Transport transport_of(const std::string& name) {
  if (name == "verbs") return Transport::VERBS;
  if (name.empty() || name == "tcp") return Transport::TCP;
  throw std::invalid_argument("ELASTIC_AI_TRANSPORT is " + quoted(name) + ": give tcp or verbs");
}

void read_properties(Server& server) {
  Json list = read_json(server.connection.devices_json());
  const Json& devices = list.kind == Json::Kind::OBJECT ? list["devices"] : list;
  for (auto& device : setting.devices) {
    if (device->server != &server) continue;
    if (device->there >= devices.list.size()) {
      throw Lost("the GPU server " + server.connection.where().name() + " has " + std::to_string(devices.list.size()) +
                 " devices, and device " + std::to_string(device->there) + " was asked for");
    }
    const Json& one = devices.list[device->there];
    device->total_bytes = static_cast<int64_t>(one["total_memory_bytes"].number);
    device->processor = one["processor"].truth;
    device->onednn_bf16 = one["onednn_bf16"].truth;
    device->onednn_fp16 = one["onednn_fp16"].truth;
    device->cudnn_version = static_cast<int64_t>(one["cudnn"].number);
    std::string members = one.raw.substr(0, one.raw.rfind('}'));
    bool empty = one.object.empty();
    device->properties = members + (empty ? "" : ", ") + "\"torch_version\": " + quoted(server.connection.torch_version()) +
                         ", \"server\": " + quoted(server.connection.where().name()) + "}";
  }
}

void open(Server& server) {
  std::lock_guard<std::mutex> lock(connecting);
  if (server.is_ready) return;
  if (!server.connection.is_open()) {
    server.connection.open(TORCH_VERSION);
    server.told.fill(NEVER_TOLD);
  }
  read_properties(server);
  server.is_ready = connected = true;
  for (auto& device : setting.devices) {
    if (device->server == &server) send_seed(*device, 0, device->seed);
  }
}

void connect(Server& server) {
  try {
    WithoutLock released;
    open(server);
  } catch (const Interrupted&) {
    throw_python_exception();
  } catch (const JsonError& fault) {
    throw Lost(std::string("a GPU server tells its devices in a way that this client does not read: ") + fault.what());
  }
}

}  // namespace

void configure(int devices, const std::string& where_json) {
  if (connected) throw std::invalid_argument("the GPU servers are connected already: devices cannot be chosen anew");
  Json where = read_json(where_json);
  Setting made;
  made.sync = where["sync"].truth;
  double timeout_s = where["timeout_s"].number;
  auto transport = transport_of(where["transport"].text);
  const auto& tokens = where["tokens"].list;
  for (size_t i = 0; i < where["servers"].list.size(); i++) {
    auto token = i < tokens.size() ? tokens[i] : Json();
    made.servers.push_back(std::make_unique<Server>(where_of(where["servers"].list[i], token, timeout_s, transport)));
  }
  for (int i = 0; i < devices; i++) {
    auto one = std::make_unique<Device>();
    one->number = i;
    size_t server = static_cast<size_t>(i);
    if (const auto& list = where["devices"].list; !list.empty()) {
      if (static_cast<size_t>(i) >= list.size() || list[i].list.size() != 2) throw std::invalid_argument("\"devices\" has too few pairs");
      server = static_cast<size_t>(list[i].list[0].number);
      one->there = static_cast<uint8_t>(list[i].list[1].number);
    }
    if (server >= made.servers.size()) throw std::invalid_argument("device " + std::to_string(i) + " has no server");
    one->server = made.servers[server].get();
    one->seed = i < static_cast<int>(setting.devices.size()) ? setting.devices[i]->seed : DEFAULT_SEED;
    made.devices.push_back(std::move(one));
  }
  setting = std::move(made);
}

int device_count() { return static_cast<int>(setting.devices.size()); }
bool sync_mode() { return setting.sync; }
int current_device() { return current; }
bool is_connected() { return connected; }
bool is_connected(const Device& device) { return device.server->is_ready; }

int set_current_device(int number) {
  int before = current;
  if (number < 0) return before;
  if (number >= device_count()) {
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, 101,
                                "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n");
  }
  current = number;
  return before;
}

void set_current_device_unchecked(int number) noexcept {
  if (number >= 0) current = number;
}

Device& device_unconnected(int number) {
  if (number < 0) number = current;
  if (number >= device_count()) set_current_device(number);
  return *setting.devices[static_cast<size_t>(number)];
}

Device& device(int number) {
  if (forked) throw std::runtime_error(BAD_FORK);
  Device& found = device_unconnected(number);
  if (!found.server->is_ready) connect(*found.server);
  return found;
}

void raise(const std::vector<ToldError>& errors) {
  const ToldError& first = errors.front();
  {
    std::lock_guard<std::mutex> lock(untold_mutex);
    std::erase_if(untold(), [&](const ToldError& one) { return one.kind == first.kind && one.text == first.text && one.name == first.name; });
  }
  if (first.kind == ErrorKind::ACCELERATOR) failed = true;
  c10::SourceLocation here{first.name.c_str(), __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (first.kind) {
    case ErrorKind::INDEX: throw c10::IndexError(here, first.text);
    case ErrorKind::TYPE: throw c10::TypeError(here, first.text);
    case ErrorKind::VALUE: throw c10::ValueError(here, first.text);
    case ErrorKind::NOT_IMPLEMENTED: throw c10::NotImplementedError(here, first.text);
    case ErrorKind::LINALG: throw c10::LinAlgError(here, first.text);
    case ErrorKind::OUT_OF_MEMORY: throw c10::OutOfMemoryError(here, first.text);
    case ErrorKind::ACCELERATOR: throw c10::AcceleratorError(here, 710, first.text);
    default: throw c10::Error(here, first.text);
  }
}

void raise_news(Device& device) {
  Connection& connection = device.connection();
  if (!connection.has_news()) return;
  for (const ToldWarning& warning : connection.take_warnings()) {
    if (warning.text.rfind("RNN module weights are not part of single", 0) == 0) continue;  // they are the server's pieces: recurrent.cc
    c10::SourceLocation here{"", nullptr, 0};  // the program's line, which Python knows
    if (warning.kind == WarningKind::DEPRECATION) c10::warn(c10::Warning(c10::DeprecationWarning(), here, warning.text, true));
    else c10::warn(c10::Warning(c10::UserWarning(), here, warning.text, true));
  }
  if (auto errors = connection.take_errors(); !errors.empty()) raise(errors);
}

void wait_only(Device& device, Ticket& ticket) {
  try {
    WithoutLock released;
    device.connection().wait(ticket);
  } catch (const Interrupted&) {
    throw_python_exception();
  }
}

void wait_for_queue(Device& device) {
  if (!device.connection().is_full()) return;
  try {
    WithoutLock released;
    device.connection().wait_for_room();
  } catch (const Interrupted&) {
    throw_python_exception();
  }
}

void raise_answer(Device& device, Ticket& ticket) {
  if (!ticket.errors.empty()) raise(ticket.errors);
  raise_news(device);
}

void wait_for(Device& device, Ticket& ticket) {
  wait_only(device, ticket);
  raise_answer(device, ticket);
}

void leave_untold(const std::vector<ToldError>& errors) {
  std::lock_guard<std::mutex> lock(untold_mutex);
  if (untold().size() < MOST_UNTOLD) untold().insert(untold().end(), errors.begin(), errors.end());
}

bool has_failed() { return failed; }

void synchronize(Device& device) {
  Along along(device);
  auto ticket = device.connection().ticket();
  Writer message;
  message.bytes = along.messages;
  size_t began = message.begin(ToServer::SYNC);
  message.put(ticket->tag);
  message.end(began);
  device.connection().send(device.there, message.bytes);
  wait_only(device, *ticket);
  along.arrived();
  raise_answer(device, *ticket);
  std::vector<ToldError> errors;
  {
    std::lock_guard<std::mutex> lock(untold_mutex);
    errors.swap(untold());
  }
  if (!errors.empty()) raise(errors);
}

bool in_fork() { return forked; }

void after_fork() {
  if (device_count() == 0 || forked) return;
  if (!connected) return;  // a child may open its own
  forked = true;
  for (auto& server : setting.servers) server->connection.abandon();
}

void shut_down() {
  if (forked || !connected) return;
  WithoutLock released;
  for (auto& server : setting.servers) server->connection.close();
}

}  // namespace eat
