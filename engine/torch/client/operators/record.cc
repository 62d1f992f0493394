// Taking down a graph: see record.h.
#include "record.h"

#include <algorithm>

namespace eat {

thread_local Recorder* recorder = nullptr;

namespace {

// A signature's part of a graph's bytes, as the server counts it.
size_t signature_bytes(const OperatorInfo& info, const Encoder& encoded, const Results& results) {
  size_t bytes = 3 * sizeof(uint32_t) + info.name.size() + info.overload.size() + encoded.arguments().size() + sizeof(uint16_t);
  for (const Belief& belief : results.outputs) {
    bytes += belief.defined ? 3 + sizeof(int64_t) * (2 * belief.sizes.size() + 1) : 1;
  }
  return bytes + VALUE_BYTES * (encoded.values + results.outputs.size());
}

}  // namespace

Recorder::Recorder(at::TensorList inputs) : inputs_(inputs.vec()), began_(sent_messages) {
  for (uint32_t i = 0; i < inputs_.size(); i++) {
    const at::Tensor& input = inputs_[i];
    versions_.push_back(input.is_inference() ? 0 : input.unsafeGetTensorImpl()->version_counter().current_version());
    if (!is_remote(input)) {
      on_cpu_.emplace(input.storage().data(), i);
      continue;
    }
    RemoteStorage& storage = remote_storage(input);
    if (!on(*storage.device)) continue;
    if (registers_.emplace(storage.number, static_cast<uint32_t>(registers_.size())).second) {
      found_.storages.push_back(i);
      bytes_.push_back(storage.bytes);
      written_.push_back(false);
    }
  }
}

bool Recorder::on(const Device& device) {
  if (!found_.device) found_.device = const_cast<Device*>(&device);
  if (found_.device == &device) return true;
  cannot("it uses several devices");
  return false;
}

bool Recorder::reads(uint32_t number, uint32_t& at) {
  auto found = registers_.find(number);
  if (found == registers_.end()) {
    cannot("it reads a tensor that is neither one of its inputs nor made by it");
    return false;
  }
  at = found->second;
  unused_.erase(at);
  return true;
}

uint32_t Recorder::add(uint32_t number, int64_t bytes) {
  auto made = static_cast<uint32_t>(bytes_.size());
  registers_[number] = made;
  bytes_.push_back(bytes);
  written_.push_back(false);
  held_ += bytes;
  found_.most_bytes = std::max(found_.most_bytes, held_);
  return made;
}

bool Recorder::from_input(const at::Tensor& tensor, uint32_t& input) const {
  auto found = on_cpu_.find(tensor.storage().data());
  if (found == on_cpu_.end()) return false;
  input = found->second;
  return true;
}

void Recorder::value(const at::Tensor& tensor, size_t at) {
  uint32_t input = 0;
  if (!from_input(tensor, input)) return;
  const at::Tensor& of = inputs_[input];
  bool plain = !tensor.is_conj() && !tensor.is_neg() && of.scalar_type() == tensor.scalar_type() && of.storage_offset() == tensor.storage_offset();
  if (!plain || of.numel() != 1) return cannot("it takes a value out of a tensor on the CPU");
  pending_.emplace_back(at, input);
}

void Recorder::call(const OperatorInfo& info, const Encoder& encoded, const Signature& signature, uint32_t first) {
  expected_++;
  if (!why_.empty() || !on(*encoded.device)) return;
  count_++;
  steps_.put(Step::CALL);
  steps_.put(signature.number);
  steps_.put(static_cast<uint16_t>(encoded.slots.size()));
  for (uint32_t slot : encoded.slots) {
    uint32_t at = 0;
    if (!reads(slot, at)) return;
    steps_.put(at);
  }
  steps_.put(static_cast<uint16_t>(encoded.payload.size()));
  steps_.put(encoded.payload.data(), encoded.payload.size());
  for (auto& [at, input] : pending_) {
    auto bytes = static_cast<uint32_t>(inputs_[input].element_size());
    patches_.push_back({static_cast<uint32_t>(payload_ + at), {input, bytes}});
  }
  pending_.clear();
  payload_ += encoded.payload.size();
  const auto& outputs = signature.results.outputs;
  steps_.put(static_cast<uint16_t>(outputs.size()));
  for (uint32_t i = 0; i < outputs.size(); i++) steps_.put(outputs[i].defined ? add(first + i, outputs[i].bytes) : NO_REGISTER);
  size_t& bytes = signatures_[signature.number];
  if (bytes) return;
  bytes = signature_bytes(info, encoded, signature.results);
  signature_bytes_ += bytes;
}

void Recorder::allocate(const Device& device, uint32_t number, int64_t bytes) {
  expected_++;
  if (!why_.empty() || !on(device)) return;
  count_++;
  steps_.put(Step::ALLOC);
  uint32_t at = add(number, bytes);
  steps_.put(at);
  unused_[at] = steps_.bytes.size();
  steps_.put<uint64_t>(static_cast<uint64_t>(bytes));
}

void Recorder::resize(uint32_t number, int64_t bytes) {
  expected_++;
  auto found = registers_.find(number);
  auto unused = found == registers_.end() ? unused_.end() : unused_.find(found->second);
  if (unused == unused_.end()) return cannot("it gives memory another size");
  memcpy(&steps_.bytes[unused->second], &bytes, sizeof bytes);
  held_ += bytes - bytes_[found->second];
  found_.most_bytes = std::max(found_.most_bytes, held_);
  bytes_[found->second] = bytes;
}

void Recorder::free(uint32_t number) {
  expected_++;
  auto found = registers_.find(number);
  if (found == registers_.end()) return;  // garbage of others
  uint32_t at = found->second;
  if (at < found_.storages.size()) return cannot("one of its inputs goes while it runs");
  registers_.erase(found);
  held_ -= bytes_[at];
  count_++;
  steps_.put(Step::FREE);
  steps_.put(at);
}

void Recorder::upload(const at::Tensor& from, uint32_t number, int64_t offset, const char* data, int64_t count) {
  expected_++;
  uint32_t input = 0, at = 0;
  if (from_input(from, input)) return cannot("it copies a tensor from the CPU to the GPU");
  if (!reads(number, at)) return;
  count_++;
  steps_.put(Step::UP);
  steps_.put(at);
  steps_.put<uint64_t>(static_cast<uint64_t>(offset));
  steps_.text(data, static_cast<size_t>(count));
}

void Recorder::write(uint32_t number) {
  auto found = registers_.find(number);
  if (found != registers_.end()) written_[found->second] = true;
}

std::string Recorder::finish(at::TensorList outputs, Recording& made, Writer& to) {
  if (sent_messages - began_ != expected_) cannot("it waits for a value, or copies between the CPU and the GPU");
  std::vector<uint32_t> places;  // registers of the new storages
  for (size_t k = 0; k < outputs.size() && why_.empty(); k++) {
    const at::Tensor& output = outputs[k];
    Recording::Output one;
    auto is_it = [&](const at::Tensor& other) { return other.is_same(output); };
    if (auto same = std::find_if(inputs_.begin(), inputs_.end(), is_it); same != inputs_.end()) {
      one.same = static_cast<int>(same - inputs_.begin());
      one.of_input = true;
    } else if (auto before = std::find_if(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(k), is_it); before != outputs.begin() + static_cast<std::ptrdiff_t>(k)) {
      one.same = static_cast<int>(before - outputs.begin());
    } else if (!is_remote(output)) {
      cannot("one of its results lies on the CPU");
    } else if (uint32_t at = 0; reads(remote_storage(output).number, at)) {
      one.of_input = at < found_.storages.size();
      if (one.of_input) {
        one.place = found_.storages[at];
      } else {
        auto known = std::find(places.begin(), places.end(), at);
        one.place = static_cast<uint32_t>(known - places.begin());
        if (known == places.end()) {
          places.push_back(at);
          found_.new_bytes.push_back(bytes_[at]);
        }
      }
      one.dtype = output.scalar_type();
      one.sizes = output.sizes().vec();
      one.strides = output.strides().vec();
      one.offset = output.storage_offset();
      one.conjugate = output.is_conj();
      one.negative = output.is_neg();
    }
    found_.outputs.push_back(std::move(one));
  }
  if (!found_.device) cannot("it computes nothing on the GPU");
  if (bytes_.size() > MOST_REGISTERS || steps_.bytes.size() + bytes_.size() * 4 > MOST_MESSAGE / 2) cannot("it is too long for one message");
  if (!why_.empty()) return why_;
  for (size_t at = 0; at < found_.storages.size(); at++) {
    if (written_[at]) found_.written.push_back(found_.storages[at]);
  }
  for (uint32_t i = 0; i < inputs_.size(); i++) {
    if (inputs_[i].is_inference()) continue;
    if (inputs_[i].unsafeGetTensorImpl()->version_counter().current_version() != versions_[i]) found_.bumped.push_back(i);
  }
  to.put(static_cast<uint32_t>(bytes_.size()));
  to.put(static_cast<uint32_t>(found_.storages.size()));
  to.put(static_cast<uint32_t>(places.size()));
  for (uint32_t place : places) to.put(place);
  to.put(static_cast<uint32_t>(patches_.size()));
  for (auto& [at, patch] : patches_) {
    to.put(at);
    to.put(static_cast<uint16_t>(patch.bytes));
    found_.patches.push_back(patch);
  }
  to.put(static_cast<uint32_t>(count_));
  to.put(steps_.bytes.data(), steps_.bytes.size());
  found_.counted = graph_bytes(to.bytes.size() + sizeof(uint32_t), count_, bytes_.size(), signature_bytes_);
  made = std::move(found_);
  return {};
}

}  // namespace eat
