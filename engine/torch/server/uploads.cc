#include "uploads.h"

#include <ATen/Functions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "../shared/again.h"
#include "values.h"

namespace eat {
namespace {

using at::Tensor;

constexpr size_t MOST_ON_THE_WAY = 4;  // copies that have not ended; the session waits for the oldest

Tensor part_of(const c10::Storage& storage, c10::ScalarType dtype, uint64_t offset, uint64_t count) {
  Geometry g;
  g.dtype = dtype;
  g.sizes = {static_cast<int64_t>(count)};
  g.strides = {1};
  g.offset = static_cast<int64_t>(offset / c10::elementSize(dtype));
  return make_tensor(g, 0, storage);
}

std::shared_ptr<char[]> page_locked(size_t count) {
  try {
    Tensor held = at::empty({static_cast<int64_t>(count)}, at::TensorOptions(c10::kByte).pinned_memory(true));
    auto* data = static_cast<char*>(held.mutable_data_ptr());
    return std::shared_ptr<char[]>(data, [held](char*) {});
  } catch (const c10::Error&) {
    return memory_again(count);  // the driver locks no more
  }
}

}  // namespace

Memory staging_memory(c10::Device device) { return device.is_cuda() ? &page_locked : &memory_again; }

Tensor bytes_at(const void* data, uint64_t count) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)}, at::TensorOptions(c10::kByte));
}

void Uploads::hold(const std::shared_ptr<char[]>& staged, c10::Device device) {
  while (!on_the_way_.empty() && (on_the_way_.size() >= MOST_ON_THE_WAY || on_the_way_.front().copied->query())) {
    on_the_way_.front().copied->synchronize();
    on_the_way_.pop_front();
  }
  auto copied = std::make_unique<c10::Event>(c10::kCUDA);
  copied->record(c10::impl::getDeviceGuardImpl(c10::kCUDA)->getStream(device));
  on_the_way_.push_back({staged, std::move(copied)});
}

void Uploads::copy(const c10::Storage& to, uint64_t offset, const std::shared_ptr<char[]>& staged, uint64_t count) {
  part_of(to, c10::kByte, offset, count).copy_(bytes_at(staged.get(), count), true);
  hold(staged, to.device());
}

void Uploads::expand(const c10::Storage& to, uint64_t offset, const std::shared_ptr<char[]>& staged, const Unpacking& packed) {
  auto count = packed.layout().count();
  try {
    Tensor indices = at::empty({static_cast<int64_t>(count)}, at::TensorOptions(c10::kByte).device(to.device()));
    indices.copy_(bytes_at(packed.indices(), count), true);
    hold(staged, to.device());
    return look_up(to, offset, indices, packed);
  } catch (const c10::OutOfMemoryError&) {  // of what this takes beside the storage: natively none of it would be there
  }
  auto bytes = count * packed.layout().element;
  auto expanded = page_locked(bytes);
  TORCH_CHECK(expanded, "no memory for an upload of ", bytes, " bytes");
  packed.get(expanded.get(), 0, count);
  copy(to, offset, expanded, bytes);
}

void look_up(const c10::Storage& to, uint64_t offset, const Tensor& indices, const Unpacking& packed) {
  const Layout& layout = packed.layout();
  // By their bits, as whole numbers: nothing is computed with them.
  auto dtype = layout.element == 2 ? c10::kShort : c10::kInt;
  auto places = static_cast<int64_t>(packed.tables().size());
  Tensor tables = at::from_blob(const_cast<uint32_t*>(packed.tables().data()), {places}, at::TensorOptions(c10::kInt));
  tables = tables.to(at::TensorOptions(dtype).device(indices.device()));
  auto outer = static_cast<int64_t>(layout.outer), channels = static_cast<int64_t>(layout.channels);
  Tensor first = at::arange(channels, at::TensorOptions(c10::kInt).device(indices.device())).mul_(256).view({1, channels, 1});
  Tensor place = indices.view({outer, channels, static_cast<int64_t>(layout.inner)}).to(c10::kInt).add_(first).view({-1});
  Tensor target = part_of(to, dtype, offset, layout.count());
  at::index_select_out(target, tables, 0, place);
}

}  // namespace eat
