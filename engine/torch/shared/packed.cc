#include "packed.h"

#include <algorithm>
#include <unordered_map>

#include "again.h"
#include "look_up.h"

namespace eat {

namespace {

constexpr uint64_t SAMPLE = 1024;  // floats of each channel that are looked at first
constexpr uint32_t MOST_VALUES_OF_ONE = 256;
constexpr int TRIES = 2000;        // a factor that gives each value a place of its own is found in some 50
constexpr uint64_t RUN = 4096;     // floats that are looked up before the outcome is looked at

// The different values of a channel by their bits, each with its index.
class Values {
 public:
  // The index, or -1 where this would be one too many.
  int at(uint32_t bits) {
    auto known = index_.find(bits);
    if (known != index_.end()) return known->second;
    if (found.size() == MOST_VALUES_OF_ONE) return -1;
    index_.emplace(bits, static_cast<int>(found.size()));
    found.push_back(bits);
    settled_ = false;
    return static_cast<int>(found.size()) - 1;
  }

  // Indices of so many floats, each so far from the one before; false where there are too many values.
  template <class Element>
  bool look_up(const Element* from, uint64_t count, uint64_t stride, uint8_t* to) {
    if ((settled_ || settle()) && all_known(table_, from, count, stride, to)) return true;
    for (uint64_t i = 0; i < count * stride; i += stride) {
      int one = at(from[i]);
      if (one < 0) return false;
      to[i] = static_cast<uint8_t>(one);
    }
    return true;
  }
  std::vector<uint32_t> found;

 private:
  // A factor by which each value has a place of its own.
  bool settle() {
    if (found.size() == gave_up_) return false;
    uint32_t factor = 2654435761u;
    for (int tries = 0; tries < TRIES; tries++, factor = factor * 1664525u + 1013904222u) {
      if (table_.fill(found, factor | 1)) return settled_ = true;
    }
    gave_up_ = found.size();
    return false;
  }

