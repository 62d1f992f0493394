// Bytes between this machine and a device.
#pragma once

#include <ATen/core/Tensor.h>

#include "client/connection/state.h"

namespace eat {

// Sends the bytes of a contiguous tensor on the CPU to where a contiguous one of ours lies, of the same dtype and count.
// `later`: the source is pinned and may be read after this returns.
void send_bytes(const at::Tensor& to, const at::Tensor& from, bool later);
// A copy on the device.
at::Tensor upload(const at::Tensor& tensor, Device& device);
// Fetches a contiguous tensor's bytes into a contiguous one on the CPU. `later`: returns at once.
void fetch_bytes(const at::Tensor& to, const at::Tensor& from, bool later);

at::Tensor& copy_(at::Tensor& self, const at::Tensor& from, bool non_blocking);
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking);
at::Scalar item(const at::Tensor& tensor);

}  // namespace eat
