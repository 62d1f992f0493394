// Batches that are sent before the program copies them. A loader's thread pins a batch while the loop computes the one before: that
// is the sign to send it. The copy to the device then only names it, if the pinned memory still holds the bytes that were sent.
#pragma once

#include <ATen/core/Tensor.h>

#include "memory.h"

namespace eat {

extern std::atomic<int64_t> ahead_bytes;  // as sent, of what was used

constexpr int64_t LEAST_AHEAD = 64 << 10;  // bytes; less is not worth it

// aten::_pin_memory: pins, and sends ahead.
at::Tensor pin_memory(const at::Tensor& self, std::optional<at::Device> device);

// Makes what was sent ahead from this address the bytes of the storage at that offset. False: nothing was, or the memory holds other
// bytes by now (every one is compared, for it may be written by any library).
bool use_ahead(const RemoteStorage& storage, int64_t offset, const char* data, int64_t count);

}  // namespace eat
