// One client's session: its memory, signatures, generators, events; messages in order until it goes.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <functional>
#include <optional>
#include <unordered_map>

#include "ahead.h"
#include "groups.h"
#include "like_cuda.h"
#include "link.h"
#include "operators.h"
#include "storages.h"
#include "uploads.h"
#include "values.h"
#include "watch.h"

namespace eat {

struct Settings {
  c10::Device device{c10::kCPU};
  int devices = 1;
  std::optional<uint64_t> like_cuda;  // processors behave as a GPU does, by this seed: like_cuda.h
  bool runs = true;  // false, for benchmarks: a call makes its results, of the right size and of no meaning, and computes nothing
  double busy_s = 60;  // an operator that runs longer is told to the client
};

struct Signature {
  const Operator* op = nullptr;
  FaultPtr refused;  // why it cannot be called
  std::vector<Value> arguments;
  std::vector<Belief> beliefs;
  size_t bytes = 0;  // of its message
};
using SignaturePtr = std::shared_ptr<const Signature>;
// Keeps the output of that position.
using Put = std::function<void(size_t, Held)>;

struct Graph;  // graphs.h

class Session {
 public:
  Session(const Carrier& carrier, const Settings& settings, const Operators& operators);
  // Until the client goes (Gone) or says what is no message (WireError).
  ~Session();
  void run();
  void tell_ending(const std::string& why);
  void greet(const std::string& welcome) { link_.write(welcome); }

  // As the client numbers them; -1: the current one.
  c10::Device device(int index) const;
  at::Generator generator(uint32_t number);
  const Settings settings;
  Storages storages;
  Telling telling;
  Counters counters{};
  LikeCuda like_cuda;

 private:
  void handle(ToServer kind, Reader& body);
  void up(uint32_t length);
  void use(Reader& body);

  void signature(Reader& body);
  void call(Reader& body);
  void ask(Reader& body);
  // One call: the slots are found; `fault` is why it cannot run, if it cannot.
  void run_call(const Signature& signature, const Slots& slots, FaultPtr fault, Reader& payload, size_t outputs, const Put& put);
  void skip(const std::vector<Belief>& beliefs, size_t outputs, const Put& put);
  void graph(Reader& body);
  void run_graph(Reader& body);
  void drop_graph(uint32_t number);
  Held allocated(uint64_t count);
  void put_constant(Held& held, uint64_t offset, const char* bytes, uint64_t count);
  void alloc(Reader& body);
  void resize(Reader& body);
  void down(Reader& body);
  void sync(Reader& body);
  void event(Reader& body);
  void event_wait(Reader& body);
  void rng(ToServer kind, Reader& body);
  void drop(Reader& body);
  void drop_unused_memory();
  void peer_copy(Reader& body);
  void together(Reader& body);
  void begin_work(Reader& body);
  void wait_work(uint32_t number);
  void copy_between(uint32_t group, Collective& one, FaultPtr fault);
  void synchronize();
  void use_device(uint8_t index);

  // ANSWER: errors (all that wait where `all`, else `only`) and warnings, and the body.
  void answer(uint32_t tag, const std::string& body, bool all, const FaultPtr& only = nullptr);
  // The storages of a call; why it cannot run, if it cannot.
  FaultPtr get_slots(Reader& body, Slots& slots, const std::string& name);
  double now_ms() const;

  Link link_;
  Staging staging_;
  Uploads uploads_;
  ReadAhead ahead_;
  const Operators& operators_;
  Watch watch_;
  c10::Device device_;
  std::string body_;
  std::unordered_map<uint32_t, SignaturePtr> signatures_;
  size_t signature_bytes_ = 0;
  std::unordered_map<uint32_t, std::unique_ptr<Graph>> graphs_;
  size_t graph_bytes_ = 0;
  std::unordered_map<uint32_t, at::Generator> generators_;
  std::unordered_map<uint32_t, at::Tensor> states_;
  struct Event {
    double ms = -1;
    std::unique_ptr<c10::Event> on_device;
  };
  std::unordered_map<uint32_t, Event> events_;
  std::unique_ptr<c10::Event> began_;
  uint8_t emulated_ = 0;  // the current one of several devices that processors stand in for
  std::unordered_map<uint8_t, at::Tensor> emulated_states_;
  Groups groups_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  // Of a call; kept so that their memory is.
  std::vector<uint32_t> numbers_;
};

}  // namespace eat
