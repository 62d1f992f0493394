#include "groups.h"

#include <ATen/Functions.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "../shared/together.h"
#include "../shared/wire.h"

namespace eat {
namespace {

GroupFunction make_group = nullptr;
constexpr size_t ANSWER = 1024, FEW = 64;

c10d::ReduceOp::RedOpType operation(const std::string& name) {
  using Op = c10d::ReduceOp::RedOpType;
  static const std::unordered_map<std::string, Op> known{
      {"SUM", Op::SUM}, {"AVG", Op::AVG}, {"PRODUCT", Op::PRODUCT}, {"MIN", Op::MIN},
      {"MAX", Op::MAX}, {"BAND", Op::BAND}, {"BOR", Op::BOR}, {"BXOR", Op::BXOR}};
  auto at = known.find(name);
  if (at == known.end()) throw Refused("the operation " + name + " is not among those that this server computes");
  return at->second;
}

const at::Tensor& one_of(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1) throw Refused("a collective with another number of tensors than it takes");
  return tensors[0];
}

// Backends take a rank as it comes, and write where it leads.
void check_rank(c10d::Backend& backend, int rank) {
  if (rank < 0 || rank >= backend.getSize() || rank == backend.getRank()) throw Refused("there is no such rank to speak with");
}

void check_rows(const std::vector<int64_t>& rows, const at::Tensor& tensor) {
  for (int64_t count : rows) {  // each, as a sum of them may be right, or wrap
    if (!tensor.dim() || count < 0 || count > tensor.size(0)) throw Refused("a collective with rows that its tensor has not");
  }
}

using Work = c10::intrusive_ptr<c10d::Work>;

Work start(c10d::Backend& backend, Collective& one) {
  auto& outputs = one.outputs;
  auto& inputs = one.inputs;
  std::vector<std::vector<at::Tensor>> lists;
  if (one.name == "allreduce") {
    if (outputs.size() > 1) {
      c10d::AllreduceCoalescedOptions options;
      options.reduceOp = operation(one.operation);
      return backend.allreduce_coalesced(outputs, options);
    }
    c10d::AllreduceOptions options;
    options.reduceOp = operation(one.operation);
    one_of(outputs);
    return backend.allreduce(outputs, options);
  }
  if (one.name == "broadcast") {
    c10d::BroadcastOptions options;
    options.rootRank = one.root;
    one_of(outputs);
    return backend.broadcast(outputs, options);
  }
  if (one.name == "reduce") {
    c10d::ReduceOptions options;
    options.reduceOp = operation(one.operation);
    options.rootRank = one.root;
    one_of(outputs);
    return backend.reduce(outputs, options);
  }
  if (one.name == "allgather") {
    lists.push_back(outputs);
    one_of(inputs);
    return backend.allgather(lists, inputs);
  }
  if (one.name == "gather") {
    c10d::GatherOptions options;
    options.rootRank = one.root;
    if (!outputs.empty()) lists.push_back(outputs);
    one_of(inputs);
    return backend.gather(lists, inputs, options);
  }
  if (one.name == "scatter") {
    c10d::ScatterOptions options;
    options.rootRank = one.root;
    if (!inputs.empty()) lists.push_back(inputs);
    one_of(outputs);
    return backend.scatter(outputs, lists, options);
  }
  if (one.name == "reduce_scatter") {
    c10d::ReduceScatterOptions options;
    options.reduceOp = operation(one.operation);
    lists.push_back(inputs);
    one_of(outputs);
    return backend.reduce_scatter(outputs, lists, options);
  }
  if (one.name == "barrier") return backend.barrier();
  if (one.name == "send") {
    one_of(inputs);
    check_rank(backend, one.root);
    return backend.send(inputs, one.root, one.tag);
  }
  if (one.name == "recv") {
    one_of(outputs);
    check_rank(backend, one.root);
    return backend.recv(outputs, one.root, one.tag);
  }
  if (one.name == "alltoall") {
    auto size = static_cast<size_t>(backend.getSize());
    if (outputs.size() != size || inputs.size() != size) throw Refused("a collective with another number of tensors than it takes");
    return backend.alltoall(outputs, inputs);
  }
  at::Tensor output = one_of(outputs), input = one_of(inputs);
  if (one.name == "_allgather_base") return backend._allgather_base(output, input);
  if (one.name == "alltoall_base") {
    check_rows(one.output_rows, output);
    check_rows(one.input_rows, input);
    bool even = one.output_rows.empty() && one.input_rows.empty();
    if (output.scalar_type() != input.scalar_type() || (even && output.numel() != input.numel()))
      throw Refused("what a collective gives and takes has other sizes or types");
    return backend.alltoall_base(output, input, one.output_rows, one.input_rows);
  }
  if (one.name == "_reduce_scatter_base") {
    c10d::ReduceScatterOptions options;
    options.reduceOp = operation(one.operation);
    return backend._reduce_scatter_base(output, input, options);
  }
  throw Refused("there is no collective " + one.name.substr(0, 40));
}

}  // namespace

