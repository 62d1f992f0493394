// Reading small JSON: the configuration from Python, the devices from WELCOME. No header of torch here.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace eat {

class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Json {
  enum class Kind { NOTHING, TRUTH, NUMBER, TEXT, LIST, OBJECT } kind = Kind::NOTHING;
  bool truth = false;
  double number = 0;
  std::string text;
  std::vector<Json> list;
  std::map<std::string, Json> object;
  std::string raw;  // as it stood

  // A member of an object, or one of kind NOTHING.
  const Json& operator[](const std::string& name) const;
};

// Throws JsonError.
Json read_json(std::string_view text);
std::string quoted(const std::string& text);

}  // namespace eat
