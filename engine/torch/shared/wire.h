// What the client and the server of engine torch say to each other: wire version 5. Little-endian, one TCP connection
// per server. No header of torch here, so that both halves can be tested without it.
//
// The client begins with a Hello of fixed size. The answer is STARTING, then WELCOME, or REFUSED. From then on each
// message is: u8 kind, u32 length, that many bytes.
//
// A client that asks for RDMA verbs is told VERBS instead of WELCOME, and answers VERBS; all that follows, WELCOME first,
// goes by the queue pair of these two ends. TCP stays open, and says nothing more: its end is the end of both.
//
// Written below: str = u32 length and bytes; storage = u32 number that the client chose (never 0, never used twice);
// arguments, beliefs, geometry: see `Tag` and below it. The server handles messages in order, and answers in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is little-endian");

namespace eat {

constexpr uint32_t WIRE_VERSION = 5;
constexpr char WIRE_MAGIC[9] = "EAITRCH\n";  // 8 bytes go by the wire
constexpr size_t TOKEN_BYTES = 256;

struct Hello {
  char magic[8];
  uint32_t version, pid;
  char torch[64];   // the client's torch.__version__
  char client[60];  // the client's host name
  uint32_t transport;  // Transport: what shall carry all that follows the door
  char token[TOKEN_BYTES];  // padded with zeros
};
static_assert(sizeof(Hello) == 400 && std::is_trivially_copyable_v<Hello>);

enum class Transport : uint32_t { TCP = 0, VERBS = 1 };

// Bounds of both sides. Who goes beyond one of them ends the session.
constexpr size_t MOST_MESSAGE = size_t(16) << 20;   // bytes of a message's body
constexpr size_t MOST_CHUNK = size_t(4) << 20;      // data bytes of one UP or DATA
constexpr size_t MOST_STAGED = size_t(512) << 20;   // bytes that are staged and not yet used or dropped
constexpr size_t MOST_STAGED_ONE = MOST_STAGED / 4;  // of one number
constexpr size_t MOST_SIGNATURES = 65536;           // told and not forgotten
constexpr size_t VALUE_BYTES = 256;                 // a value of a signature, and a belief, counts as so many besides its own
constexpr size_t MOST_SIGNATURE_BYTES = size_t(256) << 20;  // of all signatures that are not forgotten, counted so
constexpr size_t MOST_VALUES = 65535;               // of one operator's arguments, lists counted by their elements
constexpr size_t MOST_SLOTS = 65535;                // storages of one call, and new outputs of one call
constexpr size_t MOST_DIMENSIONS = UINT8_MAX;     // of a tensor; torch itself has no such bound, most of its kernels 64
constexpr size_t MOST_STORAGES = size_t(1) << 20;
constexpr size_t MOST_STATES = 65536;               // kept states of generators, events, generators: of each
constexpr size_t MOST_TEXT = 4096;                  // of an error's or a warning's text, a name, a string argument
constexpr size_t MOST_FAULTS = 16384;               // errors that storages are spoiled by, each with a text of its own
constexpr size_t MOST_GRAPHS = 4096;                // told and not dropped
constexpr size_t MOST_GRAPH_BYTES = size_t(128) << 20;  // of all graphs, counted as `graph_bytes` does
constexpr size_t MOST_REGISTERS = size_t(1) << 18;  // of one graph
constexpr size_t MOST_ERRORS = 64;                  // errors, and warnings, that wait to be told; later ones are dropped

enum class ToServer : uint8_t {
  SIGNATURE = 1,   // u32 signature, str name ("aten::add"), str overload ("Tensor", or ""), arguments, beliefs
  CALL = 2,        // u32 signature, u16 n, n storages (the slots), u16 bytes and payload, u16 m, m storages: new outputs
  ASK = 3,         // u32 tag, str name, str overload, arguments, u16 n, n storages, str payload, u32 first new storage,
                   // u16 how many numbers from there on may be used -> ANSWER with the results
  ALLOC = 4,       // storage, u64 bytes
  FREE = 5,        // storage; one that is not there is no error (its call has failed)
  RESIZE = 6,      // storage, u64 bytes: keeps what fits
  UP = 7,          // storage, u64 offset, bytes to the end of the message (MOST_CHUNK)
  DOWN = 8,        // u32 tag, storage, u64 offset, u64 bytes -> DATA..., ANSWER (after an error: ANSWER alone)
  SYNC = 9,        // u32 tag -> ANSWER when all before it is computed: Counters
  FORGET = 10,     // u32 signature
  FLAGS = 11,      // u16 n, n times u16 flag, i64 value: shared/flags.h
  SEED = 12,       // u32 generator, u64 seed. Generator 0: the current device's own; another number makes it
  RNG_KEEP = 13,   // u32 generator, u32 state: keeps its state of now by this number
  RNG_USE = 14,    // u32 generator, u32 state
  RNG_GET = 15,    // u32 tag, u32 generator -> ANSWER: the state's bytes
  RNG_SET = 16,    // u32 generator, str state; of another length than this server's device has: a kept error
  EVENT = 17,      // u32 event: records it (again)
  EVENT_WAIT = 18, // u32 tag, u32 event -> ANSWER when it is reached: f64 milliseconds since the session began
  DEVICE = 19,     // u8 index in WELCOME's list: the device of all that follows
  COLLECTIVE = 20, // u8 Together, and what shared/together.h says behind it
  DROP = 21,       // u8 what (Dropped), u32 number
  PEER_COPY = 22,  // storage to, u8 its device, u64 offset, storage from, u8 its device, u64 offset, u64 bytes
  STAGE = 23,      // u32 number (never 0, never used twice), u64 bytes in all, u64 offset, bytes to the end of the message
                   // (MOST_CHUNK): kept in the server's own memory until USE or DROP. Pieces come in their order. Only these
                   // may be read before messages that came earlier: nothing but USE and DROP of that number sees them
  USE = 24,        // u32 number, u8 Form, storage, u64 offset, u64 bytes: what was staged becomes these bytes of the storage
  GRAPH = 25,      // u32 graph, u32 registers, u32 inputs, u32 n, n registers: the outputs, u32 n, n patches, u32 n, n steps:
                   // calls that are run together by RUN. See `Step`
  RUN = 26,        // u32 graph, a storage for each input, a new storage for each output, the bytes of its patches
  VERBS = 27,      // struct verbs_end (engine/shared/verbs): this end of the queue pair. Once, before WELCOME
};

// A graph works on registers. The first ones are its inputs, storages of the session's; each other one is written once, by the step that
// makes it, before it is read, and is free after FREE or at the end; the outputs become storages of the session's at the end.
// patch: u32 offset, u16 bytes: this part of all payloads of the graph, one after the other, comes with each RUN
enum class Step : uint8_t {
  CALL = 'C',   // u32 signature, u16 n, n registers (the slots), u16 bytes and payload, u16 m, m registers: new outputs (NO_REGISTER:
                // it is not defined). A signature may be forgotten after the GRAPH that names it
  FREE = 'F',   // register; not one of the inputs
  ALLOC = 'A',  // register, u64 bytes
  UP = 'U',     // register, u64 offset, u32 bytes and they
};
constexpr uint32_t NO_REGISTER = UINT32_MAX;
constexpr size_t STEP_BYTES = 128;  // a step counts as so many besides its own
// What a graph counts: its message, its steps, its registers, and its signatures, each once.
constexpr size_t graph_bytes(size_t message, size_t steps, size_t registers, size_t signatures) {
  return message + steps * STEP_BYTES + registers * 8 + signatures;
}

enum class Dropped : uint8_t { GENERATOR = 0, STATE = 1, EVENT = 2, STAGED = 3, UNUSED_MEMORY = 4, GRAPH = 5 };
enum class Form : uint8_t { PLAIN = 0 };  // how the bytes of a storage stand in what was staged

enum class ToClient : uint8_t {
  WELCOME = 1,  // u32 WIRE_VERSION, str torch version, str JSON, u32 n, n str: operators that are allowed, as
                // "aten::add.Tensor" or, without overload, "aten::relu"
  ANSWER = 2,   // u32 tag, u16 n, n errors (u8 ErrorKind, str text, str operator), u16 n, n warnings (u8 WarningKind,
                // str text), u32 length, body
  DATA = 3,     // u32 tag, u64 offset in what was asked for, bytes to the end of the message (MOST_CHUNK)
  REFUSED = 4,  // u8 Refusal, str sentence; then the connection ends
  STARTING = 5, // nothing: the token is right; a GPU may take seconds to start
  NOTICE = 6,   // u8 Notice, str sentence: at any time
  VERBS = 7,    // struct verbs_end: the server's end of the queue pair
};

enum class Refusal : uint8_t { TOKEN = 1, VERSION = 2, NO_DEVICE = 3, TOO_MANY = 4, TRANSPORT = 5 };
enum class Notice : uint8_t { BUSY = 1, ENDING = 2 };  // an operator runs long; the session ends, and why

enum class ErrorKind : uint8_t {
  RUNTIME = 0,          // RuntimeError
  INDEX = 1,            // IndexError
  TYPE = 2,             // TypeError
  VALUE = 3,            // ValueError
  NOT_IMPLEMENTED = 4,  // NotImplementedError
  LINALG = 5,           // torch.linalg.LinAlgError
  OUT_OF_MEMORY = 6,    // torch.OutOfMemoryError
  ACCELERATOR = 7,      // torch.AcceleratorError: the device itself; every later call fails too
  ENGINE = 8,           // the engine's own: an operator that is refused, geometry that the client did not expect
};
enum class WarningKind : uint8_t { USER = 0, DEPRECATION = 1 };

// arguments: u16 n, n values. A value is a Tag and what stands behind it.
enum class Tag : char {
  NONE = 'N',
  UNDEFINED = 'U',     // an undefined tensor
  TENSOR = 'T',        // geometry, u16 slot, u8 bits (TensorBits)
  CPU_SCALAR = 'C',    // u8 dtype, u8 is a wrapped number; its bytes stand in the payload. A tensor without dimensions
  INT = 'i',           // i64 (also of dtype, layout, memory format)
  INT_LATER = 'j',     // i64 in the payload
  BOOL = 'b',          // i64
  DOUBLE = 'd',        // f64
  DOUBLE_LATER = 'D',  // f64 in the payload
  COMPLEX = 'z',       // f64, f64
  COMPLEX_LATER = 'Z', // f64, f64 in the payload
  STRING = 's',        // str
  DEVICE = 'v',        // i8 type (c10::DeviceType), i8 index of WELCOME's list (-1: the current one)
  GENERATOR = 'G',     // the device's own
  OTHER_GENERATOR = 'g',  // u32 generator
  INTS = 'I',          // u32 n, n i64
  BOOLS = 'B',         // u32 n, n i64
  DOUBLES = 'F',       // u32 n, n f64
  TENSORS = 'L',       // u32 n, n values TENSOR, UNDEFINED, CPU_SCALAR
  OPTIONAL_TENSORS = 'O',  // the same, and NONE
  SCALARS = 'S',       // u32 n, n values INT, BOOL, DOUBLE, COMPLEX and those with LATER
};
// Values in the payload stand in the order of their tags, without gaps.
// geometry: u8 dtype (c10::ScalarType), u8 dimensions, i64 sizes, i64 strides, i64 offset (in elements)
enum TensorBits : uint8_t { CONJUGATE = 1, NEGATIVE = 2 };

// beliefs: u16 n, n times: u8 defined, and if it is: geometry (offset 0). One for each new tensor that the operator
// returns, lists taken apart. "Not defined" takes every result: it is dropped. An output that the server finds
// undefined or empty where the client expects memory stays without memory: reading it is an error.
// Outputs of a CALL: a storage for each belief (0: it is not defined).
// Written arguments keep the geometry that the call said; the client resizes `out=` before it calls.
//
// Results (body of ANSWER to ASK): u16 n, n results:
//   u8 'T', storage, geometry, u64 bytes of the storage      a new tensor
//   u8 'U'                                                   undefined
//   u8 'L', u32 k, k times 'T' or 'U' as above               a list
//   u8 'i' i64 | 'b' i64 | 'd' f64 | 'z' f64 f64             a value
//   u8 'W'                                                   the written argument itself
// then u16 n, for each tensor that the schema marks as written, in the arguments' order, lists taken apart:
//   u16 argument, geometry, u64 bytes of its storage         as it is now

struct Counters {  // of one session
  uint64_t calls, failed, relaid, storages, storage_bytes, peak_bytes, signatures, signature_bytes;
};

class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes that go out.
class Writer {
 public:
  std::string bytes;

  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(const void* data, size_t count) { bytes.append(static_cast<const char*>(data), count); }
  void text(const char* data, size_t count) {
    put<uint32_t>(static_cast<uint32_t>(count));
    put(data, count);
  }
  void text(const std::string& value) { text(value.data(), value.size()); }

