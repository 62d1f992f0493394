// A session's queue pair, before its WELCOME: each end is told by TCP, and from then on all goes by it.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "../../shared/verbs/verbs.h"
#include "../shared/wire.h"

#define EATS_API extern "C" __attribute__((visibility("default")))

namespace {

struct __attribute__((packed)) VerbsMessage {
  uint8_t kind;
  uint32_t length;
  verbs_end end;
};
static_assert(sizeof(verbs_end) == 24);

// Its end of the queue pair by TCP. "" when it came; a sentence; or null where the client has gone.
const char* exchange(int fd, const verbs_end& ours, verbs_end& theirs) {
  VerbsMessage told{static_cast<uint8_t>(eat::ToClient::VERBS), sizeof told.end, ours}, got{};
  if (send(fd, &told, sizeof told, MSG_NOSIGNAL) != sizeof told) return nullptr;
  if (recv(fd, &got, sizeof got, MSG_WAITALL) != sizeof got) return nullptr;
  if (got.kind != static_cast<uint8_t>(eat::ToServer::VERBS) || got.length != sizeof got.end) return "its answer makes no sense";
  theirs = got.end;
  char more;
  return recv(fd, &more, 1, MSG_PEEK | MSG_DONTWAIT) > 0 ? "more came by TCP" : "";
}

}  // namespace

// Whether clients of that address can have verbs. 0, or -1 and `why`.
EATS_API int eats_verbs_check(const char* address, char* why, size_t why_bytes) {
  sockaddr_storage parsed{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&parsed);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&parsed);
  if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) parsed.ss_family = AF_INET;
  else if (inet_pton(AF_INET6, address, &v6->sin6_addr) == 1) parsed.ss_family = AF_INET6;
  char words[VERBS_WHY] = "it is no IP address";
  int failed = parsed.ss_family ? verbs_check(reinterpret_cast<sockaddr*>(&parsed), words) : -1;
  if (failed) snprintf(why, why_bytes, "%s", words);
  return failed;
}

// The queue pair of a client that asked for one, and in `words` its device; or null, and there why not: "" where the client has
// gone. By the child that serves it.
EATS_API verbs* eats_verbs_take(int fd, unsigned* port, char* words, size_t words_bytes) {
  char why[VERBS_WHY];
  verbs_end ours{}, theirs{};
  verbs* made = verbs_open(fd, why);
  bool failed = !made;
  if (made) {
    verbs_tell(made, &ours);
    const char* wrong = exchange(fd, ours, theirs);
    failed = !wrong || *wrong || verbs_connect(made, &theirs, why);
    if (!wrong || *wrong) snprintf(why, sizeof why, "%s", wrong ? wrong : "");
  }
  if (failed) {
    snprintf(words, words_bytes, "%s", why);
    if (made) verbs_close(made);
    return nullptr;
  }
  verbs_port where{};
  verbs_where(made, &where);
  *port = where.port;
  snprintf(words, words_bytes, "%s", where.device);
  return made;
}
