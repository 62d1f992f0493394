#include "storages.h"

namespace eat {

Held& Storages::add(uint32_t number, Held held) {
  if (!number) throw WireError("storage 0 is none");
  if (held_.size() >= MOST_STORAGES) throw WireError("more storages than a session may have");
  auto [at, is_new] = held_.emplace(number, std::move(held));
  if (!is_new) throw WireError("storage " + std::to_string(number) + " is there already");
  return at->second;
}

uint64_t Storages::bytes() const {
  uint64_t sum = 0;
  for (const auto& [number, held] : held_)
    if (held.has_memory()) sum += held.storage.nbytes();
  return sum;
}

}  // namespace eat
