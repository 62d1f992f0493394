// The interpreter of the process, found at run time: this library is built for a release of torch, not for one of Python.
// Without an interpreter everything here does nothing.
#pragma once

namespace eat {

// Gives the interpreter's lock back while this lives, when this thread holds it.
class WithoutLock {
 public:
  WithoutLock();
  ~WithoutLock();
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  void* state_ = nullptr;
};

// Whether a signal's handler raised (Ctrl-C); the exception is then set in the interpreter. Takes the lock.
bool signal_raised();
// Clears an exception that a Python function left behind.
void clear_exception();
// Ends this call by the exception that is set in the interpreter.
[[noreturn]] void throw_python_exception();

}  // namespace eat
