// The session's memory by the numbers that the client chose.
#pragma once

#include <c10/core/Storage.h>

#include <unordered_map>

#include "faults.h"

namespace eat {

struct Held {
  c10::Storage storage;  // none: a result that never came to be
  FaultPtr fault;        // what spoiled it

  bool has_memory() const { return storage.unsafeGetStorageImpl() != nullptr; }
  // Why it cannot be read now.
  FaultPtr spoiled() const { return fault && (!fault->told || !has_memory()) ? fault : nullptr; }
};

class Storages {
 public:
  // nullptr: no such number.
  Held* find(uint32_t number) {
    auto at = held_.find(number);
    return at == held_.end() ? nullptr : &at->second;
  }
  // A new one; the number is of the client's, and new.
  Held& add(uint32_t number, Held held);
  void forget(uint32_t number) { held_.erase(number); }
  size_t count() const { return held_.size(); }
  uint64_t bytes() const;
  void clear() { held_.clear(); }

 private:
  std::unordered_map<uint32_t, Held> held_;
};

}  // namespace eat
