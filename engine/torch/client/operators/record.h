// What a thread sends, taken down while a graph runs for the first times: steps that the server can run again by one message.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "encode.h"
#include "client/connection/sent.h"

namespace eat {

// A graph as the server has it, and what of it is needed here to run it again.
struct Recording {
  // One result. It lies in the storage of an input, or in a new one.
  struct Output {
    int same = -1;              // it is this input, or this earlier output, itself
    bool of_input = false;
    uint32_t place = 0;         // of the input whose storage it has, or in `new_bytes`
    at::ScalarType dtype{};
    std::vector<int64_t> sizes, strides;
    int64_t offset = 0;
    bool conjugate = false, negative = false;
  };
  struct Patch {
    uint32_t input;             // on the CPU, without dimensions
    uint32_t bytes;
  };
  uint32_t number = 0;
  int64_t variant = 0;          // number for Python
  Device* device = nullptr;
  std::vector<uint32_t> storages;  // for each input register an input that has it
  std::vector<uint32_t> written, bumped;  // inputs whose bytes, and whose versions, change
  std::vector<Output> outputs;
  std::vector<int64_t> new_bytes;  // of each new storage
  std::vector<Patch> patches;
  int64_t most_bytes = 0;       // held at once beyond what was there before
  size_t counted = 0;           // as the server counts it
  uint64_t used = 0;            // when it ran last
};

class Recorder {
 public:
  // Where each input's storage stands among the registers; the first ones are theirs.
  explicit Recorder(at::TensorList inputs);

  void begin_call() { pending_.clear(); }
  // The value of a tensor on the CPU stands at this place of the payload.
  void value(const at::Tensor& tensor, size_t at);
  void call(const OperatorInfo& info, const Encoder& encoded, const Signature& signature, uint32_t first);
  void allocate(const Device& device, uint32_t number, int64_t bytes);
  void free(uint32_t number);
  // Of memory that nothing has used yet: an `out=` of no size that gets its own.
  void resize(uint32_t number, int64_t bytes);
  void upload(const at::Tensor& from, uint32_t number, int64_t offset, const char* data, int64_t count);
  void write(uint32_t number);
  // A message that changes nothing for the graph: a signature.
  void harmless() { expected_++; }
  void cannot(const std::string& why) {
    if (why_.empty()) why_ = why;
  }

  // The graph's message in `to`, or why there is none.
  std::string finish(at::TensorList outputs, Recording& made, Writer& to);

 private:
  bool reads(uint32_t number, uint32_t& at);
  uint32_t add(uint32_t number, int64_t bytes);
  bool on(const Device& device);
  bool from_input(const at::Tensor& tensor, uint32_t& input) const;

  std::vector<at::Tensor> inputs_;
  std::vector<int64_t> versions_;
  std::unordered_map<const void*, uint32_t> on_cpu_;       // inputs there, by their memory
  std::unordered_map<uint32_t, uint32_t> registers_;       // by the storage's number
  std::vector<int64_t> bytes_;                             // of each register
  std::vector<bool> written_;
  std::unordered_map<uint32_t, size_t> unused_;            // registers made by ALLOC: where its bytes stand in `steps_`
  std::unordered_map<uint32_t, size_t> signatures_;        // their bytes
  std::vector<std::pair<size_t, uint32_t>> pending_;       // place in the payload, input
  std::vector<std::pair<uint32_t, Recording::Patch>> patches_;
  Writer steps_;
  size_t count_ = 0, payload_ = 0, signature_bytes_ = 0;
  Recording found_;
  int64_t held_ = 0, expected_ = 0, began_;
  std::string why_;
};

extern thread_local Recorder* recorder;  // of this thread's graph that is being taken down

}  // namespace eat
