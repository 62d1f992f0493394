// For tests: a server on processors that behaves as one with a GPU does, where programs and the client could come to
// rely on a processor's ways. New memory is full of NaN (account.h); an index that a kernel finds beyond its tensor
// breaks the device, as an assertion in a kernel does, so that every later call fails; results and gradients of
// convolutions have channels_last or another order of their dimensions where a question leaves strides to the server; a call begins after a random delay, so that a missing wait shows.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <random>

#include "faults.h"

namespace eat {

class LikeCuda {
 public:
  explicit LikeCuda(std::optional<uint64_t> seed) : on_(seed.has_value()), random_(seed.value_or(0)) {}

  void delay();
  at::Tensor laid(const std::string& name, const at::Tensor& tensor);
  FaultPtr late(FaultPtr fault) const;

 private:
  bool on_;
  std::mt19937_64 random_;
};

}  // namespace eat
