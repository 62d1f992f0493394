// A reader of JSON by descent: see json.h.
#include "json.h"

#include <cstdlib>

namespace eat {

namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json whole() {
    Json value = one(0);
    space();
    if (at_ != text_.size()) stop("something stands behind the value");
    return value;
  }

 private:
  [[noreturn]] void stop(const char* why) const { throw JsonError("JSON at byte " + std::to_string(at_) + ": " + why); }
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) at_++;
  }
  char look() {
    space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool next(char wanted) {
    if (look() != wanted) return false;
    at_++;
    return true;
  }
  void need(char wanted) {
    if (!next(wanted)) stop("another character was expected");
  }
  bool word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  void code_point(std::string& to) {
    if (text_.size() - at_ < 4) stop("a short escape");
    auto code = static_cast<unsigned>(strtoul(std::string(text_.substr(at_, 4)).c_str(), nullptr, 16));
    at_ += 4;
    if (code < 0x80) to += static_cast<char>(code);
    else if (code < 0x800) (to += static_cast<char>(0xc0 | code >> 6)) += static_cast<char>(0x80 | (code & 63));
    else ((to += static_cast<char>(0xe0 | code >> 12)) += static_cast<char>(0x80 | (code >> 6 & 63))) += static_cast<char>(0x80 | (code & 63));
  }

  std::string text() {
    need('"');
    std::string to;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c != '\\') {
        to += c;
        continue;
      }
      if (at_ == text_.size()) stop("an escape without end");
      switch (char e = text_[at_++]) {
        case 'n': to += '\n'; break;
        case 't': to += '\t'; break;
        case 'r': to += '\r'; break;
        case 'b': to += '\b'; break;
        case 'f': to += '\f'; break;
        case 'u': code_point(to); break;
        default: to += e;
      }
    }
    need('"');
    return to;
  }

  Json one(int depth) {
    if (depth > 16) stop("too deep");
    Json value;
    char first = look();
    size_t began = at_;
    if (first == '{') {
      value.kind = Json::Kind::OBJECT;
      for (at_++; !next('}');) {
        if (!value.object.empty()) need(',');
        space();
        std::string name = text();
        need(':');
        value.object[name] = one(depth + 1);
      }
    } else if (first == '[') {
      value.kind = Json::Kind::LIST;
      for (at_++; !next(']');) {
        if (!value.list.empty()) need(',');
        value.list.push_back(one(depth + 1));
      }
    } else if (first == '"') {
      value.kind = Json::Kind::TEXT;
      value.text = text();
    } else if (word("true")) {
      value.kind = Json::Kind::TRUTH;
      value.truth = true;
    } else if (word("false")) {
      value.kind = Json::Kind::TRUTH;
    } else if (!word("null")) {
      size_t end = text_.find_first_not_of("+-.0123456789eE", at_);
      std::string digits(text_.substr(at_, end == std::string_view::npos ? end : end - at_));
      if (digits.empty()) stop("no value");
      value.kind = Json::Kind::NUMBER;
      value.number = strtod(digits.c_str(), nullptr);
      at_ += digits.size();
    }
    value.raw = text_.substr(began, at_ - began);
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

const Json& Json::operator[](const std::string& name) const {
  static const Json nothing;
  auto found = object.find(name);
  return found == object.end() ? nothing : found->second;
}

Json read_json(std::string_view text) { return Parser(text).whole(); }

std::string quoted(const std::string& text) {
  std::string to = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') to += '\\';
    if (static_cast<unsigned char>(c) >= ' ') to += c;
    else to += ' ';
  }
  return to + '"';
}

}  // namespace eat
