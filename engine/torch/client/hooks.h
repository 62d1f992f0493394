// What torch's libraries for processors ask about CUDA.
#pragma once

namespace eat {

// Puts ours in the place of torch's empty hooks, and a timer for DDP.
void register_hooks();

}  // namespace eat
