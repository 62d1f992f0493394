// Rules of sizes: see rules.h.
#include "rules.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/result_type_native.h>

#include <unordered_map>

#include "client/tensors/memory.h"

namespace eat {

namespace {

using at::Tensor;
using c10::IValue;
using Sizes = std::vector<int64_t>;
using Found = std::optional<Results>;
using Rule = Found (*)(const IValue* arguments);

Belief belief(Sizes sizes, at::ScalarType dtype) {
  Belief made;
  made.defined = true;
  made.dtype = static_cast<uint8_t>(dtype);
  made.strides = at::detail::defaultStrides(sizes);
  made.bytes = static_cast<int64_t>(at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype)));
  made.sizes = std::move(sizes);
  return made;
}

Found one(Sizes sizes, at::ScalarType dtype) {
  Results made;
  made.outputs.push_back(belief(std::move(sizes), dtype));
  made.counts = {1};
  return made;
}

// A tensor of ours in order of rows; or, with `scalars`, one without dimensions on the CPU.
bool plain(const IValue& value, bool scalars = false) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const Tensor& tensor = value.toTensor();
  if (!tensor.device().is_cuda()) return scalars && tensor.dim() == 0;
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

bool floats(const Tensor& tensor) { return at::isFloatingType(tensor.scalar_type()); }

Found same(const IValue* arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (!plain(arguments[0]) || !floats(self)) return {};
  return one(self.sizes().vec(), self.scalar_type());
}

std::optional<Sizes> broadcast(at::IntArrayRef a, at::IntArrayRef b) {
  size_t dimensions = std::max(a.size(), b.size());
  Sizes sizes(dimensions);
  for (size_t i = 1; i <= dimensions; i++) {
    int64_t left = i <= a.size() ? a[a.size() - i] : 1, right = i <= b.size() ? b[b.size() - i] : 1;
    if (left != right && left != 1 && right != 1) return {};
    sizes[dimensions - i] = left == 1 ? right : left;
  }
  return sizes;
}

Found pointwise(const IValue* arguments, bool compares) {
  if (!plain(arguments[0], true) || !plain(arguments[1], true)) return {};
  const Tensor &a = arguments[0].toTensor(), &b = arguments[1].toTensor();
  auto sizes = broadcast(a.sizes(), b.sizes());
  auto dtype = at::native::result_type(a, b);
  if (!sizes || (!compares && !at::isFloatingType(dtype))) return {};
  return one(std::move(*sizes), compares ? at::kBool : dtype);
}
Found arithmetic(const IValue* arguments) { return pointwise(arguments, false); }
Found compare(const IValue* arguments) { return pointwise(arguments, true); }

Found compare_number(const IValue* arguments) {
  if (!plain(arguments[0])) return {};
  return one(arguments[0].toTensor().sizes().vec(), at::kBool);
}

// sum.dim_IntList, mean.dim
Found reduce(const IValue* arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (!plain(arguments[0]) || !floats(self) || !arguments[1].isList() || !arguments[3].isNone() || self.dim() == 0) return {};
  auto dims = arguments[1].toListRef();
  std::vector<bool> gone(static_cast<size_t>(self.dim()), dims.empty());
  for (const IValue& value : dims) {
    int64_t dim = value.toInt() < 0 ? value.toInt() + self.dim() : value.toInt();
    if (dim < 0 || dim >= self.dim() || gone[static_cast<size_t>(dim)]) return {};
    gone[static_cast<size_t>(dim)] = true;
  }
  Sizes sizes;
  for (int64_t i = 0; i < self.dim(); i++) {
    if (!gone[static_cast<size_t>(i)]) sizes.push_back(self.size(i));
    else if (arguments[2].toBool()) sizes.push_back(1);
  }
  return one(std::move(sizes), self.scalar_type());
}

bool matrices(const Tensor& a, const Tensor& b, int64_t dimensions) {
  return is_remote(a) && is_remote(b) && a.dim() == dimensions && b.dim() == dimensions && a.scalar_type() == b.scalar_type() && floats(a) &&
         a.size(dimensions - 1) == b.size(dimensions - 2);
}

