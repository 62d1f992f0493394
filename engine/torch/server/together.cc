// COLLECTIVE: a session's part in what the sessions of a lease do together.
#include <ATen/Functions.h>

#include "../shared/together.h"
#include "groups.h"
#include "session.h"

namespace eat {
namespace {

const std::string NAME = "collective";

std::vector<int64_t> rows(Reader& body) {
  std::vector<int64_t> made(body.count(sizeof(int64_t), MOST_MEMBERS));
  body.array(made.data(), made.size());
  return made;
}

}  // namespace

void Session::together(Reader& body) {
  auto what = static_cast<Together>(body.get<uint8_t>());
  switch (what) {
    case Together::MEMBER:
    case Together::JOIN: {
      auto tag = body.get<uint32_t>();
      bool joins = what == Together::JOIN;
      auto group = joins ? body.get<uint32_t>() : 0;
      auto request = joins ? body.text(MOST_REQUEST) : std::string();
      FaultPtr fault;
      std::string answered;
      try {
        Running running(watch_, NAME);
        answered = groups_.ask(joins ? "join" : "member", group, request);
      } catch (const std::exception&) {
        fault = fault_now(NAME);
      }
      answer(tag, answered, false, fault);
      break;
    }
    case Together::BEGIN: begin_work(body); break;
    case Together::WAIT: wait_work(body.get<uint32_t>()); break;
    case Together::LEAVE:
      try {
        Running running(watch_, NAME);
        groups_.ask("leave", body.get<uint32_t>(), std::string());
      } catch (const Refused&) {  // it has gone by itself
      }
      break;
    default: throw WireError("there is no such part of a collective");
  }
}

void Session::begin_work(Reader& body) {
  auto group = body.get<uint32_t>(), work = body.get<uint32_t>();
  Collective one;
  one.name = body.text();
  one.operation = body.text();
  one.root = body.get<int32_t>();
  one.tag = body.get<int32_t>();
  one.output_rows = rows(body);
  one.input_rows = rows(body);
  FaultPtr fault = telling.broken();
  auto tensors = [&](std::vector<at::Tensor>& to, bool written) {
    for (auto left = body.get<uint16_t>(); left; left--) {
      auto number = body.get<uint32_t>();
      Geometry geometry = get_geometry(body);
      Held* held = storages.find(number);
      if (written) one.written.push_back(number);
      if (fault) continue;
      if (!held || !held->has_memory()) {
        fault = held && held->fault ? held->fault : own_fault(NAME, "there is no storage " + std::to_string(number));
        if (!held) telling.keep(fault);
        continue;
      }
      if (!written) fault = held->spoiled();
      if (fault) continue;
      try {
        if (geometry.bytes > held->storage.nbytes()) throw Refused("a tensor reaches beyond its storage");
        at::Tensor made = make_tensor(geometry, 0, held->storage);
        if (!made.is_contiguous()) throw Refused("a collective takes contiguous tensors");  // backends go by its number of elements
        to.push_back(std::move(made));
      } catch (const std::exception&) {
        telling.keep(fault = fault_now(NAME));
      }
    }
  };
  tensors(one.outputs, true);
  tensors(one.inputs, false);
  auto written = one.written;
  if (one.name == "give" || one.name == "take") return copy_between(group, one, fault);
  if (!fault) {
    try {
      Running running(watch_, NAME);
      groups_.begin(group, work, std::move(one));
      return;
    } catch (const WireError&) {
      throw;
    } catch (const std::exception&) {
      telling.keep(fault = fault_now(NAME));
    }
  }
  counters.failed++;
  for (auto number : written) {
    if (Held* held = storages.find(number); held && !held->spoiled()) held->fault = fault;
  }
}

// A copy between servers, done at once: who takes waits for who gives, so something is given in any case.
void Session::copy_between(uint32_t group, Collective& one, FaultPtr fault) {
  Held* held = one.written.empty() ? nullptr : storages.find(one.written[0]);
  try {
    Running running(watch_, NAME);
    if (one.name == "give") return groups_.give(group, one.root, fault || one.inputs.empty() ? at::Tensor() : one.inputs[0]);
    at::Tensor into = one.outputs.empty() ? at::empty({one.output_rows.empty() ? 0 : one.output_rows[0]}, at::TensorOptions(at::kByte).device(device_))
                                          : one.outputs[0];
    if (groups_.take(group, one.root, into)) return;
    fault = own_fault(NAME, "what was to be copied from another server could not be computed there");
  } catch (const std::exception&) {
    fault = fault_now(NAME);
  }
  telling.keep(fault);
  if (held && !held->spoiled()) held->fault = fault;
}

void Session::wait_work(uint32_t number) {
  if (!groups_.is_begun(number)) return;
  auto written = groups_.written(number);
  FaultPtr fault;
  try {
    Running running(watch_, NAME);
    groups_.wait(number);
    return;
  } catch (const std::exception& e) {
    std::string first = e.what();
    fault = own_fault(NAME, "process group \"nccl\": a rank has ended or cannot be reached; all have to start again (" +
                                first.substr(0, first.find('\n')) + ")");
  }
  telling.keep(fault);
  for (auto at : written) {
    if (Held* held = storages.find(at); held && !held->spoiled()) held->fault = fault;
  }
}

}  // namespace eat
