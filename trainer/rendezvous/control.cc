// Control: the thread that sends heartbeats to rank 0, and receives the state of the job.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/control.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "trainer/rendezvous/meeting.h"
#include "trainer/rendezvous/server.h"

namespace rendezvous {
namespace {

constexpr std::chrono::milliseconds kBeat{250};
/// Rank 0 stays this long after a verdict, so that the others receive it.
constexpr std::chrono::milliseconds kLastWord{300};

}  // namespace

/// See the room card of control.h.
class Control::Link final : public Store {
 public:
  explicit Link(ControlOptions options);
  ~Link() override;

  void set(const std::string& key, const std::string& value) override {
    send(FrameKind::set, Packer().text(key).text(value).take());
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  void offer(const std::string& value) {
    send(FrameKind::offer, Packer().number(round_++).text(value).take());
  }
  std::vector<std::string> collect();
  void post(int to, int64_t topic, const std::string& text);
  std::vector<Letter> letters(int64_t topic, std::chrono::milliseconds wait);
  void leave(int status);
  void report_failure(const std::string& why, bool peer, int status);
  [[noreturn]] void fail(const std::string& why, bool peer, int status);

  ControlOptions options;
  std::vector<Claim> roster;
  RankStatus rank_status;
  double seconds_to_meet = 0;
  int looks = 1;

 private:
  void send(FrameKind kind, const std::string& payload);
  void beat();
  bool try_beat();
  void run();
  bool receive(bool& open);
  bool handle(const Frame& frame);
  void end(int status, const std::string& line, bool speaks);
  bool first_on_host(int lost) const;
  bool beside(const Claim& other) const;

  std::unique_ptr<Server> server_;
  std::optional<FrameStream> stream_;
  std::mutex sending_, mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<int64_t, std::vector<std::string>> rounds_;
  std::map<int64_t, std::vector<Letter>> letters_;  ///< By topic.
  int64_t round_ = 0, collected_ = 0;
  bool all_left_ = false, cut_ = false;
  std::atomic<bool> ending_ = false;
  int wake_ = -1;
  std::thread thread_;
};

Control::Link::Link(ControlOptions given) : options(std::move(given)) {
  const Clock::time_point start = Clock::now();
  rank_status.set_resumable(options.resumable);
  if (options.launch.rank == 0) {
    Door door = open_door(options);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
      throw std::system_error(errno, std::generic_category(), "socketpair");
    server_ = std::make_unique<Server>(options, std::move(door.listener), Socket(pair[0]));
    const auto remove = [&] {
      if (!door.file.empty()) unlink(door.file.c_str());
    };
    try {
      Entry entry = enter_own(options, Socket(pair[1]), door.others);
      stream_.emplace(std::move(entry.stream));
      roster = std::move(entry.roster);
    } catch (...) {
      if (options.tells) server_->wait_until(&Server::all_hosts_told);
      remove();
      std::this_thread::sleep_for(kLastWord);
      throw;
    }
    remove();
  } else {
    Entry entry = enter(options);
    looks = entry.looks;
    stream_.emplace(std::move(entry.stream));
    roster = std::move(entry.roster);
  }
  seconds_to_meet = std::chrono::duration<double>(Clock::now() - start).count();
  wake_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { run(); });
}

Control::Link::~Link() {
  ending_ = true;
  const uint64_t one = 1;
  static_cast<void>(!write(wake_, &one, sizeof one));
  thread_.join();
  close(wake_);
}

void Control::Link::send(FrameKind kind, const std::string& payload) {
  const std::lock_guard<std::mutex> lock(sending_);
  stream_->send(kind, payload);  // the other thread detects a lost peer.
}

void Control::Link::beat() {
  Packer out;
  pack(out, rank_status.status());
  send(FrameKind::beat, out.take());
}

/// False if another thread is sending: its bytes are a heartbeat too, and this thread must continue
/// receiving, because rank 0 may be sending to this rank.
bool Control::Link::try_beat() {
  const std::unique_lock<std::mutex> lock(sending_, std::try_to_lock);
  if (!lock) return false;
  Packer out;
  pack(out, rank_status.status());
  stream_->send(FrameKind::beat, out.take());
  return true;
}

void Control::Link::run() {
  // What came right behind the roster was read with it, and nothing may follow: a verdict.
  bool open = true;
  if (!receive(open)) return;
  Clock::time_point heard = Clock::now(), looked = heard, next_beat = heard;
  while (!ending_) {
    pollfd entries[] = {{.fd = stream_->fd(), .events = POLLIN, .revents = 0},
                        {.fd = wake_, .events = POLLIN, .revents = 0}};
    poll(entries, 2, static_cast<int>(kBeat.count()));
    const Clock::time_point now = Clock::now();
    // This process was stopped and continued: the silence in between says nothing about rank 0.
    if (now - looked > std::chrono::seconds(2)) heard = now;
    looked = now;
    if (entries[0].revents != 0) {
      heard = now;
      if (!receive(open)) return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (all_left_ || ending_) return;
    const Clock::duration silence = now - heard;
    if (!open || silence > options.hang_timeout + options.hang_timeout / 4) {
      cut_ = true;
      changed_.notify_all();
      const Status s = rank_status.status();
      end(s.resumable ? exit_status::kResumable : exit_status::kFailed,
          roster[0].name() + ": in step " + std::to_string(s.step) +
              (open ? ": silent: stopped, or its machine hangs"
                    : ": its connection closed: killed, or crashed") +
              (s.call.empty() ? "" : "; the last collective here: " + s.call),
          first_on_host(-1));
      return;
    }
    if (now >= next_beat && try_beat()) next_beat = now + kBeat;
  }
}

/// Receives rank 0's messages; `open` becomes false when the connection ends or a message is
/// invalid. False when the process is ending.
bool Control::Link::receive(bool& open) {
  try {
    open = stream_->fill(kRankLimit);
    while (std::optional<Frame> frame = stream_->next(kRankLimit))
      if (!handle(*frame)) return false;
  } catch (const ops::DeviceError&) {
    open = false;
  }
  return true;
}

/// False when the process is ending.
bool Control::Link::handle(const Frame& frame) {
  Unpacker in(frame.payload);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (frame.kind == FrameKind::value) {
    const std::string key = in.text();
    values_[key] = in.text();
  } else if (frame.kind == FrameKind::collected) {
    std::vector<std::string>& values = rounds_[in.number()];
    for (int i = 0; i < options.claim.world_size; ++i) values.push_back(in.text());
  } else if (frame.kind == FrameKind::post) {
    const int from = static_cast<int>(in.number());
    std::vector<Letter>& box = letters_[in.number()];
    box.push_back({from, in.text()});
  } else if (frame.kind == FrameKind::all_left) {
    if (options.claim.rank != 0) {  // rank 0's server has called it before it told anybody.
      if (options.over) options.over();
      send(FrameKind::farewell, "");
    }
    all_left_ = true;
  } else if (frame.kind == FrameKind::verdict) {
    const int status = static_cast<int>(in.number()), lost = static_cast<int>(in.number());
    const std::string line = in.text();
    if (options.claim.rank == 0)
      end(status, line, true);
    else
      end(status, roster[0].name() + " ended the run: " + line,
          options.hosts_apart && !beside(roster[0]) && first_on_host(lost));
    cut_ = true;
    changed_.notify_all();
    return false;
  }
  changed_.notify_all();
  return true;
}

/// Whether this is the lowest rank of its host, not counting rank 0 and the rank that is lost: it
/// prints when they cannot.
bool Control::Link::first_on_host(int lost) const {
  return std::ranges::none_of(roster, [&](const Claim& other) {
    return other.rank > 0 && other.rank != lost && other.rank < options.claim.rank && beside(other);
  });
}

/// Whether `other` is a rank of this host.
bool Control::Link::beside(const Claim& other) const {
  return other.host == options.claim.host &&
         other.address == roster[static_cast<size_t>(options.claim.rank)].address;
}

void Control::Link::end(int status, const std::string& line, bool speaks) {
  if (speaks && options.print) options.print(line);
  if (options.claim.rank == 0) std::this_thread::sleep_for(kLastWord);
  if (options.at_end) options.at_end();
  if (options.end_process)
    options.end_process(status);
  else
    _exit(status);
}

std::string Control::Link::get(const std::string& key, std::chrono::milliseconds timeout) {
  send(FrameKind::get, Packer().text(key).take());
  std::unique_lock<std::mutex> lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return cut_ || values_.count(key) != 0; }) || cut_)
    throw ops::DeviceError("comm: no rank has set " + key + " within " +
                           std::to_string(timeout.count()) + " ms");
  return values_[key];
}

