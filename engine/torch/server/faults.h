// Errors and warnings of operators: kept until an answer can tell them.
#pragma once

#include <c10/util/Exception.h>

#include <deque>
#include <memory>
#include <string>

#include "../shared/wire.h"

namespace eat {

// What a message asks for cannot be: the message is whole, so the session goes on. (WireError: it is not, and ends it.)
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An error that was kept. Storages that it spoiled point to it. Once it is told, what it spoiled is usable again where
// it has memory: the calls that were skipped on its account are those that an exception at the line would have
// skipped, so a program that catches it finds its tensors as a program on an own GPU does.
struct Fault {
  ErrorKind kind;
  std::string text, name;  // name: of the operator
  bool told = false;
};
using FaultPtr = std::shared_ptr<Fault>;

// Of the exception that is being handled: with torch's own text.
FaultPtr fault_now(const std::string& name);
// One of the engine's own.
FaultPtr own_fault(const std::string& name, std::string text);
// The same once more, to be told anew.
FaultPtr again(const Fault& fault);

// What waits to be told.
class Telling : public c10::WarningHandler {
 public:
  void keep(FaultPtr fault);
  void process(const c10::Warning& warning) override;
  // Errors (all that wait, or `only` this one) and warnings, as an ANSWER has them; they are told by that.
  void put_all(Writer& to);
  void put_only(Writer& to, const FaultPtr& only);
  // The device is broken: no call succeeds any more.
  const FaultPtr& broken() const { return broken_; }

 private:
  void put_warnings(Writer& to);

  std::deque<FaultPtr> faults_;
  std::deque<std::pair<WarningKind, std::string>> warnings_;
  FaultPtr broken_;
};

}  // namespace eat
