// Whether the network to the other side is cut. No header of torch here.
//
// Keep-alive finds it where nothing is on its way; where something is, TCP_USER_TIMEOUT would, but it also ends a connection
// whose other side answers and only takes nothing for a while: a server whose operator runs for a minute, a program that
// is stopped (Ctrl-Z). So who waits asks the kernel.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdint>

namespace eat {

// True: what was sent, or a probe of a full window, got no acknowledgement, and nothing came at all for so long. While
// nothing is on its way keep-alive's probes bring acknowledgements, so that the time begins anew every ten seconds.
inline bool is_cut(int fd, uint32_t after_s) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0) return false;
  return (info.tcpi_unacked > 0 || info.tcpi_probes > 1) && info.tcpi_last_ack_recv > after_s * 1000;
}

}  // namespace eat