std::vector<std::string> Control::Link::collect() {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t round = collected_++;
  changed_.wait(lock, [&] { return cut_ || rounds_.count(round) != 0; });
  auto values = rounds_.extract(round);
  if (values.empty()) throw ops::DeviceError("comm: the connection to rank 0 is lost");
  return std::move(values.mapped());
}

void Control::Link::post(int to, int64_t topic, const std::string& text) {
  if (text.size() > kRankLimit / 2)
    throw ops::DeviceError("comm: a text of " + std::to_string(text.size()) + " bytes");
  send(FrameKind::post, Packer().number(to).number(topic).text(text).take());
}

std::vector<Letter> Control::Link::letters(int64_t topic, std::chrono::milliseconds wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t channel = topic - topic % kTopicsOfChannel;
  letters_.erase(letters_.lower_bound(channel), letters_.lower_bound(topic));
  changed_.wait_for(lock, wait, [&] { return cut_ || letters_.count(topic) != 0; });
  auto box = letters_.extract(topic);
  if (box.empty() && cut_) throw ops::DeviceError("comm: the connection to rank 0 is lost");
  return box.empty() ? std::vector<Letter>() : std::move(box.mapped());
}

void Control::Link::leave(int status) {
  rank_status.enter(Phase::end, rank_status.status().step);
  beat();
  send(FrameKind::leave, Packer().number(status).take());
  std::unique_lock<std::mutex> lock(mutex_);
  // Both sides watch each other meanwhile: a rank that hangs or is lost ends the wait.
  changed_.wait(lock, [&] { return all_left_ || cut_; });
  if (!all_left_) throw ops::DeviceError("comm: the connection to rank 0 is lost");
  lock.unlock();
  if (server_) server_->wait_until(&Server::all_hosts_know);
}