struct Groups::Works {
  struct Begun {
    Work work;
    Collective what;  // its tensors live until it is waited for
  };
  std::unordered_map<uint32_t, Begun> begun;
  size_t look_at = FEW;

  // What is done and was not waited for, as programs drop handles: a wait that still comes for it finds it done.
  void forget_done() {
    if (begun.size() < look_at) return;
    for (auto at = begun.begin(); at != begun.end();) {
      auto& work = at->second.work;
      at = work->isCompleted() && !work->exception() ? begun.erase(at) : std::next(at);
    }
    look_at = std::max(FEW, 2 * begun.size());
  }
};

void make_groups_by(GroupFunction make) { make_group = make; }
std::string group_name(uint32_t group) { return "eats-" + std::to_string(group); }

Groups::Groups() : works_(std::make_unique<Works>()) {}
Groups::~Groups() = default;

std::string Groups::ask(const char* what, uint32_t group, const std::string& request) {
  bool joins = !strcmp(what, "join"), leaves = !strcmp(what, "leave");
  if (joins && joined_ >= MOST_GROUPS) throw Refused("more groups than a session may have");
  std::string answer(ANSWER, 0);
  int failed = make_group ? make_group(what, group, request.c_str(), answer.data(), answer.size()) : -1;
  answer.resize(strnlen(answer.data(), answer.size()));
  if (failed) throw Refused(make_group ? answer : "this server makes no groups");
  joined_ += joins;
  joined_ -= leaves && joined_;
  return answer;
}

void Groups::begin(uint32_t group, uint32_t number, Collective one) {
  works_->forget_done();
  if (works_->begun.size() >= MOST_WORKS) throw Refused("more collectives are begun than a session may have");
  auto device = one.outputs.empty() && one.inputs.empty() ? c10::kCPU : (one.outputs.empty() ? one.inputs : one.outputs)[0].device().type();
  auto joined = c10d::resolve_process_group(group_name(group));
  auto types = joined->getDeviceTypes();
  if (one.outputs.empty() && one.inputs.empty() && !types.empty()) device = types[0].type();
  auto backend = joined->getBackend(device);
  auto [at, is_new] = works_->begun.try_emplace(number);
  if (!is_new) throw WireError("a collective's number is in use");
  at->second.what = std::move(one);
  try {
    at->second.work = start(*backend, at->second.what);
  } catch (...) {
    works_->begun.erase(at);
    throw;
  }
}

namespace {

c10::intrusive_ptr<c10d::Backend> backend_of(uint32_t group) {
  auto joined = c10d::resolve_process_group(group_name(group));
  return joined->getBackend(joined->getDeviceTypes().at(0).type());
}

at::Device device_of(c10d::Backend& backend, const at::Tensor& bytes) {
  return bytes.defined() ? bytes.device() : backend.getBackendName() == "nccl" ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

}  // namespace

void Groups::give(uint32_t group, int to, at::Tensor bytes) {
  auto backend = backend_of(group);
  check_rank(*backend, to);
  std::vector<at::Tensor> word{at::full({1}, bytes.defined() ? 1 : 0, at::TensorOptions(at::kByte).device(device_of(*backend, bytes)))};
  backend->send(word, to, 0)->wait();
  if (!bytes.defined()) return;
  std::vector<at::Tensor> data{std::move(bytes)};
  backend->send(data, to, 0)->wait();
}

bool Groups::take(uint32_t group, int from, at::Tensor bytes) {
  auto backend = backend_of(group);
  check_rank(*backend, from);
  std::vector<at::Tensor> word{at::zeros({1}, at::TensorOptions(at::kByte).device(bytes.device()))};
  backend->recv(word, from, 0)->wait();
  if (!word[0].item<uint8_t>()) return false;
  std::vector<at::Tensor> data{std::move(bytes)};
  backend->recv(data, from, 0)->wait();
  return true;
}

bool Groups::is_begun(uint32_t number) const { return works_->begun.count(number) > 0; }
std::vector<uint32_t> Groups::written(uint32_t number) const { return works_->begun.at(number).what.written; }

void Groups::wait(uint32_t number) {
  auto at = works_->begun.find(number);
  if (at == works_->begun.end()) return;
  auto begun = std::move(at->second);
  works_->begun.erase(at);
  begun.work->wait();
}

}  // namespace eat
