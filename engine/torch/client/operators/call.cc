// One operator on its way to the server: see call.h. What is known of its results is learned in learn.cc.
#include "call.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "encode.h"
#include "exact.h"
#include "learn.h"
#include "record.h"
#include "values.h"

namespace eat {

namespace {

using c10::IValue;

std::atomic<uint32_t> next_operator{1};

at::Tensor output(Device& device, const Belief& belief, uint32_t number) {
  if (!belief.defined) return {};
  return make_tensor(make_storage(device, number, belief.bytes), static_cast<at::ScalarType>(belief.dtype), belief.sizes, belief.strides);
}

// The results in place of the arguments.
void answer(const OperatorInfo& info, Device& device, const Signature& signature, uint32_t number, std::vector<IValue>* stack) {
  const Results& results = signature.results;
  size_t base = stack->size() - info.arguments.size();
  c10::SmallVector<IValue, 4> returned;
  size_t k = 0;
  for (size_t i = 0; i < info.returns.size(); i++) {
    const ReturnInfo& result = info.returns[i];
    if (result.alias >= 0) {
      returned.push_back((*stack)[base + static_cast<size_t>(result.alias)]);
    } else if (result.kind == ReturnInfo::TENSOR) {
      const Belief& belief = results.outputs[k];
      at::Tensor made = output(device, belief, number + static_cast<uint32_t>(k));
      if (belief.defined && belief.bytes <= MOST_ALONG_BYTES && belief.bytes) note_output(info, stack->data() + base, made, signature.mark);
      returned.emplace_back(std::move(made));
      k++;
    } else {
      c10::List<at::Tensor> list;
      for (int left = results.counts[i]; left; left--, k++) list.push_back(output(device, results.outputs[k], number + static_cast<uint32_t>(k)));
      returned.emplace_back(std::move(list));
    }
  }
  stack->resize(base);
  for (IValue& one : returned) stack->push_back(std::move(one));
}

// CALL; connection.order is held. Gives the first number of its outputs.
uint32_t send_call(Encoder& encoded, const Signature& signature, Writer& message) {
  const auto& outputs = signature.results.outputs;
  uint32_t number = next_storage(outputs.size());
  TORCH_CHECK(encoded.payload.size() <= UINT16_MAX && encoded.slots.size() <= MOST_SLOTS && outputs.size() <= MOST_SLOTS,
              "an operator with more tensors or numbers than a message to a leased GPU carries");
  size_t began = message.begin(ToServer::CALL);
  message.put(signature.number);
  message.put(static_cast<uint16_t>(encoded.slots.size()));
  message.put(encoded.slots.data(), encoded.slots.size() * sizeof(uint32_t));
  message.put(static_cast<uint16_t>(encoded.payload.size()));
  message.put(encoded.payload.data(), encoded.payload.size());
  message.put(static_cast<uint16_t>(outputs.size()));
  for (size_t i = 0; i < outputs.size(); i++) message.put<uint32_t>(outputs[i].defined ? number + static_cast<uint32_t>(i) : 0);
  message.end(began);
  encoded.device->connection().send(encoded.device->there, message.bytes);
  encoded.sent();
  return number;
}

// zeros_like(x, device="cpu") and its kind: what is wanted is not on the tensor's device. torch's own composite makes it there.
bool elsewhere(const OperatorInfo& info, const IValue* arguments) {
  const IValue& wanted = arguments[info.device];
  if (!wanted.isDevice() || !arguments[0].isTensor()) return false;
  at::Device there = wanted.toDevice(), here = arguments[0].toTensor().device();
  return there.type() != here.type() || (there.has_index() && there != here);
}

void call(const c10::OperatorHandle& op, const OperatorInfo& info, std::vector<IValue>* stack) {
  counters.calls++;
  BorrowedEncoder encoded;
  encoded->encode(info, stack->data() + (stack->size() - info.arguments.size()));
  Device& device = in_fork() ? eat::device(-1) : *encoded->device;  // in a child of fork it says what is wrong
  wait_for_queue(device);
  thread_local Writer message;
  bool asks = !info.only_tensors || encoded->in_doubt || (info.asks && (!info.is_index || encoded->mask));
  if (!asks) {
    for (int tries = 0; tries < 2; tries++) {
      std::unique_lock<std::mutex> order(device.connection().order);
      if (auto signature = device.server->table.find(encoded->key)) {
        need_room(device, signature->results.bytes);
        message.bytes.clear();
        put_changed_flags(*device.server, message);
        if (recorder && !message.bytes.empty()) recorder->cannot("it changes settings of torch");
        uint32_t number = send_call(*encoded, *signature, message);
        if (recorder) recorder->call(info, *encoded, *signature, number);
        order.unlock();
        if (device.connection().has_news()) raise_news(device);
        check_known(encoded->known_ones, info.name);
        std::vector<IValue> local;
        if (encoded->known && info.exact != Exact::NO) local = known_arguments(info, stack->data() + (stack->size() - info.arguments.size()));
        answer(info, device, *signature, number, stack);
        if (!local.empty()) compute_known(op, std::move(local), stack->back().toTensor());
        if (sync_mode()) synchronize(device);
        return;
      }
      order.unlock();
      // Now either the table has it, or the server gave the results.
      if (learn(op, info, *encoded, stack) == Learned::ANSWERED) return;
    }
  }
  ask(info, *encoded, stack, nullptr);
}

}  // namespace

RemoteKernel::RemoteKernel(const c10::OperatorHandle& op) : info_(op, next_operator++) {}

void RemoteKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, std::vector<IValue>* stack) {
  if (info_.device >= 0 && elsewhere(info_, stack->data() + (stack->size() - info_.arguments.size()))) {
    return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
  }
  call(op, info_, stack);
}

void call_any(const c10::OperatorHandle& op, c10::DispatchKeySet, std::vector<IValue>* stack) { call_remote(op, stack); }

void call_remote(const c10::OperatorHandle& op, std::vector<IValue>* stack) {
  static std::shared_mutex mutex;
  static std::unordered_map<c10::OperatorName, std::unique_ptr<OperatorInfo>> known;
  const OperatorInfo* info = nullptr;
  {
    std::shared_lock<std::shared_mutex> lock(mutex);
    if (auto found = known.find(op.operator_name()); found != known.end()) info = found->second.get();
  }
  if (!info) {
    std::unique_lock<std::shared_mutex> lock(mutex);
    auto& place = known[op.operator_name()];
    if (!place) place = std::make_unique<OperatorInfo>(op, next_operator++);
    info = place.get();
  }
  call(op, *info, stack);
}

}  // namespace eat
