// The devices of this process and the servers behind them; how errors of theirs become torch's own exceptions.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shared/flags.h"
#include "client/json.h"
#include "queue.h"
#include "signatures.h"

namespace eat {

// A connection, with what was told by it. `table` and `told` are used with connection.order held.
struct Server {
  explicit Server(Where where) : connection(std::move(where)) {}
  Connection connection;
  Signatures table;
  Flags told;
  std::atomic<bool> is_ready{false};  // what it told of its devices is there
};

struct Memory {  // bytes and counts of one device, as this client asked for them
  std::atomic<int64_t> allocated{0}, peak{0}, allocations{0}, frees{0}, total_allocated{0}, total_freed{0}, refused{0};
};

struct Device {
  int number = 0;         // here
  uint8_t there = 0;      // in the server's list
  Server* server = nullptr;
  Memory memory;
  std::atomic<int64_t> total_bytes{0};  // the lease's part; 0 until connected
  bool processor = false;               // a lab: the server computes on processors
  bool onednn_bf16 = false, onednn_fp16 = false;  // whether that processor's oneDNN takes these
  int64_t cudnn_version = 0;            // as 91002; 0: the server has none
  std::string properties;               // JSON
  uint64_t seed = 0;                    // of the default generator, until connected
  Connection& connection() const { return server->connection; }
};

struct ClientCounters {
  std::atomic<int64_t> calls{0}, learned{0}, meta_failed{0}, local{0}, forgotten{0}, rules{0}, known{0}, asks{0}, ahead{0}, ahead_used{0};
};
extern ClientCounters counters;

// Reads the configuration of api.h; throws std::invalid_argument. Not after the connection.
void configure(int devices, const std::string& where_json);
int device_count();
bool sync_mode();

// The thread's current device; a device that there is not: "CUDA error: invalid device ordinal". Negative changes nothing.
int current_device();
int set_current_device(int device);  // gives the one before
void set_current_device_unchecked(int device) noexcept;

// Sets the current device while it lives; negative changes nothing.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { set_current_device_unchecked(device); }
  ~OnDevice() { set_current_device_unchecked(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
};

// The device of that number (-1: the current one), its server connected: a session takes memory there, so that a process has
// none where it uses no device. Throws.
Device& device(int number);
// The same without connecting.
Device& device_unconnected(int number);
bool is_connected();  // to any server
bool is_connected(const Device& device);

// Waits for the answer of a question that was sent to the device, with the interpreter's lock given back; raises its errors, those
// that background questions left, and the warnings. `name` of an operator is for nothing but messages.
void wait_for(Device& device, Ticket& ticket);
// The two halves of it: the ticket's errors are left to the caller, and are raised.
void wait_only(Device& device, Ticket& ticket);
void raise_answer(Device& device, Ticket& ticket);
// Errors of answers that nobody wanted yet: the next synchronize() raises them, unless they were raised where they are read.
void leave_untold(const std::vector<ToldError>& errors);
// An error of the device itself was raised: nothing of it can be used any more.
bool has_failed();
void raise_news(Device& device);
// Before something is put in the queue: waits while too much waits there.
void wait_for_queue(Device& device);
[[noreturn]] void raise(const std::vector<ToldError>& errors);

// Waits until all is computed; raises what was not yet told.
void synchronize(Device& device);

// A child of fork: nothing may be sent, nothing locked.
bool in_fork();
void after_fork();
void shut_down();

}  // namespace eat
