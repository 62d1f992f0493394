// See graphs.h. A set stands for one graph of torch.compile; it has a variant for each geometry of inputs that it met.
#include "graphs.h"

#include <algorithm>
#include <mutex>

#include "learn.h"
#include "record.h"

namespace eat {

std::atomic<int64_t> graph_runs{0};

namespace {

using at::Tensor;

// What Python is told instead of a variant's number.
enum Status : int64_t { AS_WRITTEN = -1, TAKE_DOWN = -2 };

constexpr int MOST_TRIES = 3;             // to take a variant down: operators that are still learned are asked for
constexpr int MOST_FAILED = 6;            // variants of a set, before none is tried
constexpr size_t MOST_KEPT = 256;         // variants of a set
constexpr size_t MOST_RECORDINGS = MOST_GRAPHS / 2;
constexpr size_t MOST_RECORDED = MOST_GRAPH_BYTES / 4 * 3;

// Tensors that are no memory of their own.
const c10::DispatchKeySet WRAPPED{c10::DispatchKey::Python, c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
                                  c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::ZeroTensor};

struct Variant {
  int runs = 0, tries = 0;
  std::shared_ptr<Recording> recording;
};

struct Set {
  int failed = 0;
  std::unordered_map<std::string, Variant> variants;
};

struct Graphs {
  std::mutex mutex;
  std::unordered_map<int64_t, Set> sets;
  int64_t next_set = 1, next_variant = 1;
  uint32_t next_number = 1;
  uint64_t clock = 0;
  size_t count = 0, bytes = 0;
};

Graphs& graphs() {
  static auto* one = new Graphs;
  return *one;
}

struct Taking {
  int64_t set;
  std::string key;
  std::vector<int64_t> numbers;
  std::vector<Tensor> inputs;
  std::unique_ptr<Recorder> recorder;
  int64_t forgotten = 0;  // signatures, before it began
};
thread_local std::unique_ptr<Taking> taking;

template <class T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Which input is the first one with that storage.
class First {
 public:
  explicit First(size_t count) {
    size_t room = 16;
    while (room < 2 * count) room *= 2;
    places_.assign(room, {0, 0});
  }
  uint32_t of(uint32_t number, uint32_t input) {
    size_t at = (number * 2654435761u) & (places_.size() - 1);
    while (places_[at].first && places_[at].first != number) at = (at + 1) & (places_.size() - 1);
    if (!places_[at].first) places_[at] = {number, input};
    return places_[at].second;
  }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> places_;
};

// All that decides which operators the graph is, besides what torch.compile holds constant itself. "": such inputs are not taken.
std::string key_of(at::IntArrayRef numbers, at::TensorList inputs) {
  std::string key;
  key.reserve(inputs.size() * 64);
  First first(inputs.size());
  put(key, read_flags());
  put(key, c10::InferenceMode::is_enabled());
  put(key, current_device());
  for (uint32_t i = 0; i < inputs.size(); i++) {
    const Tensor& input = inputs[i];
    if (!input.defined() || input.layout() != at::kStrided || input.is_quantized()) return {};
    if (input.unsafeGetTensorImpl()->key_set().has_any(WRAPPED)) return {};
    auto dimensions = static_cast<size_t>(input.dim());
    put(key, static_cast<int8_t>(input.scalar_type()));
    put(key, static_cast<uint8_t>(dimensions));
    put(key, static_cast<uint8_t>((input.is_conj() ? CONJUGATE : 0) | (input.is_neg() ? NEGATIVE : 0)));
    put(key, static_cast<int8_t>(input.device().type()));
    key.append(reinterpret_cast<const char*>(input.sizes().data()), dimensions * sizeof(int64_t));
    if (!is_remote(input)) {
      if (!input.device().is_cpu()) return {};
      continue;
    }
    key.append(reinterpret_cast<const char*>(input.strides().data()), dimensions * sizeof(int64_t));
    RemoteStorage& storage = remote_storage(input);
    put(key, input.storage_offset());
    put(key, storage.device->number);
    put(key, first.of(storage.number, i));
  }
  key.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t));
  return key;
}

