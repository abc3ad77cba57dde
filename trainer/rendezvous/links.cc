// Links. The higher of two ranks connects; three messages of fixed length follow:
//   hello    magic, rank, nonce, proof of the secret    (68 bytes)
//   welcome  nonce, proof over both nonces              (48)
//   confirm  proof over both nonces                     (32)
// Nothing after the confirmation is read here; the caller reads it.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/links.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <string_view>

#include "trainer/rendezvous/server.h"
#include "trainer/rendezvous/sha256.h"

namespace rendezvous {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kLinkMagic = "gristmill link 1";
constexpr size_t kNumber = 4, kHello = kLinkMagic.size() + kNumber + kNonce + kProof,
                 kWelcome = kNonce + kProof, kConfirm = kProof;
/// The same bounds as in server.cc: connections that have proved nothing yet, how long one may
/// take, and how many are accepted in one round.
constexpr size_t kMostStrangers = 32;
constexpr std::chrono::seconds kPatience{3};
constexpr int kAtOnce = 64;
/// Between two attempts to reach a rank.
constexpr milliseconds kPause{20};

/// A connection that is not yet a link.
struct Attempt {
  Socket socket;
  bool outgoing = false;
  int peer = -1;           ///< -1: has not identified itself.
  size_t wanted = kHello;  ///< Bytes of the next message; 0: its time is up.
  std::string in = {}, own_nonce = {}, their_nonce = {};
  Clock::time_point since = Clock::now();
};

class Linker {
 public:
  Linker(const LinkOptions& options, Store& store);
  std::vector<Socket> run();

 private:
  /// Where a rank with a lower number listens, and the result of trying to reach it.
  struct Place {
    std::string address, why;
    int port = 0;
    bool trying = false;
    Clock::time_point again{};
  };
  enum class Step { wait, done, close };

  std::string proven(const char* what, const std::string& a, const std::string& b, int from,
                     int to) const;
  void publish(Store& store);
  void reach_out();
  void start(int peer);
  void poll_once();
  void accept_some();
  Step read(Attempt& attempt);
  Step understand(Attempt& attempt);
  Step understand_hello(Attempt& attempt);
  Step understand_welcome(Attempt& attempt);
  bool say(const Attempt& attempt, const std::string& bytes) const;
  void advance(std::list<Attempt>::iterator attempt);
  [[noreturn]] void give_up() const;

  const LinkOptions& options_;
  Listener listener_;
  std::vector<Place> places_;
  std::vector<Socket> links_;
  std::list<Attempt> attempts_;
  int missing_;
};

Linker::Linker(const LinkOptions& options, Store& store)
    : options_(options),
      listener_(listen_on(options.address, 0)),
      places_(static_cast<size_t>(options.rank)),
      links_(static_cast<size_t>(options.size)),
      missing_(options.size - 1) {
  publish(store);
}

/// Stores this rank's port for the ranks above it, and gets those of the ranks below.
void Linker::publish(Store& store) {
  const auto key = [&](int rank) { return "link/" + options_.id + "/" + std::to_string(rank); };
  store.set(key(options_.rank), Packer().text(options_.address).number(listener_.port()).take());
  for (int peer = 0; peer < options_.rank; ++peer) {
    const std::string value = store.get(key(peer), options_.timeout);
    Unpacker in(value);
    Place& place = places_[static_cast<size_t>(peer)];
    place.address = in.text();
    place.port = static_cast<int>(in.number());
  }
}

std::string Linker::proven(const char* what, const std::string& a, const std::string& b, int from,
                           int to) const {
  return proof(options_.secret, what, a, b,
               Packer().text(options_.id).number(from).number(to).take());
}

std::vector<Socket> Linker::run() {
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  while (missing_ > 0) {
    if (Clock::now() >= deadline) give_up();
    reach_out();
    poll_once();
  }
  return std::move(links_);
}

void Linker::give_up() const {
  const size_t own = static_cast<size_t>(options_.rank);
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (peer == own || links_[peer]) continue;
    const std::string why =
        peer < own && !places_[peer].why.empty() ? ": " + places_[peer].why : "";
    throw LinkError(
        static_cast<int>(peer),
        "no connection within " + std::to_string(options_.timeout.count() / 1000) + " s" + why);
  }
  throw LinkError(0, "no connection");
}

void Linker::reach_out() {
  for (int peer = 0; peer < options_.rank; ++peer) {
    Place& place = places_[static_cast<size_t>(peer)];
    if (!links_[static_cast<size_t>(peer)] && !place.trying && Clock::now() >= place.again)
      start(peer);
  }
}

void Linker::start(int peer) {
  Place& place = places_[static_cast<size_t>(peer)];
  place.again = Clock::now() + kPause;
  Attempt attempt{
      .socket = connect_to(place.address, place.port, Clock::now() + kPatience, place.why),
      .outgoing = true,
      .peer = peer,
      .wanted = kWelcome,
      .own_nonce = random_bytes(kNonce)};
  if (!attempt.socket) return;
  std::string hello(kLinkMagic);
  for (int shift = 0; shift < 32; shift += 8) hello += static_cast<char>(options_.rank >> shift);
  hello += attempt.own_nonce + proven("link", attempt.own_nonce, "", options_.rank, peer);
  if (!say(attempt, hello)) return;
  place.trying = true;
  attempts_.push_back(std::move(attempt));
}