Found mm(const IValue* arguments) {
  const Tensor &a = arguments[0].toTensor(), &b = arguments[1].toTensor();
  if (!matrices(a, b, 2)) return {};
  return one({a.size(0), b.size(1)}, a.scalar_type());
}

Found bmm(const IValue* arguments) {
  const Tensor &a = arguments[0].toTensor(), &b = arguments[1].toTensor();
  if (!matrices(a, b, 3) || a.size(0) != b.size(0)) return {};
  return one({a.size(0), a.size(1), b.size(2)}, a.scalar_type());
}

Found addmm(const IValue* arguments) {
  const Tensor &bias = arguments[0].toTensor(), &a = arguments[1].toTensor(), &b = arguments[2].toTensor();
  if (!matrices(a, b, 2) || !is_remote(bias) || bias.scalar_type() != a.scalar_type()) return {};
  Sizes sizes{a.size(0), b.size(1)};
  auto all = broadcast(bias.sizes(), sizes);
  if (!all || *all != sizes) return {};
  return one(std::move(sizes), a.scalar_type());
}

Found softmax(const IValue* arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (!plain(arguments[0]) || !floats(self) || arguments[2].toBool()) return {};
  int64_t dim = arguments[1].toInt(), most = std::max<int64_t>(self.dim(), 1);
  if (dim < -most || dim >= most) return {};
  return one(self.sizes().vec(), self.scalar_type());
}

Found cat(const IValue* arguments) {
  auto tensors = arguments[0].toListRef();
  if (tensors.empty() || !plain(tensors[0])) return {};
  const Tensor& first = tensors[0].toTensor();
  int64_t dim = arguments[1].toInt(), dimensions = first.dim();
  if (dim < -dimensions || dim >= dimensions) return {};
  if (dim < 0) dim += dimensions;
  Sizes sizes = first.sizes().vec();
  sizes[static_cast<size_t>(dim)] = 0;
  for (const IValue& value : tensors) {
    if (!plain(value)) return {};
    const Tensor& tensor = value.toTensor();
    if (tensor.dim() != dimensions || tensor.scalar_type() != first.scalar_type()) return {};
    for (int64_t i = 0; i < dimensions; i++) {
      if (i == dim) sizes[static_cast<size_t>(i)] += tensor.size(i);
      else if (tensor.size(i) != first.size(i)) return {};
    }
  }
  return one(std::move(sizes), first.scalar_type());
}

// One index of integers, for any dimension.
Found index(const IValue* arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (!plain(arguments[0])) return {};
  auto indices = arguments[1].toListRef();
  if (static_cast<int64_t>(indices.size()) > self.dim()) return {};
  Sizes sizes;
  int found = 0;
  for (int64_t i = 0; i < self.dim(); i++) {
    const IValue none, &value = i < static_cast<int64_t>(indices.size()) ? indices[static_cast<size_t>(i)] : none;
    if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) {
      sizes.push_back(self.size(i));
      continue;
    }
    const Tensor& one = value.toTensor();
    if (++found > 1 || !plain(value) || one.scalar_type() != at::kLong || self.size(i) == 0) return {};
    sizes.insert(sizes.end(), one.sizes().begin(), one.sizes().end());
  }
  if (!found) return {};
  // With the index behind other dimensions its results are laid out first: only the first dimension is sure.
  const IValue& first = indices[0];
  if (!first.isTensor() || !first.toTensor().defined()) return {};
  return one(std::move(sizes), self.scalar_type());
}

Found embedding(const IValue* arguments) {
  const Tensor &weight = arguments[0].toTensor(), &indices = arguments[1].toTensor();
  if (!plain(arguments[0]) || !plain(arguments[1]) || weight.dim() != 2 || indices.scalar_type() != at::kLong) return {};
  Sizes sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return one(std::move(sizes), weight.scalar_type());
}

Found masked_fill(const IValue* arguments) {
  const Tensor &self = arguments[0].toTensor(), &mask = arguments[1].toTensor();
  if (!plain(arguments[0]) || !plain(arguments[1]) || mask.scalar_type() != at::kBool || !floats(self)) return {};
  auto sizes = broadcast(self.sizes(), mask.sizes());
  if (!sizes || *sizes != self.sizes()) return {};
  return one(std::move(*sizes), self.scalar_type());
}

