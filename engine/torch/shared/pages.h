// Pages of memory that many bytes are about to come to. No header of torch here.
//
// New memory gets its pages one by one as it is first written to: 16,000 faults for 64 MiB, which take longer than the copy.
// In pages of 2 MiB they are 32.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace eat {

constexpr size_t LARGE_PAGE = size_t(2) << 20;
constexpr size_t LEAST_PREPARED = 2 * LARGE_PAGE;  // bytes; fewer may have no large page within them

// Whether nothing has been written there yet, or it lies in swap.
inline bool is_untouched(const char* at) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  unsigned char resident = 1;
  auto* begin = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(at) / page * page);
  return ::mincore(begin, page, &resident) == 0 && !(resident & 1);
}

// What of so many bytes at `data` are whole large pages, where they are new memory; nothing otherwise, for what has its pages
// keeps them. A kernel without large pages ignores the advice.
struct LargePages {
  char* data = nullptr;
  size_t count = 0;

  // The next of them gets its memory now, and not when it is written to.
  void make_next() {
    (void)::madvise(data, LARGE_PAGE, MADV_POPULATE_WRITE);  // a kernel before 5.14 does not know it, and makes it later
    data += LARGE_PAGE;
    count -= LARGE_PAGE;
  }
};

inline LargePages use_large_pages(char* data, size_t count) {
  if (count < LEAST_PREPARED) return {};
  auto begin = (reinterpret_cast<uintptr_t>(data) + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
  auto end = (reinterpret_cast<uintptr_t>(data) + count) / LARGE_PAGE * LARGE_PAGE;
  LargePages pages{reinterpret_cast<char*>(begin), end - begin};
  if (!is_untouched(pages.data) || !is_untouched(pages.data + pages.count - 1)) return {};
  return ::madvise(pages.data, pages.count, MADV_HUGEPAGE) == 0 ? pages : LargePages();
}

}  // namespace eat