void forget(const Recording& recording) {
  graphs().count--;
  graphs().bytes -= recording.counted;
  if (in_fork()) return;
  Writer message;
  size_t began = message.begin(ToServer::DROP);
  message.put(static_cast<uint8_t>(Dropped::GRAPH));
  message.put(recording.number);
  message.end(began);
  try {
    recording.device->connection().send(recording.device->there, message.bytes);
  } catch (const std::exception&) {  // the server is gone, and the graph with it
  }
}

// With the lock held: until there is room for one of so many bytes, the one that was not used for longest goes.
void make_room(size_t bytes) {
  while (graphs().count && (graphs().count >= MOST_RECORDINGS || graphs().bytes + bytes > MOST_RECORDED)) {
    std::shared_ptr<Recording>* oldest = nullptr;
    for (auto& [_, set] : graphs().sets) {
      for (auto& [key, variant] : set.variants) {
        if (variant.recording && (!oldest || variant.recording->used < (*oldest)->used)) oldest = &variant.recording;
      }
    }
    if (!oldest) return;
    forget(**oldest);
    oldest->reset();
  }
}

std::vector<Tensor> run(const Recording& recording, at::TensorList inputs) {
  Device& device = *recording.device;
  wait_for_queue(device);
  need_room(device, recording.most_bytes);
  thread_local Writer message;
  uint32_t first = next_storage(recording.new_bytes.size());
  {
    std::lock_guard<std::mutex> order(device.connection().order);
    message.bytes.clear();
    put_changed_flags(*device.server, message);
    size_t began = message.begin(ToServer::RUN);
    message.put(recording.number);
    for (uint32_t input : recording.storages) message.put(remote_storage(inputs[input]).number);
    for (uint32_t i = 0; i < recording.new_bytes.size(); i++) message.put(first + i);
    for (const auto& patch : recording.patches) {
      const Tensor& from = inputs[patch.input];
      message.put(from.const_data_ptr(), patch.bytes);
    }
    message.end(began);
    device.connection().send(device.there, message.bytes);
  }
  graph_runs++;
  for (uint32_t input : recording.written) remote_storage(inputs[input]).written();
  for (uint32_t input : recording.bumped) {
    if (!inputs[input].is_inference()) inputs[input].unsafeGetTensorImpl()->bump_version();
  }
  int64_t now = device.memory.allocated + recording.most_bytes, peak = device.memory.peak;
  while (now > peak && !device.memory.peak.compare_exchange_weak(peak, now)) {
  }
  std::vector<c10::Storage> storages;
  std::vector<const Tensor*> of(recording.new_bytes.size());
  for (uint32_t i = 0; i < recording.new_bytes.size(); i++) storages.push_back(make_storage(device, first + i, recording.new_bytes[i]));
  std::vector<Tensor> outputs;
  outputs.reserve(recording.outputs.size());
  for (const auto& one : recording.outputs) {
    if (one.same >= 0) {
      auto same = static_cast<size_t>(one.same);
      outputs.push_back(one.of_input ? inputs[same] : outputs[same]);
      continue;
    }
    const c10::Storage& storage = one.of_input ? inputs[one.place].storage() : storages[one.place];
    outputs.push_back(make_tensor(storage, one.dtype, one.sizes, one.strides, one.offset));
    Tensor& made = outputs.back();
    if (one.conjugate) made._set_conj(true);
    if (one.negative) made._set_neg(true);
    // Views of one memory count their changes together.
    const Tensor* shares = one.of_input ? &inputs[one.place] : of[one.place];
    if (shares && !shares->is_inference() && !made.is_inference()) {
      made.unsafeGetTensorImpl()->set_version_counter(shares->unsafeGetTensorImpl()->version_counter());
    }
    if (!one.of_input && !of[one.place]) of[one.place] = &made;
  }
  if (device.connection().has_news()) raise_news(device);
  return outputs;
}

int64_t graph_new() {
  std::lock_guard<std::mutex> lock(graphs().mutex);
  int64_t number = graphs().next_set++;
  graphs().sets[number];
  return number;
}

void graph_drop(int64_t number) {
  std::lock_guard<std::mutex> lock(graphs().mutex);
  auto set = graphs().sets.find(number);
  if (set == graphs().sets.end()) return;
  for (auto& [_, variant] : set->second.variants) {
    if (variant.recording) forget(*variant.recording);
  }
  graphs().sets.erase(set);
}

