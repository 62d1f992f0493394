// The connection to one server: a queue of messages that go out, and answers that come back. No header of torch here.
//
// Any thread may send and ask. Messages go out in the order in which they were put in. A thread of the connection's own
// writes them in batches; a thread that waits for an answer writes and reads itself, so that a round trip costs no change
// of threads. A second thread reads only while answers are outstanding that nobody waits for (copies down in the background).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "shared/wire.h"
#include "carrier.h"

namespace eat {

// The server went, cannot be reached, refused us, or said what no server says. The text is a whole sentence.
class Lost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The program's user interrupted a wait (Ctrl-C); the interpreter knows the exception.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

struct ToldError {
  ErrorKind kind;
  std::string text, name;  // torch's own text; the operator that failed
};

struct ToldWarning {
  WarningKind kind;
  std::string text;
};

// A question and, later, its answer.
struct Ticket {
  uint32_t tag = 0;
  bool done = false, background = false;
  char* to = nullptr;          // where DATA goes, with room for so many bytes
  uint64_t room = 0, got = 0;
  std::shared_ptr<void> keep;  // what owns that memory
  std::vector<ToldError> errors;
  std::vector<ToldWarning> warnings;  // that came with it; also those of calls before it
  std::string body;
};

struct Where {
  std::string host, port, token;
  double timeout_s = 0;  // longest wait for an answer; 0: as long as the connection lives
  Transport transport = Transport::TCP;  // that alone, or no connection
  std::string name() const { return host + ":" + port; }
};

struct Traffic {
  std::atomic<int64_t> sent_bytes{0}, up_bytes{0}, down_bytes{0}, waits{0};
};

class Connection {
 public:
  explicit Connection(Where where) : where_(std::move(where)) {}
  ~Connection();

  // Connects, says hello and reads WELCOME. Throws Lost, Interrupted.
  void open(const std::string& torch_version);
  bool is_open() const { return carrier_.is_open(); }
  const Where& where() const { return where_; }
  const std::string& torch_version() const { return torch_version_; }  // the server's
  const std::string& devices_json() const { return devices_json_; }

  // Whether the server lets its clients call that operator: "aten::add.Tensor", "aten::relu".
  bool allows(const std::string& full_name) const { return operators_.count(full_name) > 0; }

  // Puts whole messages in the queue, for the device of that number there. Throws Lost once the connection is gone.
  void send(uint8_t device, std::string_view messages);
  // The same, followed by bytes that are not copied: they must not change until they are sent, and `keep` owns them.
  // With `waits` it returns when they are sent; Interrupted leaves them in the queue.
  void send_with(uint8_t device, std::string_view head, const char* data, size_t count, std::shared_ptr<void> keep, bool waits);
  // More waits to be sent than may: who is to send more waits for room first. Throws Lost, Interrupted. Not with `order` held.
  bool is_full() const { return pending_bytes_ > MOST_QUEUED; }
  void wait_for_room();

  // Bytes that are sent in pieces while nothing else is to be sent, as STAGE of that number; `keep` owns them.
  void send_idle(uint32_t number, const char* data, size_t count, std::shared_ptr<void> keep);
  // What of it is not sent yet stands in the queue now, as any message.
  void send_now(uint32_t number);
  // No more of it is sent. Whether any was.
  bool stop_idle(uint32_t number);

  // A number for the tag of a question, and the ticket for it. `background`: nobody waits, an error of it is kept.
  std::shared_ptr<Ticket> ticket(char* to = nullptr, uint64_t room = 0, std::shared_ptr<void> keep = {},
                                 bool background = false);
  // Waits for the answer of a question that was sent. Throws Lost, Interrupted. Errors stay in the ticket.
  void wait(Ticket& ticket);
  // Whether it is answered; reads what is there.
  bool is_done(Ticket& ticket);
  // The newest question so far, and the newest that was answered: the server answers in order, so all before that is done.
  uint32_t asked_tag() const { return next_tag_ - 1; }
  uint32_t answered_tag() const { return answered_tag_; }

  // Warnings of operators that came with answers, and the error of the first background question that failed; each once.
  std::vector<ToldWarning> take_warnings();
  std::vector<ToldError> take_errors();
  bool has_news() const { return news_.load(std::memory_order_relaxed); }

  // Waits a moment (1 s at most) until all is sent, then closes.
  void close();
  // After fork, in the child: closes the descriptor, touches nothing else.
  void abandon();

  Traffic traffic;
  static constexpr size_t MOST_QUEUED = size_t(256) << 20;  // copied bytes that wait to be sent
  std::mutex order;  // held while several messages must stand together (a signature and its first call)

 private:
  struct Segment {
    std::string own;
    const char* data = nullptr;  // not copied, instead of `own`
    size_t count = 0;
    std::shared_ptr<void> keep;
  };
  struct Idle {
    uint32_t number;
    const char* data;
    size_t count, done;
    std::shared_ptr<void> keep;
  };
  // The message that is being read: who reads may leave it half read to the next one.
  struct Incoming {
    enum { HEAD, BODY, DATA_HEAD, DATA } stage = HEAD;
    size_t have = 0;  // bytes of this stage
    char head[5], data_head[12];
    std::string body;
    std::shared_ptr<Ticket> ticket;
    uint64_t offset = 0, count = 0;
  };
  enum class Went { ALL, GONE, STOPPED };
  using Lock = std::unique_lock<std::mutex>;

  int dial();
  void hello(const std::string& torch_version);
  void give_up_opening(const std::string& why);
  void begin_verbs(Reader& in);
  void prove_verbs();
  void put(uint8_t device, std::string_view bytes);
  void wake();
  void put_piece(Idle& idle, size_t most);
  bool is_idle();
  void check(const Lock&) const;
  // By a thread of the program's (`may_stop`): true when its user has interrupted it; what is left is in the queue again.
  bool send_pending(Lock& lock, bool may_stop);
  void help_to_send(Lock& lock);
  Went write_all(const char* data, size_t count, size_t& done, bool may_stop);
  void write_loop();
  void read_loop();
  bool read_message();               // by who has the reader's role; false: no whole message within 0.1 s
  bool read_rest(char* to, size_t count);
  void begin_body();
  void begin_data();
  void handle(ToClient kind, const std::string& body);
  void handle_answer(Reader& in);
  void fail(const std::string& why);

  Where where_;
  Carrier carrier_;
  std::string torch_version_, devices_json_, ending_;
  std::unordered_set<std::string> operators_;  // that the server allows
  bool welcome_ = false, begun_ = false;

  std::mutex mutex_;  // of all below
  std::condition_variable work_, answered_, background_;
  std::vector<Segment> pending_;
  std::deque<Idle> idle_;
  std::string spare_;
  std::atomic<size_t> pending_bytes_{0};
  uint64_t put_ = 0, sent_ = 0;  // segments, to know when one is out
  bool sending_ = false, reading_ = false, asleep_ = false, closing_ = false, dead_ = false;
  std::string why_;
  int last_device_ = -1;
  size_t in_background_ = 0;
  std::unordered_map<uint32_t, std::shared_ptr<Ticket>> tickets_;
  std::vector<ToldWarning> warnings_;
  std::vector<ToldError> errors_;
  std::atomic<bool> news_{false};
  std::atomic<uint32_t> next_tag_{1}, answered_tag_{0};

  std::vector<char> buffer_;  // of the reader
  size_t have_ = 0, at_ = 0;
  Incoming in_;
  std::thread writer_, reader_;
};

// Asked every 0.1 s by a thread that waits; true ends the wait by Interrupted. Set once, before any connection.
extern bool (*interrupted)();

}  // namespace eat