void Linker::poll_once() {
  std::vector<pollfd> entries{{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
  for (const Attempt& attempt : attempts_)
    entries.push_back({.fd = attempt.socket.fd(), .events = POLLIN, .revents = 0});
  poll(entries.data(), entries.size(), static_cast<int>(kPause.count()));
  size_t i = 1;
  for (auto attempt = attempts_.begin(); attempt != attempts_.end(); ++i) {
    const auto here = attempt++;
    // The confirming rank considers the link made: this end waits longer than that rank may take,
    // and reads what has arrived before it gives up.
    const bool confirms = !here->outgoing && here->peer >= 0, came = entries[i].revents != 0;
    const bool over = Clock::now() - here->since > (confirms ? 2 * kPatience : kPatience);
    if (over && !(confirms && came)) here->wanted = 0;
    if (over || came) advance(here);
  }
  if (entries[0].revents != 0) accept_some();
}

/// Keeps only the last few unproven connections. No rank is lost by that: a rank's hello has
/// arrived when its connection is accepted, and is read at once.
void Linker::accept_some() {
  for (int n = 0; n < kAtOnce; ++n) {
    Socket socket = listener_.take();
    if (!socket) return;
    if (attempts_.size() > links_.size() + 2 * kMostStrangers) continue;
    const auto stranger = [](const Attempt& attempt) { return attempt.peer < 0; };
    if (static_cast<size_t>(std::ranges::count_if(attempts_, stranger)) >= kMostStrangers)
      attempts_.erase(std::ranges::find_if(attempts_, stranger));
    attempts_.push_back({.socket = std::move(socket)});
    advance(std::prev(attempts_.end()));
  }
}

void Linker::advance(std::list<Attempt>::iterator attempt) {
  const Step step = attempt->wanted == 0 ? Step::close : read(*attempt);
  if (step == Step::wait) return;
  const size_t peer = static_cast<size_t>(attempt->peer);
  if (step == Step::done && !links_[peer]) {
    links_[peer] = std::move(attempt->socket);
    --missing_;
  }
  if (attempt->outgoing) {
    places_[peer].trying = false;
    places_[peer].again = Clock::now() + kPause;
  }
  attempts_.erase(attempt);
}

Linker::Step Linker::read(Attempt& attempt) {
  char bytes[kHello];
  while (true) {
    const size_t room = attempt.wanted - attempt.in.size();
    const ssize_t got = recv(attempt.socket.fd(), bytes, room, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Step::wait;
    if (got <= 0) {
      if (attempt.outgoing)
        places_[static_cast<size_t>(attempt.peer)].why = "it has another secret, or is gone";
      return Step::close;
    }
    attempt.in.append(bytes, static_cast<size_t>(got));
    if (attempt.in.size() < attempt.wanted) continue;
    const Step step = understand(attempt);
    if (step != Step::wait) return step;
    attempt.in.clear();
  }
}

Linker::Step Linker::understand(Attempt& attempt) {
  if (attempt.outgoing) return understand_welcome(attempt);
  if (attempt.peer < 0) return understand_hello(attempt);
  const std::string expected =
      proven("link confirm", attempt.own_nonce, attempt.their_nonce, attempt.peer, options_.rank);
  return same_bytes(attempt.in, expected) ? Step::done : Step::close;
}

Linker::Step Linker::understand_hello(Attempt& attempt) {
  if (!attempt.in.starts_with(kLinkMagic)) return Step::close;
  const std::string_view rest = std::string_view(attempt.in).substr(kLinkMagic.size());
  uint32_t from = 0;
  for (size_t i = kNumber; i-- > 0;) from = from << 8 | static_cast<uint8_t>(rest[i]);
  if (from <= static_cast<uint32_t>(options_.rank) || from >= links_.size() || links_[from])
    return Step::close;
  attempt.their_nonce = rest.substr(kNumber, kNonce);
  const std::string proved(rest.substr(kNumber + kNonce));
  const int peer = static_cast<int>(from);
  if (!same_bytes(proved, proven("link", attempt.their_nonce, "", peer, options_.rank)))
    return Step::close;
  attempt.peer = peer;
  attempt.wanted = kConfirm;
  attempt.own_nonce = random_bytes(kNonce);
  const std::string answer =
      proven("link welcome", attempt.their_nonce, attempt.own_nonce, peer, options_.rank);
  return say(attempt, attempt.own_nonce + answer) ? Step::wait : Step::close;
}

Linker::Step Linker::understand_welcome(Attempt& attempt) {
  const std::string nonce = attempt.in.substr(0, kNonce);
  const int own = options_.rank, peer = attempt.peer;
  if (!same_bytes(attempt.in.substr(kNonce),
                  proven("link welcome", attempt.own_nonce, nonce, own, peer))) {
    places_[static_cast<size_t>(peer)].why = "it does not know this job's secret";
    return Step::close;
  }
  return say(attempt, proven("link confirm", nonce, attempt.own_nonce, own, peer)) ? Step::done
                                                                                   : Step::close;
}

/// Sends without waiting: the buffer of a new connection has room for these few bytes.
bool Linker::say(const Attempt& attempt, const std::string& bytes) const {
  return send(attempt.socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

std::vector<Socket> link_ranks(const LinkOptions& options, Store& store) {
  return Linker(options, store).run();
}

}  // namespace rendezvous
