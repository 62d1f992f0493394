// Memory of a lease, shared by its sessions: a counter in front of torch's allocator.
#pragma once

#include <cstddef>
#include <cstdint>

namespace eat {

constexpr size_t MOST_SESSIONS = 128;

struct Account;  // in memory that the parent and its children share

size_t account_bytes();
// Once, by the parent. limit: bytes of each device, 0: none.
void account_make(void* memory, uint64_t limit);
// By the parent, when a child has ended.
void account_clear(void* memory, size_t session);

// By the child, before its first tensor: processors' memory is counted from here on, and an allocation beyond the limit
// is torch's error. Memory is zero where a session sees it first (it is new to the process: the kernel gives it so).
// poison: new memory is full of NaN, as a GPU's may be, and never zero by luck.
void account_use(void* memory, size_t session, bool poison);
// What this session holds, and the most that it has held.
uint64_t account_held();
uint64_t account_peak();

}  // namespace eat
