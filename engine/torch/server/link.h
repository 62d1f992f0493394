// The connection of a session: reading through a buffer, writing from where the bytes lie.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "../../shared/verbs/verbs.h"
#include "../shared/wire.h"

namespace eat {

// The client has closed the connection, or the network has.
class Gone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What carries a session's bytes: the queue pair where there is one. TCP tells in any case when the client has gone.
struct Carrier {
  int fd;
  struct verbs* verbs;
};

class Link {
 public:
  explicit Link(const Carrier& carrier);
  int fd() const { return fd_; }

  void read(void* to, size_t count);
  // The same, past what was given back.
  void read_new(void* to, size_t count);
  void skip(size_t count);
  // Held by who reads, from a message's first byte to its last.
  std::mutex turn;
  std::atomic<bool> wanted{false};  // the session waits for the turn
  // With the turn: a message that was read already, for the reads that follow, behind those that were given before.
  void give_back(const std::string& message) { given_ += message; }
  size_t given() const { return given_.size() - given_at_; }
  // Whether a byte is there; no read of a message's first one would wait. Not of those given back.
  bool is_ready() const;

  // A whole message by one call; other threads may write too.
  void write(std::vector<iovec> parts);
  void write(const std::string& bytes) { write({{const_cast<char*>(bytes.data()), bytes.size()}}); }
  // The same for a few bytes, and only where nothing has to be waited for: another thread that writes, or a client that
  // takes nothing. False: it has not been written.
  bool write_at_once(const std::string& bytes);
  // Before the process ends: what was written is on its way.
  void flush();

 private:
  size_t receive(char* to, size_t most);
  void send(std::vector<iovec>& parts);

  int fd_;
  struct verbs* verbs_;
  std::vector<char> buffer_;
  size_t from_ = 0, until_ = 0;
  std::string given_;
  size_t given_at_ = 0;
  std::mutex writing_;
};

}  // namespace eat
