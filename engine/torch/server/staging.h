// What a client sent ahead: bytes that wait in this process's memory until they become those of a storage, or are dropped.
// No header of torch here. The session and the thread that reads ahead (ahead.h) both put pieces in.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "link.h"

namespace eat {

struct Staged {
  std::shared_ptr<char[]> bytes;  // none: this machine had no memory for them
  uint64_t total = 0, have = 0;
  bool whole() const { return bytes && have == total; }
};

// Memory for so many bytes; none: there is none.
using Memory = std::function<std::shared_ptr<char[]>(size_t)>;

class Staging {
 public:
  explicit Staging(Memory memory) : memory_(std::move(memory)) {}
  // Reads the body of a STAGE, of that length, from the link.
  // `past`: past the messages that were given back for the session (the thread that reads ahead).
  void read(Link& link, uint32_t length, bool past);
  // Whether any one may come now without going beyond the limit, though messages before it are not yet handled.
  bool has_room();
  // Takes it out; one that there is not is not whole.
  Staged take(uint32_t number);

 private:
  Memory memory_;
  std::mutex mutex_;
  uint64_t held_ = 0;
  std::unordered_map<uint32_t, Staged> staged_;
};

}  // namespace eat
