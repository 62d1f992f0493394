#include "again.h"

#include <sys/mman.h>

#include <cstdlib>
#include <deque>
#include <mutex>

namespace eat {
namespace {

constexpr size_t LEAST = size_t(1) << 20;        // less is not kept
constexpr size_t MOST_KEPT = size_t(256) << 20;  // bytes that nobody holds
constexpr size_t PAGE = size_t(2) << 20;         // a large page, where the machine gives them

struct Block {
  char* data;
  size_t bytes;
};

struct Kept {
  std::mutex mutex;
  std::deque<Block> blocks;  // the oldest first
  size_t bytes = 0;
};

Kept& kept() {
  static auto* one = new Kept;  // outlives all holders
  return *one;
}

// A block that is large enough and not much too large. The lock is tried: in a child of fork it may be held by nobody that is there.
char* find(size_t count, size_t& bytes) {
  std::unique_lock<std::mutex> lock(kept().mutex, std::try_to_lock);
  if (!lock) return nullptr;
  auto& blocks = kept().blocks;
  for (auto one = blocks.begin(); one != blocks.end(); ++one) {
    if (one->bytes < count || one->bytes > count + count / 4 + PAGE) continue;
    char* data = one->data;
    bytes = one->bytes;
    kept().bytes -= bytes;
    blocks.erase(one);
    return data;
  }
  return nullptr;
}

void keep(Block block) {
  std::deque<Block> gone;
  {
    std::unique_lock<std::mutex> lock(kept().mutex, std::try_to_lock);
    if (!lock || block.bytes > MOST_KEPT) return free(block.data);
    auto& blocks = kept().blocks;
    while (kept().bytes + block.bytes > MOST_KEPT) {
      gone.push_back(blocks.front());
      kept().bytes -= blocks.front().bytes;
      blocks.pop_front();
    }
    blocks.push_back(block);
    kept().bytes += block.bytes;
  }
  for (Block one : gone) free(one.data);
}

}  // namespace

void drop_memory_again() {
  std::deque<Block> gone;
  {
    std::unique_lock<std::mutex> lock(kept().mutex, std::try_to_lock);
    if (!lock) return;
    gone.swap(kept().blocks);
    kept().bytes = 0;
  }
  for (Block one : gone) free(one.data);
}

std::shared_ptr<char[]> memory_again(size_t count) {
  if (count < LEAST) {
    auto* data = static_cast<char*>(malloc(count ? count : 1));
    return data ? std::shared_ptr<char[]>(data, &free) : nullptr;
  }
  size_t bytes = 0;
  char* data = find(count, bytes);
  if (!data) {
    if (count > SIZE_MAX - PAGE) return {};
    bytes = (count + PAGE - 1) / PAGE * PAGE;
    data = static_cast<char*>(aligned_alloc(PAGE, bytes));
    if (!data) return {};
    ::madvise(data, bytes, MADV_HUGEPAGE);
  }
  return std::shared_ptr<char[]>(data, [bytes](char* block) { keep({block, bytes}); });
}

}  // namespace eat
