// Which of at most 256 values a float is, by its bits: a table of places, and many floats looked up in it. No header of torch here.
#pragma once

#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace eat {

constexpr int PLACE_BITS = 13;  // 8,192 places for 256 values
constexpr uint32_t REST = (uint32_t(1) << (32 - PLACE_BITS)) - 1;

// Bits times an odd factor: the first 13 bits of that are a value's place, where the other 19 and its index stand. No two
// floats have the same product, so that the two together are every bit of it.
class Places {
 public:
  // False where two values would have one place; the table is of no use then.
  bool fill(const std::vector<uint32_t>& values, uint32_t odd_factor) {
    factor = odd_factor;
    places.assign(size_t(1) << PLACE_BITS, NOBODY);
    for (size_t i = 0; i < values.size(); i++) {
      uint32_t product = values[i] * factor, &place = places[product >> (32 - PLACE_BITS)];
      if (place != NOBODY) return false;
      place = (product & REST) << 8 | static_cast<uint32_t>(i);
    }
    return true;
  }

  std::vector<uint32_t> places;
  uint32_t factor = 1;

 private:
  static constexpr uint32_t NOBODY = ~uint32_t(0);  // no product has such a rest
};

#if defined(__x86_64__)
// 8 floats: their places, with what differs from a value's bits.
__attribute__((target("avx2"))) inline __m256i look_up_8(const int* places, __m256i bits, __m256i factor, __m256i& differs) {
  __m256i product = _mm256_mullo_epi32(bits, factor);
  __m256i place = _mm256_i32gather_epi32(places, _mm256_srli_epi32(product, 32 - PLACE_BITS), 4);
  __m256i rest = _mm256_and_si256(product, _mm256_set1_epi32(static_cast<int>(REST)));
  differs = _mm256_or_si256(differs, _mm256_xor_si256(_mm256_srli_epi32(place, 8), rest));
  return _mm256_and_si256(place, _mm256_set1_epi32(255));
}

__attribute__((target("avx2"))) inline __m256i load_8(const uint32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
__attribute__((target("avx2"))) inline __m256i load_8(const uint16_t* from) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// As many of the floats as there are whole groups of 32; gives how many, and 0 where one of them is no value.
template <class Element>
__attribute__((target("avx2"))) uint64_t look_up_groups(const Places& table, const Element* from, uint64_t count, uint8_t* to) {
  auto* places = reinterpret_cast<const int*>(table.places.data());
  __m256i factor = _mm256_set1_epi32(static_cast<int>(table.factor)), differs = _mm256_setzero_si256();
  const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing takes the halves of a register apart
  uint64_t done = 0;
  for (; done + 32 <= count; done += 32) {
    __m256i a = look_up_8(places, load_8(from + done), factor, differs), b = look_up_8(places, load_8(from + done + 8), factor, differs);
    __m256i c = look_up_8(places, load_8(from + done + 16), factor, differs), d = look_up_8(places, load_8(from + done + 24), factor, differs);
    __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + done), _mm256_permutevar8x32_epi32(bytes, in_order));
  }
  return _mm256_testz_si256(differs, differs) ? done : 0;
}
#endif

// Indices of so many floats, `stride` apart, by a table that was filled. Without a branch for each; false where one is no value.
template <class Element>
bool all_known(const Places& table, const Element* from, uint64_t count, uint64_t stride, uint8_t* to) {
  uint64_t begin = 0;
#if defined(__x86_64__)
  if (stride == 1 && count >= 32 && __builtin_cpu_supports("avx2")) {
    begin = look_up_groups(table, from, count, to);
    if (!begin) return false;
  }
#endif
  const uint32_t* places = table.places.data();
  const uint32_t factor = table.factor;
  uint32_t differs = 0;
  for (uint64_t i = begin * stride; i < count * stride; i += stride) {
    uint32_t product = from[i] * factor, place = places[product >> (32 - PLACE_BITS)];
    to[i] = static_cast<uint8_t>(place);
    differs |= (place >> 8) ^ (product & REST);
  }
  return !differs;
}

}  // namespace eat
