// Recurrent networks where the server computes on processors: torch's own functions take fused cells for tensors on CUDA, which add
// the biases behind the products, and not the steps of a processor's. These take the steps of a processor, so that results and
// gradients have the bits of a native run there.
#pragma once

namespace torch {
class Library;
}

namespace eat {

void register_cells(torch::Library& library);

}  // namespace eat
