// Facts of an operator from its schema: see operators.h.
#include "operators.h"

#include <ATen/core/enum_tag.h>

#include <set>

namespace eat {

namespace {

using c10::TypeKind;

bool starts(const std::string& name, const char* with) { return name.rfind(with, 0) == 0; }

// Sizes of the result depend on these floats.
bool sizes_by_floats(const std::string& name) {
  static const std::set<std::string> names{"aten::arange", "aten::range"};
  return names.count(name) > 0;
}

ListOf list_kind(const c10::TypePtr& type) {
  c10::TypePtr inner = type;
  if (inner->kind() == TypeKind::OptionalType) inner = inner->castRaw<c10::OptionalType>()->getElementType();
  if (inner->kind() != TypeKind::ListType) return ListOf::NOTHING;
  auto element = inner->castRaw<c10::ListType>()->getElementType();
  switch (element->kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType: return ListOf::INTS;
    case TypeKind::BoolType: return ListOf::BOOLS;
    case TypeKind::FloatType: return ListOf::DOUBLES;
    case TypeKind::TensorType: return ListOf::TENSORS;
    case TypeKind::OptionalType: return ListOf::OPTIONAL_TENSORS;
    default: return ListOf::SCALARS;
  }
}

bool is_number(const c10::TypePtr& type) {
  c10::TypePtr inner = type;
  if (inner->kind() == TypeKind::OptionalType) inner = inner->castRaw<c10::OptionalType>()->getElementType();
  return inner->kind() == TypeKind::NumberType;
}

bool may_write(const std::string& name, const c10::Argument& argument) {
  // A list of weights is copied into one buffer there, and a state of random numbers goes on.
  return argument.name().rfind("running_", 0) == 0 || starts(name, "aten::_cudnn_rnn") || starts(name, "aten::miopen_rnn");
}

Exact exact_kind(const std::string& name) {
  static const std::set<std::string> tests{"aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge",
                                           "aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf"};
  // Where all that goes in and comes out is an integer or a boolean.
  static const std::set<std::string> integers{
      "aten::add", "aten::sub", "aten::rsub", "aten::mul", "aten::maximum", "aten::minimum", "aten::max", "aten::min", "aten::amax",
      "aten::amin", "aten::sum", "aten::bitwise_and", "aten::bitwise_or", "aten::bitwise_xor", "aten::bitwise_not", "aten::logical_and",
      "aten::logical_or", "aten::logical_xor", "aten::logical_not", "aten::any", "aten::all", "aten::clone", "aten::index_select",
      "aten::cat", "aten::stack", "aten::repeat", "aten::flip"};
  if (tests.count(name)) return Exact::TEST;
  if (integers.count(name)) return Exact::INTEGERS;
  return Exact::NO;
}

}  // namespace

OperatorInfo::OperatorInfo(const c10::OperatorHandle& op, uint32_t given) : number(given) {
  const c10::FunctionSchema& schema = op.schema();
  name = schema.name();
  overload = schema.overload_name();
  numbers = numbers_of(name, overload);
  // The room that cuDNN keeps for a backward depends on whether there is dropout.
  asks = op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output) || op.operator_name().name == "aten::_cudnn_rnn";
  static const std::set<std::string> indexing{"aten::index", "aten::_unsafe_index"};
  static const std::set<std::string> putting{"aten::index_put_", "aten::index_put", "aten::_index_put_impl_", "aten::_unsafe_index_put"};
  is_index = indexing.count(name) > 0;
  is_put = putting.count(name) > 0;
  is_spread = starts(name, "aten::std") || starts(name, "aten::var");
  takes_cpu = is_index || is_put || name.find("ctc_loss") != std::string::npos || name.find("pack_padded") != std::string::npos;
  doubles_later = !sizes_by_floats(name);
  ints_later = doubles_later && !starts(name, "aten::pow") && !starts(name, "aten::_foreach_pow") && !starts(name, "aten::float_power");
  for (const c10::Argument& argument : schema.arguments()) {
    ArgumentInfo info;
    info.list = list_kind(argument.type());
    info.written = argument.alias_info() && argument.alias_info()->isWrite();
    info.changed = info.written || may_write(name, argument);
    info.out = argument.is_out();
    info.number = is_number(argument.type());
    info.mode = argument.real_type()->kind() == TypeKind::IntType;
    has_out |= info.out;
    has_written |= info.written;
    if (argument.name() == "device") device = static_cast<int>(arguments.size());
    if (argument.name() == "dtype") dtype = static_cast<int>(arguments.size());
    if (argument.name() == "output_mask") output_mask = static_cast<int>(arguments.size());
    arguments.push_back(info);
  }
  for (const c10::Argument& result : schema.returns()) {
    ReturnInfo info;
    auto kind = result.type()->kind();
    info.kind = kind == TypeKind::TensorType ? ReturnInfo::TENSOR : kind == TypeKind::ListType ? ReturnInfo::TENSORS : ReturnInfo::OTHER;
    if (result.alias_info() && result.alias_info()->isWrite()) {
      for (size_t i = 0; i < schema.arguments().size(); i++) {
        const auto* alias = schema.arguments()[i].alias_info();
        if (alias && alias->isWrite() && alias->beforeSet() == result.alias_info()->beforeSet()) info.alias = static_cast<int>(i);
      }
    }
    if (info.alias < 0) {
      writes_only = false;
      if (info.kind == ReturnInfo::OTHER) only_tensors = false;
    }
    returns.push_back(info);
  }
  if (!has_written && returns.size() == 1 && returns[0].kind == ReturnInfo::TENSOR) exact = exact_kind(name);
}

}  // namespace eat
