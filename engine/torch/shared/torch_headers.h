// What most sources include of PyTorch: read once for all of them when the engine is built. Each source includes what it
// uses by itself, too.
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
