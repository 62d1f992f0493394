// Uploads that are sent in a shorter form without losing a bit (shared/packed.h), and which tensors are tried.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "shared/packed.h"
#include "memory.h"

namespace eat {

extern std::atomic<int64_t> packed_uploads;

constexpr int64_t LEAST_PACKED = 64 << 10;  // bytes; less is not worth it

// The packed form of a contiguous tensor of so many bytes at `data`; nothing where it has none. A shape that had none is not tried again.
std::optional<Packed> packed_form(const at::Tensor& tensor, const char* data);

// Sends what is packed, to be the bytes of the storage at that offset.
void send_packed(const RemoteStorage& storage, int64_t offset, int64_t count, Packed packed);

// Numbers of what is staged.
uint32_t next_staged();
// USE of that number.
void send_use(const RemoteStorage& storage, int64_t offset, int64_t count, uint32_t number, Form form);

}  // namespace eat
