// The C functions of api.h: each turns exceptions into -1, a text and a kind.
#include "api.h"

#include <c10/util/Exception.h>

#include <map>
#include <mutex>
#include <new>

#include "client/tensors/ahead.h"
#include "client/operators/graphs.h"
#include "guard.h"
#include "client/tensors/memory.h"
#include "client/tensors/packing.h"
#include "python.h"
#include "client/kernels/random.h"
#include "register.h"
#include "client/connection/state.h"
#include "client/tensors/together.h"
#include "client/operators/values.h"

namespace {

using namespace eat;

thread_local std::string last_error;
thread_local int last_kind = EAT_RUNTIME;
eat_warn_fn warn_function = nullptr;

class Warner final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warn_function) warn_function(warning.msg().c_str());
    else c10::WarningHandler::process(warning);
  }
};

int failed(int kind, const std::string& text) {
  last_kind = kind;
  last_error = text;
  return -1;
}

// An exception of this very thread, from within its handler.
int failed() {
  try {
    throw;
  } catch (const c10::IndexError& error) {
    return failed(EAT_INDEX, error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    return failed(EAT_TYPE, error.what_without_backtrace());
  } catch (const c10::ValueError& error) {
    return failed(EAT_VALUE, error.what_without_backtrace());
  } catch (const c10::NotImplementedError& error) {
    return failed(EAT_NOT_IMPLEMENTED, error.what_without_backtrace());
  } catch (const c10::LinAlgError& error) {
    return failed(EAT_LINALG, error.what_without_backtrace());
  } catch (const c10::OutOfMemoryError& error) {
    return failed(EAT_OUT_OF_MEMORY, error.what_without_backtrace());
  } catch (const c10::AcceleratorError& error) {
    return failed(EAT_ACCELERATOR, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return failed(EAT_RUNTIME, error.what_without_backtrace());
  } catch (const std::exception& error) {
    if (std::string(error.what()) == "interrupted") return failed(EAT_INTERRUPTED, error.what());
    return failed(EAT_ENGINE, error.what());
  }
}

template <class Work>
int guarded(Work work) {
  static Warner warner;
  try {
    c10::WarningUtils::WarningHandlerGuard handler(&warner);
    work();
    return 0;
  } catch (...) {
    return failed();
  }
}

std::mutex events_mutex;
std::map<uint32_t, RemoteEvent>& events() {
  static auto* all = new std::map<uint32_t, RemoteEvent>;
  return *all;
}

RemoteEvent& event_of(uint32_t number) {
  std::lock_guard<std::mutex> lock(events_mutex);
  auto found = events().find(number);
  if (found == events().end()) throw std::invalid_argument("no event of that number");
  return found->second;
}

}  // namespace

extern "C" {

const char* eat_error(void) { return last_error.c_str(); }
int eat_error_kind(void) { return last_kind; }

int eat_register(int devices, const char* where_json) {
  return guarded([&] {
    interrupted = &signal_raised;
    configure(devices, where_json);
    register_all();
  });
}

int eat_registered(void) { return registered(); }

const char* eat_foreign(void) {
  static std::string lines;
  lines = foreign();
  return lines.c_str();
}

int eat_connect(void) {
  return guarded([] { device(-1); });
}
int eat_is_initialized(void) { return is_connected() && !in_fork(); }
int eat_device_count(void) { return device_count(); }
int eat_device(void) { return current_device(); }
int eat_set_device(int number) {
  return guarded([&] { set_current_device(number); });
}

const char* eat_properties(int number) {
  const char* properties = nullptr;
  guarded([&] { properties = device(number).properties.c_str(); });
  return properties;
}

int eat_synchronize(int number) {
  return guarded([&] { synchronize(device(number)); });
}

int eat_memory(int number, int64_t out[8]) {
  return guarded([&] {
    Device& one = device_unconnected(number);
    Memory& memory = one.memory;
    out[0] = out[2] = memory.allocated;
    out[1] = out[3] = memory.peak;
    out[4] = memory.allocations;
    out[5] = memory.frees;
    out[6] = one.total_bytes;
    out[7] = memory.refused;
  });
}

int eat_empty_cache(void) {
  return guarded([] { drop_unused_memory(); });
}

int eat_memory_reset_peak(int number) {
  return guarded([&] {
    Memory& memory = device_unconnected(number).memory;
    memory.peak = memory.allocated.load();
  });
}

int eat_seed(int number, uint64_t seed) {
  return guarded([&] {
    at::Generator generator = default_generator(number);
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  });
}
int eat_initial_seed(int number, uint64_t* seed) {
  return guarded([&] { *seed = default_generator(number).current_seed(); });
}

int eat_rng_get(int number, uint8_t* bytes, size_t* length) {
  return guarded([&] {
    std::string state = get_state(device(number), 0);
    if (state.size() > *length) throw std::length_error("the state has " + std::to_string(state.size()) + " bytes");
    memcpy(bytes, state.data(), state.size());
    *length = state.size();
  });
}
int eat_rng_set(int number, const uint8_t* bytes, size_t length) {
  return guarded([&] { set_state(device(number), 0, std::string(reinterpret_cast<const char*>(bytes), length)); });
}
int eat_rng_keep(int number, uint32_t* state) {
  return guarded([&] { *state = keep_state(device(number), 0); });
}
int eat_rng_use(int number, uint32_t state) {
  return guarded([&] { use_state(device(number), 0, state); });
}
int eat_rng_drop(int number, uint32_t state) {
  return guarded([&] { drop(device(number), Dropped::STATE, state); });
}

const char* eat_member(int number) {
  thread_local std::string told;
  return guarded([&] { told = member(device(number)); }) ? nullptr : told.c_str();
}
int eat_join(int number, const char* request, uint32_t* group) {
  return guarded([&] {
    Device& one = device(number);
    *group = new_group();
    wait_for(one, *join(one, *group, request));
  });
}
int eat_leave(int number, uint32_t group) {
  return guarded([&] { leave(device(number), group); });
}
int eat_wait_work(int number, uint32_t work) {
  return guarded([&] { wait_work(device(number), work); });
}
int eat_work_stream(int number, uint32_t work) {
  return guarded([&] { use_work_stream(number, work); });
}

int eat_event_record(int number, uint32_t* event) {
  return guarded([&] {
    RemoteEvent made{*event ? *event : new_event_number(), &device(number), {}, 0, 0};
    record_event(made);
    *event = made.number;
    std::lock_guard<std::mutex> lock(events_mutex);
    events()[made.number] = made;
  });
}
int eat_event_query(int, uint32_t event) {
  bool done = false;
  if (guarded([&] { done = query_event(event_of(event)); })) return -1;
  return done;
}
int eat_event_synchronize(int, uint32_t event) {
  return guarded([&] { wait_event(event_of(event)); });
}
int eat_event_elapsed(int, uint32_t from, uint32_t to, double* ms) {
  return guarded([&] {
    double began = wait_event(event_of(from));
    *ms = wait_event(event_of(to)) - began;
  });
}
int eat_event_drop(int, uint32_t event) {
  return guarded([&] {
    drop_event(event_of(event));
    std::lock_guard<std::mutex> lock(events_mutex);
    events().erase(event);
  });
}

void eat_after_fork(void) { after_fork(); }
int eat_in_bad_fork(void) { return in_fork(); }
void eat_shutdown(void) {
  guarded([] { shut_down(); });
}

int eat_stats(int64_t out[24]) {
  return guarded([&] {
    std::fill(out, out + 24, 0);
    out[0] = counters.calls;
    out[6] = counters.learned;
    out[7] = counters.meta_failed;
    out[8] = counters.local;
    out[9] = counters.forgotten;
    out[10] = counters.rules;
    out[11] = counters.known;
    out[12] = counters.asks;
    out[13] = counters.ahead;
    out[14] = counters.ahead_used;
    out[15] = packed_uploads;
    out[16] = ahead_bytes;
    out[17] = graph_runs;
    out[18] = values_along;
    out[19] = values_computed;
    out[20] = values_checked;
    out[21] = values_wrong;
    std::vector<Server*> seen;
    for (int i = 0; i < device_count(); i++) {
      Server* server = device_unconnected(i).server;
      if (std::find(seen.begin(), seen.end(), server) != seen.end()) continue;
      seen.push_back(server);
      const Traffic& traffic = server->connection.traffic;
      out[1] += traffic.waits;
      {
        std::lock_guard<std::mutex> order(server->connection.order);
        out[2] += static_cast<int64_t>(server->table.size());
      }
      out[3] += traffic.up_bytes;
      out[4] += traffic.down_bytes;
      out[5] += traffic.sent_bytes;
    }
  });
}

void eat_set_warn(eat_warn_fn warn) { warn_function = warn; }

}  // extern "C"
