// Operators on lists of tensors (`_foreach_...`) that take something of this machine's processor.
#pragma once

namespace torch {
class Library;
}

namespace eat {

void register_lists(torch::Library& library);

}  // namespace eat
