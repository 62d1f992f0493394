// Groups of the servers' sessions: see together.h.
#include "together.h"

#include <map>
#include <mutex>
#include <random>

#include "shared/together.h"
#include "memory.h"
#include "client/python.h"

namespace eat {

namespace {

constexpr double JOIN_S = 600;
std::atomic<uint32_t> next_group{1}, next_work{1};

std::shared_ptr<Ticket> ask(Device& device, Together what, uint32_t group, const std::string& request) {
  auto ticket = device.connection().ticket();
  Writer message;
  size_t began = message.begin(ToServer::COLLECTIVE);
  message.put(static_cast<uint8_t>(what));
  message.put(ticket->tag);
  if (what == Together::JOIN) {
    message.put(group);
    message.text(request);
  }
  message.end(began);
  device.connection().send(device.there, message.bytes);
  return ticket;
}

void send_one(Device& device, Together what, uint32_t number) {
  Writer message;
  size_t began = message.begin(ToServer::COLLECTIVE);
  message.put(static_cast<uint8_t>(what));
  message.put(number);
  message.end(began);
  device.connection().send(device.there, message.bytes);
}

void put_tensors(Writer& message, const std::vector<at::Tensor>& tensors) {
  message.put(static_cast<uint16_t>(tensors.size()));
  for (const at::Tensor& tensor : tensors) {
    message.put(remote_storage(tensor).number);
    message.put(static_cast<uint8_t>(tensor.scalar_type()));
    message.put(static_cast<uint8_t>(tensor.dim()));
    for (int64_t size : tensor.sizes()) message.put<int64_t>(size);
    for (int64_t stride : tensor.strides()) message.put<int64_t>(stride);
    message.put<int64_t>(tensor.storage_offset());
  }
}

void put_rows(Writer& message, const std::vector<int64_t>& rows) {
  message.put(static_cast<uint32_t>(rows.size()));
  for (int64_t count : rows) message.put(count);
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  auto count = static_cast<int64_t>(tensor.nbytes());
  return make_tensor(tensor.storage(), at::kByte, {count}, {1}, tensor.storage_offset() * static_cast<int64_t>(tensor.element_size()));
}

// The two servers' sessions of this process, as a group; 0: they do not know each other.
uint32_t pair_of(Device& one, Device& other) {
  static std::map<std::pair<Server*, Server*>, uint32_t> pairs;
  auto [at, is_new] = pairs.try_emplace({one.server, other.server}, 0);
  if (!is_new) return at->second;
  std::random_device random;
  char name[33];
  snprintf(name, sizeof name, "%08x%08x%08x%08x", random(), random(), random(), random());
  try {
    std::string members = "\"members\": [" + member(one) + ", " + member(other) + "], \"name\": \"" + name + "\", \"timeout_s\": " + std::to_string(JOIN_S) + "}";
    uint32_t group = new_group();
    auto first = join(one, group, "{\"rank\": 0, " + members), second = join(other, group, "{\"rank\": 1, " + members);
    wait_only(one, *first);
    wait_only(other, *second);
    if (first->errors.empty() && second->errors.empty()) at->second = group;
  } catch (const c10::Error&) {  // they go by this machine
  }
  return at->second;
}

}  // namespace

uint32_t new_group() { return next_group++; }

std::string member(Device& device) {
  auto ticket = ask(device, Together::MEMBER, 0, {});
  wait_for(device, *ticket);
  return ticket->body;
}

std::shared_ptr<Ticket> join(Device& device, uint32_t group, const std::string& request) { return ask(device, Together::JOIN, group, request); }

void leave(Device& device, uint32_t group) { send_one(device, Together::LEAVE, group); }

namespace {

uint32_t send_work(Device& device, const Joint& one) {
  for (const auto* tensors : {&one.outputs, &one.inputs}) {
    for (const at::Tensor& tensor : *tensors) {
      TORCH_CHECK(remote_storage(tensor).device == &device, "a collective of cuda:", device.number, " with a tensor of ", tensor.device(),
                  ": each rank has one GPU");
    }
  }
  uint32_t work = next_work++;
  Writer message;
  size_t began = message.begin(ToServer::COLLECTIVE);
  message.put(static_cast<uint8_t>(Together::BEGIN));
  message.put(one.group);
  message.put(work);
  message.text(one.name);
  message.text(one.operation);
  message.put<int32_t>(one.root);
  message.put<int32_t>(one.tag);
  put_rows(message, one.output_rows);
  put_rows(message, one.input_rows);
  put_tensors(message, one.outputs);
  put_tensors(message, one.inputs);
  message.end(began);
  device.connection().send(device.there, message.bytes);
  for (const at::Tensor& tensor : one.outputs) remote_storage(tensor).written();
  return work;
}

}  // namespace

uint32_t begin_work(Device& device, const Joint& one) {
  if (device.connection().has_news()) raise_news(device);  // before it is begun, or its number would be lost
  return send_work(device, one);
}

void wait_work(Device& device, uint32_t work) { send_one(device, Together::WAIT, work); }

bool copy_between(const at::Tensor& to, const at::Tensor& from) {
  static std::mutex one_after_the_other;  // two at once could wait for each other
  Device &source = *remote_storage(from).device, &target = *remote_storage(to).device;
  std::unique_lock<std::mutex> lock(one_after_the_other, std::defer_lock);
  {
    WithoutLock released;
    lock.lock();
  }
  bool turned = source.server > target.server;
  uint32_t group = turned ? pair_of(target, source) : pair_of(source, target);
  if (!group) return false;
  Joint gives, takes;
  gives.group = takes.group = group;
  gives.name = "give";
  takes.name = "take";
  gives.root = turned ? 0 : 1;
  takes.root = turned ? 1 : 0;
  gives.inputs = {bytes_of(from)};
  takes.outputs = {bytes_of(to)};
  takes.output_rows = {static_cast<int64_t>(to.nbytes())};
  send_work(source, gives);
  send_work(target, takes);  // whatever is to be told: what is given and not taken would be taken by the next copy
  for (Device* each : {&source, &target}) {
    if (each->connection().has_news()) raise_news(*each);
  }
  return true;
}

}  // namespace eat
