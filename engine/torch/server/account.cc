#include "account.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace eat {

struct Account {
  pthread_mutex_t mutex;
  uint64_t limit;
  uint64_t used[MOST_SESSIONS];
};

namespace {

Account* account;
size_t row;
uint64_t peak;
bool poisoned;
// What is smaller comes of the heap, with addresses of its own lists in it; what is larger mostly new from the kernel.
constexpr size_t CLEARED = 128 << 10;
// End of the heap as the session found it: below lies what the server's parent has freed, what other clients said too.
const char* inherited_end;

class Lock {
 public:
  explicit Lock(Account& a) : mutex_(&a.mutex) {
    // A holder that died left each row as it was or as it wanted it: each is written by one store.
    if (pthread_mutex_lock(mutex_) == EOWNERDEAD) pthread_mutex_consistent(mutex_);
  }
  ~Lock() { pthread_mutex_unlock(mutex_); }

 private:
  pthread_mutex_t* mutex_;
};

uint64_t sum(const Account& a) {
  uint64_t total = 0;
  for (auto used : a.used) total += used;
  return total;
}

std::string size(uint64_t bytes) {
  char text[32];
  double value = static_cast<double>(bytes);
  if (bytes < 1024) snprintf(text, sizeof text, "%llu bytes", static_cast<unsigned long long>(bytes));
  else if (bytes < 1048576) snprintf(text, sizeof text, "%.2f KiB", value / 1024);
  else if (bytes < 1073741824) snprintf(text, sizeof text, "%.2f MiB", value / 1048576);
  else snprintf(text, sizeof text, "%.2f GiB", value / 1073741824);
  return text;
}

void take(uint64_t bytes) {
  Lock lock(*account);
  uint64_t others = sum(*account);
  if (account->limit && (bytes > account->limit || others > account->limit - bytes)) {
    uint64_t left = account->limit > others ? account->limit - others : 0;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", size(bytes),
                     ". GPU 0 has a total capacity of ", size(account->limit), " of which ", size(left),
                     " is free. Of the allocated memory ", size(account->used[row]), " is allocated by PyTorch, and ",
                     size(others - account->used[row]), " is held by other processes of the lease.");
  }
  account->used[row] += bytes;
  if (account->used[row] > peak) peak = account->used[row];
}

void add(uint64_t bytes) {
  Lock lock(*account);
  account->used[row] += bytes;
}

void give(uint64_t bytes) {
  Lock lock(*account);
  account->used[row] -= bytes;
}

// Counted by what the C library gives, which it also tells when memory is freed by its address alone: kernels of
// libraries do that (raw_deallocate), so no header and no table of ours may be needed for it.
class Counting final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (!bytes) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    take(bytes);
    void* data;
    try {
      data = c10::alloc_cpu(bytes);
    } catch (const c10::Error&) {
      give(bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", size(bytes),
                       ". The server's host has no memory left for it.");
    }
    add(malloc_usable_size(data) - bytes);
    if (poisoned) memset(data, 0xff, bytes);
    else if (bytes < CLEARED || data < inherited_end) memset(data, 0, bytes);
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }

 private:
  static void release(void* data) {
    if (!data) return;
    give(malloc_usable_size(data));
    c10::free_cpu(data);
  }
};

}  // namespace

size_t account_bytes() { return sizeof(Account); }

void account_make(void* memory, uint64_t limit) {
  auto* a = static_cast<Account*>(memory);
  memset(static_cast<void*>(a), 0, sizeof *a);
  a->limit = limit;
  pthread_mutexattr_t shared;
  pthread_mutexattr_init(&shared);
  pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&a->mutex, &shared);
}

void account_clear(void* memory, size_t session) {
  auto* a = static_cast<Account*>(memory);
  Lock lock(*a);
  a->used[session] = 0;
}

void account_use(void* memory, size_t session, bool poison) {
  account = static_cast<Account*>(memory);
  row = session;
  poisoned = poison;
  inherited_end = static_cast<const char*>(sbrk(0));
  c10::SetAllocator(c10::kCPU, new Counting, 255);
}

uint64_t account_held() {
  Lock lock(*account);
  return account->used[row];
}

uint64_t account_peak() { return peak; }

}  // namespace eat
