// What comes back by a connection: answers, data, notices. Only the thread that has the reader's role is in here.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "queue.h"

namespace eat {

// False: nothing came within SO_RCVTIMEO (0.1 s), allowed only before the first byte of a message; or the connection is gone.
bool Connection::read_exactly(char* to, size_t count, bool first) {
  while (count) {
    if (at_ == have_) {
      bool direct = count >= buffer_.size();
      ssize_t got = ::recv(fd_, direct ? to : buffer_.data(), direct ? count : buffer_.size(), 0);
      if (got < 0 && errno == EINTR) {
        if (first) return false;
        continue;
      }
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        if (first) return false;
        Lock lock(mutex_);
        if (dead_) return false;
        continue;
      }
      if (got <= 0) {
        std::string why = got == 0 ? "it ended" : strerror(errno);
        fail("the connection to the GPU server " + where_.name() + " is lost (" + why + ")");
        return false;
      }
      first = false;
      if (direct) {
        to += got;
        count -= static_cast<size_t>(got);
        continue;
      }
      at_ = 0;
      have_ = static_cast<size_t>(got);
    }
    size_t part = std::min(count, have_ - at_);
    memcpy(to, buffer_.data() + at_, part);
    at_ += part;
    to += part;
    count -= part;
    first = false;
  }
  return true;
}

bool Connection::read_message() {
  char head[5];
  if (!read_exactly(head, sizeof head, true)) return false;
  uint32_t length;
  memcpy(&length, head + 1, sizeof length);
  try {
    if (length > MOST_MESSAGE) throw WireError("a message of " + std::to_string(length) + " bytes");
    handle(static_cast<ToClient>(head[0]), length);
  } catch (const WireError& fault) {
    fail("the GPU server " + where_.name() + " does not speak as this client expects (" + fault.what() + ")");
    return false;
  }
  return true;
}

void Connection::handle(ToClient kind, uint32_t length) {
  if (kind == ToClient::DATA) return handle_data(length);
  std::string body(length, '\0');
  if (length && !read_exactly(body.data(), length, false)) return;
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
    case ToClient::WELCOME: {
      auto version = in.get<uint32_t>();
      if (version != WIRE_VERSION) {
        return fail("the GPU server " + where_.name() + " speaks wire version " + std::to_string(version) + ", this client " +
                    std::to_string(WIRE_VERSION) + "; use the client of the same release of the toolkit");
      }
      torch_version_ = in.text();
      devices_json_ = in.text(MOST_MESSAGE);
      welcome_ = true;
      return;
    }
    default: throw WireError("a message of kind " + std::to_string(int(kind)));
  }
}

void Connection::handle_data(uint32_t length) {
  char head[12];
  if (length < sizeof head) throw WireError("DATA is too short");
  if (!read_exactly(head, sizeof head, false)) return;
  uint32_t tag;
  uint64_t offset, count = length - sizeof head;
  memcpy(&tag, head, sizeof tag);
  memcpy(&offset, head + 4, sizeof offset);
  std::shared_ptr<Ticket> ticket;
  {
    Lock lock(mutex_);
    if (auto found = tickets_.find(tag); found != tickets_.end()) ticket = found->second;
  }
  if (!ticket) throw WireError("DATA for a question that was not asked");
  if (offset > ticket->room || count > ticket->room - offset) throw WireError("DATA beyond what was asked");
  if (!read_exactly(ticket->to + offset, count, false)) return;
  ticket->got += count;
  traffic.down_bytes += static_cast<int64_t>(count);
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
