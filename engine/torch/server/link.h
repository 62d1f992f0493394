// The connection of a session: reading through a buffer, writing from where the bytes lie.
#pragma once

#include <sys/uio.h>

#include <mutex>
#include <string>
#include <vector>

#include "../shared/wire.h"

namespace eat {

// The client has closed the connection, or the network has.
class Gone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Link {
 public:
  explicit Link(int fd);
  int fd() const { return fd_; }

  void read(void* to, size_t count);
  void skip(size_t count);
  // Whether the next read may wait for the client.
  bool drained() const { return from_ == until_; }

  // A whole message by one call; other threads may write too.
  void write(std::vector<iovec> parts);
  void write(const std::string& bytes) { write({{const_cast<char*>(bytes.data()), bytes.size()}}); }

 private:
  size_t receive(char* to, size_t most);

  int fd_;
  std::vector<char> buffer_;
  size_t from_ = 0, until_ = 0;
  std::mutex writing_;
};

}  // namespace eat
