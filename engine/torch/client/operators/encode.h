// Arguments of an operator as bytes: the key of a signature, the payload, the storages. See shared/wire.h for the form.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "client/tensors/memory.h"
#include "operators.h"

namespace eat {

// Whether two of its elements are one: written to, its values are no one's promise, and most kernels refuse it.
bool overlaps_itself(const at::Tensor& tensor);

// NotImplementedError, at the line that asked, for a tensor of more dimensions than the wire carries.
void need_carried(size_t dimensions, const std::string& name);

class Encoder {
 public:
  // Reads the arguments; fails with the error that CUDA's wrapper gives for tensors on several devices.
  void encode(const OperatorInfo& info, const c10::IValue* arguments);

  std::string key;                      // operator's number, settings, then the arguments as the wire has them
  std::string_view arguments() const { return std::string_view(key).substr(sizeof(uint32_t) + SETTINGS); }
  std::string payload;
  std::vector<uint32_t> slots;          // numbers of the storages
  std::string kinds;                    // what does not change with sizes: dtypes, dimensions, tags, strings, truths, modes, settings
  Device* device = nullptr;             // of the tensors, or of an argument `device`, or the current one
  size_t values = 0;                    // in `key`, lists counted by their elements
  bool mask = false;                    // an index is a mask: the result's size depends on values
  bool known = false;                   // the bytes of a tensor that is read are known here
  std::vector<RemoteStorage*> known_ones;  // those, where they are checked
  bool in_doubt = false;                // the kernel may refuse one of the numbers: numbers.h
  // The message is in the queue: what the operator writes is written from now on.
  void sent() const {
    for (RemoteStorage* storage : changed_) storage->written();
  }

 private:
  void tensor(const at::Tensor& tensor);
  void cpu_tensor(const at::Tensor& tensor);
  void value(const c10::IValue& value);
  void list(const c10::IValue& value);
  void scalar(const c10::IValue& value, bool later);
  void on(Device& other);
  bool doubt(const c10::IValue* arguments) const;
  void tag(Tag tag) { values++, key += static_cast<char>(tag), kinds += static_cast<char>(tag); }
  template <class T>
  void put(T value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); }
  template <class T>
  void pay(T value) { payload.append(reinterpret_cast<const char*>(&value), sizeof value); }

  // The settings that decide about results and refusals, in the key: the default dtype, deterministic algorithms.
  static constexpr size_t SETTINGS = 2;

  const OperatorInfo* info_ = nullptr;
  const ArgumentInfo* argument_ = nullptr;
  Device* generator_of_ = nullptr;
  std::vector<at::Tensor> keep_;  // uploaded for this call
  std::vector<RemoteStorage*> changed_;
  std::vector<double> numbers_;
  bool imaginary_ = false;  // one of them is no real number
  at::ScalarType type_ = at::ScalarType::Undefined;  // of the first tensor that is no mask
};

// An encoder of this thread, free again when this goes: calls may nest.
class BorrowedEncoder {
 public:
  BorrowedEncoder();
  ~BorrowedEncoder();
  BorrowedEncoder(const BorrowedEncoder&) = delete;
  BorrowedEncoder& operator=(const BorrowedEncoder&) = delete;
  Encoder& operator*() { return *one_; }
  Encoder* operator->() { return one_; }

 private:
  Encoder* one_;
};

}  // namespace eat
