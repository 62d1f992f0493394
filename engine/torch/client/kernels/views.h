// Geometry that changes here: views never leave the client.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch {
class Library;
}

namespace eat {

// The tensor gets sizes and strides; its storage grows to `bytes` where it is smaller (the server is told).
void set_geometry(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t bytes);
// The same after the server has done it.
void adopt_geometry(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t bytes);

// The kernels that make tensors and views.
void register_views(torch::Library& library);

}  // namespace eat
