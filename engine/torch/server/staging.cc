#include "staging.h"

#include <algorithm>

namespace eat {

void Staging::read(Link& link, uint32_t length, bool past) {
  auto read = [&](void* to, size_t count) { past ? link.read_new(to, count) : link.read(to, count); };
  struct __attribute__((packed)) {
    uint32_t number;
    uint64_t total, offset;
  } head;
  if (length < sizeof head || length - sizeof head > MOST_CHUNK) throw WireError("a staged piece has no such length");
  read(&head, sizeof head);
  uint32_t number = head.number;
  uint64_t count = length - sizeof head;
  std::shared_ptr<char[]> bytes;  // held here: a client may drop the number while this reads
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto at = staged_.find(number);
    if (at == staged_.end()) {
      if (!number || !head.total || head.offset) throw WireError("a staged piece has no beginning");
      if (head.total > MOST_STAGED_ONE || held_ > MOST_STAGED - head.total) throw WireError("more is staged than a session may");
      at = staged_.emplace(number, Staged{}).first;
      at->second.total = head.total;
      at->second.bytes = memory_(head.total);
      held_ += head.total;
    }
    Staged& one = at->second;
    if (head.total != one.total || head.offset != one.have || count > one.total - one.have) {
      throw WireError("a staged piece does not follow the one before");
    }
    bytes = one.bytes;
  }
  if (bytes) {
    read(bytes.get() + head.offset, count);
  } else {
    char nowhere[16384];
    for (uint64_t left = count; left; left -= std::min<uint64_t>(left, sizeof nowhere)) read(nowhere, std::min<uint64_t>(left, sizeof nowhere));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (auto at = staged_.find(number); at != staged_.end()) at->second.have = head.offset + count;
}

bool Staging::has_room() {
  std::lock_guard<std::mutex> lock(mutex_);
  return held_ <= MOST_STAGED - MOST_STAGED_ONE;
}

Staged Staging::take(uint32_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto at = staged_.find(number);
  if (at == staged_.end()) return {};
  Staged one = std::move(at->second);
  staged_.erase(at);
  held_ -= one.total;
  return one;
}

}  // namespace eat
