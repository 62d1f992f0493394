// Images as bytes: floats of which a channel has at most 256 different values, as a table of these for each channel and a byte for
// each float. Every bit comes back, NaN's and a negative zero's too. No header of torch here.
//
// Packed: u8 bytes of an element (2 or 4), u32 channels, u64 outer, u64 inner; for each channel u16 n (1 to 256) and n elements;
// then outer x channels x inner bytes: an index each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "wire.h"

namespace eat {

constexpr Form PACKED{1};
constexpr uint32_t MOST_CHANNELS = 64;

struct Layout {
  uint8_t element;  // bytes
  uint32_t channels;
  uint64_t outer, inner;
  uint64_t count() const { return outer * channels * inner; }
};

class Packed {
 public:
  Packed(std::shared_ptr<char[]> memory, size_t begin, size_t size) : memory_(std::move(memory)), begin_(begin), size_(size) {}
  const char* data() const { return memory_.get() + begin_; }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<char[]> memory_;
  size_t begin_, size_;
};

// Nothing where a channel has more values.
std::optional<Packed> pack(const char* data, const Layout& layout);

// What was packed, looked through: throws WireError where it cannot be `bytes` bytes.
class Unpacking {
 public:
  Unpacking(const char* packed, size_t packed_bytes, uint64_t bytes);
  // Elements from that one on, into memory of so many. Safe for every index: a table has 256 places, those not told are 0.
  void get(char* to, uint64_t from, uint64_t count) const;
  uint8_t element() const { return layout_.element; }
  const Layout& layout() const { return layout_; }
  const std::vector<uint32_t>& tables() const { return tables_; }  // 256 for each channel
  const uint8_t* indices() const { return indices_; }

 private:
  template <class Element>
  void expand(Element* to, uint64_t from, uint64_t count) const;

  Layout layout_;
  std::vector<uint32_t> tables_;
  const uint8_t* indices_;
};

}  // namespace eat
