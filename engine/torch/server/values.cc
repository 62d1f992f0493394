#include "values.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/accumulate.h>

#include "session.h"

namespace eat {
namespace {

using at::Tensor;
using c10::IValue;
using c10::TypeKind;

[[noreturn]] void wrong(const std::string& what) { throw Refused(what); }

c10::ScalarType get_dtype(Reader& from) {
  auto number = from.get<uint8_t>();
  if (number >= static_cast<int>(c10::ScalarType::NumOptions)) wrong("there is no dtype " + std::to_string(number));
  auto dtype = static_cast<c10::ScalarType>(number);
  if (dtype == c10::ScalarType::Undefined || c10::isQIntType(dtype)) wrong("tensors of this dtype are not carried");
  return dtype;
}

template <class T>
c10::SmallVector<T, 8> get_list(Reader& from) {
  c10::SmallVector<T, 8> list(from.count(sizeof(T)));
  from.array(list.data(), list.size());
  return list;
}

template <class Element, class T>
IValue fixed_list(const c10::SmallVector<T, 8>& from) {
  c10::List<Element> list;
  list.reserve(from.size());
  for (auto x : from) list.push_back(static_cast<Element>(x));
  return IValue(std::move(list));
}

Value get_value(Reader& from, Session& session, size_t& room, bool inside) {
  if (!room--) wrong("an operator has more values than allowed");
  Value value;
  value.tag = from.get<Tag>();
  switch (value.tag) {
    case Tag::NONE:
    case Tag::INT_LATER:
    case Tag::DOUBLE_LATER:
    case Tag::COMPLEX_LATER:
    case Tag::GENERATOR: break;
    case Tag::UNDEFINED: value.fixed = IValue(Tensor()); break;
    case Tag::TENSOR:
      value.geometry = get_geometry(from);
      value.number = from.get<uint16_t>();
      value.bits = from.get<uint8_t>();
      break;
    case Tag::CPU_SCALAR:
      value.number = static_cast<uint32_t>(get_dtype(from));
      value.bits = from.get<uint8_t>();
      break;
    case Tag::INT: value.fixed = IValue(from.get<int64_t>()); break;
    case Tag::BOOL: value.fixed = IValue(from.get<int64_t>() != 0); break;
    case Tag::DOUBLE: value.fixed = IValue(from.get<double>()); break;
    case Tag::COMPLEX: {
      auto real = from.get<double>();
      value.fixed = IValue(c10::complex<double>(real, from.get<double>()));
      break;
    }
    case Tag::STRING: value.fixed = IValue(from.text()); break;
    case Tag::DEVICE: {
      auto type = from.get<int8_t>();
      auto index = from.get<int8_t>();
      if (type == static_cast<int8_t>(c10::DeviceType::CUDA)) value.fixed = IValue(session.device(index));
      else if (type == static_cast<int8_t>(c10::DeviceType::CPU)) value.fixed = IValue(c10::Device(c10::kCPU));
      else wrong("only devices cuda and cpu are there");
      break;
    }
    case Tag::OTHER_GENERATOR: value.number = from.get<uint32_t>(); break;
    case Tag::INTS: value.fixed = fixed_list<int64_t>(get_list<int64_t>(from)); break;
    case Tag::BOOLS: value.fixed = fixed_list<bool>(get_list<int64_t>(from)); break;
    case Tag::DOUBLES: value.fixed = fixed_list<double>(get_list<double>(from)); break;
    case Tag::TENSORS:
    case Tag::OPTIONAL_TENSORS:
    case Tag::SCALARS: {
      if (inside) wrong("a list of lists");
      auto count = from.count(1);
      value.elements.reserve(std::min<size_t>(count, 1024));
      for (uint32_t i = 0; i < count; i++) value.elements.push_back(get_value(from, session, room, true));
      break;
    }
    default: wrong("there is no value of kind " + std::to_string(static_cast<int>(value.tag)));
  }
  return value;
}

bool is_tensor(Tag tag) { return tag == Tag::TENSOR || tag == Tag::UNDEFINED || tag == Tag::CPU_SCALAR; }
bool is_int(Tag tag) { return tag == Tag::INT || tag == Tag::INT_LATER; }
bool is_double(Tag tag) { return tag == Tag::DOUBLE || tag == Tag::DOUBLE_LATER; }
bool is_scalar(Tag tag) { return is_int(tag) || is_double(tag) || tag == Tag::BOOL || tag == Tag::COMPLEX || tag == Tag::COMPLEX_LATER; }

template <class Is>
bool all(const Value& value, Is is) {
  for (const auto& element : value.elements)
    if (!is(element.tag)) return false;
  return true;
}

bool fits_list(const c10::Type& element, const Value& value) {
  switch (element.kind()) {
    case TypeKind::TensorType: return value.tag == Tag::TENSORS && all(value, is_tensor);
    case TypeKind::OptionalType:
      return value.tag == Tag::OPTIONAL_TENSORS && element.castRaw<c10::OptionalType>()->getElementType()->kind() == TypeKind::TensorType &&
             all(value, [](Tag tag) { return tag == Tag::NONE || is_tensor(tag); });
    case TypeKind::IntType:
    case TypeKind::SymIntType: return value.tag == Tag::INTS;
    case TypeKind::FloatType: return value.tag == Tag::DOUBLES;
    case TypeKind::BoolType: return value.tag == Tag::BOOLS;
    case TypeKind::NumberType: return value.tag == Tag::SCALARS && all(value, is_scalar);
    default: return false;
  }
}

bool fits(const c10::Type& type, const Value& value) {
  switch (type.kind()) {
    case TypeKind::OptionalType:
      return value.tag == Tag::NONE || fits(*type.castRaw<c10::OptionalType>()->getElementType(), value);
    case TypeKind::TensorType: return is_tensor(value.tag);
    case TypeKind::IntType:
    case TypeKind::SymIntType: return is_int(value.tag);
    case TypeKind::FloatType:
    case TypeKind::SymFloatType: return is_double(value.tag);
    case TypeKind::BoolType:
    case TypeKind::SymBoolType: return value.tag == Tag::BOOL;
    case TypeKind::NumberType: return is_scalar(value.tag);
    case TypeKind::StringType: return value.tag == Tag::STRING;
    case TypeKind::DeviceObjType: return value.tag == Tag::DEVICE;
    case TypeKind::GeneratorType: return value.tag == Tag::GENERATOR || value.tag == Tag::OTHER_GENERATOR;
    case TypeKind::ListType: return fits_list(*type.castRaw<c10::ListType>()->getElementType(), value);
    default: return false;
  }
}

// dtype, layout and memory format are integers in the boxed convention, and become enumerations unchecked.
void check_enumeration(const c10::Argument& argument, const Value& value) {
  const c10::Type* type = argument.real_type().get();
  if (type->kind() == TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType().get();
  int64_t options = type->kind() == TypeKind::ScalarTypeType     ? static_cast<int64_t>(c10::ScalarType::NumOptions)
                    : type->kind() == TypeKind::LayoutType       ? 1  // strided
                    : type->kind() == TypeKind::MemoryFormatType ? static_cast<int64_t>(c10::MemoryFormat::NumOptions)
                                                                 : 0;
  if (!options || value.tag == Tag::NONE) return;
  if (value.tag != Tag::INT || value.fixed.toInt() < 0 || value.fixed.toInt() >= options)
    wrong("argument " + argument.name() + " has no such value");
}

Tensor cpu_scalar(const Value& value, Reader& payload) {
  auto dtype = static_cast<c10::ScalarType>(value.number);
  auto made = at::detail::empty_cpu({}, dtype);
  payload.array(static_cast<char*>(made.mutable_data_ptr()), c10::elementSize(dtype));
  made.unsafeGetTensorImpl()->set_wrapped_number(value.bits & 1);
  return made;
}

}  // namespace

Geometry get_geometry(Reader& from) {
  Geometry g;
  g.dtype = get_dtype(from);
  auto dimensions = from.get<uint8_t>();
  if (dimensions > MOST_DIMENSIONS) wrong("a tensor has more dimensions than allowed");
  g.sizes.resize(dimensions);
  g.strides.resize(dimensions);
  from.array(g.sizes.data(), dimensions);
  from.array(g.strides.data(), dimensions);
  g.offset = from.get<int64_t>();
  // In 128 bits nothing overflows: each step is checked against 2^62.
  constexpr __int128 MOST = __int128(1) << 62;
  __int128 elements = 1, last = g.offset;
  bool empty = false, bad = g.offset < 0;
  for (size_t i = 0; i < dimensions && !bad; i++) {
    bad = g.sizes[i] < 0 || g.strides[i] < 0;
    empty |= g.sizes[i] == 0;
    elements *= std::max<int64_t>(g.sizes[i], 1);
    last += __int128(std::max<int64_t>(g.sizes[i], 1) - 1) * g.strides[i];
    bad |= elements > MOST || last > MOST;
  }
  auto size = c10::elementSize(g.dtype);
  if (bad || elements * size > MOST || (last + 1) * size > MOST) wrong("a tensor's geometry is none");
  g.bytes = empty ? 0 : static_cast<size_t>(last + 1) * size;
  return g;
}

void put_geometry(Writer& to, const Tensor& tensor) {
  if (static_cast<size_t>(tensor.dim()) > MOST_DIMENSIONS) wrong("its result has more dimensions than are carried");
  to.put<uint8_t>(static_cast<uint8_t>(tensor.scalar_type()));
  to.put<uint8_t>(static_cast<uint8_t>(tensor.dim()));
  to.put(tensor.sizes().data(), tensor.sizes().size() * sizeof(int64_t));
  to.put(tensor.strides().data(), tensor.strides().size() * sizeof(int64_t));
  to.put<int64_t>(tensor.storage_offset());
}

bool same_strides(const Tensor& tensor, c10::IntArrayRef strides) {
  if (tensor.numel() == 0) return true;
  for (int64_t i = 0; i < tensor.dim(); i++)
    if (tensor.size(i) > 1 && tensor.stride(i) != strides[i]) return false;
  return true;
}

static_assert(sizeof(Value) <= VALUE_BYTES && sizeof(Belief) <= VALUE_BYTES, "what a value takes is what the limit counts");

std::vector<Value> get_arguments(Reader& from, const c10::FunctionSchema& schema, Session& session, size_t* counted) {
  auto count = from.get<uint16_t>();
  const auto& wanted = schema.arguments();
  if (count != wanted.size())
    wrong(schema.name() + " takes " + std::to_string(wanted.size()) + " arguments, not " + std::to_string(count));
  size_t room = MOST_VALUES;
  std::vector<Value> values;
  values.reserve(count);
  for (size_t i = 0; i < count; i++) {
    values.push_back(get_value(from, session, room, false));
    if (!fits(*wanted[i].type(), values.back()))
      wrong(schema.name() + ": argument " + wanted[i].name() + " is of another type");
    check_enumeration(wanted[i], values.back());
  }
  if (counted) *counted = MOST_VALUES - room;
  return values;
}

Tensor make_tensor(const Geometry& geometry, uint8_t bits, const c10::Storage& storage) {
  bool cuda = storage.device_type() == c10::DeviceType::CUDA;
  c10::DispatchKeySet keys(cuda ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, c10::scalarTypeToTypeMeta(geometry.dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  if (bits & CONJUGATE) {
    if (!made.is_complex()) wrong("only complex tensors can be conjugate");
    made._set_conj(true);
  }
  if (bits & NEGATIVE) made._set_neg(true);
  return made;
}

IValue make_argument(const Value& value, const Slots& slots, Reader& payload, Session& session) {
  switch (value.tag) {
    case Tag::TENSOR: {
      if (value.number >= slots.size()) wrong("a tensor names a slot that the call has not");
      const auto& storage = slots[value.number]->storage;
      if (value.geometry.bytes > storage.nbytes()) wrong("a tensor reaches beyond its storage");
      return IValue(make_tensor(value.geometry, value.bits, storage));
    }
    case Tag::CPU_SCALAR: return IValue(cpu_scalar(value, payload));
    case Tag::INT_LATER: return IValue(payload.get<int64_t>());
    case Tag::DOUBLE_LATER: return IValue(payload.get<double>());
    case Tag::COMPLEX_LATER: {
      auto real = payload.get<double>();
      return IValue(c10::complex<double>(real, payload.get<double>()));
    }
    case Tag::GENERATOR: return IValue();
    case Tag::OTHER_GENERATOR: return IValue(session.generator(value.number));
    case Tag::TENSORS: {
      c10::List<Tensor> list;
      list.reserve(value.elements.size());
      for (const auto& e : value.elements) list.push_back(make_argument(e, slots, payload, session).toTensor());
      return IValue(std::move(list));
    }
    case Tag::OPTIONAL_TENSORS: {
      c10::List<std::optional<Tensor>> list;
      list.reserve(value.elements.size());
      for (const auto& e : value.elements) {
        auto made = make_argument(e, slots, payload, session);
        list.push_back(made.isNone() ? std::nullopt : std::optional<Tensor>(made.toTensor()));
      }
      return IValue(std::move(list));
    }
    case Tag::SCALARS: {
      c10::List<at::Scalar> list;
      list.reserve(value.elements.size());
      for (const auto& e : value.elements) list.push_back(make_argument(e, slots, payload, session).toScalar());
      return IValue(std::move(list));
    }
    default: return value.fixed;
  }
}

std::vector<Belief> get_beliefs(Reader& from) {
  auto count = from.get<uint16_t>();
  std::vector<Belief> beliefs;
  for (size_t i = 0; i < count; i++) {
    Belief belief;
    belief.defined = from.get<uint8_t>();
    if (belief.defined) belief.geometry = get_geometry(from);
    beliefs.push_back(std::move(belief));
  }
  return beliefs;
}

}  // namespace eat
