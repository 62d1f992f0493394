// Small values that this client knows: those that it uploaded, those that came along with another's answer, and those that follow
// from known ones exactly (exact.h). What is known of a storage holds for its bytes after so many writes; each message that writes
// there, or may, counts (RemoteStorage::written), so that an answer that was asked before it is never believed after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "client/tensors/memory.h"
#include "operators.h"

namespace eat {

// Values that came along, that were computed here; compared with the server's, of these different (ELASTIC_AI_TORCH_CHECK_KNOWN).
extern std::atomic<int64_t> values_along, values_computed, values_checked, values_wrong;

constexpr int64_t MOST_KNOWN = 4 << 10;        // bytes of a storage that stay known
constexpr int64_t MOST_ALONG_BYTES = 1 << 10;  // of a storage that comes along

// These are the storage's bytes, all of them, after so many writes.
void know(RemoteStorage& storage, uint64_t writes, const char* bytes, size_t count);
// The bytes, where they are known here.
bool take_known(RemoteStorage& storage, uint64_t offset, char* to, uint64_t count);

// ELASTIC_AI_TORCH_CHECK_KNOWN=1, for tests: what is known is compared with what the server has, when it is read and after each
// operator that reads it. Other bytes are an error.
bool checks_known();
void check_known(const std::vector<RemoteStorage*>& storages, const std::string& after);

// A new output of so few bytes: noted, where such ones were read before, so that it comes along with the next answer.
void note_output(const OperatorInfo& info, const c10::IValue* arguments, const at::Tensor& made, const std::shared_ptr<Mark>& mark);

// An answer of the device is about to be waited for, of these bytes or of something else: asks for others too that are likely to be
// read next. Used by the one thread that waits.
class Along {
 public:
  explicit Along(Device& device, RemoteStorage* read = nullptr);
  // Questions, to stand before the one that is waited for.
  std::string messages;
  // They are answered: keeps the values. An error of one is left for its own reading.
  void arrived();

 private:
  struct One {
    c10::Storage storage;
    std::shared_ptr<Ticket> ticket;
    std::shared_ptr<std::string> bytes;
  };
  void ask(const WeakStorage& weak, const RemoteStorage* read);
  Device& device_;
  std::vector<One> all_;
};

}  // namespace eat