  std::unordered_map<uint32_t, int> index_;
  Places table_;
  bool settled_ = false;
  size_t gave_up_ = 0;
};

template <class Element>
bool fits(const Element* from, uint64_t count, Values& values) {
  uint64_t step = std::max<uint64_t>(1, count / SAMPLE);
  for (uint64_t i = 0; i < count; i += step) {
    if (values.at(from[i]) < 0) return false;
  }
  return true;
}

template <class Element>
std::optional<Packed> pack_elements(const Element* data, const Layout& layout) {
  auto values = std::make_unique<Values[]>(layout.channels);
  // A look at some of it first: other floats are given up at once.
  uint64_t rows = std::min<uint64_t>(layout.outer, layout.inner == 1 ? SAMPLE : 4), row_step = std::max<uint64_t>(1, layout.outer / rows);
  for (uint64_t row = 0; row < layout.outer; row += row_step) {
    for (uint32_t channel = 0; channel < layout.channels; channel++) {
      if (!fits(data + (row * layout.channels + channel) * layout.inner, layout.inner, values[channel])) return {};
    }
  }
  // What stands before the indices is known when they are: it is put right before them then.
  size_t most_head = sizeof layout.element + sizeof layout.channels + sizeof layout.outer + sizeof layout.inner +
                     layout.channels * (sizeof(uint16_t) + MOST_VALUES_OF_ONE * sizeof(Element));
  auto memory = memory_again(most_head + layout.count());
  if (!memory) return {};
  auto* to = reinterpret_cast<uint8_t*>(memory.get() + most_head);
  if (layout.inner == 1) {  // channels last: a run of one, then the same of the next, while they are near
    for (uint64_t row = 0; row < layout.outer; row += RUN) {
      for (uint32_t channel = 0; channel < layout.channels; channel++) {
        uint64_t at = row * layout.channels + channel;
        if (!values[channel].look_up(data + at, std::min(RUN, layout.outer - row), layout.channels, to + at)) return {};
      }
    }
  }
  for (uint64_t row = 0, at = 0; row < layout.outer && layout.inner > 1; row++) {
    for (uint32_t channel = 0; channel < layout.channels; channel++, at += layout.inner) {
      for (uint64_t done = 0; done < layout.inner; done += RUN) {
        if (!values[channel].look_up(data + at + done, std::min(RUN, layout.inner - done), 1, to + at + done)) return {};
      }
    }
  }
  Writer head;
  head.put(layout.element);
  head.put(layout.channels);
  head.put(layout.outer);
  head.put(layout.inner);
  for (uint32_t channel = 0; channel < layout.channels; channel++) {
    head.put(static_cast<uint16_t>(values[channel].found.size()));
    for (uint32_t bits : values[channel].found) head.put(static_cast<Element>(bits));
  }
  size_t begin = most_head - head.bytes.size();
  memcpy(memory.get() + begin, head.bytes.data(), head.bytes.size());
  return Packed(std::move(memory), begin, head.bytes.size() + layout.count());
}

}  // namespace

std::optional<Packed> pack(const char* data, const Layout& layout) {
  if (!layout.count() || layout.channels > MOST_CHANNELS) return {};
  if (layout.element == 4) return pack_elements(reinterpret_cast<const uint32_t*>(data), layout);
  if (layout.element == 2) return pack_elements(reinterpret_cast<const uint16_t*>(data), layout);
  return {};
}

Unpacking::Unpacking(const char* packed, size_t packed_bytes, uint64_t bytes) {
  Reader in(packed, packed_bytes);
  layout_.element = in.get<uint8_t>();
  layout_.channels = in.get<uint32_t>();
  layout_.outer = in.get<uint64_t>();
  layout_.inner = in.get<uint64_t>();
  if (layout_.element != 2 && layout_.element != 4) throw WireError("packed floats have no such size");
  if (!layout_.channels || layout_.channels > MOST_CHANNELS) throw WireError("packed floats have no such number of channels");
  uint64_t count = bytes / layout_.element;
  // Divided, not multiplied, so that no product of a client's goes beyond 64 bits.
  bool same = bytes % layout_.element == 0 && layout_.inner && layout_.outer && count % layout_.channels == 0 &&
              count / layout_.channels % layout_.inner == 0 && count / layout_.channels / layout_.inner == layout_.outer;
  if (!same) throw WireError("packed floats are not as many as they should be");
  tables_.resize(size_t(256) * layout_.channels);
  for (uint32_t channel = 0; channel < layout_.channels; channel++) {
    auto values = in.get<uint16_t>();
    if (!values || values > MOST_VALUES_OF_ONE) throw WireError("a table of packed floats has no such length");
    for (uint16_t i = 0; i < values; i++) {
      tables_[256 * channel + i] = layout_.element == 2 ? in.get<uint16_t>() : in.get<uint32_t>();
    }
  }
  if (in.left() != count) throw WireError("packed floats have another number of indices");
  indices_ = reinterpret_cast<const uint8_t*>(in.here());
}

template <class Element>
void Unpacking::expand(Element* to, uint64_t from, uint64_t count) const {
  if (layout_.inner == 1) {
    for (uint64_t i = 0, at = 256 * (from % layout_.channels); i < count; i++) {
      to[i] = static_cast<Element>(tables_[at + indices_[from + i]]);
      at = at + 256 == tables_.size() ? 0 : at + 256;
    }
    return;
  }
  uint64_t until = from + count, within = from % layout_.inner, channel = from / layout_.inner % layout_.channels;
  while (from < until) {
    uint64_t step = std::min(until - from, layout_.inner - within);
    const uint32_t* table = tables_.data() + 256 * channel;
    for (uint64_t i = 0; i < step; i++) to[i] = static_cast<Element>(table[indices_[from + i]]);
    to += step;
    from += step;
    within = 0;
    if (++channel == layout_.channels) channel = 0;
  }
}

void Unpacking::get(char* to, uint64_t from, uint64_t count) const {
  if (layout_.element == 4) expand(reinterpret_cast<uint32_t*>(to), from, count);
  else expand(reinterpret_cast<uint16_t*>(to), from, count);
}

}  // namespace eat