  // A message: begin, put..., end.
  template <class Kind>
  size_t begin(Kind kind) {
    put<uint8_t>(static_cast<uint8_t>(kind));
    put<uint32_t>(0);
    return bytes.size();
  }
  void end(size_t began) {
    uint32_t length = static_cast<uint32_t>(bytes.size() - began);
    memcpy(&bytes[began - sizeof length], &length, sizeof length);
  }
};

// Bytes that came in. Never reads beyond them: WireError instead.
class Reader {
 public:
  Reader(const char* data, size_t count) : at_(data), end_(data + count) {}
  explicit Reader(const std::string& data) : Reader(data.data(), data.size()) {}

  size_t left() const { return static_cast<size_t>(end_ - at_); }
  const char* here() const { return at_; }
  const char* take(size_t count) {
    if (count > left()) throw WireError("a message is shorter than it says");
    const char* from = at_;
    at_ += count;
    return from;
  }
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  // So many elements of this size: asked before room is made for them.
  template <class T>
  void array(T* to, size_t count) {
    if (count > left() / sizeof(T)) throw WireError("a message is shorter than it says");
    if (count) memcpy(to, take(count * sizeof(T)), count * sizeof(T));
  }
  std::string text(size_t most = MOST_TEXT) {
    auto count = get<uint32_t>();
    if (count > most) throw WireError("a text is longer than " + std::to_string(most) + " bytes");
    const char* from = take(count);
    return std::string(from, count);
  }
  // A list's length: each element takes at least `least` bytes.
  uint32_t count(size_t least, size_t most = MOST_VALUES) {
    auto n = get<uint32_t>();
    if (n > most || n > left() / least) throw WireError("a list is longer than its message, or than allowed");
    return n;
  }
  void finish() const {
    if (left()) throw WireError("a message is longer than it says");
  }

 private:
  const char *at_, *end_;
};

}  // namespace eat
