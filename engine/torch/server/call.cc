#include "call.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <sstream>

namespace eat {
namespace {

using at::Tensor;

// Each tensor of an argument, lists taken apart.
template <class Do>
void each_tensor(const Value& value, Do&& what) {
  if (value.tag == Tag::TENSOR) what(value);
  for (const auto& element : value.elements)
    if (element.tag == Tag::TENSOR) what(element);
}

std::string described(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::ostringstream to;
  to << tensor.scalar_type() << tensor.sizes();
  return to.str();
}

std::string described(const Geometry& geometry) {
  std::ostringstream to;
  to << geometry.dtype << c10::IntArrayRef(geometry.sizes);
  return to.str();
}

}  // namespace

Call::Call(Session& session, const Operator& op, const std::vector<Value>& arguments, const Slots& slots)
    : session_(session), op_(op), arguments_(arguments), slots_(slots) {}

void Call::run(Reader& payload) {
  stack_.reserve(arguments_.size() + 4);
  for (const auto& value : arguments_) stack_.push_back(make_argument(value, slots_, payload, session_));
  if (payload.left()) throw Refused("a call has more payload than its arguments take");
  for (auto argument : op_.written) {
    const auto& value = arguments_[argument];
    auto keep = [&](const Value& v, Tensor tensor) {
      if (v.tag == Tag::TENSOR) written_.push_back({argument, std::move(tensor), &v.geometry, slots_[v.number]});
    };
    if (value.tag == Tag::TENSORS) {
      auto list = stack_[argument].toTensorList();
      for (size_t i = 0; i < list.size(); i++) keep(value.elements[i], list.get(i));
    } else if (value.tag == Tag::TENSOR) {
      keep(value, stack_[argument].toTensor());
    }
  }
  session_.counters.calls++;
  session_.like_cuda.delay();
  TORCH_CHECK_NOT_IMPLEMENTED(!op_.only_with_gpu, op_.name, " is only with a GPU: this server computes on processors");
  if (op_.replaced) op_.replaced(stack_);
  else op_.handle.callBoxed(&stack_);
}

void Call::check_written() const {
  for (const auto& w : written_) {
    bool same = w.tensor.sizes() == c10::IntArrayRef(w.expected->sizes) && same_strides(w.tensor, w.expected->strides) &&
                w.tensor.storage_offset() == w.expected->offset;
    if (!same)
      throw Refused("its argument " + std::to_string(w.argument) + " has become " + described(w.tensor) +
                    ", the client expects " + described(*w.expected));
  }
}

bool Call::is_new(size_t result) const {
  const auto* alias = op_.handle.schema().returns()[result].alias_info();
  return !alias || !alias->isWrite();
}

std::vector<Tensor> Call::outputs() const {
  std::vector<Tensor> made;
  for (size_t i = 0; i < stack_.size(); i++) {
    if (!is_new(i)) continue;
    if (stack_[i].isTensor()) made.push_back(stack_[i].toTensor());
    else if (stack_[i].isTensorList())
      for (const Tensor& tensor : stack_[i].toTensorList()) made.push_back(tensor);
  }
  return made;
}

Tensor Call::own(Tensor tensor, const Geometry* as) {
  if (tensor._is_zerotensor()) tensor = at::zeros(tensor.sizes(), tensor.options());
  if (tensor.layout() != c10::kStrided) throw Refused("its result is not strided: such tensors are not carried");
  tensor = tensor.resolve_conj().resolve_neg();
  bool relaid = as && !same_strides(tensor, as->strides);
  const auto* memory = tensor.storage().unsafeGetStorageImpl();
  bool shared = std::find(taken_.begin(), taken_.end(), memory) != taken_.end() ||
                std::any_of(slots_.begin(), slots_.end(),
                            [&](Held* held) { return held->storage.unsafeGetStorageImpl() == memory; });
  if (relaid || shared || tensor.storage_offset() || (!as && !tensor.is_non_overlapping_and_dense())) {
    session_.counters.relaid += relaid;
    auto copy = as ? at::empty_strided(as->sizes, as->strides, tensor.options())
                   : at::empty_like(tensor, c10::MemoryFormat::Preserve);
    copy.copy_(tensor);
    tensor = copy;
  }
  taken_.push_back(tensor.storage().unsafeGetStorageImpl());
  return tensor;
}

void Call::store(const std::vector<Belief>& beliefs, size_t count, const Put& put) {
  auto made = outputs();
  if (made.size() != beliefs.size() || made.size() != count)
    throw Refused("it has " + std::to_string(made.size()) + " results, the client expects " +
                  std::to_string(beliefs.size()));
  // All are looked at before the first is kept: an error leaves none of them.
  std::vector<Tensor> ready(made.size());
  for (size_t i = 0; i < made.size(); i++) {
    const auto& expected = beliefs[i].geometry;
    if (!beliefs[i].defined || !made[i].defined()) continue;
    bool same = made[i].sizes() == c10::IntArrayRef(expected.sizes) && made[i].scalar_type() == expected.dtype;
    if (!same && made[i].numel() == 0) continue;  // unused
    if (!same)
      throw Refused("its result " + std::to_string(i) + " is " + described(made[i]) + ", the client expects " +
                    described(expected));
    ready[i] = own(made[i], &expected);
  }
  for (size_t i = 0; i < made.size(); i++) {
    if (!beliefs[i].defined) continue;
    if (ready[i].defined()) {
      put(i, {ready[i].storage(), nullptr});
    } else {
      auto why = "its result " + std::to_string(i) + " is " + described(made[i]) + ", the client expects " +
                 described(beliefs[i].geometry);
      put(i, {c10::Storage(), own_fault(op_.name, why)});
    }
  }
}

void Call::put_tensor(Writer& to, const Tensor& tensor, uint32_t& next, size_t& left) {
  if (!tensor.defined()) {
    to.put('U');
    return;
  }
  if (!left--) throw Refused("it has more results than the client gave numbers for");
  auto ready = own(session_.like_cuda.laid(op_.name, tensor), nullptr);
  session_.storages.add(next, {ready.storage(), nullptr});
  to.put('T');
  to.put<uint32_t>(next++);
  put_geometry(to, ready);
  to.put<uint64_t>(ready.storage().nbytes());
}

void Call::put_results(Writer& to, uint32_t first, size_t most) {
  uint32_t next = first;
  try {
    to.put<uint16_t>(static_cast<uint16_t>(stack_.size()));
    for (size_t i = 0; i < stack_.size(); i++) {
      const auto& value = stack_[i];
      if (!is_new(i)) {
        to.put('W');
      } else if (value.isTensor()) {
        put_tensor(to, value.toTensor(), next, most);
      } else if (value.isTensorList()) {
        auto list = value.toTensorList();
        to.put('L');
        to.put<uint32_t>(static_cast<uint32_t>(list.size()));
        for (const Tensor& tensor : list) put_tensor(to, tensor, next, most);
      } else if (value.isInt()) {
        to.put('i');
        to.put<int64_t>(value.toInt());
      } else if (value.isBool()) {
        to.put('b');
        to.put<int64_t>(value.toBool());
      } else if (value.isDouble()) {
        to.put('d');
        to.put<double>(value.toDouble());
      } else if (value.isComplexDouble()) {
        auto z = value.toComplexDouble();
        to.put('z');
        to.put<double>(z.real());
        to.put<double>(z.imag());
      } else {
        throw Refused("its result is a " + value.tagKind() + ": such values are not carried");
      }
    }
  } catch (...) {
    while (next-- > first) session_.storages.forget(next);
    throw;
  }
  to.put<uint16_t>(static_cast<uint16_t>(written_.size()));
  for (const auto& w : written_) {
    to.put<uint16_t>(w.argument);
    put_geometry(to, w.tensor);
    to.put<uint64_t>(w.tensor.storage().nbytes());
  }
}

void spoil_written(const FaultPtr& fault, const Operator* op, const std::vector<Value>& arguments, const Slots& slots) {
  if (!op) return;
  for (auto argument : op->written)
    each_tensor(arguments[argument], [&](const Value& value) {
      Held* held = value.number < slots.size() ? slots[value.number] : nullptr;
      if (held && !held->spoiled()) held->fault = fault;
    });
}

}  // namespace eat
