// Whole graphs: calls that a client has told once and runs by one message.
#pragma once

#include "session.h"

namespace eat {

struct Graph {
  struct Of {
    Step kind;
    uint32_t signature = 0;             // place in `signatures`
    uint32_t numbers = 0, slots = 0, outputs = 0;  // place in `numbers`, of the slots, behind them the outputs; or the register
    uint32_t data = 0, bytes = 0;       // place in `payload`, or in `constants`
    uint64_t size = 0;                  // ALLOC: bytes; UP: offset
  };
  struct Patch {
    uint32_t at;
    uint16_t bytes;
  };
  uint32_t registers = 0, inputs = 0;
  std::vector<uint32_t> outputs;
  std::vector<Patch> patches;
  std::vector<Of> steps;
  std::vector<SignaturePtr> signatures;
  std::vector<uint32_t> numbers;
  std::string payload, constants;
  size_t counted = 0;
};
static_assert(sizeof(Graph::Of) <= STEP_BYTES, "what a step takes is what the limit counts");

}  // namespace eat
