// What carries a connection's bytes: TCP, or the queue pair beside it. TCP tells in any case when the server has gone.
// No header of torch here.
#pragma once

#include <sys/types.h>

#include <cstddef>

struct verbs;

namespace eat {

class Carrier {
 public:
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void take(int fd) { fd_ = fd; }
  // From now on all goes by it.
  void take(verbs* queue_pair) { verbs_ = queue_pair; }
  bool by_verbs() const { return verbs_ != nullptr; }
  const char* device() const;  // the RDMA device; not by TCP

  // As recv: waits 0.1 s at most. EAGAIN: nothing came.
  ssize_t read(char* to, size_t most);
  // As send of a socket that does not wait.
  ssize_t write(const char* from, size_t count);
  // Until there is room, or with `reads` something to read, 0.1 s at most. Whether reading would not wait.
  bool wait_for_room(bool reads);
  bool is_readable();
  // Whether the network has taken nearly all that was written: less than `bytes` are still here.
  bool is_idle(size_t bytes);

  void shut();   // who reads or writes is told
  void close();  // nobody may be using it
  void forget();  // after fork, in the child

 private:
  int fd_ = -1;
  verbs* verbs_ = nullptr;
};

}  // namespace eat
