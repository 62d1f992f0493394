// What was staged becomes a storage's bytes: from page-locked memory, by the device, while the session goes on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Storage.h>

#include <deque>
#include <memory>

#include "../shared/packed.h"
#include "staging.h"

namespace eat {

// Where pieces are staged for this device: memory that it copies from by itself, or that comes again.
Memory staging_memory(c10::Device device);

class Uploads {
 public:
  // To a GPU. `staged` is held until its copy has ended. Throws what torch does.
  void copy(const c10::Storage& to, uint64_t offset, const std::shared_ptr<char[]>& staged, uint64_t count);
  // The indices go there, and the device looks each up in its channel's table.
  void expand(const c10::Storage& to, uint64_t offset, const std::shared_ptr<char[]>& staged, const Unpacking& packed);

 private:
  struct OnTheWay {
    std::shared_ptr<char[]> bytes;
    std::unique_ptr<c10::Event> copied;
  };
  void hold(const std::shared_ptr<char[]>& staged, c10::Device device);

  std::deque<OnTheWay> on_the_way_;  // the oldest first
};

// Bytes that lie there, as a tensor which does not own them.
at::Tensor bytes_at(const void* data, uint64_t count);

// The operators of it, on any device: `indices` (of bytes) into `to`.
void look_up(const c10::Storage& to, uint64_t offset, const at::Tensor& indices, const Unpacking& packed);

}  // namespace eat
