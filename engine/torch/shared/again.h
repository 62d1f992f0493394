// Memory that comes again: a batch is as large as the one before, and fresh pages cost more than the copy into them.
#pragma once

#include <cstddef>
#include <memory>

namespace eat {

// So many bytes, which hold whatever they held; none: there is no memory. It is kept for the next one when the last holder lets go.
// Any thread; a child of fork has memory of its own.
std::shared_ptr<char[]> memory_again(size_t count);

// What is kept for the next one is given back to the machine.
void drop_memory_again();

}  // namespace eat
