#include "watch.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "../shared/network.h"

namespace eat {

// Coarse: a call begins with a look at it.
uint64_t Watch::clock() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return uint64_t(t.tv_sec) * 1000 + uint64_t(t.tv_nsec) / 1000000;
}

Watch::Watch(Link& link, double busy_s) : link_(link), busy_s_(busy_s) {
  if (pipe(stop_)) throw std::runtime_error("pipe");
  thread_ = std::thread([this] { loop(); });
}

Watch::~Watch() {
  close(stop_[1]);
  thread_.join();
  close(stop_[0]);
}

void Watch::loop() {
  uint64_t gone = 0, told = 0;
  for (;;) {
    pollfd waits[2] = {{stop_[0], POLLIN, 0}, {gone_ ? -1 : link_.fd(), static_cast<short>(gone ? 0 : POLLRDHUP), 0}};
    if (poll(waits, 2, 500) < 0 && errno != EINTR) return;
    if (waits[0].revents) return;
    auto now = clock();
    if (!gone && is_cut(link_.fd(), CUT_S)) {
      shutdown(link_.fd(), SHUT_RDWR);  // who reads or writes is told
      gone = now;
      gone_ = true;
    }
    if (waits[1].revents && !gone) gone = now;
    if (waits[1].revents & (POLLERR | POLLHUP)) gone_ = true;  // more than the end of what it says: nobody hears us either
    if (gone && now - gone > GRACE_S * 1000) _exit(4);
    auto* name = name_.load(std::memory_order_acquire);
    auto began = began_.load(std::memory_order_relaxed);
    if (gone || !name || !began || began == told || now - began < busy_s_ * 1000) continue;
    Writer notice;
    auto at = notice.begin(ToClient::NOTICE);
    notice.put<uint8_t>(static_cast<uint8_t>(Notice::BUSY));
    notice.text(*name + " has been running for " + std::to_string((now - began) / 1000) + " s");
    notice.end(at);
    try {
      if (link_.write_at_once(notice.bytes)) told = began;
    } catch (const Gone&) {
      gone = now;
    }
  }
}

}  // namespace eat
