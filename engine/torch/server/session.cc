#include "session.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "../shared/flags.h"
#include "account.h"
#include "call.h"
#include "graphs.h"

namespace eat {
namespace {

// What runs between operators is torch's too, so that it has no name of an operator.
const std::string NOTHING;
constexpr int64_t SMALL_BYTES = 64 << 10;

}  // namespace

Session::Session(const Carrier& carrier, const Settings& s, const Operators& operators)
    : settings(s), like_cuda(s.like_cuda), link_(carrier), staging_(staging_memory(s.device)), ahead_(link_, staging_), operators_(operators), watch_(link_, s.busy_s), device_(s.device) {
  if (device_.is_cuda()) {
    device_ = c10::Device(c10::kCUDA, 0);
    c10::impl::getDeviceGuardImpl(c10::kCUDA)->setDevice(device_);
    began_ = std::make_unique<c10::Event>(c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    began_->record(c10::impl::getDeviceGuardImpl(c10::kCUDA)->getStream(device_));
  }
}

Session::~Session() = default;

c10::Device Session::device(int index) const {
  if (index >= settings.devices) throw Refused("there is no device " + std::to_string(index));
  if (index < 0 || !device_.is_cuda()) return device_;
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

double Session::now_ms() const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
}

void Session::run() {
  at::AutoDispatchBelowADInplaceOrView below;
  // No graph is made (the line above), but kernels ask whether one may be: oneDNN's recurrent layers keep what their
  // gradients need only then.
  c10::AutoGradMode gradients(true);
  c10::WarningUtils::WarningHandlerGuard told(&telling);
  for (;;) {
    struct __attribute__((packed)) {
      ToServer kind;
      uint32_t length;
    } head;
    link_.wanted = true;
    std::unique_lock<std::mutex> turn(link_.turn);
    link_.wanted = false;
    ahead_.check();
    if (watch_.gone()) throw Gone("the client has gone");
    link_.read(&head, sizeof head);
    if (head.length > MOST_MESSAGE) throw WireError("a message is longer than allowed");
    if (head.kind == ToServer::UP) {
      up(head.length);
      continue;
    }
    if (head.kind == ToServer::STAGE) {
      ahead_.start();
      staging_.read(link_, head.length, false);
      continue;
    }
    body_.resize(head.length);
    link_.read(body_.data(), head.length);
    turn.unlock();
    Reader body(body_);
    handle(head.kind, body);
    body.finish();
  }
}

void Session::handle(ToServer kind, Reader& body) {
  switch (kind) {
    case ToServer::SIGNATURE: signature(body); break;
    case ToServer::CALL: call(body); break;
    case ToServer::ASK: ask(body); break;
    case ToServer::ALLOC: alloc(body); break;
    case ToServer::FREE: storages.forget(body.get<uint32_t>()); break;
    case ToServer::RESIZE: resize(body); break;
    case ToServer::DOWN: down(body); break;
    case ToServer::SYNC: sync(body); break;
    case ToServer::FORGET: {
      auto at = signatures_.find(body.get<uint32_t>());
      if (at == signatures_.end()) break;
      signature_bytes_ -= at->second->bytes;
      signatures_.erase(at);
      break;
    }
    case ToServer::FLAGS:
      try {
        apply_flags(body);
      } catch (const c10::Error&) {
        telling.keep(fault_now("a setting of torch"));
        body.take(body.left());
      }
      break;
    case ToServer::SEED:
    case ToServer::RNG_KEEP:
    case ToServer::RNG_USE:
    case ToServer::RNG_GET:
    case ToServer::RNG_SET: rng(kind, body); break;
    case ToServer::EVENT: event(body); break;
    case ToServer::EVENT_WAIT: event_wait(body); break;
    case ToServer::DEVICE: {
      auto index = body.get<uint8_t>();
      if (index >= settings.devices) throw WireError("there is no device " + std::to_string(index));
      use_device(index);
      break;
    }
    case ToServer::DROP: drop(body); break;
    case ToServer::PEER_COPY: peer_copy(body); break;
    case ToServer::USE: use(body); break;
    case ToServer::GRAPH: graph(body); break;
    case ToServer::RUN: run_graph(body); break;
    case ToServer::COLLECTIVE: together(body); break;
    default: throw WireError("there is no message of kind " + std::to_string(static_cast<int>(kind)));
  }
}

void Session::signature(Reader& body) {
  auto number = body.get<uint32_t>();
  Signature made;
  made.bytes = body_.size();
  if (signatures_.size() >= MOST_SIGNATURES) throw WireError("more signatures than a session may have");
  auto name = body.text(), overload = body.text();
  const Operator* op = operators_.find(name, overload);
  auto full = overload.empty() ? name : name + "." + overload;
  try {
    if (!op) throw Refused(full + " is not among the operators that this server allows");
    size_t values = 0;
    made.arguments = get_arguments(body, op->handle.schema(), *this, &values);
    made.beliefs = get_beliefs(body);
    made.op = op;
    made.bytes += VALUE_BYTES * (values + made.beliefs.size());
  } catch (const Refused&) {
    made.refused = fault_now(full);
    made.arguments.clear();
    body.take(body.left());
  }
  signature_bytes_ += made.bytes;
  if (signature_bytes_ > MOST_SIGNATURE_BYTES) throw WireError("larger signatures than a session may have");
  if (!signatures_.emplace(number, std::make_shared<const Signature>(std::move(made))).second) throw WireError("a signature's number is in use");
}

FaultPtr Session::get_slots(Reader& body, Slots& slots, const std::string& name) {
  auto count = body.get<uint16_t>();
  FaultPtr fault = telling.broken();
  slots.reserve(count);
  for (size_t i = 0; i < count; i++) {
    auto number = body.get<uint32_t>();
    Held* held = storages.find(number);
    slots.push_back(held);
    if (fault) continue;
    fault = held ? held->spoiled() : own_fault(name, "there is no storage " + std::to_string(number));
    if (!held) telling.keep(fault);
  }
  return fault;
}

void Session::call(Reader& body) {
  auto at = signatures_.find(body.get<uint32_t>());
  if (at == signatures_.end()) throw WireError("a call of no signature");
  const Signature& s = *at->second;
  Slots slots;
  auto fault = get_slots(body, slots, s.op ? s.op->name : NOTHING);
  auto payload_bytes = body.get<uint16_t>();
  Reader payload(body.take(payload_bytes), payload_bytes);
  numbers_.resize(body.get<uint16_t>());
  body.array(numbers_.data(), numbers_.size());
  run_call(s, slots, std::move(fault), payload, numbers_.size(), [&](size_t i, Held held) {
    // 0: the client knows that it is not defined
    if (numbers_[i] || held.has_memory()) storages.add(numbers_[i], std::move(held));
  });
}

void Session::run_call(const Signature& s, const Slots& slots, FaultPtr fault, Reader& payload, size_t outputs, const Put& put) {
  if (!fault && s.refused) {
    fault = again(*s.refused);
    telling.keep(fault);
  }
  if (!fault && !settings.runs) return skip(s.beliefs, outputs, put);
  if (!fault) {
    Running running(watch_, s.op->name);
    try {
      Call one(*this, *s.op, s.arguments, slots);
      one.run(payload);
      one.check_written();
      one.store(s.beliefs, outputs, put);
      return;
    } catch (const WireError&) {
      throw;
    } catch (const std::exception&) {
      fault = like_cuda.late(fault_now(s.op->name));
    }
    telling.keep(fault);
  }
  counters.failed++;
  for (size_t i = 0; i < outputs; i++) put(i, {c10::Storage(), fault});
  spoil_written(fault, s.op, s.arguments, slots);
}

void Session::skip(const std::vector<Belief>& beliefs, size_t outputs, const Put& put) {
  if (beliefs.size() != outputs) throw WireError("a call with another number of results than its signature");
  for (size_t i = 0; i < beliefs.size(); i++) {
    if (beliefs[i].defined) {
      auto bytes = static_cast<int64_t>(beliefs[i].geometry.bytes);
      at::Tensor made = at::empty({bytes}, at::TensorOptions(c10::kByte).device(device_));
      if (bytes <= SMALL_BYTES) made.zero_();  // it may be indices, for an operator that is asked for
      put(i, {made.storage(), nullptr});
    }
  }
}

void Session::ask(Reader& body) {
  auto tag = body.get<uint32_t>();
  auto name = body.text(), overload = body.text();
  const Operator* op = operators_.find(name, overload);
  auto full = overload.empty() ? name : name + "." + overload;
  Writer results;
  FaultPtr fault;
  try {
    if (!op) throw Refused(full + " is not among the operators that this server allows");
    auto arguments = get_arguments(body, op->handle.schema(), *this);
    Slots slots;
    fault = get_slots(body, slots, full);
    auto payload_bytes = body.count(1, MOST_MESSAGE);
    Reader payload(body.take(payload_bytes), payload_bytes);
    auto first = body.get<uint32_t>();
    auto most = body.get<uint16_t>();
    if (!fault) {
      Running running(watch_, op->name);
      Call one(*this, *op, arguments, slots);
      one.run(payload);
      one.put_results(results, first, most);
    }
  } catch (const WireError&) {
    throw;
  } catch (const std::exception&) {
    fault = like_cuda.late(fault_now(full));
    if (fault->kind == ErrorKind::ACCELERATOR) telling.keep(fault);
    body.take(body.left());
  }
  if (fault) counters.failed++;
  answer(tag, fault ? std::string() : results.bytes, false, fault);
}

void Session::answer(uint32_t tag, const std::string& body, bool all, const FaultPtr& only) {
  Writer to;
  auto began = to.begin(ToClient::ANSWER);
  to.put<uint32_t>(tag);
  if (all) telling.put_all(to);
  else telling.put_only(to, only);
  to.text(body);
  to.end(began);
  link_.write(to.bytes);
}

void Session::synchronize() {
  if (!device_.is_cuda()) return;
  static const std::string name = "synchronize";
  Running running(watch_, name);
  for (int i = 0; i < settings.devices; i++)
    c10::impl::getDeviceGuardImpl(c10::kCUDA)->synchronizeDevice(static_cast<c10::DeviceIndex>(i));
}

void Session::sync(Reader& body) {
  auto tag = body.get<uint32_t>();
  try {
    synchronize();
  } catch (const c10::Error&) {
    telling.keep(fault_now("synchronize"));
  }
  counters.storages = storages.count();
  counters.storage_bytes = account_held();
  counters.peak_bytes = account_peak();
  counters.signatures = signatures_.size();
  counters.signature_bytes = signature_bytes_;
  answer(tag, std::string(reinterpret_cast<const char*>(&counters), sizeof counters), true);
}

void Session::tell_ending(const std::string& why) {
  Writer notice;
  auto at = notice.begin(ToClient::NOTICE);
  notice.put<uint8_t>(static_cast<uint8_t>(Notice::ENDING));
  notice.text(why);
  notice.end(at);
  link_.write(notice.bytes);
  link_.flush();
}

}  // namespace eat
