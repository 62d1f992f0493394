// The interpreter by dlsym: see python.h.
#include "python.h"

#include <dlfcn.h>

#include <exception>
#include <string>

// torch's bindings catch `python_error` (torch/csrc/Exceptions.h) and return to the interpreter with the exception that is set
// there. Catching compares the name of the type. Its header needs Python's, so the same shape stands here: with `type` empty
// the catcher's restore() changes nothing.
struct __attribute__((visibility("default"))) python_error : public std::exception {
  const char* what() const noexcept override { return message.c_str(); }
  void* type = nullptr;
  void* value = nullptr;
  void* traceback = nullptr;
  std::string message = "interrupted";
};

namespace eat {

namespace {

struct Interpreter {
  int (*initialized)();
  int (*lock_held)();
  void* (*release)();
  void (*restore)(void*);
  int (*ensure)();
  void (*let_go)(int);
  int (*check_signals)();
  void (*clear)();
  bool there = false;

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    if (!function) there = false;
  }

  Interpreter() {
    there = true;
    find(initialized, "Py_IsInitialized");
    find(lock_held, "PyGILState_Check");
    find(release, "PyEval_SaveThread");
    find(restore, "PyEval_RestoreThread");
    find(ensure, "PyGILState_Ensure");
    find(let_go, "PyGILState_Release");
    find(check_signals, "PyErr_CheckSignals");
    find(clear, "PyErr_Clear");
  }
  bool runs() const { return there && initialized(); }
};

const Interpreter& interpreter() {
  static const Interpreter one;
  return one;
}

}  // namespace

WithoutLock::WithoutLock() {
  const Interpreter& python = interpreter();
  if (python.runs() && python.lock_held()) state_ = python.release();
}

WithoutLock::~WithoutLock() {
  if (state_) interpreter().restore(state_);
}

bool signal_raised() {
  const Interpreter& python = interpreter();
  if (!python.runs()) return false;
  int held = python.ensure();
  bool raised = python.check_signals() != 0;
  python.let_go(held);
  return raised;
}

void clear_exception() {
  const Interpreter& python = interpreter();
  if (!python.runs()) return;
  int held = python.ensure();
  python.clear();
  python.let_go(held);
}

void throw_python_exception() { throw python_error(); }

}  // namespace eat
