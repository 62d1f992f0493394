// A thread beside a session: sees operators that run too long, and that the client has gone while one runs.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "link.h"

namespace eat {

class Watch {
 public:
  // busy_s: an operator that runs longer is told to the client, by its name, once.
  Watch(Link& link, double busy_s);
  ~Watch();

  // `name` must stay; nullptr: nothing runs.
  void runs(const std::string* name) {
    began_.store(name ? clock() : 0, std::memory_order_relaxed);
    name_.store(name, std::memory_order_release);
  }

  // The client has gone, and hears nothing any more: what it has said before is for nobody.
  bool gone() const { return gone_.load(std::memory_order_relaxed); }

  // Ends the process when what this thread of the session is in has not ended so long after its client has.
  static constexpr double GRACE_S = 10;
  // The client is gone when what was sent is not acknowledged for so long.
  static constexpr uint32_t CUT_S = 20;

 private:
  static uint64_t clock();
  void loop();

  Link& link_;
  double busy_s_;
  std::atomic<const std::string*> name_{nullptr};
  std::atomic<uint64_t> began_{0};
  std::atomic<bool> gone_{false};
  int stop_[2];
  std::thread thread_;
};

class Running {
 public:
  Running(Watch& watch, const std::string& name) : watch_(watch) { watch_.runs(&name); }
  ~Running() { watch_.runs(nullptr); }

 private:
  Watch& watch_;
};

}  // namespace eat
