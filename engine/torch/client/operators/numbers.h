// Numbers among the arguments that a kernel may refuse, or warn of, though its meta kernel takes them.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <string>

namespace eat {

// What an operator's numbers have to be beside fitting the type that they are converted to. Only what no kernel refuses needs
// to be told apart: a number in doubt costs a wait, no more.
enum class Numbers : uint8_t {
  ANY,
  PROBABILITY,   // each from 0 to 1
  INSIDE,        // the same without both ends
  POSITIVE,      // each above 0
  NOT_NEGATIVE,  // each at least 0
  SPREAD,        // the last one above 0
  RISING,        // the one before the last not above the last
  DRAWN,         // the one before the last below the last, a single one above 0; the type tells each from its neighbours
  DIVISOR,       // no integer 0
  SELECTED,      // they fit; as a tensor on the CPU too
};

Numbers numbers_of(const std::string& name, const std::string& overload);

// Whether a kernel for this type may refuse them.
bool in_doubt(Numbers rule, c10::ArrayRef<double> numbers, at::ScalarType type);

}  // namespace eat
