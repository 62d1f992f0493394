// scaled_dot_product_attention: which kernel computes it is the server's choice.
#pragma once

namespace torch {
class Library;
}

namespace eat {

void register_attention(torch::Library& autograd, torch::Library& plain);

}  // namespace eat
