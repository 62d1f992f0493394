#include "graphs.h"

namespace eat {
namespace {

const std::string NAME = "a graph";

// Reads a graph; what is not right with it is no message.
class Building {
 public:
  Building(Reader& from, Graph& to, const std::unordered_map<uint32_t, SignaturePtr>& known) : in_(from), graph_(to), known_(known) {}

  size_t signature_bytes() const { return signature_bytes_; }

  void read() {
    graph_.registers = in_.get<uint32_t>();
    graph_.inputs = in_.get<uint32_t>();
    if (graph_.registers > MOST_REGISTERS) throw WireError("a graph has more registers than allowed");
    if (graph_.inputs > graph_.registers) throw WireError("a graph has more inputs than registers");
    state_.resize(graph_.registers, NOT_YET);
    for (uint32_t i = 0; i < graph_.inputs; i++) state_[i] = INPUT;
    graph_.outputs.resize(in_.count(sizeof(uint32_t), MOST_REGISTERS));
    in_.array(graph_.outputs.data(), graph_.outputs.size());
    graph_.patches.resize(in_.count(PATCH_BYTES, MOST_VALUES));
    for (auto& patch : graph_.patches) {
      patch.at = in_.get<uint32_t>();
      patch.bytes = in_.get<uint16_t>();
    }
    uint32_t steps = in_.count(LEAST_STEP, MOST_MESSAGE);
    graph_.steps.reserve(steps);
    for (; steps; steps--) step();
    for (auto& patch : graph_.patches) {
      if (patch.at > graph_.payload.size() || patch.bytes > graph_.payload.size() - patch.at)
        throw WireError("a patch of a graph lies outside of its payload");
    }
    for (auto output : graph_.outputs) {
      if (at(output) != MADE) throw WireError("an output of a graph is not there at its end, or is one of its inputs, or comes twice");
      state_[output] = FREED;
    }
  }

 private:
  enum State : uint8_t { NOT_YET, INPUT, MADE, FREED };
  static constexpr size_t PATCH_BYTES = 6, LEAST_STEP = 5;

  State at(uint32_t number) const {
    if (number >= graph_.registers) throw WireError("a graph has no register " + std::to_string(number));
    return static_cast<State>(state_[number]);
  }
  uint32_t readable() {
    auto number = in_.get<uint32_t>();
    if (at(number) != INPUT && at(number) != MADE) throw WireError("a step of a graph reads a register that holds nothing");
    return number;
  }
  uint32_t made() {
    auto number = in_.get<uint32_t>();
    if (at(number) != NOT_YET) throw WireError("a register of a graph is written twice");
    state_[number] = MADE;
    return number;
  }

  void step() {
    Graph::Of one{};
    one.kind = in_.get<Step>();
    switch (one.kind) {
      case Step::CALL: call(one); break;
      case Step::FREE:
        one.numbers = readable();
        if (at(one.numbers) == INPUT) throw WireError("a graph frees an input");
        state_[one.numbers] = FREED;
        break;
      case Step::ALLOC:
        one.numbers = made();
        one.size = in_.get<uint64_t>();
        break;
      case Step::UP:
        one.numbers = readable();
        one.size = in_.get<uint64_t>();
        one.bytes = in_.count(1, MOST_CHUNK);
        one.data = static_cast<uint32_t>(graph_.constants.size());
        graph_.constants.append(in_.take(one.bytes), one.bytes);
        break;
      default: throw WireError("a graph has no step of kind " + std::to_string(static_cast<int>(one.kind)));
    }
    graph_.steps.push_back(one);
  }

