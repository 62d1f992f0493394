// Arguments to bytes: see encode.h.
#include "encode.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>

#include <cstdlib>

#include "client/tensors/copies.h"
#include "client/kernels/random.h"
#include "record.h"
#include "values.h"

namespace eat {

namespace {

thread_local std::vector<std::unique_ptr<Encoder>> encoders;
thread_local size_t borrowed = 0;
constexpr int64_t MOST_MODES = 64;  // an integer beyond that is an amount

[[noreturn]] void two_devices(const at::Device& one, const at::Device& other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ", other, "!");
}

// In which order the elements lie, as far as kernels choose the layout of their results by it.
char layout(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return 'r';
  if (tensor.is_contiguous(at::MemoryFormat::ChannelsLast) || tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d)) return 'c';
  return tensor.is_non_overlapping_and_dense() ? 'd' : 'o';
}

}  // namespace

bool overlaps_itself(const at::Tensor& tensor) {
  for (int64_t i = 0; i < tensor.dim(); i++) {
    if (tensor.stride(i) == 0 && tensor.size(i) > 1) return true;
  }
  return false;
}

void need_carried(size_t dimensions, const std::string& name) {
  TORCH_CHECK_NOT_IMPLEMENTED(dimensions <= MOST_DIMENSIONS, "not on a leased GPU: ", name, " with a tensor of ", dimensions,
                              " dimensions; up to ", MOST_DIMENSIONS, " are carried");
}

BorrowedEncoder::BorrowedEncoder() {
  if (borrowed == encoders.size()) encoders.push_back(std::make_unique<Encoder>());
  one_ = encoders[borrowed++].get();
}

BorrowedEncoder::~BorrowedEncoder() { borrowed--; }

void Encoder::on(Device& other) {
  if (!device) device = &other;
  else if (device != &other) {
    auto index = [](const Device& one) { return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(one.number)); };
    two_devices(index(*device), index(other));
  }
}

void Encoder::cpu_tensor(const at::Tensor& tensor) {
  bool index = argument_->list == ListOf::OPTIONAL_TENSORS || !info_->is_put || tensor.numel() == 1;
  if (tensor.dim() > 0 && info_->takes_cpu && index) {
    keep_.push_back(upload(tensor, device ? *device : eat::device(-1)));
    return this->tensor(keep_.back());
  }
  if (tensor.dim() > 0 || argument_->written) {
    int number = device ? device->number : current_device();
    two_devices(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(number)), tensor.device());
  }
  at::Tensor plain = tensor.is_conj() || tensor.is_neg() ? tensor.resolve_conj().resolve_neg() : tensor;
  bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  tag(Tag::CPU_SCALAR);
  put(static_cast<uint8_t>(tensor.scalar_type()));
  put<uint8_t>(wrapped);
  kinds += static_cast<char>(tensor.scalar_type());
  kinds += static_cast<char>(wrapped);
  if (info_->numbers == Numbers::DIVISOR || info_->numbers == Numbers::SELECTED) {  // a plain number of Python's
    if (plain.scalar_type() == at::kDouble) numbers_.push_back(*plain.const_data_ptr<double>());
    if (plain.scalar_type() == at::kLong) numbers_.push_back(static_cast<double>(*plain.const_data_ptr<int64_t>()));
  }
  if (recorder) recorder->value(tensor, payload.size());
  payload.append(static_cast<const char*>(plain.const_data_ptr()), plain.element_size());
}

