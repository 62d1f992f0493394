// Groups of sessions that compute together, by torch's own backends (gloo, NCCL).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "faults.h"

namespace eat {

// Asked in Python, where the backends are made: "member" gives this session as a member, "join" makes the group and
// registers it with torch by the name that group_name() gives, "leave" takes it away. request: JSON. 0: `answer` is what
// was asked for; else why not.
using GroupFunction = int (*)(const char* what, uint32_t group, const char* request, char* answer, size_t room);
void make_groups_by(GroupFunction make);
std::string group_name(uint32_t group);

// What is to be done together.
struct Collective {
  std::string name, operation;
  int root = 0, tag = 0;
  std::vector<int64_t> output_rows, input_rows;
  std::vector<at::Tensor> outputs, inputs;
  std::vector<uint32_t> written;  // storages of the outputs
};

class Groups {
 public:
  Groups();
  ~Groups();
  std::string ask(const char* what, uint32_t group, const std::string& request);  // throws Refused
  void begin(uint32_t group, uint32_t work, Collective one);
  // The storages that it wrote; throws what its backend throws.
  std::vector<uint32_t> written(uint32_t work) const;
  // A copy from one member to the other, at once: what cannot be given (not defined) is told, so that nobody waits for it.
  void give(uint32_t group, int to, at::Tensor bytes);
  // False where it was not given.
  bool take(uint32_t group, int from, at::Tensor bytes);
  bool is_begun(uint32_t work) const;
  void wait(uint32_t work);

 private:
  struct Works;
  std::unique_ptr<Works> works_;
  size_t joined_ = 0;
};

}  // namespace eat
