#include "faults.h"

#include <new>
#include <vector>

#include "processes.h"

namespace eat {
namespace {

std::string bounded(std::string text) {
  if (text.size() > MOST_TEXT) text.resize(MOST_TEXT);
  return text;
}

void put(Writer& to, const Fault& fault) {
  to.put<uint8_t>(static_cast<uint8_t>(fault.kind));
  to.text(fault.text);
  to.text(fault.name);
}

// Storages hold what spoiled them, so there are as many as a client that never frees likes: beyond a number they share one.
FaultPtr kept(Fault fault) {
  static size_t alive = 0;
  if (alive < MOST_FAULTS) {
    alive++;
    return FaultPtr(new Fault(std::move(fault)), [](Fault* gone) {
      alive--;
      delete gone;
    });
  }
  static FaultPtr others[static_cast<size_t>(ErrorKind::ENGINE) + 1];
  FaultPtr& shared = others[static_cast<size_t>(fault.kind)];
  if (!shared || shared->told)
    shared = std::make_shared<Fault>(Fault{fault.kind, "one of more errors than the server keeps for a session", ""});
  return shared;
}

}  // namespace

FaultPtr fault_now(const std::string& name) {
  auto made = [&](ErrorKind kind, std::string text) {
    return kept({kind, bounded(std::move(text)), name});
  };
  try {
    throw;
  } catch (const Refused& e) {
    return made(ErrorKind::ENGINE, e.what());
  } catch (const c10::IndexError& e) {
    return made(ErrorKind::INDEX, e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    return made(ErrorKind::TYPE, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    return made(ErrorKind::VALUE, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    return made(ErrorKind::NOT_IMPLEMENTED, e.what_without_backtrace());
  } catch (const c10::LinAlgError& e) {
    return made(ErrorKind::LINALG, e.what_without_backtrace());
  } catch (const c10::OutOfMemoryError& e) {
    return made(ErrorKind::OUT_OF_MEMORY, without_processes(e.what_without_backtrace()));
  } catch (const c10::AcceleratorError& e) {
    return made(ErrorKind::ACCELERATOR, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    return made(ErrorKind::RUNTIME, e.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return made(ErrorKind::OUT_OF_MEMORY, "out of memory: the server's host has none left");
  } catch (const std::out_of_range& e) {
    return made(ErrorKind::INDEX, e.what());
  } catch (const std::exception& e) {
    return made(ErrorKind::RUNTIME, e.what());
  }
}

FaultPtr own_fault(const std::string& name, std::string text) {
  return kept({ErrorKind::ENGINE, bounded(std::move(text)), name});
}

FaultPtr again(const Fault& fault) { return kept({fault.kind, fault.text, fault.name}); }

void Telling::keep(FaultPtr fault) {
  if (fault->kind == ErrorKind::ACCELERATOR && !broken_) broken_ = fault;
  if (faults_.size() < MOST_ERRORS) faults_.push_back(std::move(fault));
}

void Telling::process(const c10::Warning& warning) {
  if (warnings_.size() >= MOST_ERRORS) return;
  bool user = std::holds_alternative<c10::UserWarning>(warning.type());
  warnings_.emplace_back(user ? WarningKind::USER : WarningKind::DEPRECATION, bounded(warning.msg()));
}

void Telling::put_warnings(Writer& to) {
  to.put<uint16_t>(static_cast<uint16_t>(warnings_.size()));
  for (const auto& [kind, text] : warnings_) {
    to.put<uint8_t>(static_cast<uint8_t>(kind));
    to.text(text);
  }
  warnings_.clear();
}

void Telling::put_all(Writer& to) {
  std::vector<FaultPtr> now;
  if (broken_) now.push_back(broken_);
  for (auto& fault : faults_)
    if (!fault->told && fault != broken_) now.push_back(fault);
  faults_.clear();
  to.put<uint16_t>(static_cast<uint16_t>(now.size()));
  for (auto& fault : now) {
    put(to, *fault);
    fault->told = true;
  }
  put_warnings(to);
}

void Telling::put_only(Writer& to, const FaultPtr& only) {
  const FaultPtr& fault = broken_ ? broken_ : only;
  to.put<uint16_t>(fault ? 1 : 0);
  if (fault) {
    put(to, *fault);
    fault->told = true;
  }
  while (!faults_.empty() && faults_.front()->told) faults_.pop_front();
  put_warnings(to);
}

}  // namespace eat
