// What is known of an operator once: from its schema, and from short lists of names that need care.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "numbers.h"

namespace eat {

enum class ListOf : uint8_t { NOTHING, INTS, BOOLS, DOUBLES, TENSORS, OPTIONAL_TENSORS, SCALARS };

// What a machine of any kind computes to the same bits, where its arguments are known here: exact.h.
enum class Exact : uint8_t { NO, TEST, INTEGERS };

struct ArgumentInfo {
  ListOf list = ListOf::NOTHING;
  bool written = false;  // the schema marks it as written
  bool changed = false;  // or it may be, though the schema does not say so: running statistics of batch norms, states of cuDNN
  bool out = false;      // an `out=`
  bool number = false;   // a Scalar: its value may stand in the payload
  bool mode = false;     // an integer that is no size: a dimension, a kind of reduction
};

struct ReturnInfo {
  enum Kind : uint8_t { TENSOR, TENSORS, OTHER } kind = TENSOR;
  int alias = -1;  // the argument that it is, for written ones
};

struct OperatorInfo {
  explicit OperatorInfo(const c10::OperatorHandle& op, uint32_t number);
  uint32_t number;             // first bytes of every key
  std::string name, overload;  // "aten::add", "Tensor"
  std::vector<ArgumentInfo> arguments;
  std::vector<ReturnInfo> returns;
  bool asks = false;          // its results' sizes depend on values: the server is asked each time
  bool only_tensors = true;   // of new results
  bool writes_only = true;    // all returns are written arguments
  bool has_out = false, has_written = false;
  bool is_index = false;      // aten::index and its kin: asks only with a mask; indices may lie on the CPU
  bool is_spread = false;     // std, var: warns when there are too few elements
  bool is_put = false;        // index_put: its values are on the device, or one number
  bool takes_cpu = false;     // tensors on the CPU with dimensions are uploaded, as CUDA's kernel does
  bool doubles_later = true;  // floats stand in the payload, so that another value is no new signature
  bool ints_later = true;     // the same for integer Scalars
  Exact exact = Exact::NO;
  Numbers numbers = Numbers::ANY;
  int device = -1;            // argument that says where the results are to be
  int dtype = -1;             // and of which type
  int output_mask = -1;       // argument that says which results are wanted
};

}  // namespace eat
