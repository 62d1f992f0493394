#include "operators.h"

#include <algorithm>
#include <sstream>

namespace eat {

Operators::Operators(const std::string& lines, bool on_processors) {
  std::istringstream from(lines);
  for (std::string line; std::getline(from, line);) {
    if (line.empty() || line[0] == '#') continue;
    auto dot = line.find('.');
    auto name = line.substr(0, dot), overload = dot == std::string::npos ? "" : line.substr(dot + 1);
    auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
    if (!handle) continue;
    Operator op{*handle, line, {}};
    const auto& arguments = handle->schema().arguments();
    for (size_t i = 0; i < arguments.size(); i++)
      if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite())
        op.written.push_back(static_cast<uint16_t>(i));
    if (on_processors) {
      op.replaced = replacement(line);
      op.only_with_gpu = !op.replaced && !handle->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    }
    known_.emplace(line, std::move(op));
  }
}

const Operator* Operators::find(const std::string& name, const std::string& overload) const {
  auto at = known_.find(overload.empty() ? name : name + "." + overload);
  return at == known_.end() ? nullptr : &at->second;
}

std::vector<std::string> Operators::names() const {
  std::vector<std::string> names;
  for (const auto& [name, op] : known_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace eat
