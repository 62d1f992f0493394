// Learning what operators give, and trusting it: see learn.h.
#include "learn.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "record.h"
#include "shapes.h"
#include "values.h"
#include "client/kernels/views.h"

namespace eat {

namespace {

using c10::IValue;

constexpr int TRUSTED = 2;                  // agreements of meta kernel and server, for one kind of arguments
constexpr int NEVER = -1;                   // they disagreed once: this operator's results are always the server's to tell
constexpr size_t MOST_KINDS = 1 << 16;      // remembered
constexpr uint16_t MOST_RESULTS = 4096;     // of one question whose operator returns lists

// How often meta kernel and server agreed, by kind of arguments (dtypes, dimensions, flags, not sizes): with two agreements the
// meta kernel is believed to check arguments and to give sizes as the real one does.
class Trust {
 public:
  int of(const std::string& kinds) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = trust_.find(kinds);
    return found == trust_.end() ? 0 : found->second;
  }
  void note(const std::string& kinds, bool agreed) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (trust_.size() >= MOST_KINDS) trust_.clear();
    int& trust = trust_[kinds];
    if (!agreed) trust = NEVER;
    else if (trust != NEVER) trust++;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, int> trust_;
};

Trust& trust() {
  static auto* one = new Trust;
  return *one;
}

bool agree(const Results& predicted, const Results& told) {
  if (predicted.outputs.size() != told.outputs.size()) return false;
  for (size_t i = 0; i < told.outputs.size(); i++) {
    const Belief &one = predicted.outputs[i], &other = told.outputs[i];
    if (one.defined != other.defined || one.dtype != other.dtype || one.sizes != other.sizes) return false;
    // Other strides would only be copied; but what reads them next sums in another order then.
    if (one.bytes && one.strides != other.strides) return false;
  }
  return true;
}

void put_beliefs(Writer& to, const Results& results) {
  to.put(static_cast<uint16_t>(results.outputs.size()));
  for (const Belief& belief : results.outputs) {
    to.put<uint8_t>(belief.defined);
    if (!belief.defined) continue;
    to.put(belief.dtype);
    to.put(static_cast<uint8_t>(belief.sizes.size()));
    to.put(belief.sizes.data(), belief.sizes.size() * sizeof(int64_t));
    to.put(belief.strides.data(), belief.strides.size() * sizeof(int64_t));
    to.put<int64_t>(0);
  }
}

// SIGNATURE, and what must be forgotten for it.
void tell(const OperatorInfo& info, Encoder& encoded, Results results) {
  Device& device = *encoded.device;
  std::lock_guard<std::mutex> order(device.connection().order);
  if (device.server->table.find(encoded.key)) return;  // another thread was first
  Writer body;
  body.text(info.name);
  body.text(info.overload);
  body.put(encoded.arguments().data(), encoded.arguments().size());
  put_beliefs(body, results);
  std::vector<uint32_t> forget;
  size_t room = VALUE_BYTES * (encoded.values + results.outputs.size());
  auto signature = device.server->table.add(encoded.key, std::move(results), body.bytes.size() + sizeof(uint32_t) + room, forget);
  Writer message;
  for (uint32_t number : forget) {
    size_t began = message.begin(ToServer::FORGET);
    message.put(number);
    message.end(began);
  }
  counters.forgotten += static_cast<int64_t>(forget.size());
  size_t began = message.begin(ToServer::SIGNATURE);
  message.put(signature->number);
  message.put(body.bytes.data(), body.bytes.size());
  message.end(began);
  device.connection().send(device.there, message.bytes);
  if (recorder) recorder->harmless();
}

// Each `out=` that is here, with what the meta kernel made of it.
template <class Do>
void each_out(const OperatorInfo& info, const Prediction& predicted, const IValue* arguments, Do&& what) {
  for (size_t i = 0; i < info.arguments.size(); i++) {
    if (!info.arguments[i].out) continue;
    auto one = [&](const at::Tensor& tensor, const at::Tensor& meta) {
      if (is_remote(tensor) && meta.defined()) what(tensor, meta);
    };
    if (arguments[i].isTensor()) one(arguments[i].toTensor(), predicted.written[i].toTensor());
    if (info.arguments[i].list == ListOf::TENSORS && arguments[i].isList()) {
      auto tensors = arguments[i].toListRef();
      for (size_t k = 0; k < tensors.size(); k++) one(tensors[k].toTensor(), predicted.written[i].toListRef()[k].toTensor());
    }
  }
}

struct Outs {
  bool change = false;  // one would get another size
  bool full = false;    // and has elements: that is warned of, refused, or done otherwise than the meta kernel does it
};

Outs outs_of(const OperatorInfo& info, const Prediction& predicted, const IValue* arguments) {
  Outs outs;
  each_out(info, predicted, arguments, [&](const at::Tensor& tensor, const at::Tensor& meta) {
    if (tensor.sizes() == meta.sizes()) return;
    outs.change = true;
    outs.full |= tensor.numel() > 0;
  });
  return outs;
}

void resize_outs(const OperatorInfo& info, const Prediction& predicted, const IValue* arguments) {
  each_out(info, predicted, arguments, [](const at::Tensor& tensor, const at::Tensor& meta) {
    if (tensor.sizes() != meta.sizes()) set_geometry(tensor, meta.sizes(), meta.strides(), static_cast<int64_t>(meta.storage().nbytes()));
  });
}

// After the server resized them.
bool outs_as_predicted(const OperatorInfo& info, const Prediction& predicted, const IValue* arguments) {
  bool same = true;
  each_out(info, predicted, arguments,
           [&](const at::Tensor& tensor, const at::Tensor& meta) { same &= tensor.sizes() == meta.sizes() && tensor.strides() == meta.strides(); });
  return same;
}

// Some operators warn each time: one that did is asked again, so that it warns at its line. What is not deterministic warns in each
// step of a training, with the same words: that may come with a later answer.
bool warned(const Ticket& ticket) {
  return std::any_of(ticket.warnings.begin(), ticket.warnings.end(),
                     [](const ToldWarning& one) { return one.text.find("deterministic") == std::string::npos; });
}

at::Tensor read_tensor(Reader& in, Device& device) {
  auto number = in.get<uint32_t>();
  auto dtype = static_cast<at::ScalarType>(in.get<uint8_t>());
  size_t dimensions = in.get<uint8_t>();
  if (dimensions > MOST_DIMENSIONS) throw WireError("a result of too many dimensions");
  std::vector<int64_t> sizes(dimensions), strides(dimensions);
  in.array(sizes.data(), dimensions);
  in.array(strides.data(), dimensions);
  auto offset = in.get<int64_t>();
  auto bytes = in.get<uint64_t>();
  return make_tensor(make_storage(device, number, static_cast<int64_t>(bytes)), dtype, sizes, strides, offset);
}

// One result; beliefs of new tensors go to `results`.
IValue read_result(Reader& in, Device& device, Results& results) {
  auto tensor = [&](char kind) -> at::Tensor {
    at::Tensor made = kind == 'T' ? read_tensor(in, device) : at::Tensor();
    if (kind != 'T' && kind != 'U') throw WireError("a result of kind " + std::to_string(int(kind)));
    results.outputs.push_back(believe(made));
    return made;
  };
  switch (char kind = in.get<char>()) {
    case 'L': {
      c10::List<at::Tensor> list;
      for (uint32_t left = in.count(1); left; left--) list.push_back(tensor(in.get<char>()));
      return list;
    }
    case 'i': return in.get<int64_t>();
    case 'b': return in.get<int64_t>() != 0;
    case 'd': return in.get<double>();
    case 'z': {
      auto real = in.get<double>();
      return c10::complex<double>(real, in.get<double>());
    }
    default: return tensor(kind);
  }
}

// The tensors that were written, as they are now on the server; true when one has another size.
bool read_written(Reader& in, const OperatorInfo& info, const IValue* arguments) {
  bool changed = false;
  std::vector<size_t> seen(info.arguments.size());  // elements of a list come one after the other
  for (int left = in.get<uint16_t>(); left; left--) {
    size_t argument = in.get<uint16_t>();
    in.get<uint8_t>();
    size_t dimensions = in.get<uint8_t>();
    if (argument >= info.arguments.size() || dimensions > MOST_DIMENSIONS) throw WireError("a written argument that there is not");
    std::vector<int64_t> sizes(dimensions), strides(dimensions);
    in.array(sizes.data(), dimensions);
    in.array(strides.data(), dimensions);
    in.get<int64_t>();
    auto bytes = static_cast<int64_t>(in.get<uint64_t>());
    size_t k = seen[argument]++;
    const IValue& value = arguments[argument];
    at::Tensor tensor;
    if (value.isTensor()) tensor = value.toTensor();
    else if (value.isList() && k < value.toListRef().size()) tensor = value.toListRef()[k].toTensor();
    if (!is_remote(tensor) || tensor.sizes() == at::IntArrayRef(sizes)) continue;
    adopt_geometry(tensor, sizes, strides, bytes);
    changed = true;
  }
  return changed;
}

uint16_t most_results(const OperatorInfo& info) {
  for (const ReturnInfo& result : info.returns) {
    if (result.kind == ReturnInfo::TENSORS && result.alias < 0) return MOST_RESULTS;
  }
  return static_cast<uint16_t>(info.returns.size());
}

// At the line that asked, with what then.
void need_allowed(const OperatorInfo& info, Device& device) {
  std::string full = info.overload.empty() ? info.name : info.name + "." + info.overload;
  const Connection& connection = device.connection();
  TORCH_CHECK_NOT_IMPLEMENTED(connection.allows(full), "not on a leased GPU: ", full, "; the GPU server ", connection.where().name(),
                              " (PyTorch ", connection.torch_version(), ") has no such operator for its clients; compute this on "
                              "the CPU, or run the program beside the GPU (toolkit run --where server)");
}

// A question that nobody reads the answer of: its results go as soon as they are made.
void free_unread(Device& device, uint32_t first, uint32_t count) {
  Writer message;
  for (uint32_t i = 0; i < count; i++) {
    size_t began = message.begin(ToServer::FREE);
    message.put(first + i);
    message.end(began);
  }
  device.connection().send(device.there, message.bytes);
}

}  // namespace

