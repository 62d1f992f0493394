// Running an operator, and what becomes of its results.
#pragma once

#include <ATen/core/stack.h>

#include "session.h"

namespace eat {

struct Written {
  uint16_t argument;
  at::Tensor tensor;         // the argument itself, as it is now
  const Geometry* expected;  // as the client said
  Held* held;
};

class Call {
 public:
  Call(Session& session, const Operator& op, const std::vector<Value>& arguments, const Slots& slots);
  // Throws what torch throws, and Refused.
  void run(Reader& payload);

  // New tensors, lists taken apart, in order; `put` makes the body of an ANSWER to ASK of them.
  std::vector<at::Tensor> outputs() const;
  // Gives what each new output of `count` is to `put`, which keeps it.
  void store(const std::vector<Belief>& beliefs, size_t count, const Put& put);
  void put_results(Writer& to, uint32_t first, size_t most);
  // Refused where a written argument has another geometry than the client expects.
  void check_written() const;
  const std::vector<Written>& written() const { return written_; }

 private:
  bool is_new(size_t result) const;
  // With memory of its own, at its beginning, as the client will describe it.
  at::Tensor own(at::Tensor tensor, const Geometry* as);
  void put_tensor(Writer& to, const at::Tensor& tensor, uint32_t& next, size_t& left);

  Session& session_;
  const Operator& op_;
  const std::vector<Value>& arguments_;
  const Slots& slots_;
  torch::jit::Stack stack_;
  std::vector<Written> written_;
  std::vector<const c10::StorageImpl*> taken_;
};

// What a call that does not run would have written cannot be read.
void spoil_written(const FaultPtr& fault, const Operator* op, const std::vector<Value>& arguments, const Slots& slots);

}  // namespace eat
