#include "carrier.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/verbs/verbs.h"

namespace eat {

namespace {
constexpr int SLICE_MS = 100;  // as SO_RCVTIMEO of the socket
}

const char* Carrier::device() const {
  verbs_port where{};
  verbs_where(verbs_, &where);
  return where.device;
}

ssize_t Carrier::read(char* to, size_t most) {
  return verbs_ ? verbs_read_within(verbs_, to, most, SLICE_MS) : ::recv(fd_, to, most, 0);
}

ssize_t Carrier::write(const char* from, size_t count) {
  return verbs_ ? verbs_write_now(verbs_, from, count) : ::send(fd_, from, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool Carrier::wait_for_room(bool reads) {
  if (verbs_) {
    verbs_wait(verbs_, reads, SLICE_MS);
    return reads && verbs_is_ready(verbs_);
  }
  pollfd ready{fd_, static_cast<short>(reads ? POLLOUT | POLLIN : POLLOUT), 0};
  ::poll(&ready, 1, SLICE_MS);
  return ready.revents & POLLIN;
}

bool Carrier::is_readable() {
  if (verbs_) return verbs_is_ready(verbs_);
  pollfd ready{fd_, POLLIN, 0};
  return ::poll(&ready, 1, 0) != 0;
}

bool Carrier::is_idle(size_t bytes) {
  if (verbs_) return verbs_is_idle(verbs_, bytes);
  int unsent = 0;
  return ::ioctl(fd_, SIOCOUTQNSD, &unsent) < 0 || static_cast<size_t>(unsent) < bytes;
}

void Carrier::shut() { ::shutdown(fd_, SHUT_RDWR); }

void Carrier::close() {
  if (fd_ >= 0) ::close(fd_);
  if (verbs_) verbs_close(verbs_);
  fd_ = -1;
  verbs_ = nullptr;
}

void Carrier::forget() {
  if (fd_ >= 0) ::close(fd_);
  if (verbs_) verbs_forget(verbs_);
  fd_ = -1;
  verbs_ = nullptr;
}

}  // namespace eat
