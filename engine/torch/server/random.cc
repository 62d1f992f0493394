// Generators, their kept states, and events.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "session.h"

namespace eat {
namespace {

at::Tensor state_of(at::Generator& generator) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state().clone();
}

void set_state(at::Generator& generator, const at::Tensor& state) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

template <class Map>
void room_for_one(const Map& map, const char* what) {
  if (map.size() >= MOST_STATES) throw WireError(std::string("more ") + what + " than a session may have");
}

}  // namespace

at::Generator Session::generator(uint32_t number) {
  if (!number) return at::globalContext().defaultGenerator(device_);
  auto at = generators_.find(number);
  if (at == generators_.end()) throw Refused("there is no generator " + std::to_string(number));
  return at->second;
}

// Processors have one generator of their own; each of several emulated devices gets its state when it is used.
void Session::use_device(uint8_t index) {
  if (device_.is_cuda()) {
    device_ = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
    c10::impl::getDeviceGuardImpl(c10::kCUDA)->setDevice(device_);
    return;
  }
  if (index == emulated_) return;
  auto own = at::globalContext().defaultGenerator(device_);
  emulated_states_[emulated_] = state_of(own);
  emulated_ = index;
  auto& state = emulated_states_[index];
  if (state.defined()) set_state(own, state);
}

void Session::rng(ToServer kind, Reader& body) {
  uint32_t tag = kind == ToServer::RNG_GET ? body.get<uint32_t>() : 0;
  auto number = body.get<uint32_t>();
  std::string bytes;
  FaultPtr fault;
  try {
    if (kind == ToServer::SEED && number && !generators_.count(number)) {
      room_for_one(generators_, "generators");
      auto made = device_.is_cuda() ? at::globalContext().getAcceleratorHooksInterface(c10::kCUDA).getNewGenerator(device_.index())
                                    : at::make_generator<at::CPUGeneratorImpl>();
      generators_.emplace(number, std::move(made));
    }
    auto one = generator(number);
    switch (kind) {
      case ToServer::SEED: {
        auto seed = body.get<uint64_t>();
        std::lock_guard<std::mutex> lock(one.mutex());
        one.set_current_seed(seed);
        break;
      }
      case ToServer::RNG_KEEP: {
        auto state = body.get<uint32_t>();
        if (!states_.count(state)) room_for_one(states_, "kept states of generators");
        states_[state] = state_of(one);
        break;
      }
      case ToServer::RNG_USE: {
        auto state = states_.find(body.get<uint32_t>());
        if (state == states_.end()) throw Refused("there is no such kept state of a generator");
        set_state(one, state->second);
        break;
      }
      case ToServer::RNG_GET: {
        auto state = state_of(one);
        bytes.assign(static_cast<const char*>(state.const_data_ptr()), state.nbytes());
        break;
      }
      default: {
        auto given = body.text(size_t(1) << 16);
        auto state = at::empty({static_cast<int64_t>(given.size())}, c10::kByte);
        memcpy(state.mutable_data_ptr(), given.data(), given.size());
        set_state(one, state);
      }
    }
  } catch (const WireError&) {
    throw;
  } catch (const std::exception&) {
    fault = fault_now("generator");
    if (kind != ToServer::RNG_GET) telling.keep(fault);
    body.take(body.left());
  }
  if (kind == ToServer::RNG_GET) answer(tag, bytes, false, fault);
}

void Session::event(Reader& body) {
  auto number = body.get<uint32_t>();
  if (!events_.count(number)) room_for_one(events_, "events");
  auto& event = events_[number];
  if (!device_.is_cuda()) {
    event.ms = now_ms();
    return;
  }
  try {
    if (!event.on_device) event.on_device = std::make_unique<c10::Event>(c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    event.on_device->record(c10::impl::getDeviceGuardImpl(c10::kCUDA)->getStream(device_));
  } catch (const c10::Error&) {
    telling.keep(fault_now("event"));
  }
}

void Session::event_wait(Reader& body) {
  auto tag = body.get<uint32_t>();
  auto at = events_.find(body.get<uint32_t>());
  double ms = -1;
  FaultPtr fault;
  if (at == events_.end()) {
    fault = own_fault("event", "this event has not been recorded");
  } else if (!at->second.on_device) {
    ms = at->second.ms;
  } else {
    static const std::string name = "wait for an event";
    Running running(watch_, name);
    try {
      at->second.on_device->synchronize();
      ms = began_->elapsedTime(*at->second.on_device);
    } catch (const c10::Error&) {
      fault = fault_now("event");
      telling.keep(fault);
    }
  }
  answer(tag, std::string(reinterpret_cast<const char*>(&ms), sizeof ms), false, fault);
}

void Session::drop(Reader& body) {
  auto what = body.get<Dropped>();
  auto number = body.get<uint32_t>();
  switch (what) {
    case Dropped::GENERATOR: generators_.erase(number); break;
    case Dropped::STATE: states_.erase(number); break;
    case Dropped::EVENT: events_.erase(number); break;
    case Dropped::STAGED: staging_.take(number); break;
    case Dropped::UNUSED_MEMORY: drop_unused_memory(); break;  // whatever its number
    case Dropped::GRAPH: drop_graph(number); break;
    default: throw WireError("nothing of such a kind can be dropped");
  }
}

}  // namespace eat
