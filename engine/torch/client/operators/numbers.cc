// Numbers in doubt: see numbers.h.
#include "numbers.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <unordered_map>

namespace eat {

namespace {

using at::ScalarType;

// The greatest number that converts to it, as c10::overflows has it; complex types: of each part.
double greatest(ScalarType type) {
  switch (type) {
    case ScalarType::Byte: return UINT8_MAX;
    case ScalarType::Char: return INT8_MAX;
    case ScalarType::Short: return INT16_MAX;
    case ScalarType::UInt16: return UINT16_MAX;
    case ScalarType::Int: return INT32_MAX;
    case ScalarType::UInt32: return UINT32_MAX;
    case ScalarType::Long: return static_cast<double>(INT64_MAX);
    case ScalarType::UInt64: return static_cast<double>(UINT64_MAX);
    case ScalarType::Half:
    case ScalarType::ComplexHalf: return 65504;
    case ScalarType::BFloat16: return 3.3895313892515355e38;
    case ScalarType::Float:
    case ScalarType::ComplexFloat: return FLT_MAX;
    case ScalarType::Bool:
    case ScalarType::Double:
    case ScalarType::ComplexDouble: return DBL_MAX;
    default: return 240;  // floats of eight bits: of some it is more
  }
}

// Up to which it tells an integer from the next: drawing beyond that is warned of.
double exact_up_to(ScalarType type) {
  switch (type) {
    case ScalarType::Half: return 1 << 11;
    case ScalarType::BFloat16: return 1 << 8;
    case ScalarType::Float: return 1 << 24;
    case ScalarType::Double: return static_cast<double>(int64_t{1} << 53);
    case ScalarType::Bool: return 1;
    default: return greatest(type);
  }
}

bool fit(c10::ArrayRef<double> numbers, ScalarType type) {
  double most = greatest(type);
  bool whole = at::isIntegralType(type, false);
  return std::all_of(numbers.begin(), numbers.end(), [&](double one) { return std::isfinite(one) ? std::abs(one) <= most : !whole; });
}

// How much the last one is above the one before it.
double rise(c10::ArrayRef<double> numbers) { return numbers.back() - (numbers.size() > 1 ? numbers[numbers.size() - 2] : 0); }

}  // namespace

Numbers numbers_of(const std::string& name, const std::string& overload) {
  static const std::unordered_map<std::string, Numbers> rules{
      {"aten::bernoulli", Numbers::PROBABILITY},      {"aten::bernoulli_", Numbers::PROBABILITY},
      {"aten::native_dropout", Numbers::INSIDE},      {"aten::geometric_", Numbers::INSIDE},
      {"aten::geometric", Numbers::INSIDE},           {"aten::exponential_", Numbers::POSITIVE},
      {"aten::exponential", Numbers::POSITIVE},       {"aten::huber_loss", Numbers::POSITIVE},
      {"aten::smooth_l1_loss", Numbers::NOT_NEGATIVE}, {"aten::softshrink", Numbers::NOT_NEGATIVE},
      {"aten::_cdist_forward", Numbers::NOT_NEGATIVE}, {"aten::_pdist_forward", Numbers::NOT_NEGATIVE},
      {"aten::renorm", Numbers::POSITIVE},            {"aten::renorm_", Numbers::POSITIVE},
      {"aten::embedding_renorm_", Numbers::POSITIVE}, {"aten::normal", Numbers::SPREAD},
      {"aten::normal_", Numbers::SPREAD},             {"aten::normal_functional", Numbers::SPREAD},
      {"aten::log_normal_", Numbers::SPREAD},         {"aten::log_normal", Numbers::SPREAD},
      {"aten::cauchy_", Numbers::SPREAD},             {"aten::cauchy", Numbers::SPREAD},
      {"aten::uniform_", Numbers::RISING},            {"aten::uniform", Numbers::RISING},
      {"aten::histc", Numbers::RISING},               {"aten::random_", Numbers::DRAWN},
      {"aten::random", Numbers::DRAWN},               {"aten::div", Numbers::DIVISOR},
      {"aten::div_", Numbers::DIVISOR},               {"aten::floor_divide", Numbers::DIVISOR},
      {"aten::floor_divide_", Numbers::DIVISOR},      {"aten::remainder", Numbers::DIVISOR},
      {"aten::remainder_", Numbers::DIVISOR},         {"aten::fmod", Numbers::DIVISOR},
      {"aten::fmod_", Numbers::DIVISOR},              {"aten::where", Numbers::SELECTED}};
  if (overload.rfind("float_Tensor", 0) == 0) return Numbers::ANY;  // the spread is the tensor
  auto found = rules.find(name);
  return found == rules.end() ? Numbers::ANY : found->second;
}

bool in_doubt(Numbers rule, c10::ArrayRef<double> numbers, ScalarType type) {
  if (!fit(numbers, type)) return true;
  auto all = [&](auto holds) { return std::all_of(numbers.begin(), numbers.end(), holds); };
  switch (rule) {
    case Numbers::PROBABILITY: return !all([](double one) { return one >= 0 && one <= 1; });
    case Numbers::INSIDE: return !all([](double one) { return one > 0 && one < 1; });
    case Numbers::POSITIVE: return !all([](double one) { return one > 0; });
    case Numbers::NOT_NEGATIVE: return !all([](double one) { return one >= 0; });
    case Numbers::SPREAD: return !(numbers.back() > 0);
    case Numbers::RISING: return !(rise(numbers) >= 0);
    case Numbers::DRAWN: return !(rise(numbers) > 0) || !all([&](double one) { return std::abs(one) <= exact_up_to(type); });
    case Numbers::DIVISOR: return at::isIntegralType(type, true) && !all([](double one) { return one != 0; });
    case Numbers::ANY:
    case Numbers::SELECTED: return false;
  }
  return false;
}

}  // namespace eat
