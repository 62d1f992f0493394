// Which operator gets which kernel: see register.h.
#include "register.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include <memory>
#include <set>
#include <vector>

#include "client/tensors/ahead.h"
#include "client/kernels/attention.h"
#include "client/operators/call.h"
#include "client/kernels/composed.h"
#include "client/tensors/copies.h"
#include "guard.h"
#include "hooks.h"
#include "client/kernels/lists.h"
#include "client/tensors/memory.h"
#include "client/kernels/recurrent.h"
#include "client/kernels/views.h"

namespace eat {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

int count = 0;

// Kernels of their own in views.cc and below, or what must stay as torch has it.
const std::set<std::string>& own() {
  static const std::set<std::string> names{
      "empty.memory_format", "empty_strided", "as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "resize_",
      "set_.source_Storage_storage_offset", "set_.source_Tensor", "set_.source_Storage", "set_", "is_set_to", "copy_", "_copy_from",
      "_local_scalar_dense", "_foreach_copy_", "_foreach_addcdiv.Tensor", "_foreach_addcdiv_.Tensor", "_foreach_addcmul.Tensor",
      "_foreach_addcmul_.Tensor", "is_pinned", "_pin_memory", "record_stream", "_fused_sdp_choice", "_efficientzerotensor", "_to_copy"};
  return names;
}

// Composites that stay whole, for the server to choose how: without this they would be taken apart here, some of them into tables
// of kernels that only a library with CUDA fills (mode), others into several messages (zeros, clone).
bool whole(const std::string& full) {
  static const std::set<std::string> names{
      "mode.values", "convolution", "convolution_backward", "convolution_overrideable", "native_layer_norm", "native_group_norm",
      "native_layer_norm_backward", "native_group_norm_backward", "clone", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like",
      "arange", "arange.start", "arange.start_step", "linspace", "eye", "eye.m", "embedding", "stack", "repeat", "constant_pad_nd",
      "isinf", "logical_not", "logical_and", "logical_or", "logical_xor", "binary_cross_entropy_with_logits", "masked_fill.Scalar", "masked_fill.Tensor", "logsumexp", "count_nonzero", "slice_backward",
      "select_backward"};
  return names.count(full) > 0 || full.rfind("_foreach_", 0) == 0;
}

const char* const SPARSE = "sparse tensors";

// Tensors of a kind that is not carried are refused where they would be made.
const char* refused_kind(const std::string& plain) {
  for (const char* begin : {"to_sparse", "_to_sparse", "_sparse_compressed_tensor", "sparse_compressed_tensor", "_sparse_csr_tensor", "sparse_csr_tensor"}) {
    if (plain.rfind(begin, 0) == 0) return SPARSE;
  }
  for (const char* begin : {"quantize_per_", "_empty_affine_quantized", "_empty_per_channel_affine_quantized"}) {
    if (plain.rfind(begin, 0) == 0) return "quantised tensors";
  }
  for (const char* begin : {"_nested_tensor_from", "_nested_from_padded", "_nested_view_from_buffer"}) {
    if (plain.rfind(begin, 0) == 0) return "nested tensors";
  }
  return plain == "to_mkldnn" ? "tensors of oneDNN" : nullptr;
}

class Refusal final : public c10::OperatorKernel {
 public:
  explicit Refusal(const char* kind) : kind_(kind) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, std::vector<c10::IValue>*) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "not on a leased GPU: ", kind_, " (", op.schema().name().substr(6),
                                "); keep this tensor on the CPU or make it dense, or run the program beside the GPU (toolkit run --where server)");
  }

 private:
  const char* kind_;
};

bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

// Whether a library of the GPU (cuDNN, MIOpen) computes this CTC loss: one that a processor does not have.
class LibraryQuestion final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, std::vector<c10::IValue>* stack) {
    size_t base = stack->size() - op.schema().arguments().size();
    if (!device((*stack)[base].toTensor().device().index()).processor) return call_remote(op, stack);
    stack->resize(base);
    stack->push_back(false);
  }
};