Found where(const IValue* arguments) {
  if (!plain(arguments[0]) || !plain(arguments[1]) || !plain(arguments[2])) return {};
  const Tensor &condition = arguments[0].toTensor(), &a = arguments[1].toTensor(), &b = arguments[2].toTensor();
  if (condition.scalar_type() != at::kBool || a.scalar_type() != b.scalar_type()) return {};
  auto sizes = broadcast(a.sizes(), b.sizes());
  if (sizes) sizes = broadcast(*sizes, condition.sizes());
  if (!sizes) return {};
  return one(std::move(*sizes), a.scalar_type());
}

// native_layer_norm of one dtype that is its own accumulating one
Found layer_norm(const IValue* arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (!plain(arguments[0]) || (self.scalar_type() != at::kFloat && self.scalar_type() != at::kDouble)) return {};
  auto shape = arguments[1].toListRef();
  auto normal = static_cast<int64_t>(shape.size()), lead = self.dim() - normal;
  if (normal < 1 || lead < 0) return {};
  for (int64_t i = 0; i < normal; i++) {
    if (!shape[static_cast<size_t>(i)].isInt() || shape[static_cast<size_t>(i)].toInt() != self.size(lead + i)) return {};
  }
  for (int k : {2, 3}) {
    if (!arguments[k].isTensor() || !arguments[k].toTensor().defined()) continue;
    const Tensor& factor = arguments[k].toTensor();
    if (!plain(arguments[k]) || factor.scalar_type() != self.scalar_type() || factor.sizes() != self.sizes().slice(static_cast<size_t>(lead))) return {};
  }
  Sizes kept = self.sizes().vec();
  for (size_t i = static_cast<size_t>(lead); i < kept.size(); i++) kept[i] = 1;
  Results made;
  made.outputs = {belief(self.sizes().vec(), self.scalar_type()), belief(kept, self.scalar_type()), belief(kept, self.scalar_type())};
  made.counts = {1, 1, 1};
  return made;
}

const std::unordered_map<std::string, Rule>& rules() {
  static const std::unordered_map<std::string, Rule> all{
      {"aten::gelu.", &same}, {"aten::relu.", &same}, {"aten::silu.", &same}, {"aten::tanh.", &same}, {"aten::sigmoid.", &same},
      {"aten::exp.", &same}, {"aten::rsqrt.", &same}, {"aten::neg.", &same}, {"aten::cos.", &same}, {"aten::sin.", &same},
      {"aten::pow.Tensor_Scalar", &same}, {"aten::add.Tensor", &arithmetic}, {"aten::sub.Tensor", &arithmetic},
      {"aten::mul.Tensor", &arithmetic}, {"aten::div.Tensor", &arithmetic}, {"aten::eq.Tensor", &compare}, {"aten::lt.Tensor", &compare},
      {"aten::gt.Tensor", &compare}, {"aten::eq.Scalar", &compare_number},
      {"aten::ne.Scalar", &compare_number}, {"aten::lt.Scalar", &compare_number}, {"aten::gt.Scalar", &compare_number},
      {"aten::sum.dim_IntList", &reduce}, {"aten::mean.dim", &reduce}, {"aten::le.Tensor", &compare}, {"aten::ge.Tensor", &compare}, {"aten::mm.", &mm}, {"aten::bmm.", &bmm},
      {"aten::addmm.", &addmm}, {"aten::_softmax.", &softmax}, {"aten::_log_softmax.", &softmax}, {"aten::cat.", &cat},
      {"aten::index.Tensor", &index}, {"aten::embedding.", &embedding}, {"aten::masked_fill.Scalar", &masked_fill},
      {"aten::where.self", &where}, {"aten::native_layer_norm.", &layer_norm}};
  return all;
}

}  // namespace

Found by_rule(const OperatorInfo& info, const IValue* arguments) {
  if (info.has_written) return {};
  auto found = rules().find(info.name + "." + info.overload);
  if (found == rules().end()) return {};
  Found made = found->second(arguments);
  if (made) {
    for (const Belief& belief : made->outputs) made->bytes += belief.bytes;
  }
  return made;
}

}  // namespace eat
