#include "link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace eat {
namespace {

constexpr size_t BUFFER = size_t(1) << 18;
constexpr int FLUSH_MS = 1000;

// Small messages leave at once; a client that vanished is noticed within 30 s: by this where nothing is on its way, else by
// Watch.
void tune(int fd) {
  static const struct {
    int level, name, value;
  } options[] = {
      {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 10},
      {IPPROTO_TCP, TCP_KEEPINTVL, 5}, {IPPROTO_TCP, TCP_KEEPCNT, 3},
  };
  for (const auto& o : options) (void)setsockopt(fd, o.level, o.name, &o.value, sizeof o.value);
}

}  // namespace

Link::Link(const Carrier& carrier) : fd_(carrier.fd), verbs_(carrier.verbs), buffer_(BUFFER) { tune(fd_); }

size_t Link::receive(char* to, size_t most) {
  if (verbs_) {
    size_t came;
    if (!verbs_read(verbs_, to, 1, most, &came)) return came;
    throw Gone(errno ? strerror(errno) : "the client has gone");
  }
  for (;;) {
    ssize_t got = recv(fd_, to, most, 0);
    if (got > 0) return static_cast<size_t>(got);
    if (got < 0 && errno == EINTR) continue;
    throw Gone(got ? strerror(errno) : "the client has gone");
  }
}

bool Link::is_ready() const {
  if (from_ != until_) return true;
  if (verbs_) return verbs_is_ready(verbs_);
  pollfd ready{fd_, POLLIN, 0};
  return poll(&ready, 1, 0) > 0;
}

void Link::read(void* to, size_t count) {
  if (given_.empty()) return read_new(to, count);
  size_t step = std::min(count, given());
  memcpy(to, given_.data() + given_at_, step);
  given_at_ += step;
  if (!given()) {
    given_.clear();
    given_at_ = 0;
  }
  if (count > step) read_new(static_cast<char*>(to) + step, count - step);
}

void Link::read_new(void* to, size_t count) {
  char* at = static_cast<char*>(to);
  while (count) {
    if (from_ == until_) {
      if (count >= buffer_.size() / 4) {  // large: straight to its place
        size_t got = receive(at, count);
        at += got;
        count -= got;
        continue;
      }
      until_ = receive(buffer_.data(), buffer_.size());
      from_ = 0;
    }
    size_t step = std::min(count, until_ - from_);
    memcpy(at, buffer_.data() + from_, step);
    from_ += step;
    at += step;
    count -= step;
  }
}

void Link::skip(size_t count) {
  char nowhere[16384];
  while (count) {
    size_t step = std::min(count, sizeof nowhere);
    read(nowhere, step);
    count -= step;
  }
}

void Link::write(std::vector<iovec> parts) {
  std::lock_guard<std::mutex> lock(writing_);
  send(parts);
}

bool Link::write_at_once(const std::string& bytes) {
  std::unique_lock<std::mutex> lock(writing_, std::try_to_lock);
  pollfd room{fd_, POLLOUT, 0};
  if (!lock || (verbs_ ? !verbs_has_room(verbs_, bytes.size()) : poll(&room, 1, 0) != 1)) return false;
  std::vector<iovec> parts{{const_cast<char*>(bytes.data()), bytes.size()}};
  send(parts);
  return true;
}

void Link::flush() {
  if (verbs_) verbs_flush(verbs_, FLUSH_MS);
}

void Link::send(std::vector<iovec>& parts) {
  if (verbs_) {
    if (verbs_write(verbs_, parts.data(), parts.size())) throw Gone(strerror(errno));
    return;
  }
  size_t first = 0;
  while (first < parts.size()) {
    if (!parts[first].iov_len) {
      first++;
      continue;
    }
    msghdr message{};
    message.msg_iov = &parts[first];
    message.msg_iovlen = std::min<size_t>(parts.size() - first, 64);
    ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw Gone(strerror(errno));
    for (size_t left = static_cast<size_t>(sent); left;) {
      size_t step = std::min(left, parts[first].iov_len);
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + step;
      parts[first].iov_len -= step;
      left -= step;
      if (left) first++;
    }
  }
}

}  // namespace eat
