// A thread that reads while the session computes: what a client sends ahead is taken from the network then, and not when the
// operator or the wait that the session is in has ended. All else that it meets waits, in its order, for the session.
// It begins with the first message that stages something, so sessions without that do not have it.
#pragma once

#include <exception>
#include <mutex>

#include "link.h"
#include "staging.h"

namespace eat {

class ReadAhead {
 public:
  ReadAhead(Link& link, Staging& staging) : link_(link), staging_(staging) {}
  // Once; the thread lives as long as the process.
  void start();
  // With the turn: throws what ended the thread.
  void check() {
    if (fault_) std::rethrow_exception(fault_);
  }

 private:
  void loop();
  bool read_some();

  Link& link_;
  Staging& staging_;
  bool started_ = false;
  std::exception_ptr fault_;
};

}  // namespace eat