void Control::Link::report_failure(const std::string& why, bool peer, int status) {
  beat();
  send(FrameKind::failed, Packer().number(peer).number(status).text(why).take());
}

void Control::Link::fail(const std::string& why, bool peer, int status) {
  report_failure(why, peer, status);
  // The verdict ends this process, from the other thread; if none comes, this rank's own view is
  // used.
  std::this_thread::sleep_for(options.hang_timeout + std::chrono::seconds(10));
  if (options.print) options.print(options.claim.name() + ": " + why);
  if (options.at_end) options.at_end();
  _exit(status);
}

Control::Control(const ControlOptions& options) : link_(std::make_unique<Link>(options)) {}
Control::~Control() = default;

int Control::rank() const noexcept { return link_->options.claim.rank; }
int Control::size() const noexcept { return link_->options.claim.world_size; }
const std::vector<Claim>& Control::roster() const noexcept { return link_->roster; }
double Control::seconds_to_meet() const noexcept { return link_->seconds_to_meet; }
int Control::looks() const noexcept { return link_->looks; }
const std::string& Control::job_key() const noexcept { return link_->options.launch.secret; }
Store& Control::store() { return *link_; }
RankStatus& Control::rank_status() { return link_->rank_status; }
void Control::offer(const std::string& value) { link_->offer(value); }
std::vector<std::string> Control::collect() { return link_->collect(); }
std::vector<std::string> Control::exchange(const std::string& value) {
  link_->offer(value);
  return link_->collect();
}
void Control::post(int to, int64_t topic, const std::string& text) { link_->post(to, topic, text); }
std::vector<Letter> Control::letters(int64_t topic, std::chrono::milliseconds wait) {
  return link_->letters(topic, wait);
}
void Control::leave(int status) { link_->leave(status); }
void Control::report_failure(const std::string& why, bool peer, int status) {
  link_->report_failure(why, peer, status);
}
void Control::fail(const std::string& why, bool peer, int status) {
  link_->fail(why, peer, status);
}

}  // namespace rendezvous
