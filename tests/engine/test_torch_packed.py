"""Floats as bytes with tables (engine torch): every bit of each float is looked at, in whole groups and behind."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from toolkit.engine.torch_build import TORCH

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
PROGRAM = r"""
#include "shared/look_up.h"
#include "shared/packed.h"
#include <cstdio>
#include <cstdlib>
#include <random>
using namespace eat;
std::mt19937 draw(7);
long packed_ones = 0, refused_ones = 0;

template <class Element>
bool comes_back(const std::vector<Element>& data, const Layout& layout, bool has_form) {
  auto packed = pack(reinterpret_cast<const char*>(data.data()), layout);
  if (bool(packed) != has_form) return false;
  (packed ? packed_ones : refused_ones)++;
  if (!packed) return true;
  Unpacking unpacking(packed->data(), packed->size(), data.size() * sizeof(Element));
  for (size_t from : {size_t(0), data.size() / 3}) {  // whole, and from within
    std::vector<Element> back(data.size() - from);
    unpacking.get(reinterpret_cast<char*>(back.data()), from, back.size());
    if (memcmp(back.data(), data.data() + from, back.size() * sizeof(Element))) return false;
  }
  return true;
}

template <class Element>
void layouts(uint64_t outer, uint32_t channels, uint64_t inner) {
  Layout layout{sizeof(Element), channels, outer, inner};
  auto fail = [&](const char* what, size_t at) {
    printf("%s: %zu bytes, %lu x %u x %lu, at %zu\n", what, sizeof(Element), outer, channels, inner, at);
    exit(1);
  };
  std::vector<std::vector<Element>> palettes(channels);
  for (auto& palette : palettes) {  // 256 values, one after the other
    auto base = static_cast<Element>(draw());
    for (int i = 0; i < 256; i++) palette.push_back(static_cast<Element>(base + i));
  }
  std::vector<Element> data(layout.count());
  auto channel_of = [&](size_t at) { return at / inner % channels; };
  for (size_t i = 0; i < data.size(); i++) data[i] = palettes[channel_of(i)][draw() % 256];
  if (!comes_back(data, layout, true)) fail("values of the palette", 0);
  // One bit of one float: refused where the channel has all values of its palette beside it, else one more value.
  std::vector<std::vector<bool>> seen(channels, std::vector<bool>(256));
  auto distance_of = [&](size_t i) { return static_cast<Element>(data[i] - palettes[channel_of(i)][0]); };
  for (size_t i = 0; i < data.size(); i++) seen[channel_of(i)][distance_of(i)] = true;
  std::vector<size_t> places;
  for (size_t i = 0; i < std::min<size_t>(data.size(), 36); i++) {
    places.push_back(i), places.push_back(data.size() - 1 - i);
  }
  for (int i = 0; i < 10; i++) places.push_back(draw() % data.size());
  for (size_t at : places) {
    Element kept = data[at];
    size_t channel = channel_of(at), count = 0;
    data[at] ^= static_cast<Element>(Element(1) << (9 + draw() % (8 * sizeof(Element) - 9)));  // not of this palette
    for (size_t i = 0; i < data.size() && count <= 256; i++) {  // what is left of the channel without it
      if (channel_of(i) != channel || distance_of(i) >= 256 || !seen[channel][distance_of(i)]) continue;
      seen[channel][distance_of(i)] = false;
      count++;
    }
    for (size_t i = 0; i < data.size(); i++) {
      if (channel_of(i) == channel && distance_of(i) < 256) seen[channel][distance_of(i)] = true;
    }
    if (!comes_back(data, layout, count < 256)) fail("another bit", at);
    data[at] = kept;
  }
}

// Floats that differ from a value by one bit of their product: each of its 32 bits decides.
void near_ones() {
  std::vector<uint32_t> values;
  for (uint32_t i = 0; i < 256; i++) values.push_back(0x3e800000u + i * 0x1234u);
  Places table;
  uint32_t factor = 1, inverse = 1;
  while (!table.fill(values, factor = draw() | 1)) {}
  for (int i = 0; i < 5; i++) inverse *= 2 - factor * inverse;
  for (uint64_t stride : {1, 2}) {
    for (size_t at = 0; at < 75; at++) {
      std::vector<uint32_t> data(75 * stride);
      std::vector<uint8_t> to(data.size());
      for (size_t i = 0; i < 75; i++) data[i * stride] = values[(i * 7 + at) % 256];
      bool right = all_known(table, data.data(), 75, stride, to.data());
      for (size_t i = 0; i < 75; i++) right = right && to[i * stride] == (i * 7 + at) % 256;
      uint32_t product = data[at * stride] * factor;
      for (int bit = 0; bit < 32; bit++) {
        data[at * stride] = (product ^ uint32_t(1) << bit) * inverse;
        right = right && !all_known(table, data.data(), 75, stride, to.data());
      }
      if (!right) printf("near ones, stride %lu, at %zu\n", stride, at), exit(1);
    }
  }
}

int main() {
  near_ones();
  for (uint64_t inner : {1, 2, 31, 32, 33, 63, 64, 95, 100, 1000, 4095, 4096, 4097, 4130}) {
    layouts<uint32_t>(1, 1, inner);
    layouts<uint16_t>(1, 1, inner);
    layouts<uint32_t>(2, 3, inner);
    layouts<uint16_t>(3, 2, inner);
  }
  for (uint64_t outer : {1, 2, 33, 4095, 4097}) {  // channels last
    layouts<uint32_t>(outer, 3, 1);
    layouts<uint16_t>(outer, 4, 1);
  }
  printf("%ld %ld\n", packed_ones, refused_ones);
}
"""


def test_each_bit_counts_wherever_it_stands(tmp_path: Path) -> None:
    """Of 4 and 2 bytes, channels first, last and none, every length around whole groups and runs; one bit at a time."""
    (tmp_path / "packed.cc").write_text(PROGRAM)
    made = tmp_path / "packed"
    flags = ["-std=c++20", "-O1", "-g1", "-Wall", "-Werror"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = [str(tmp_path / "packed.cc"), str(TORCH / "shared/packed.cc"), str(TORCH / "shared/again.cc")]
    subprocess.run(["g++", *flags, f"-I{TORCH}", *sources, "-o", str(made)], check=True)
    ran = subprocess.run([str(made)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
    packed, refused = (int(number) for number in ran.stdout.split())
    assert packed > 1000  # both happened
    assert refused > 200