void Encoder::tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return tag(Tag::UNDEFINED);
  if (!tensor.device().is_cuda()) {
    if (tensor.device().is_cpu()) return cpu_tensor(tensor);
    two_devices(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(current_device())), tensor.device());
  }
  if (type_ == at::ScalarType::Undefined || type_ == at::ScalarType::Bool) type_ = tensor.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided && !tensor.is_quantized(), info_->name, ": tensors of layout ", tensor.layout(),
                              tensor.is_quantized() ? " (quantised)" : "",
                              " are not carried to a leased GPU; use dense tensors, or run on the server (toolkit run --where server)");
  auto dimensions = static_cast<size_t>(tensor.dim());
  need_carried(dimensions, info_->name);
  RemoteStorage& storage = remote_storage(tensor);
  on(*storage.device);
  if (argument_->changed) {
    changed_.push_back(&storage);
    if (recorder) recorder->write(storage.number);
  } else if (storage.is_known()) {
    known = true;
    if (checks_known()) known_ones.push_back(&storage);
  }
  size_t slot = 0;
  while (slot < slots.size() && slots[slot] != storage.number) slot++;
  if (slot == slots.size()) slots.push_back(storage.number);
  auto dtype = static_cast<uint8_t>(tensor.scalar_type());
  uint8_t bits = (tensor.is_conj() ? CONJUGATE : 0) | (tensor.is_neg() ? NEGATIVE : 0);
  tag(Tag::TENSOR);
  put(dtype);
  put(static_cast<uint8_t>(dimensions));
  key.append(reinterpret_cast<const char*>(tensor.sizes().data()), dimensions * sizeof(int64_t));
  key.append(reinterpret_cast<const char*>(tensor.strides().data()), dimensions * sizeof(int64_t));
  put<int64_t>(tensor.storage_offset());
  put(static_cast<uint16_t>(slot));
  put(bits);
  kinds += static_cast<char>(dtype);
  kinds += static_cast<char>(dimensions);
  kinds += static_cast<char>(bits);
  kinds += layout(tensor);
  // Kernels refuse some empty tensors where meta kernels do not, by which dimension is empty.
  kinds += static_cast<char>(tensor.numel() == 0);
  for (size_t i = 0; i < dimensions && tensor.numel() == 0; i++) kinds += static_cast<char>(tensor.size(static_cast<int64_t>(i)) == 0);
  // A spread over too few elements is warned of.
  for (size_t i = 0; i < dimensions && info_->is_spread; i++) kinds += static_cast<char>(tensor.size(static_cast<int64_t>(i)) <= 1);
  // Which arguments share memory, and a written one that overlaps itself: kernels check that, and meta kernels do not.
  kinds += static_cast<char>(slot);
  if (argument_->written) kinds += static_cast<char>(overlaps_itself(tensor));
}

void Encoder::scalar(const c10::IValue& value, bool later) {
  if (value.isDouble()) {
    bool in_payload = info_->doubles_later;
    numbers_.push_back(value.toDouble());
    tag(in_payload ? Tag::DOUBLE_LATER : Tag::DOUBLE);
    if (in_payload) pay(value.toDouble());
    else put(value.toDouble());
  } else if (value.isBool()) {
    tag(Tag::BOOL);
    put<int64_t>(value.toBool());
    kinds += static_cast<char>(value.toBool());
  } else if (value.isInt()) {
    if (argument_->number || info_->numbers == Numbers::DRAWN) numbers_.push_back(static_cast<double>(value.toInt()));
    tag(later ? Tag::INT_LATER : Tag::INT);
    if (later) pay<int64_t>(value.toInt());
    else put<int64_t>(value.toInt());
    if (argument_->mode && std::abs(value.toInt()) < MOST_MODES) kinds += static_cast<char>(value.toInt());
  } else if (value.isComplexDouble()) {
    auto number = value.toComplexDouble();
    bool in_payload = info_->doubles_later;
    tag(in_payload ? Tag::COMPLEX_LATER : Tag::COMPLEX);
    imaginary_ |= number.imag() != 0;
    for (double part : {number.real(), number.imag()}) numbers_.push_back(part), in_payload ? pay(part) : put(part);
  } else if (value.isSymInt()) {
    tag(Tag::INT);
    put<int64_t>(value.toSymInt().guard_int(__FILE__, __LINE__));
  } else if (value.isSymFloat()) {
    tag(Tag::DOUBLE);
    put<double>(value.toSymFloat().guard_float(__FILE__, __LINE__));
  } else if (value.isSymBool()) {
    tag(Tag::BOOL);
    put<int64_t>(value.toSymBool().guard_bool(__FILE__, __LINE__));
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, info_->name, ": an argument of kind ", value.tagKind(), " is not carried to a leased GPU");
  }
}

