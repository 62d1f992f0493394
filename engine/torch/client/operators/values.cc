// Known small values: see values.h.
#include "values.h"

#include <cstdlib>
#include <iostream>
#include <unordered_map>

namespace eat {

std::mutex known_mutex;
std::atomic<int64_t> values_along{0}, values_computed{0}, values_checked{0}, values_wrong{0};

namespace {

constexpr size_t MOST_NOTED = 16;  // that come along with one answer
constexpr int TRIED = 32;          // values of one signature that came along, before it counts whether they were used

std::mutex noting;

std::unordered_map<Device*, std::vector<WeakStorage>>& noted() {
  static auto* all = new std::unordered_map<Device*, std::vector<WeakStorage>>;
  return *all;
}

void put_down(Writer& to, const Ticket& ticket, const RemoteStorage& storage, uint64_t offset, uint64_t count) {
  size_t began = to.begin(ToServer::DOWN);
  to.put(ticket.tag);
  to.put(storage.number);
  to.put(offset);
  to.put(count);
  to.end(began);
}

// Whether the server has these bytes there. An error that it has instead is not this one's to tell.
void check_known(RemoteStorage& storage, uint64_t offset, const char* known, uint64_t count, const std::string& when) {
  std::string there(count, '\0');
  Device& device = *storage.device;
  auto ticket = device.connection().ticket(there.data(), count);
  Writer message;
  put_down(message, *ticket, storage, offset, count);
  device.connection().send(device.there, message.bytes);
  wait_only(device, *ticket);
  if (!ticket->errors.empty()) return leave_untold(ticket->errors);
  values_checked++;
  if (memcmp(there.data(), known, count) == 0) return;
  values_wrong++;
  std::cerr << "elastic-ai: a value that was taken for known is another one on the server, " << when << std::endl;
  TORCH_CHECK(false, "a value that was taken for known is another one on the server, ", when);
}

}  // namespace

bool checks_known() {
  static const bool set = getenv("ELASTIC_AI_TORCH_CHECK_KNOWN") != nullptr;
  return set;
}

void check_known(const std::vector<RemoteStorage*>& storages, const std::string& after) {
  for (RemoteStorage* storage : storages) {
    std::string known;
    {
      std::lock_guard<std::mutex> lock(known_mutex);
      if (!storage->is_known()) continue;  // it was written, by another argument
      known = storage->known;
    }
    check_known(*storage, 0, known.data(), known.size(), "after " + after);
  }
}

void know(RemoteStorage& storage, uint64_t writes, const char* bytes, size_t count) {
  std::lock_guard<std::mutex> lock(known_mutex);
  storage.known.assign(bytes, count);
  storage.came_along = false;
  storage.known_at = writes;
}

bool take_known(RemoteStorage& storage, uint64_t offset, char* to, uint64_t count) {
  if (!storage.is_known() || in_fork() || has_failed()) return false;
  {
    std::lock_guard<std::mutex> lock(known_mutex);
    if (!storage.is_known() || offset > storage.known.size() || count > storage.known.size() - offset) return false;
    memcpy(to, storage.known.data() + offset, count);
    if (storage.came_along) storage.made_by->used++;
    storage.came_along = false;
  }
  counters.known++;
  if (checks_known()) check_known(storage, offset, to, count, "when it is read");
  return true;
}

void note_output(const OperatorInfo& info, const c10::IValue* arguments, const at::Tensor& made, const std::shared_ptr<Mark>& mark) {
  RemoteStorage& storage = remote_storage(made);
  storage.made_by = mark;
  if (info.exact != Exact::NO && arguments[0].isTensor() && is_remote(arguments[0].toTensor())) {
    // Whoever reads a test's outcome often asks the next question of the same value; of a test of a test the first one stays.
    const at::Tensor& self = arguments[0].toTensor();
    const RemoteStorage& tested = remote_storage(self);
    if (!tested.tested.expired()) storage.tested = tested.tested;
    else if (tested.bytes <= MOST_ALONG_BYTES) storage.tested = WeakStorage(self.storage().getWeakStorageImpl());
  }
  if (!mark->read) return;
  std::lock_guard<std::mutex> lock(noting);
  auto& list = noted()[storage.device];
  if (list.size() == MOST_NOTED) list.erase(list.begin());
  list.push_back(made.storage().getWeakStorageImpl());
}

Along::Along(Device& device, RemoteStorage* read) : device_(device) {
  if (read && read->made_by) read->made_by->read = true;
  std::vector<WeakStorage> list;
  {
    std::lock_guard<std::mutex> lock(noting);
    auto found = noted().find(&device_);
    if (found != noted().end()) list.swap(found->second);
  }
  for (const WeakStorage& weak : list) ask(weak, read);
  if (read) ask(read->tested, read);
}

void Along::ask(const WeakStorage& weak, const RemoteStorage* read) {
  auto alive = weak.lock();
  if (!alive) return;
  c10::Storage storage{std::move(alive)};
  RemoteStorage& one = remote_storage(*storage.unsafeGetStorageImpl());
  // Only what nothing has written since it was made.
  if (&one == read || one.device != &device_ || one.writes || !one.made_by || one.is_known() || one.bytes <= 0) return;
  for (const One& other : all_) {
    if (other.storage.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) return;
  }
  auto bytes = std::make_shared<std::string>(static_cast<size_t>(one.bytes), '\0');
  auto ticket = device_.connection().ticket(bytes->data(), bytes->size(), bytes);
  Writer question;
  put_down(question, *ticket, one, 0, bytes->size());
  messages += question.bytes;
  all_.push_back({std::move(storage), std::move(ticket), std::move(bytes)});
}

void Along::arrived() {
  for (One& one : all_) {
    if (!device_.connection().is_done(*one.ticket)) continue;
    if (!one.ticket->errors.empty()) {
      leave_untold(one.ticket->errors);
      continue;
    }
    RemoteStorage& storage = remote_storage(*one.storage.unsafeGetStorageImpl());
    if (static_cast<int64_t>(one.bytes->size()) != storage.bytes) continue;  // another thread has given it another size
    know(storage, 0, one.bytes->data(), one.bytes->size());
    std::lock_guard<std::mutex> lock(known_mutex);
    storage.came_along = storage.is_known();
    values_along++;
    // What comes along and is not used costs the server a copy each time.
    Mark& mark = *storage.made_by;
    if (++mark.along < TRIED) continue;
    if (mark.used * 4 < mark.along) mark.read = false;
    mark.along = mark.used = 0;
  }
}

}  // namespace eat