// A variant's number and the results of its run; or what to do instead.
std::tuple<int64_t, std::vector<Tensor>> graph_run(int64_t number, at::IntArrayRef numbers, at::TensorList inputs) {
  if (recorder || sync_mode() || in_fork()) return {AS_WRITTEN, {}};
  std::string key = key_of(numbers, inputs);
  if (key.empty()) return {AS_WRITTEN, {}};
  std::shared_ptr<Recording> found;
  {
    std::lock_guard<std::mutex> lock(graphs().mutex);
    Set& set = graphs().sets[number];
    auto at = set.variants.find(key);
    if (at == set.variants.end()) {
      if (set.failed >= MOST_FAILED) return {AS_WRITTEN, {}};
      if (set.variants.size() >= MOST_KEPT) std::erase_if(set.variants, [](const auto& one) { return !one.second.recording; });
      if (set.variants.size() >= MOST_KEPT) return {AS_WRITTEN, {}};
      at = set.variants.emplace(std::move(key), Variant()).first;
    }
    Variant& variant = at->second;
    if (!variant.recording) return {variant.runs++ == 0 || variant.tries >= MOST_TRIES ? AS_WRITTEN : TAKE_DOWN, {}};
    found = variant.recording;
    found->used = ++graphs().clock;
  }
  auto outputs = run(*found, inputs);
  return {found->variant, std::move(outputs)};
}

void graph_begin(int64_t number, at::IntArrayRef numbers, at::TensorList inputs) {
  auto made = std::make_unique<Taking>();
  made->set = number;
  made->key = key_of(numbers, inputs);
  made->numbers = numbers.vec();
  made->inputs = inputs.vec();
  device(-1);  // connected
  made->recorder = std::make_unique<Recorder>(inputs);
  made->forgotten = counters.forgotten;
  taking = std::move(made);
  recorder = taking->recorder.get();
}

void graph_cancel() {
  recorder = nullptr;
  taking.reset();
}

// The variant's number and ""; or a negative one and why the graph cannot be taken down, "" when it may be the next time.
std::tuple<int64_t, std::string> graph_end(at::TensorList outputs, std::string why) {
  TORCH_CHECK(taking, "no graph is being taken down");
  auto taken = std::move(taking);
  recorder = nullptr;
  auto made = std::make_shared<Recording>();
  Writer body;
  if (!why.empty()) taken->recorder->cannot(why);
  if (key_of(taken->numbers, taken->inputs) != taken->key) taken->recorder->cannot("it changes the shape of an input, or settings of torch");
  why = taken->recorder->finish(outputs, *made, body);
  std::lock_guard<std::mutex> lock(graphs().mutex);
  auto set = graphs().sets.find(taken->set);
  if (set == graphs().sets.end()) return {AS_WRITTEN, ""};
  Variant& variant = set->second.variants[taken->key];
  if (variant.recording) return {variant.recording->variant, ""};  // another thread was first
  if (why.empty() && made->counted > MOST_RECORDED / 2) why = "it is too large for one message";
  if (!why.empty()) {
    if (++variant.tries < MOST_TRIES) return {AS_WRITTEN, ""};
    set->second.failed++;
    return {AS_WRITTEN, why};
  }
  std::lock_guard<std::mutex> order(made->device->connection().order);
  if (counters.forgotten != taken->forgotten) return {AS_WRITTEN, ""};  // perhaps one that it calls
  made->number = graphs().next_number++;
  made->variant = graphs().next_variant++;
  made->used = ++graphs().clock;
  Writer message;
  size_t began = message.begin(ToServer::GRAPH);
  message.put(made->number);
  message.put(body.bytes.data(), body.bytes.size());
  message.end(began);
  make_room(made->counted);
  made->device->connection().send(made->device->there, message.bytes);
  graphs().count++;
  graphs().bytes += made->counted;
  variant.recording = made;
  return {made->variant, ""};
}

}  // namespace

void define_graphs(torch::Library& library) {
  library.def("graph_new() -> int", &graph_new);
  library.def("graph_drop(int graph) -> ()", &graph_drop);
  library.def("graph_run(int graph, int[] numbers, Tensor[] inputs) -> (int, Tensor[])", &graph_run);
  library.def("graph_begin(int graph, int[] numbers, Tensor[] inputs) -> ()", &graph_begin);
  library.def("graph_cancel() -> ()", &graph_cancel);
  library.def("graph_end(Tensor[] outputs, str why) -> (int, str)", &graph_end);
}

}  // namespace eat