void Encoder::list(const c10::IValue& value) {
  auto elements = value.toListRef();
  auto count = static_cast<uint32_t>(elements.size());
  auto head = [&](Tag kind) {
    tag(kind);
    put(count);
  };
  switch (argument_->list) {
    case ListOf::INTS:
      head(Tag::INTS);
      for (const c10::IValue& one : elements) put<int64_t>(one.isInt() ? one.toInt() : one.toSymInt().guard_int(__FILE__, __LINE__));
      return;
    case ListOf::BOOLS:
      head(Tag::BOOLS);
      for (const c10::IValue& one : elements) put<int64_t>(one.toBool()), kinds += static_cast<char>(one.toBool());
      return;
    case ListOf::DOUBLES:
      head(Tag::DOUBLES);
      for (const c10::IValue& one : elements) put<double>(one.toDouble());
      return;
    case ListOf::TENSORS:
    case ListOf::OPTIONAL_TENSORS:
      head(argument_->list == ListOf::TENSORS ? Tag::TENSORS : Tag::OPTIONAL_TENSORS);
      for (const c10::IValue& one : elements) {
        if (one.isNone()) {
          tag(Tag::NONE);
          continue;
        }
        const at::Tensor& element = one.toTensor();
        if (info_->is_index && element.defined()) mask |= element.scalar_type() == at::kBool || element.scalar_type() == at::kByte;
        tensor(element);
      }
      return;
    default:
      head(Tag::SCALARS);
      for (const c10::IValue& one : elements) scalar(one, info_->ints_later);
  }
}

void Encoder::value(const c10::IValue& value) {
  if (value.isTensor()) return tensor(value.toTensor());
  if (value.isNone()) return tag(Tag::NONE);
  if (argument_->list != ListOf::NOTHING && value.isList()) return list(value);
  if (value.isString()) {
    const std::string& text = value.toStringRef();
    tag(Tag::STRING);
    put(static_cast<uint32_t>(text.size()));
    key += text;
    kinds += text;
  } else if (value.isDevice()) {
    at::Device at = value.toDevice();
    if (at.is_cuda() && !device) on(eat::device(at.index()));
    tag(Tag::DEVICE);
    put(static_cast<int8_t>(at.type()));
    put<int8_t>(-1);
  } else if (value.isGenerator()) {
    uint32_t number = value.toGenerator().defined() ? generator_number(value.toGenerator()) : 0;
    if (value.toGenerator().defined()) generator_of_ = &eat::device(value.toGenerator().device().index());
    tag(number ? Tag::OTHER_GENERATOR : Tag::GENERATOR);
    if (number) put(number);
  } else {
    scalar(value, argument_->number && info_->ints_later);
  }
}

bool Encoder::doubt(const c10::IValue* arguments) const {
  at::ScalarType type = type_;
  if (info_->dtype >= 0 && arguments[info_->dtype].isInt()) type = arguments[info_->dtype].toScalarType();
  if (type == at::ScalarType::Undefined) type = imaginary_ ? at::ScalarType::ComplexFloat : c10::get_default_dtype_as_scalartype();
  return (imaginary_ && !at::isComplexType(type)) || eat::in_doubt(info_->numbers, numbers_, type);
}

void Encoder::encode(const OperatorInfo& info, const c10::IValue* arguments) {
  info_ = &info;
  if (recorder) recorder->begin_call();
  key.clear();
  payload.clear();
  slots.clear();
  kinds.clear();
  keep_.clear();
  changed_.clear();
  known_ones.clear();
  numbers_.clear();
  imaginary_ = false;
  type_ = at::ScalarType::Undefined;
  device = generator_of_ = nullptr;
  mask = known = false;
  values = 0;
  put(info.number);
  const at::Context& context = at::globalContext();
  key += static_cast<char>(c10::get_default_dtype_as_scalartype());
  key += static_cast<char>(!context.deterministicAlgorithms() ? 0 : context.deterministicAlgorithmsWarnOnly() ? 2 : 1);
  kinds = key;
  put(static_cast<uint16_t>(info.arguments.size()));
  if (info.takes_cpu && arguments[0].isTensor() && is_remote(arguments[0].toTensor())) on(*remote_storage(arguments[0].toTensor()).device);
  for (size_t i = 0; i < info.arguments.size(); i++) {
    argument_ = &info.arguments[i];
    value(arguments[i]);
  }
  in_doubt = !numbers_.empty() && doubt(arguments);
  if (!device) device = &eat::device(-1);
  if (generator_of_ && generator_of_ != device) {  // its state is with its device
    TORCH_CHECK(false, "Expected a generator of cuda:", device->number, " but found one of cuda:", generator_of_->number,
                ": make a generator for each device of the lease");
  }
}

}  // namespace eat
