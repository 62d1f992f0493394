// What COLLECTIVE says (wire.h): sessions of one lease's servers join in a group and compute and copy together.
//
// Where the others are is told by the lease to each server. A client names them by their positions in that list, and by
// the numbers that their sessions gave.
#pragma once

#include <cstddef>
#include <cstdint>

namespace eat {

// Body of COLLECTIVE: u8 Together, then:
enum class Together : uint8_t {
  MEMBER = 0,  // u32 tag -> ANSWER: JSON, this session as a member: [its server's position, its number]
  JOIN = 1,    // u32 tag, u32 group (never used twice), str JSON {"rank", "members": [[position, number], ...], "name",
               // "timeout_s"} -> ANSWER when all are there
  BEGIN = 2,   // u32 group, u32 work (never 0, never used twice), str name, str operation, i32 root, i32 tag, u32 k, k i64
               // rows of outputs, u32 k, k i64 rows of inputs, u16 n, n outputs, u16 n, n inputs; each: storage, geometry
  WAIT = 3,    // u32 work: what follows comes after it. One that there is not is no error
  LEAVE = 4,   // u32 group
};

// Bounds, as those of wire.h.
constexpr size_t MOST_GROUPS = 256;    // that a session has joined and not left
constexpr size_t MOST_WORKS = 65536;   // begun and not waited for
constexpr size_t MOST_MEMBERS = 128;   // of a group
constexpr size_t MOST_REQUEST = 65536; // bytes of JOIN's JSON

}  // namespace eat
