// Which operator gets which kernel: see register.h.
#include "register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <set>
#include <vector>

#include "call.h"
#include "copies.h"
#include "guard.h"
#include "hooks.h"
#include "memory.h"
#include "views.h"

namespace eat {

namespace {

using c10::DispatchKey;

int count = 0;

// Kernels of their own in views.cc and below, or what must stay as torch has it.
const std::set<std::string>& own() {
  static const std::set<std::string> names{
      "empty.memory_format", "empty_strided", "as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "resize_",
      "set_.source_Storage_storage_offset", "set_.source_Tensor", "set_.source_Storage", "set_", "is_set_to", "copy_", "_copy_from",
      "_local_scalar_dense", "is_pinned", "_pin_memory", "record_stream", "_fused_sdp_choice", "_efficientzerotensor",
      "_nested_tensor_from_mask", "to_sparse", "_to_copy", "_to_sparse"};
  return names;
}

// Composites that stay whole, for the server to choose how: without this they would be taken apart here.
bool whole(const std::string& name) {
  static const std::set<std::string> names{"convolution", "convolution_backward", "convolution_overrideable", "native_layer_norm",
                                           "native_group_norm", "native_layer_norm_backward", "native_group_norm_backward"};
  return names.count(name) > 0 || name.rfind("_foreach_", 0) == 0;
}

bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

bool is_pinned_tensor(const at::Tensor&, std::optional<at::Device>) { return false; }
void record_stream(at::Tensor&, c10::Stream) {}

std::vector<std::unique_ptr<torch::Library>>& libraries() {
  static auto* kept = new std::vector<std::unique_ptr<torch::Library>>;  // unregistering at exit would call into a torch that is gone
  return *kept;
}

torch::Library& library(const char* of, DispatchKey key) {
  libraries().push_back(std::make_unique<torch::Library>(torch::Library::IMPL, of, key, __FILE__, __LINE__));
  return *libraries().back();
}

void register_operators() {
  torch::Library& aten = library("aten", DispatchKey::CUDA);
  register_views(aten);
  aten.impl("copy_", &copy_);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_local_scalar_dense", &item);
  aten.impl("is_pinned", &is_pinned_tensor);
  aten.impl("record_stream", &record_stream);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    std::string plain = name.name.substr(6), full = plain + (name.overload_name.empty() ? "" : "." + name.overload_name);
    auto op = dispatcher.findSchema(name);
    if (!op || own().count(full) || own().count(plain) || is_view(op->schema())) continue;
    if (!op->hasKernelForDispatchKey(DispatchKey::CPU) && !op->hasKernelForDispatchKey(DispatchKey::CUDA) && !whole(plain)) continue;
    aten.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RemoteKernel>(*op)));
    count++;
  }
  library("_", DispatchKey::CUDA).fallback(torch::CppFunction::makeFromBoxedFunction<&call_any>());
}

}  // namespace

void register_all() {
  static bool done = false;
  if (done) return;
  done = true;
  register_guard();
  register_hooks();
  register_allocator();
  register_operators();
}

int registered() { return count; }

std::string foreign() {
  std::string lines;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(DispatchKey::CUDA)) continue;
    // The newest kernel is the first of the list, with the file that registered it.
    std::string all = op->dumpComputedTable(), wanted = "\nCUDA: ";
    size_t at = all.find(wanted);
    if (at == std::string::npos) continue;
    std::string line = all.substr(at + 1, all.find('\n', at + 1) - at - 1);
    if (line.find("client/register.cc") == std::string::npos) lines += name.name + "." + name.overload_name + " " + line + "\n";
  }
  return lines;
}

}  // namespace eat