void put_changed_flags(Server& server, Writer& message) {
  Flags now = read_flags();
  if (now == server.told) return;
  size_t began = message.begin(ToServer::FLAGS);
  put_flags(message, now, server.told);
  message.end(began);
  server.told = now;
}

bool ask(const OperatorInfo& info, Encoder& encoded, std::vector<IValue>* stack, Results* results) {
  counters.asks++;
  Device& device = *encoded.device;
  need_allowed(info, device);
  uint16_t most = most_results(info);
  uint32_t first = next_storage(most);
  Along along(device);
  auto ticket = device.connection().ticket();
  Writer message;
  message.bytes = along.messages;
  {
    std::lock_guard<std::mutex> order(device.connection().order);
    put_changed_flags(*device.server, message);
    size_t began = message.begin(ToServer::ASK);
    message.put(ticket->tag);
    message.text(info.name);
    message.text(info.overload);
    message.put(encoded.arguments().data(), encoded.arguments().size());
    message.put(static_cast<uint16_t>(encoded.slots.size()));
    message.put(encoded.slots.data(), encoded.slots.size() * sizeof(uint32_t));
    message.text(encoded.payload);
    message.put(first);
    message.put(most);
    message.end(began);
    device.connection().send(device.there, message.bytes);
    encoded.sent();
  }
  try {
    wait_only(device, *ticket);
    along.arrived();
    raise_answer(device, *ticket);
  } catch (...) {
    if (!ticket->done) free_unread(device, first, most);
    throw;
  }
  check_known(encoded.known_ones, info.name);
  Reader in(ticket->body);
  Results told;
  size_t base = stack->size() - info.arguments.size();
  std::vector<IValue> returned;
  size_t count = in.get<uint16_t>();
  if (count != info.returns.size()) throw WireError(info.name + ": another number of results");
  for (size_t i = 0; i < count; i++) {
    const ReturnInfo& result = info.returns[i];
    size_t before = told.outputs.size();
    if (result.alias >= 0) {
      if (in.get<char>() != 'W') throw WireError(info.name + ": a result that should be its argument");
      returned.push_back((*stack)[base + static_cast<size_t>(result.alias)]);
    } else {
      returned.push_back(read_result(in, device, told));
    }
    told.counts.push_back(static_cast<int>(told.outputs.size() - before));
  }
  bool changed = read_written(in, info, stack->data() + base);
  for (const Belief& belief : told.outputs) told.bytes += belief.bytes;
  bool pattern = !changed && !warned(*ticket);
  if (results) *results = std::move(told);
  stack->resize(base);
  for (IValue& one : returned) stack->push_back(std::move(one));
  return pattern;
}

