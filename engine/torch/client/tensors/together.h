// What sessions of the lease's servers do together: groups, collectives, copies from server to server.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "client/connection/state.h"

namespace eat {

// The device's session as a member of groups: JSON, as its server says it. Throws where the lease's servers do not know each other.
std::string member(Device& device);
// Joins; the answer comes when all members are there.
std::shared_ptr<Ticket> join(Device& device, uint32_t group, const std::string& request);
void leave(Device& device, uint32_t group);
uint32_t new_group();

struct Joint {
  uint32_t group = 0;
  std::string name, operation = "SUM";
  int root = 0, tag = 0;
  std::vector<int64_t> output_rows, input_rows;
  std::vector<at::Tensor> outputs, inputs;
};
// Begins it on the device's session; gives its number.
uint32_t begin_work(Device& device, const Joint& one);
// What follows there comes after it; this machine does not wait.
void wait_work(Device& device, uint32_t work);

// A work stands for a stream: an event that is recorded there is reached when the work is done. So torch's futures wait as they do
// for NCCL's.
constexpr int64_t WORK_STREAM = int64_t(1) << 40;
inline bool is_work_stream(int64_t id) { return id >= WORK_STREAM; }

// Contiguous bytes from a device of one server to one of another, from server to server. False: they do not know each other.
bool copy_between(const at::Tensor& to, const at::Tensor& from);

}  // namespace eat