bool is_library_question(const std::string& plain) { return plain == "_use_cudnn_ctc_loss" || plain == "_use_miopen_ctc_loss"; }

bool is_pinned_tensor(const at::Tensor&, std::optional<at::Device>) { return false; }
void record_stream(at::Tensor&, c10::Stream) {}

// A tensor of zeros without memory. A wheel with CUDA has a kernel of its own, which would ask the driver of this machine.
at::Tensor efficientzerotensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                               std::optional<at::Device> where, std::optional<bool>) {
  at::Device on(at::kCUDA, where && where->has_index() ? where->index() : static_cast<c10::DeviceIndex>(current_device()));
  at::native::ZeroTensorAllocator none(on);
  return at::detail::empty_generic(size, &none, DispatchKeySet(DispatchKey::CUDA) | DispatchKeySet(DispatchKey::ZeroTensor),
                                   dtype.value_or(at::get_default_dtype_as_scalartype()), std::nullopt);
}

std::vector<std::unique_ptr<torch::Library>>& libraries() {
  static auto* kept = new std::vector<std::unique_ptr<torch::Library>>;  // unregistering at exit would call into a torch that is gone
  return *kept;
}

torch::Library& library(const char* of, DispatchKey key) {
  libraries().push_back(std::make_unique<torch::Library>(torch::Library::IMPL, of, key, __FILE__, __LINE__));
  return *libraries().back();
}

// In a wheel with CUDA each kernel of ours takes the place of one, as one of torch.func's does everywhere, which torch would warn of.
class Silent final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void register_operators() {
  torch::Library& aten = library("aten", DispatchKey::CUDA);
  register_views(aten);
  register_lists(aten);
  aten.impl("copy_", &copy_);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_local_scalar_dense", &item);
  aten.impl("is_pinned", &is_pinned_tensor);
  aten.impl("record_stream", &record_stream);
  aten.impl("_efficientzerotensor", &efficientzerotensor);
  torch::Library &sparse_rows = library("aten", DispatchKey::SparseCsrCUDA), &sparse_points = library("aten", DispatchKey::SparseCUDA);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    std::string plain = name.name.substr(6), full = plain + (name.overload_name.empty() ? "" : "." + name.overload_name);
    auto op = dispatcher.findSchema(name);
    if (!op || own().count(full) || own().count(plain)) continue;
    if (is_library_question(plain)) {
      aten.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<LibraryQuestion>()));
      continue;
    }
    bool kernel = op->hasKernelForDispatchKey(DispatchKey::CPU) || op->hasKernelForDispatchKey(DispatchKey::CUDA);
    bool of_torch = is_view(op->schema()) && !op->hasKernelForDispatchKey(DispatchKey::CUDA);  // a wheel with CUDA has some of its own
    if (const char* kind = refused_kind(plain); kind && !of_torch) {  // also where torch would take it apart
      aten.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Refusal>(kind)));
      // torch's own functions for all devices make some of them (a copy of one on the processor, say), and stand before a fallback.
      for (torch::Library* sparse : {&sparse_rows, &sparse_points}) {
        if (kind == SPARSE) sparse->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Refusal>(kind)));
      }
      continue;
    }
    if (is_view(op->schema()) || (!kernel && !whole(full))) continue;
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
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  register_guard();
  register_hooks();
  register_allocator();
  register_operators();
  library("aten", DispatchKey::CPU).impl("_pin_memory", &pin_memory);
  register_attention(library("aten", DispatchKey::AutogradCUDA), library("aten", DispatchKey::CUDA));
  register_recurrent(library("aten", DispatchKey::AutocastCUDA), library("aten", DispatchKey::AutogradCUDA), library("aten", DispatchKey::CUDA));
  register_composed(library("aten", DispatchKey::FuncTorchDynamicLayerFrontMode), library("aten", DispatchKey::AutogradCUDA),
                    library("aten", DispatchKey::CUDA));
}

int registered() { return count; }

std::string foreign() {
  std::string lines;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;  // c10d and fsdp have kernels of their own for CUDA, in Python or above ours
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
