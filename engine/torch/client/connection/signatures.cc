// The table of signatures: see signatures.h.
#include "signatures.h"

#include "shared/wire.h"

namespace eat {

namespace {
// Both generations together stay below the server's limits, with room for what is under way.
constexpr size_t MOST_YOUNG = MOST_SIGNATURES / 2 - 64;
constexpr size_t MOST_YOUNG_BYTES = MOST_SIGNATURE_BYTES / 2 - MOST_MESSAGE / 2;
}  // namespace

void Signatures::turn(std::vector<uint32_t>& forget) {
  for (const auto& [key, entry] : old_) forget.push_back(entry.signature->number);
  old_ = std::move(young_);
  young_.clear();
  young_bytes_ = 0;
}

std::shared_ptr<const Signature> Signatures::find(std::string_view key) {
  if (auto found = young_.find(key); found != young_.end()) return found->second.signature;
  auto found = old_.find(key);
  if (found == old_.end()) return nullptr;
  auto signature = found->second.signature;
  if (young_.size() < MOST_YOUNG && young_bytes_ + found->second.bytes < MOST_YOUNG_BYTES) {
    young_bytes_ += found->second.bytes;
    young_.insert(old_.extract(found));
  }
  return signature;
}

std::shared_ptr<const Signature> Signatures::add(std::string_view key, Results results, size_t bytes,
                                                 std::vector<uint32_t>& forget) {
  if (young_.size() >= MOST_YOUNG || young_bytes_ + bytes >= MOST_YOUNG_BYTES) turn(forget);
  auto made = std::make_shared<Signature>();
  made->number = next_++;
  made->results = std::move(results);
  young_bytes_ += bytes;
  young_.emplace(std::string(key), Entry{made, bytes});
  return made;
}

}  // namespace eat
