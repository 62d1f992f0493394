#include "ahead.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

namespace eat {
namespace {

constexpr size_t MOST_GIVEN = size_t(1) << 20;  // messages for the session; with more of them this thread lets the network wait
constexpr useconds_t NAP_US = 1000, LONGEST_NAP_US = 8000;

}  // namespace

void ReadAhead::start() {
  if (started_) return;
  started_ = true;
  std::thread([this] { loop(); }).detach();
}

// Reads messages until the session wants to. Whether there was one.
bool ReadAhead::read_some() {
  bool any = false;
  while (!link_.wanted && !fault_ && link_.given() < MOST_GIVEN && staging_.has_room() && link_.is_ready()) {
    any = true;
    struct __attribute__((packed)) {
      ToServer kind;
      uint32_t length;
    } head;
    link_.read_new(&head, sizeof head);
    if (head.length > MOST_MESSAGE) throw WireError("a message is longer than allowed");
    if (head.kind == ToServer::STAGE) {
      staging_.read(link_, head.length, true);
      continue;
    }
    std::string message(sizeof head + head.length, '\0');
    memcpy(message.data(), &head, sizeof head);
    link_.read_new(message.data() + sizeof head, head.length);
    link_.give_back(message);
  }
  return any;
}

void ReadAhead::loop() {
  // While the session reads it has the turn, so what is had here is its time in an operator or in a wait for the device.
  useconds_t nap = NAP_US;
  for (;;) {
    usleep(nap);
    nap = std::min(2 * nap, LONGEST_NAP_US);
    if (link_.wanted || !link_.turn.try_lock()) continue;
    std::lock_guard<std::mutex> turn(link_.turn, std::adopt_lock);
    try {
      if (read_some()) nap = NAP_US;
    } catch (...) {
      fault_ = std::current_exception();
      return;
    }
  }
}

}  // namespace eat
