// What comes back by a connection: answers, data, notices. Only the thread that has the reader's role is in here.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "queue.h"

namespace eat {

// The rest of what this stage of the message reads. False: it has not all come within SO_RCVTIMEO (0.1 s), or the connection is
// gone; the next call goes on from there.
bool Connection::read_rest(char* to, size_t count) {
  while (in_.have < count) {
    size_t left = count - in_.have;
    if (at_ == have_) {
      bool direct = left >= buffer_.size();
      ssize_t got = carrier_.read(direct ? to + in_.have : buffer_.data(), direct ? left : buffer_.size());
      if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return false;
      if (got <= 0) {
        std::string why = got == 0 ? "it ended" : strerror(errno);
        fail("the connection to the GPU server " + where_.name() + " is lost (" + why + ")");
        return false;
      }
      if (direct) {
        in_.have += static_cast<size_t>(got);
        continue;
      }
      at_ = 0;
      have_ = static_cast<size_t>(got);
    }
    size_t part = std::min(left, have_ - at_);
    memcpy(to + in_.have, buffer_.data() + at_, part);
    at_ += part;
    in_.have += part;
  }
  in_.have = 0;
  return true;
}

bool Connection::read_message() {
  try {
    if (in_.stage == Incoming::HEAD) {
      if (!read_rest(in_.head, sizeof in_.head)) return false;
      begin_body();
    }
    if (in_.stage == Incoming::DATA_HEAD) {
      if (!read_rest(in_.data_head, sizeof in_.data_head)) return false;
      begin_data();
    }
    if (in_.stage == Incoming::DATA) {
      if (!read_rest(in_.ticket->to + in_.offset, in_.count)) return false;
      in_.ticket->got += in_.count;
      traffic.down_bytes += static_cast<int64_t>(in_.count);
      in_ = {};
      return true;
    }
    if (!read_rest(in_.body.data(), in_.body.size())) return false;
    auto kind = static_cast<ToClient>(in_.head[0]);
    std::string body = std::move(in_.body);
    in_ = {};
    handle(kind, body);
  } catch (const WireError& fault) {
    fail("the GPU server " + where_.name() + " does not speak as this client expects (" + fault.what() + ")");
    return false;
  }
  return true;
}

void Connection::begin_body() {
  uint32_t length;
  memcpy(&length, in_.head + 1, sizeof length);
  if (length > MOST_MESSAGE) throw WireError("a message of " + std::to_string(length) + " bytes");
  in_.stage = static_cast<ToClient>(in_.head[0]) == ToClient::DATA ? Incoming::DATA_HEAD : Incoming::BODY;
  if (in_.stage == Incoming::BODY) in_.body.resize(length);
  else if (length < sizeof in_.data_head) throw WireError("DATA is too short");
  else in_.count = length - sizeof in_.data_head;
}

void Connection::begin_data() {
  uint32_t tag;
  memcpy(&tag, in_.data_head, sizeof tag);
  memcpy(&in_.offset, in_.data_head + 4, sizeof in_.offset);
  {
    Lock lock(mutex_);
    if (auto found = tickets_.find(tag); found != tickets_.end()) in_.ticket = found->second;
  }
  if (!in_.ticket) throw WireError("DATA for a question that was not asked");
  if (in_.offset > in_.ticket->room || in_.count > in_.ticket->room - in_.offset) throw WireError("DATA beyond what was asked");
  in_.stage = Incoming::DATA;
}

void Connection::handle(ToClient kind, const std::string& body) {
  Reader in(body);
  switch (kind) {
    case ToClient::ANSWER: return handle_answer(in);
    case ToClient::STARTING: return;
    case ToClient::NOTICE: {
      auto notice = static_cast<Notice>(in.get<uint8_t>());
      std::string sentence = in.text();
      Lock lock(mutex_);
      if (notice == Notice::ENDING) ending_ = "the GPU server " + where_.name() + " ended the session: " + sentence;
      else warnings_.push_back({WarningKind::USER, "GPU server " + where_.name() + ": " + sentence}), news_ = true;
      return;
    }
    case ToClient::REFUSED: {
      in.get<uint8_t>();
      return fail("the GPU server " + where_.name() + " refused this session: " + in.text());
    }
    case ToClient::VERBS: return begin_verbs(in);
    case ToClient::WELCOME: {
      auto version = in.get<uint32_t>();
      if (version != WIRE_VERSION) {
        return fail("the GPU server " + where_.name() + " speaks wire version " + std::to_string(version) + ", this client " +
                    std::to_string(WIRE_VERSION) + "; use the client of the same release of the toolkit");
      }
      torch_version_ = in.text();
      devices_json_ = in.text(MOST_MESSAGE);
      operators_.clear();
      for (uint32_t left = in.count(sizeof(uint32_t)); left; left--) operators_.insert(in.text());
      welcome_ = true;
      return;
    }
    default: throw WireError("a message of kind " + std::to_string(int(kind)));
  }
}

void Connection::handle_answer(Reader& in) {
  auto tag = in.get<uint32_t>();
  std::vector<ToldError> errors;
  std::vector<ToldWarning> warnings;
  for (int left = in.get<uint16_t>(); left; left--) {
    auto kind = static_cast<ErrorKind>(in.get<uint8_t>());
    std::string text = in.text(MOST_MESSAGE);
    errors.push_back({kind, std::move(text), in.text(MOST_MESSAGE)});
  }
  for (int left = in.get<uint16_t>(); left; left--) {
    auto kind = static_cast<WarningKind>(in.get<uint8_t>());
    warnings.push_back({kind, in.text(MOST_MESSAGE)});
  }
  std::string body = in.text(MOST_MESSAGE);
  in.finish();
  Lock lock(mutex_);
  auto found = tickets_.find(tag);
  if (found == tickets_.end()) throw WireError("an answer to a question that was not asked");
  Ticket& ticket = *found->second;
  if (ticket.to && errors.empty() && ticket.got != ticket.room) throw WireError("an answer with less data than asked");
  if (!warnings.empty()) {
    warnings_.insert(warnings_.end(), warnings.begin(), warnings.end());
    news_ = true;
  }
  ticket.warnings = std::move(warnings);
  if (ticket.background && !errors.empty()) {
    errors_.insert(errors_.end(), errors.begin(), errors.end());
    news_ = true;
  }
  ticket.errors = std::move(errors);
  ticket.body = std::move(body);
  ticket.done = true;
  if (tag > answered_tag_) answered_tag_ = tag;
  ticket.keep.reset();
  if (ticket.background) in_background_--;
  tickets_.erase(found);
}

void Connection::read_loop() {
  Lock lock(mutex_);
  while (!closing_ && !dead_) {
    if (!in_background_) {
      background_.wait(lock);
    } else if (reading_) {
      answered_.wait_for(lock, std::chrono::milliseconds(100));
    } else {
      reading_ = true;
      lock.unlock();
      read_message();
      lock.lock();
      reading_ = false;
      answered_.notify_all();
    }
  }
}

}  // namespace eat
