// Which operators a client may call: a list (operators.txt), never "all but some".
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "../shared/wire.h"
#include "replaced.h"

namespace eat {

struct Operator {
  c10::OperatorHandle handle;
  std::string name;                 // aten::add.Tensor
  std::vector<uint16_t> written;    // arguments that it writes
  Replacement replaced = nullptr;   // on processors
  bool only_with_gpu = false;       // this server's torch has no kernel for it
};

class Operators {
 public:
  // A line each, as "aten::add.Tensor" or "aten::relu"; those that this torch lacks are left out.
  Operators(const std::string& lines, bool on_processors);
  // nullptr: not allowed, or not there.
  const Operator* find(const std::string& name, const std::string& overload) const;
  std::vector<std::string> names() const;

 private:
  std::unordered_map<std::string, Operator> known_;
};

}  // namespace eat
