// The C functions that the launcher calls. The parent makes the account and the list of operators; a child serves.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "account.h"
#include "session.h"

#define EATS_API extern "C" __attribute__((visibility("default")))

namespace {

eat::Operators* operators;

std::string welcome(const char* torch_version, const char* json) {
  eat::Writer to;
  auto began = to.begin(eat::ToClient::WELCOME);
  to.put<uint32_t>(eat::WIRE_VERSION);
  to.text(torch_version);
  to.text(json);
  auto names = operators->names();
  to.put<uint32_t>(static_cast<uint32_t>(names.size()));
  for (const auto& name : names) to.text(name);
  to.end(began);
  return to.bytes;
}

}  // namespace

EATS_API int eats_wire_version() { return static_cast<int>(eat::WIRE_VERSION); }
EATS_API size_t eats_account_bytes() { return eat::account_bytes(); }
EATS_API void eats_account_make(void* memory, uint64_t limit) { eat::account_make(memory, limit); }
EATS_API void eats_account_clear(void* memory, size_t session) { eat::account_clear(memory, session); }

// Reads the list of allowed operators; how many of them this torch has.
EATS_API int eats_operators(const char* lines, int on_processors) {
  operators = new eat::Operators(lines, on_processors);
  return static_cast<int>(operators->names().size());
}

// What makes groups of sessions, in Python: groups.h.
EATS_API void eats_groups(eat::GroupFunction make) { eat::make_groups_by(make); }

// Serves the connection, by verbs where there is a queue pair, until its client goes. 0: it went; 1: it said what is no message (`why`).
EATS_API int eats_serve(int fd, verbs* carrier, int cuda, int devices, void* account, size_t session, double busy_s, int64_t like_cuda,
                        const char* torch_version, const char* json, char* why, size_t why_bytes) {
  snprintf(why, why_bytes, "%s", "");
  try {
    eat::account_use(account, session, like_cuda >= 0);
    eat::Settings settings;
    settings.device = c10::Device(cuda ? c10::kCUDA : c10::kCPU);
    settings.devices = devices;
    settings.busy_s = busy_s;
    settings.runs = cuda || !getenv("ELASTIC_AI_TORCH_OPERATORS_DO_NOTHING");
    if (like_cuda >= 0) settings.like_cuda = static_cast<uint64_t>(like_cuda);
    auto* one = new eat::Session(eat::Carrier{fd, carrier}, settings, *operators);  // ends with the process
    try {
      one->greet(welcome(torch_version, json));
      one->run();
    } catch (const eat::Gone&) {
      return 0;
    } catch (const std::exception& e) {
      snprintf(why, why_bytes, "%s", e.what());
      one->tell_ending(std::string("the server ended the session: ") + e.what());
      return 1;
    }
  } catch (const eat::Gone&) {
  } catch (const std::exception& e) {
    snprintf(why, why_bytes, "%s", e.what());
  }
  return 1;
}
