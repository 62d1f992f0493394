// Arguments of operators: from bytes to what the dispatcher takes. What is the same in each call of a signature is made
// once.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <vector>

#include "storages.h"

namespace eat {

struct Geometry {
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::SmallVector<int64_t, 5> sizes, strides;
  int64_t offset = 0;
  size_t bytes = 0;  // of a storage that holds it
};

// Checked: no size is negative, nothing overflows.
Geometry get_geometry(Reader& from);
void put_geometry(Writer& to, const at::Tensor& tensor);
// Of the same memory order: strides of dimensions with one element do not matter.
bool same_strides(const at::Tensor& tensor, c10::IntArrayRef strides);

struct Value {
  Tag tag = Tag::NONE;
  c10::IValue fixed;      // of what does not differ between calls
  Geometry geometry;      // TENSOR
  uint32_t number = 0;    // TENSOR: slot; OTHER_GENERATOR: which; CPU_SCALAR: dtype
  uint8_t bits = 0;       // TENSOR: TensorBits; CPU_SCALAR: is wrapped
  std::vector<Value> elements;  // of lists of tensors and of scalars
};

// What calls need of the session to make their arguments.
class Session;

// A value for each argument, held against the schema: Refused where it does not fit.
// `values` gets how many it read, lists counted by their elements.
std::vector<Value> get_arguments(Reader& from, const c10::FunctionSchema& schema, Session& session, size_t* values = nullptr);

// Slots of a call, resolved.
using Slots = c10::SmallVector<Held*, 8>;

c10::IValue make_argument(const Value& value, const Slots& slots, Reader& payload, Session& session);
at::Tensor make_tensor(const Geometry& geometry, uint8_t bits, const c10::Storage& storage);

// What a new output must look like.
struct Belief {
  bool defined = false;
  Geometry geometry;
};
std::vector<Belief> get_beliefs(Reader& from);

}  // namespace eat
