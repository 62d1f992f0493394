// Opening a connection: address, keep-alive, the hello with the token, and the server's WELCOME.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "shared/verbs/verbs.h"
#include "queue.h"

namespace eat {

namespace {

constexpr int DIAL_MS = 10000;       // until the server's machine answers
constexpr double WELCOME_S = 120;    // from the hello to WELCOME: a GPU may take long to start
constexpr int KEEPALIVE_S = 30;      // a cut network is found within this
constexpr size_t READ_BYTES = 1 << 16;

void set(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

void prepare(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S / 3);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_S / 6);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  // However this process ends, the other side is told at once: else it would first compute all that is on its way, for a full
  // window lets no end of a connection through either. Nobody can read what that would give.
  linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  timeval slice{0, 100000};  // the reader looks up ten times a second
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
}

// 0, or errno
int connect_within(int fd, const sockaddr* address, socklen_t length) {
  int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  int error = 0;
  if (::connect(fd, address, length) < 0) {
    error = errno;
    if (error == EINPROGRESS) {
      pollfd ready{fd, POLLOUT, 0};
      int events = ::poll(&ready, 1, DIAL_MS);
      socklen_t size = sizeof error;
      if (events <= 0) error = ETIMEDOUT;
      else ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  ::fcntl(fd, F_SETFL, flags);
  return error;
}

std::string unreached(const Where& where, const std::string& device, const std::string& why) {
  return "verbs to the GPU server " + where.name() + " cannot be had, and nothing else was asked for: the first words by " + device +
         " got no answer (" + why + "); is UDP port 4791 open between the two machines?";
}

void fill(char* to, size_t room, const std::string& text) { memcpy(to, text.data(), std::min(room - 1, text.size())); }

}  // namespace

int Connection::dial() {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  int fault = ::getaddrinfo(where_.host.c_str(), where_.port.c_str(), &hints, &found);
  if (fault) throw Lost("the GPU server " + where_.name() + " is not found: " + gai_strerror(fault) + "; look at the lease: toolkit lease list");
  int error = ECONNREFUSED, fd = -1;
  for (addrinfo* one = found; one; one = one->ai_next) {
    fd = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    error = fd < 0 ? errno : connect_within(fd, one->ai_addr, one->ai_addrlen);
    if (!error) break;
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  ::freeaddrinfo(found);
  if (fd < 0) {
    throw Lost("the GPU server " + where_.name() + " cannot be reached: " + strerror(error) +
               "; look whether the lease still holds: toolkit lease list");
  }
  prepare(fd);
  return fd;
}

void Connection::hello(const std::string& torch_version) {
  Hello hello{};
  memcpy(hello.magic, WIRE_MAGIC, sizeof hello.magic);
  hello.version = WIRE_VERSION;
  hello.pid = static_cast<uint32_t>(::getpid());
  fill(hello.torch, sizeof hello.torch, torch_version);
  char name[64] = {};
  ::gethostname(name, sizeof name - 1);
  fill(hello.client, sizeof hello.client, name);
  hello.transport = static_cast<uint32_t>(where_.transport);
  memcpy(hello.token, where_.token.data(), std::min(sizeof hello.token, where_.token.size()));
  size_t done = 0;
  write_all(reinterpret_cast<const char*>(&hello), sizeof hello, done, false);
}

void Connection::give_up_opening(const std::string& why) {
  carrier_.close();
  throw Lost(why);
}

void Connection::open(const std::string& torch_version) {
  using Clock = std::chrono::steady_clock;
  carrier_.take(dial());
  buffer_.resize(READ_BYTES);
  hello(torch_version);
  auto began = Clock::now();
  while (!welcome_) {
    read_message();
    Lock lock(mutex_);
    if (!dead_ && std::chrono::duration<double>(Clock::now() - began).count() > WELCOME_S) {
      dead_ = true;
      why_ = "the GPU server " + where_.name() + " took the connection and said nothing in " + std::to_string(int(WELCOME_S)) + " s";
    }
    if (dead_) {
      std::string why = carrier_.by_verbs() ? unreached(where_, carrier_.device(), why_) : why_;
      lock.unlock();
      give_up_opening(why);
    }
    lock.unlock();
    if (!welcome_ && interrupted && interrupted()) {
      carrier_.close();
      throw Interrupted();
    }
  }
  if (carrier_.by_verbs()) prove_verbs();
  begun_ = true;
  writer_ = std::thread([this] { write_loop(); });
  reader_ = std::thread([this] { read_loop(); });
}

// The server has told its end: ours goes by TCP, and all that comes after it by the queue pair.
void Connection::begin_verbs(Reader& in) {
  auto theirs = in.get<verbs_end>();
  in.finish();
  if (where_.transport != Transport::VERBS || carrier_.by_verbs()) throw WireError("verbs, which were not asked for");
  char why[VERBS_WHY];
  verbs* made = verbs_open(carrier_.fd(), why);
  if (made && verbs_connect(made, &theirs, why)) {
    verbs_close(made);
    made = nullptr;
  }
  if (!made) return fail("verbs to the GPU server " + where_.name() + " cannot be had, and nothing else was asked for: " + why);
  Writer told;
  verbs_end ours{};
  verbs_tell(made, &ours);
  size_t began = told.begin(ToServer::VERBS);
  told.put(ours);
  told.end(began);
  size_t done = 0;
  write_all(told.bytes.data(), told.bytes.size(), done, false);
  carrier_.take(made);
}

// WELCOME came by it; now whether the server gets what goes by it, before anything is begun.
void Connection::prove_verbs() {
  auto asked = ticket();
  Writer question;
  size_t began = question.begin(ToServer::SYNC);
  question.put(asked->tag);
  question.end(began);
  send(0, question.bytes);
  try {
    wait(*asked);
  } catch (const Lost& lost) {
    give_up_opening(unreached(where_, carrier_.device(), lost.what()));
  } catch (const Interrupted&) {
    carrier_.close();
    throw;
  }
}

}  // namespace eat
