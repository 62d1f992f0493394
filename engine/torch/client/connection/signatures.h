// What one connection has told its server about operators: a signature is an operator with all arguments but storages and
// values that stand in the payload. Bounded; no header of torch here.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace eat {

// One new tensor that an operator returns, as the client believes it.
struct Belief {
  bool defined = false;
  uint8_t dtype = 0;
  std::vector<int64_t> sizes, strides;
  int64_t bytes = 0;  // of its storage
  bool operator==(const Belief&) const = default;
};

struct Results {
  std::vector<Belief> outputs;  // lists taken apart
  std::vector<int> counts;      // for each return of the schema: how many of `outputs`; 0 for a written argument
  int64_t bytes = 0;            // of all outputs
};

// Whether the values that a signature gives are read: values.h.
struct Mark {
  std::atomic<bool> read{false};
  std::atomic<int> along{0}, used{0};
};

struct Signature {
  uint32_t number = 0;
  Results results;
  std::shared_ptr<Mark> mark = std::make_shared<Mark>();
};

// The table of a connection, by key. Not locked: its user holds Connection::order. Two generations: what was not used since the
// last turn is forgotten when the newer generation is full.
class Signatures {
 public:
  // nullptr: not told yet.
  std::shared_ptr<const Signature> find(std::string_view key);
  // Adds one that is not there, with a new number. `bytes`: of its message. Numbers that the server shall forget, before it,
  // come in `forget`.
  std::shared_ptr<const Signature> add(std::string_view key, Results results, size_t bytes, std::vector<uint32_t>& forget);
  size_t size() const { return young_.size() + old_.size(); }

 private:
  struct Entry {
    std::shared_ptr<const Signature> signature;
    size_t bytes = 0;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Table = std::unordered_map<std::string, Entry, Hash, std::equal_to<>>;
  void turn(std::vector<uint32_t>& forget);

  Table young_, old_;
  size_t young_bytes_ = 0;
  uint32_t next_ = 1;
};

}  // namespace eat
