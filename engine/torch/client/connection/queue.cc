// Sending and receiving of one connection: see queue.h. How it is opened and what is read stand in queue_open.cc, queue_read.cc.
#include "queue.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "shared/network.h"
#include "shared/pages.h"
#include "sent.h"

namespace eat {

namespace {
constexpr size_t KEPT_BUFFER = size_t(4) << 20;    // a buffer that grew beyond is given back
constexpr uint32_t CUT_S = 30;                      // nothing is acknowledged for so long: the network is cut
constexpr size_t IDLE_PIECE = size_t(256) << 10;   // of what is sent while nothing else is: an operator waits for one at most
constexpr int IDLE_NAP_US = 200;
constexpr int NAP_US = 60;                         // the writer looks again after this, before it sleeps

std::string cut_off(const Where& where) {
  return "the GPU server " + where.name() + " has acknowledged nothing for " + std::to_string(CUT_S) +
         " s: the network to it is cut, or its machine is off";
}
}  // namespace

bool (*interrupted)() = nullptr;
thread_local int64_t sent_messages = 0;

Connection::~Connection() { close(); }

void Connection::check(const Lock&) const {
  if (dead_) throw Lost(why_);
}

// With the lock held: bytes at the end of the queue.
void Connection::put(uint8_t device, std::string_view bytes) {
  if (pending_.empty() || pending_.back().data) {
    pending_.emplace_back();
    pending_.back().own.swap(spare_);
    pending_.back().own.clear();
    put_++;
  }
  std::string& own = pending_.back().own;
  if (device != last_device_) {
    last_device_ = device;
    const char message[6] = {static_cast<char>(ToServer::DEVICE), 1, 0, 0, 0, static_cast<char>(device)};
    own.append(message, sizeof message);
  }
  own.append(bytes);
  pending_bytes_ += bytes.size();
}

void Connection::wake() {
  if (asleep_) work_.notify_one();
}

void Connection::send(uint8_t device, std::string_view messages) {
  sent_messages++;
  Lock lock(mutex_);
  check(lock);
  put(device, messages);
  wake();
}

void Connection::wait_for_room() {
  Lock lock(mutex_);
  while (is_full() && !dead_) help_to_send(lock);
  check(lock);
}

void Connection::send_with(uint8_t device, std::string_view head, const char* data, size_t count,
                           std::shared_ptr<void> keep, bool waits) {
  sent_messages++;
  Lock lock(mutex_);
  check(lock);
  put(device, head);
  pending_.push_back({{}, data, count, std::move(keep)});
  uint64_t number = ++put_;
  if (!waits) return wake();
  while (sent_ < number && !dead_) help_to_send(lock);
  check(lock);
}

// With the lock held: sends, or waits for who does. Throws Interrupted.
void Connection::help_to_send(Lock& lock) {
  bool stop = false;
  if (sending_) {
    answered_.wait_for(lock, std::chrono::milliseconds(100));
    lock.unlock();
    stop = interrupted && interrupted();
    lock.lock();
  } else {
    stop = send_pending(lock, true);
  }
  if (stop) throw Interrupted();
}

// With the lock held and nobody sending: takes all that waits and writes it without the lock.
bool Connection::send_pending(Lock& lock, bool may_stop) {
  if (sending_ || pending_.empty()) return false;
  sending_ = true;
  std::vector<Segment> segments;
  segments.swap(pending_);
  pending_bytes_ = 0;
  lock.unlock();
  auto went = Went::ALL;
  size_t whole = 0, done = 0;
  for (Segment& segment : segments) {
    const char* data = segment.data ? segment.data : segment.own.data();
    size_t count = segment.data ? segment.count : segment.own.size();
    done = 0;
    if (went == Went::ALL) went = write_all(data, count, done, may_stop);
    traffic.sent_bytes += static_cast<int64_t>(done);
    if (went == Went::STOPPED) break;
    segment.keep.reset();
    whole++;
  }
  lock.lock();
  sent_ += whole;
  sending_ = false;
  if (went == Went::STOPPED && !dead_) {  // the connection's own thread goes on with the byte that comes next
    Segment& first = segments[whole];
    if (first.data) first.data += done, first.count -= done;
    else first.own.erase(0, done);
    for (size_t i = whole; i < segments.size(); i++) pending_bytes_ += segments[i].own.size();
    auto rest = segments.begin() + static_cast<std::ptrdiff_t>(whole);
    pending_.insert(pending_.begin(), std::make_move_iterator(rest), std::make_move_iterator(segments.end()));
    segments.resize(whole);
    wake();
  }
  for (Segment& segment : segments) {
    if (segment.own.capacity() > spare_.capacity() && segment.own.capacity() <= KEPT_BUFFER) spare_.swap(segment.own);
  }
  answered_.notify_all();
  return went == Went::STOPPED;
}

// While the other side takes nothing, it reads, for the other side may wait for that.
Connection::Went Connection::write_all(const char* data, size_t count, size_t& done, bool may_stop) {
  using Clock = std::chrono::steady_clock;
  auto looked = Clock::now();
  while (done < count) {
    ssize_t went = carrier_.write(data + done, count - done);
    if (went > 0) done += static_cast<size_t>(went);
    bool full = went < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (went <= 0 && !full && !(went < 0 && errno == EINTR)) {
      fail("the connection to the GPU server " + where_.name() + " is lost (" + strerror(went ? errno : EPIPE) + ")");
      return Went::GONE;
    }
    if (full) {
      Lock lock(mutex_);
      if (dead_) return Went::GONE;
      bool mine = !reading_;
      if (mine) reading_ = true;
      lock.unlock();
      bool readable = carrier_.wait_for_room(mine);
      if (mine) {
        if (readable || at_ < have_) read_message();
        lock.lock();
        reading_ = false;
        answered_.notify_all();
        lock.unlock();
      }
      if (is_cut(carrier_.fd(), CUT_S)) fail(cut_off(where_));
    }
    auto now = Clock::now();
    if (!may_stop || now - looked < std::chrono::milliseconds(90)) continue;
    looked = now;
    if (interrupted && interrupted()) return Went::STOPPED;
  }
  return Went::ALL;
}

// With the lock held: the next piece at the end of the queue.
void Connection::put_piece(Idle& idle, size_t most) {
  size_t part = std::min({idle.count - idle.done, most, MOST_CHUNK});
  Writer head;
  size_t began = head.begin(ToServer::STAGE);
  head.put(idle.number);
  head.put<uint64_t>(idle.count);
  head.put<uint64_t>(idle.done);
  auto length = static_cast<uint32_t>(head.bytes.size() - began + part);
  memcpy(&head.bytes[began - sizeof length], &length, sizeof length);
  put(static_cast<uint8_t>(std::max(last_device_, 0)), head.bytes);
  pending_.push_back({{}, idle.data + idle.done, part, idle.keep});
  put_++;
  pending_bytes_ += part;
  idle.done += part;
}

// Whether the network has taken nearly all that was sent, so that what comes next would hardly wait.
bool Connection::is_idle() { return carrier_.is_idle(IDLE_PIECE); }

void Connection::send_idle(uint32_t number, const char* data, size_t count, std::shared_ptr<void> keep) {
  Lock lock(mutex_);
  check(lock);
  idle_.push_back({number, data, count, 0, std::move(keep)});
  wake();
}

void Connection::send_now(uint32_t number) {
  Lock lock(mutex_);
  for (auto one = idle_.begin(); one != idle_.end(); ++one) {
    if (one->number != number) continue;
    while (one->done < one->count) put_piece(*one, MOST_CHUNK);
    idle_.erase(one);
    return wake();
  }
}

bool Connection::stop_idle(uint32_t number) {
  Lock lock(mutex_);
  for (auto one = idle_.begin(); one != idle_.end(); ++one) {
    if (one->number != number) continue;
    bool begun = one->done > 0;
    idle_.erase(one);
    return begun;
  }
  return true;
}

void Connection::write_loop() {
  Lock lock(mutex_);
  bool napped = false;
  while (!closing_ && !dead_) {
    if (!pending_.empty() && !sending_) {
      send_pending(lock, false);
      napped = false;
    } else if (!idle_.empty() && !sending_ && is_idle()) {
      put_piece(idle_.front(), IDLE_PIECE);
      if (idle_.front().done == idle_.front().count) idle_.pop_front();
    } else if (!idle_.empty()) {
      lock.unlock();
      usleep(IDLE_NAP_US);
      lock.lock();
    } else if (!napped) {
      lock.unlock();
      usleep(NAP_US);
      lock.lock();
      napped = true;
    } else {
      asleep_ = true;
      work_.wait(lock);
      asleep_ = false;
    }
  }
}

std::shared_ptr<Ticket> Connection::ticket(char* to, uint64_t room, std::shared_ptr<void> keep, bool background) {
  sent_messages++;
  auto made = std::make_shared<Ticket>();
  made->tag = next_tag_++;
  made->to = to;
  made->room = room;
  made->keep = std::move(keep);
  made->background = background;
  Lock lock(mutex_);
  check(lock);
  tickets_.emplace(made->tag, made);
  if (background && in_background_++ == 0) background_.notify_one();
  return made;
}

void Connection::wait(Ticket& ticket) {
  using Clock = std::chrono::steady_clock;
  traffic.waits++;
  auto began = Clock::now(), looked = began;
  LargePages pages = ticket.to ? use_large_pages(ticket.to, ticket.room) : LargePages();
  Lock lock(mutex_);
  while (!ticket.done) {
    check(lock);
    if (!sending_ && !pending_.empty()) {
      if (send_pending(lock, true)) throw Interrupted();
      continue;
    }
    if (!reading_) {
      reading_ = true;
      lock.unlock();
      while (pages.count && at_ == have_ && !carrier_.is_readable()) pages.make_next();  // the server computes still
      read_message();
      lock.lock();
      reading_ = false;
      if (tickets_.size() || in_background_) answered_.notify_all();
    } else {
      answered_.wait_for(lock, std::chrono::milliseconds(100));
    }
    if (ticket.done) break;
    auto now = Clock::now();
    if (now - looked < std::chrono::milliseconds(90)) continue;
    looked = now;
    lock.unlock();
    if (is_cut(carrier_.fd(), CUT_S)) fail(cut_off(where_));
    if (interrupted && interrupted()) throw Interrupted();
    lock.lock();
    double waited_s = std::chrono::duration<double>(now - began).count();
    if (where_.timeout_s > 0 && waited_s > where_.timeout_s) {
      throw Lost("the GPU server " + where_.name() + " gave no answer for " + std::to_string(int(waited_s)) +
                 " s: it still computes, or it hangs; a longer wait is set by ELASTIC_AI_TORCH_TIMEOUT_S (0: no limit)");
    }
  }
}

bool Connection::is_done(Ticket& ticket) {
  Lock lock(mutex_);
  if (ticket.done) return true;
  check(lock);
  wake();  // the connection's own thread sends what waits
  if (!reading_) {
    reading_ = true;
    lock.unlock();
    while (at_ < have_ || carrier_.is_readable()) {
      if (!read_message()) break;
      Lock look(mutex_);
      if (ticket.done || dead_) break;
    }
    lock.lock();
    reading_ = false;
    answered_.notify_all();
  }
  return ticket.done;
}

std::vector<ToldWarning> Connection::take_warnings() {
  Lock lock(mutex_);
  news_ = !errors_.empty();
  return std::exchange(warnings_, {});
}

std::vector<ToldError> Connection::take_errors() {
  Lock lock(mutex_);
  news_ = !warnings_.empty();
  return std::exchange(errors_, {});
}

void Connection::fail(const std::string& why) {
  Lock lock(mutex_);
  if (dead_) return;
  dead_ = true;
  const char* lost = begun_ ? "; what was on its GPUs is gone: start the program again from its last checkpoint" : "";
  why_ = ending_.empty() ? why + lost : ending_;
  pending_.clear();
  idle_.clear();
  answered_.notify_all();
  work_.notify_all();
  background_.notify_all();
}

void Connection::close() {
  if (!is_open()) return;
  {
    Lock lock(mutex_);
    // The thread of the connection writes: it gives up where the server takes nothing, once `dead_` is set.
    for (int tries = 0; tries < 10 && !dead_ && (sending_ || !pending_.empty()); tries++) {
      wake();
      answered_.wait_for(lock, std::chrono::milliseconds(100));
    }
    closing_ = true;
    if (!dead_) why_ = "the connection to the GPU server " + where_.name() + " is closed";
    dead_ = true;
    work_.notify_all();
    background_.notify_all();
  }
  carrier_.shut();
  if (writer_.joinable()) writer_.join();
  if (reader_.joinable()) reader_.join();
  carrier_.close();
}

void Connection::abandon() {
  carrier_.forget();
  if (writer_.joinable()) writer_.detach();
  if (reader_.joinable()) reader_.detach();
}

}  // namespace eat
