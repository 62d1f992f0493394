// Generators of devices: see random.h.
#include "random.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <mutex>

namespace eat {

namespace {

std::atomic<uint32_t> next_generator{1}, next_state{1};

void send(Device& device, Writer& message, size_t began) {
  message.end(began);
  device.connection().send(device.there, message.bytes);
}

class RemoteGenerator final : public c10::GeneratorImpl {
 public:
  RemoteGenerator(int device, uint32_t number)
      : GeneratorImpl(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)), c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        number_(number) {
    if (number_) send_seed(where(), number_, seed_);
  }
  ~RemoteGenerator() override {
    if (!number_ || in_fork() || !is_connected()) return;
    try {
      drop(where(), Dropped::GENERATOR, number_);
    } catch (const std::exception&) {  // the server is gone, and the generator with it
    }
  }
  static c10::DeviceType device_type() { return at::kCUDA; }
  uint32_t number() const { return number_; }
  uint64_t seedings() const { return seedings_; }

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    seedings_++;
    offset_ = 0;
    Device& here = device_unconnected(device_.index());
    if (!number_ && !is_connected(here)) here.seed = seed;  // sent with the connection
    else send_seed(where(), number_, seed);
  }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    auto made = c10::detail::getNonDeterministicRandom();
    set_current_seed(made);
    return made;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }

  void set_state(const c10::TensorImpl& state) override {
    auto impl = c10::intrusive_ptr<c10::TensorImpl, at::UndefinedTensorImpl>::reclaim_copy(const_cast<c10::TensorImpl*>(&state));
    at::Tensor tensor = at::Tensor::wrap_tensor_impl(std::move(impl));
    TORCH_CHECK(tensor.device().is_cpu() && tensor.scalar_type() == at::kByte && tensor.is_contiguous(), "RNG state must be a torch.ByteTensor");
    eat::set_state(where(), number_, std::string(static_cast<const char*>(tensor.const_data_ptr()), static_cast<size_t>(tensor.numel())));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    std::string state = eat::get_state(where(), number_);
    at::Tensor tensor = at::detail::empty_cpu({static_cast<int64_t>(state.size())}, at::kByte);
    memcpy(tensor.mutable_data_ptr(), state.data(), state.size());
    return tensor.getIntrusivePtr();
  }

 private:
  Device& where() const { return eat::device(device_.index()); }
  RemoteGenerator* clone_impl() const override {
    auto* copy = new RemoteGenerator(device_.index(), next_generator++);
    copy->seed_ = seed_;
    uint32_t state = keep_state(where(), number_);
    use_state(where(), copy->number_, state);
    drop(where(), Dropped::STATE, state);
    return copy;
  }

  uint32_t number_;
  uint64_t seed_ = DEFAULT_SEED, offset_ = 0;
  std::atomic<uint64_t> seedings_{0};
};

}  // namespace

void send_seed(Device& device, uint32_t generator, uint64_t seed) {
  Writer message;
  size_t began = message.begin(ToServer::SEED);
  message.put(generator);
  message.put(seed);
  send(device, message, began);
}

uint32_t keep_state(Device& device, uint32_t generator) {
  uint32_t state = next_state++;
  Writer message;
  size_t began = message.begin(ToServer::RNG_KEEP);
  message.put(generator);
  message.put(state);
  send(device, message, began);
  return state;
}

void use_state(Device& device, uint32_t generator, uint32_t state) {
  Writer message;
  size_t began = message.begin(ToServer::RNG_USE);
  message.put(generator);
  message.put(state);
  send(device, message, began);
}

void drop(Device& device, Dropped what, uint32_t number) {
  Writer message;
  size_t began = message.begin(ToServer::DROP);
  message.put(static_cast<uint8_t>(what));
  message.put(number);
  send(device, message, began);
}

std::string get_state(Device& device, uint32_t generator) {
  auto ticket = device.connection().ticket();
  Writer message;
  size_t began = message.begin(ToServer::RNG_GET);
  message.put(ticket->tag);
  message.put(generator);
  send(device, message, began);
  wait_for(device, *ticket);
  return ticket->body;
}

void set_state(Device& device, uint32_t generator, const std::string& state) {
  Writer message;
  size_t began = message.begin(ToServer::RNG_SET);
  message.put(generator);
  message.text(state);
  send(device, message, began);
}

const at::Generator& default_generator(int number) {
  static std::mutex mutex;
  static std::vector<at::Generator> made;
  std::lock_guard<std::mutex> lock(mutex);
  device_unconnected(number);  // refuses a number that there is not
  size_t index = static_cast<size_t>(number < 0 ? current_device() : number);
  if (made.capacity() < 256) made.reserve(256);  // references stay valid
  while (made.size() <= index) made.push_back(at::make_generator<RemoteGenerator>(static_cast<int>(made.size()), 0u));
  return made[index];
}

uint64_t seedings(int device) { return default_generator(device).get<RemoteGenerator>()->seedings(); }

at::Generator new_generator(int number) {
  return at::make_generator<RemoteGenerator>(number < 0 ? current_device() : number, next_generator++);
}

uint32_t generator_number(const at::Generator& generator) { return generator.get<RemoteGenerator>()->number(); }

}  // namespace eat
