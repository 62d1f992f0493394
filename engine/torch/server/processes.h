// What torch's words for a full GPU say of other programs there: left out, for they may be another tenant's. No header of
// torch here.
#pragma once

#include <cctype>
#include <string>

namespace eat {

// Without each "Process 4711 has 1.50 GiB memory in use. "; what it says of this process stays.
inline std::string without_processes(std::string text) {
  static const std::string BEGIN = "Process ", MIDDLE = " has ", END = " memory in use. ";
  for (size_t at = 0; (at = text.find(BEGIN, at)) != std::string::npos;) {
    size_t digits = at + BEGIN.size(), after = digits;
    while (after < text.size() && isdigit(static_cast<unsigned char>(text[after]))) after++;
    size_t end = text.find(END, after);
    bool is_one = after > digits && !text.compare(after, MIDDLE.size(), MIDDLE) && end != std::string::npos &&
                  text.find('\n', after) > end;
    if (is_one) text.erase(at, end + END.size() - at);
    else at = digits;
  }
  return text;
}

}  // namespace eat
