// How often this thread put something in a queue, or asked: who takes down a graph knows by it that nothing went past. No header of torch.
#pragma once

#include <cstdint>

namespace eat {

extern thread_local int64_t sent_messages;

}  // namespace eat