Learned learn(const c10::OperatorHandle& op, const OperatorInfo& info, Encoder& encoded, std::vector<IValue>* stack) {
  const IValue* arguments = stack->data() + (stack->size() - info.arguments.size());
  need_allowed(info, *encoded.device);
  int trusted = trust().of(encoded.kinds);
  Prediction predicted;
  if (trusted != NEVER) predicted = predict(op, info, arguments);
  if (trusted != NEVER && !predicted.known) counters.meta_failed++;
  if (predicted.known && info.has_out) {
    if (Outs outs = outs_of(info, predicted, arguments); outs.change) {
      if (outs.full || trusted < TRUSTED) {
        counters.learned++;
        std::vector<IValue> before(arguments, arguments + info.arguments.size());
        std::string kinds = encoded.kinds;
        Results told;
        bool pattern = ask(info, encoded, stack, &told);
        if (pattern) tell(info, encoded, std::move(told));
        if (!outs.full) trust().note(kinds, outs_as_predicted(info, predicted, before.data()));
        return Learned::ANSWERED;
      }
      resize_outs(info, predicted, arguments);
      encoded.encode(info, arguments);
      trusted = trust().of(encoded.kinds);
      std::lock_guard<std::mutex> order(encoded.device->connection().order);
      if (encoded.device->server->table.find(encoded.key)) return Learned::TOLD;
    }
  }
  if (predicted.known && trusted >= TRUSTED) {
    need_room(*encoded.device, predicted.results.bytes);
    tell(info, encoded, std::move(predicted.results));
    return Learned::TOLD;
  }
  counters.learned++;
  std::string kinds = encoded.kinds;
  Results told;
  bool same = false;
  try {
    same = ask(info, encoded, stack, &told);
  } catch (const c10::Error&) {
    // The kernel refused what the meta kernel let pass: it does not check as the real one does.
    if (predicted.known) trust().note(kinds, false);
    throw;
  }
  if (predicted.known) trust().note(kinds, same && agree(predicted.results, told));
  if (same) tell(info, encoded, std::move(told));
  return Learned::ANSWERED;
}

}  // namespace eat