  void call(Graph::Of& one) {
    auto number = in_.get<uint32_t>();
    auto [place, is_new] = places_.emplace(number, static_cast<uint32_t>(graph_.signatures.size()));
    if (is_new) {
      auto at = known_.find(number);
      if (at == known_.end()) throw WireError("a graph calls a signature that there is not");
      graph_.signatures.push_back(at->second);
      signature_bytes_ += at->second->bytes;
    }
    one.signature = place->second;
    one.numbers = static_cast<uint32_t>(graph_.numbers.size());
    one.slots = in_.get<uint16_t>();
    for (uint32_t i = 0; i < one.slots; i++) graph_.numbers.push_back(readable());
    one.bytes = in_.get<uint16_t>();
    one.data = static_cast<uint32_t>(graph_.payload.size());
    graph_.payload.append(in_.take(one.bytes), one.bytes);
    one.outputs = in_.get<uint16_t>();
    const auto& beliefs = graph_.signatures[one.signature]->beliefs;
    bool known = !graph_.signatures[one.signature]->refused;
    if (known && one.outputs != beliefs.size()) throw WireError("a graph's call has another number of results than its signature");
    for (uint32_t i = 0; i < one.outputs; i++) {
      if (known && !beliefs[i].defined) {
        if (in_.get<uint32_t>() != NO_REGISTER) throw WireError("a graph has a register for a result that is not defined");
        graph_.numbers.push_back(NO_REGISTER);
      } else {
        graph_.numbers.push_back(made());
      }
    }
  }

  Reader& in_;
  Graph& graph_;
  const std::unordered_map<uint32_t, SignaturePtr>& known_;
  std::unordered_map<uint32_t, uint32_t> places_;
  std::vector<uint8_t> state_;
  size_t signature_bytes_ = 0;
};

}  // namespace

void Session::graph(Reader& body) {
  auto number = body.get<uint32_t>();
  if (graphs_.size() >= MOST_GRAPHS) throw WireError("more graphs than a session may have");
  auto made = std::make_unique<Graph>();
  Building building(body, *made, signatures_);
  building.read();
  made->counted = graph_bytes(body_.size(), made->steps.size(), made->registers, building.signature_bytes());
  graph_bytes_ += made->counted;
  if (graph_bytes_ > MOST_GRAPH_BYTES) throw WireError("larger graphs than a session may have");
  if (!graphs_.emplace(number, std::move(made)).second) throw WireError("a graph's number is in use");
}

void Session::drop_graph(uint32_t number) {
  auto at = graphs_.find(number);
  if (at == graphs_.end()) return;
  graph_bytes_ -= at->second->counted;
  graphs_.erase(at);
}

void Session::run_graph(Reader& body) {
  auto found = graphs_.find(body.get<uint32_t>());
  if (found == graphs_.end()) throw WireError("a run of no graph");
  Graph& graph = *found->second;
  std::vector<Held> own(graph.registers);
  std::vector<Held*> at(graph.registers);
  for (uint32_t i = 0; i < graph.registers; i++) at[i] = &own[i];
  for (uint32_t i = 0; i < graph.inputs; i++) {
    auto number = body.get<uint32_t>();
    if (Held* held = storages.find(number)) {
      at[i] = held;
    } else {
      own[i].fault = own_fault(NAME, "there is no storage " + std::to_string(number));
      telling.keep(own[i].fault);
    }
  }
  numbers_.resize(graph.outputs.size());
  body.array(numbers_.data(), numbers_.size());
  for (const auto& patch : graph.patches) body.array(&graph.payload[patch.at], patch.bytes);
  Slots slots;
  for (const auto& step : graph.steps) {
    const uint32_t* numbers = step.kind == Step::CALL ? graph.numbers.data() + step.numbers : &step.numbers;
    Held& held = step.kind == Step::CALL ? own[0] : *at[*numbers];
    switch (step.kind) {
      case Step::FREE: held = Held(); break;
      case Step::ALLOC: held = allocated(step.size); break;
      case Step::UP: put_constant(held, step.size, graph.constants.data() + step.data, step.bytes); break;
      case Step::CALL: {
        FaultPtr fault = telling.broken();
        slots.clear();
        for (uint32_t i = 0; i < step.slots; i++) {
          slots.push_back(at[numbers[i]]);
          if (!fault) fault = slots.back()->spoiled();
        }
        Reader payload(graph.payload.data() + step.data, step.bytes);
        run_call(*graph.signatures[step.signature], slots, std::move(fault), payload, step.outputs, [&](size_t i, Held made) {
          uint32_t to = numbers[step.slots + i];
          if (to != NO_REGISTER) own[to] = std::move(made);
        });
        break;
      }
    }
  }
  for (size_t i = 0; i < numbers_.size(); i++) storages.add(numbers_[i], std::move(own[graph.outputs[i]]));
}

}  // namespace eat
