// Server: admission of ranks, the store and the rounds. The verdict is in server_watch.cc.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>

#include "trainer/rendezvous/meeting.h"
#include "trainer/rendezvous/server_peer.h"
#include "trainer/rendezvous/sha256.h"

namespace rendezvous {
namespace {

/// The most unproven connections. One more closes the oldest. No rank is lost by that: its proof
/// has arrived when its connection is accepted.
constexpr size_t kMostStrangers = 32;
/// The most connections accepted in one round, so that a flood leaves time for the ranks.
constexpr int kAtOnce = 64;
/// Connections that know the secret, beyond the number of ranks: late ones, and ranks that connect
/// again.
constexpr size_t kMostBeside = 64;
/// How many nonces of proved hellos are kept, and how many addresses of refused ones.
constexpr size_t kMostNonces = 1 << 16, kMostNamed = 4;

}  // namespace

std::string proof(const std::string& secret, std::string_view what, const std::string& nonce_a,
                  const std::string& nonce_b, std::string_view payload) {
  return hmac_sha256(
      secret, Packer().text(kMagic).text(what).text(nonce_a).text(nonce_b).text(payload).take());
}

std::string Claim::name() const {
  return "rank " + std::to_string(rank) + " (" + host + (device.empty() ? "" : ", " + device) + ")";
}

void pack(Packer& out, const Claim& c) {
  out.number(c.rank).number(c.world_size).number(c.local_rank).number(c.pid);
  out.number(c.restarts).number(c.stopped);
  for (const std::string& text :
       {c.host, c.address, c.device, c.unique_device, c.version, c.config, c.error})
    out.text(text);
}

Claim unpack_claim(Unpacker& in) {
  Claim c;
  c.rank = static_cast<int>(in.number());
  c.world_size = static_cast<int>(in.number());
  c.local_rank = static_cast<int>(in.number());
  c.pid = in.number();
  c.restarts = static_cast<int>(in.number());
  c.stopped = in.number() != 0;
  for (std::string* text :
       {&c.host, &c.address, &c.device, &c.unique_device, &c.version, &c.config, &c.error})
    *text = in.text();
  return c;
}

void pack(Packer& out, const Status& s) {
  out.number(static_cast<int64_t>(s.phase)).number(s.step);
  out.number(static_cast<int64_t>(s.progress)).number(s.waiting).number(s.resumable);
  out.number(s.first_evaluation).text(s.call);
}

Status unpack_status(Unpacker& in) {
  Status s;
  s.phase = static_cast<Phase>(in.number());
  s.step = in.number();
  s.progress = static_cast<uint64_t>(in.number());
  s.waiting = in.number() != 0;
  s.resumable = in.number() != 0;
  s.first_evaluation = in.number() != 0;
  s.call = in.text();
  return s;
}

void pack(Packer& out, const Refusal& r) { out.number(r.retryable).text(r.why); }

Refusal unpack_refusal(Unpacker& in) {
  Refusal r;
  r.retryable = in.number() != 0;
  r.why = in.text();
  return r;
}

Server::Server(const ControlOptions& options, Socket listener, Socket own)
    : options_(options),
      listener_(std::move(listener)),
      ranks_(static_cast<size_t>(options.launch.world_size)),
      claims_(static_cast<size_t>(options.launch.world_size)) {
  peers_.push_back(std::make_unique<Peer>(std::move(own)));
  peers_.back()->state = Peer::State::challenged;
  peers_.back()->trusted = true;
  thread_ = std::thread([this] { run(); });
}

Server::~Server() {
  ending_ = true;
  thread_.join();
  if (!door_file_.empty()) unlink(door_file_.c_str());
}

void Server::wait_until(bool (Server::*is_so)() const noexcept) const {
  const Clock::time_point end = Clock::now() + options_.timeout;
  while (!(this->*is_so)() && Clock::now() < end && !(options_.stop && !options_.stop().empty()))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

void Server::run() {
  while (!ending_) {
    std::vector<pollfd> entries;
    if (listener_) entries.push_back({.fd = listener_.fd(), .events = POLLIN, .revents = 0});
    const size_t first = entries.size(), known = peers_.size();
    for (const std::unique_ptr<Peer>& peer : peers_)
      entries.push_back({.fd = peer->stream.fd(), .events = POLLIN, .revents = 0});
    poll(entries.data(), entries.size(), 50);
    for (size_t i = 0; i < known; ++i)
      if (entries[first + i].revents != 0) receive(*peers_[i]);
    if (listener_ && entries[0].revents != 0) accept_some();
    std::erase_if(peers_, [](const std::unique_ptr<Peer>& peer) { return peer->closed; });
    watch();
    count_hosts();
  }
}

/// A rank's first bytes prove that it knows the secret, and are read at once.
void Server::accept_some() {
  for (int i = 0; i < kAtOnce && listener_; ++i) {
    Socket socket = listener_.take();
    if (!socket) return;
    // A host without power closes nothing, and its ranks must be able to come again.
    give_up_unconfirmed(socket, 2 * options_.hang_timeout);
    make_room();
    peers_.push_back(std::make_unique<Peer>(std::move(socket)));
    receive(*peers_.back());
  }
}

/// Keeps only the last few unproven connections, so that they cannot keep a rank out.
void Server::make_room() {
  const auto counts = [](const std::unique_ptr<Peer>& peer) {
    return peer->state == Peer::State::stranger && !peer->closed;
  };
  if (static_cast<size_t>(std::ranges::count_if(peers_, counts)) < kMostStrangers) return;
  closed(**std::ranges::find_if(peers_, counts));
}

/// No message may end the thread: a malformed one closes its connection.
void Server::receive(Peer& peer) {
  try {
    const bool open = peer.stream.fill(peer.limit());
    if (open) peer.heard = Clock::now();  // part of a long frame counts as a heartbeat too.
    while (!peer.closed) {
      const std::optional<Frame> frame = peer.stream.next(peer.limit());
      if (!frame) break;
      handle(peer, *frame);
    }
    if (!open) closed(peer);
  } catch (const ops::DeviceError&) {
    closed(peer);
  }
}

void Server::handle(Peer& peer, const Frame& frame) {
  if (peer.state == Peer::State::stranger) return challenge(peer, frame);
  if (peer.state == Peer::State::challenged) return admit(peer, frame);
  if (peer.state == Peer::State::refused) return closed(peer);  // its messages are ignored.
  Unpacker in(frame.payload);
  peer.heard = Clock::now();
  switch (frame.kind) {
    case FrameKind::beat:
      return update(peer, unpack_status(in));
    case FrameKind::set: {
      const std::string key = in.text();
      values_[key] = in.text();
      return answer_get(key);
    }
    case FrameKind::get: {
      const std::string key = in.text();
      wanted_[key].insert(peer.rank);
      return answer_get(key);
    }
    case FrameKind::offer: {
      const int64_t round = in.number();
      rounds_[round][peer.rank] = in.text();
      return collect(round);
    }
    case FrameKind::post:
      return forward(peer, in);
    case FrameKind::failed: {
      const bool by_peer = in.number() != 0;
      const int status = static_cast<int>(in.number());
      const std::string line = claims_[static_cast<size_t>(peer.rank)].name() + ": " + in.text();
      peer.reported = true;  // closing its connection is expected now.
      if (by_peer)
        return suspect({.line = line,
                        .when = Clock::now() + std::chrono::milliseconds(1500),
                        .status = status});
      return judge(line, status);
    }
    case FrameKind::leave:
      peer.left = true;
      if (peer.trusted) status_ = in.number();
      if (std::ranges::all_of(ranks_, [](const Peer* p) { return p != nullptr && p->left; }))
        end_run();
      return;
    case FrameKind::farewell:
      peer.knows = true;
      know_.insert(peer.host);
      return;
    case FrameKind::stop:
      return stopped(peer, in.text());
    default:
      return closed(peer);
  }
}

/// Nothing is stored or answered before the other side has proved that it knows the secret.
void Server::challenge(Peer& peer, const Frame& frame) {
  const size_t size = kMagic.size() + kNonce + kProof;
  if (frame.kind != FrameKind::hello || frame.payload.size() != size ||
      !frame.payload.starts_with(kMagic))
    return closed(peer);
  const std::string nonce = frame.payload.substr(kMagic.size(), kNonce);
  const std::string proven = frame.payload.substr(kMagic.size() + kNonce);
  const std::string& secret = options_.launch.secret;
  if (!same_bytes(proven, proof(secret, "hello", nonce, "", ""))) {
    ++refused_;
    if (refused_from_.size() < kMostNamed) refused_from_.insert(peer.stream.peer_address());
    return closed(peer);
  }
  if (nonces_.size() >= kMostNonces) nonces_.clear();
  if (!nonces_.insert(nonce).second || peers_.size() > ranks_.size() + kMostStrangers + kMostBeside)
    return closed(peer);
  peer.their_nonce = nonce;
  peer.own_nonce = random_bytes(kNonce);
  peer.state = Peer::State::challenged;
  peer.since = Clock::now();
  const std::string answer = proof(secret, "challenge", nonce, peer.own_nonce, "");
  if (!peer.stream.send(FrameKind::challenge, peer.own_nonce + answer)) closed(peer);
}

void Server::admit(Peer& peer, const Frame& frame) {
  if (frame.kind != FrameKind::claim) return closed(peer);
  Unpacker in(frame.payload);
  const std::string payload = in.text(), proven = in.text();
  if (!peer.trusted && !same_bytes(proven, proof(options_.launch.secret, "claim", peer.their_nonce,
                                                 peer.own_nonce, payload)))
    return closed(peer);
  Unpacker fields(payload);
  const Claim claim = unpack_claim(fields);
  peer.heard = Clock::now();
  // Rank 0 looks for another rank 0 at its own address, which may be itself.
  const Claim& ours = options_.claim;
  if (claim.rank >= 0 && claim.rank < ours.world_size) peer.claimed = claim.rank;
  peer.host = host_of(claim.rank, claim.world_size);
  if (!peer.trusted && claim.rank == 0 && claim.pid == ours.pid && claim.host == ours.host)
    return closed(peer);
  if (!enters(peer, claim)) return;
  const auto missing = std::ranges::count(ranks_, nullptr);
  if (missing == 0 && objections_.empty()) return welcome();
  refuse_if_clear();
}

/// Whether the rendezvous continues after `claim`.
bool Server::enters(Peer& peer, const Claim& claim) {
  peer.state = Peer::State::refused;
  if (over_) {
    tell_over(peer);
    return false;
  }
  if (complete_ || judged_) {
    complete_ ? closed(peer) : tell_refusal(peer);
    return false;
  }
  restarted_ = restarted_ || claim.restarts > 0;
  const std::string why = objection(claim);
  if (why.empty()) {
    const size_t index = static_cast<size_t>(claim.rank);
    peer.state = Peer::State::ranked;
    peer.rank = claim.rank;
    claims_[index] = claim;
    ranks_[index] = &peer;
    std::erase_if(objections_, [&](const Objection& o) { return o.before == claim.rank; });
    const size_t there = ranks_.size() - static_cast<size_t>(std::ranges::count(ranks_, nullptr));
    if (there > most_) last_arrival_ = Clock::now();
    most_ = std::max(most_, there);
    return true;
  }
  const bool other_size = claim.world_size != options_.claim.world_size;
  const bool own_error = !other_size && !claim.error.empty() && why.ends_with(claim.error);
  // An earlier start of that rank, which still tells why it ended.
  if (own_error && peer.claimed >= 0 && ranks_[static_cast<size_t>(claim.rank)] != nullptr) {
    closed(peer);
    return false;
  }
  object({.why = why,
          .other_size = other_size,
          .before = own_error && !claim.stopped && !peer.trusted ? claim.rank : -1,
          .stopped = own_error && claim.stopped ? peer.claimed : -1});
  return true;
}

/// All have connected: every rank gets the roster. A rank on rank 0's host may have connected by
/// the loopback, at which ranks of other hosts would not find it; it gets rank 0's address.
void Server::welcome() {
  listener_.close();  // no rank is missing: any further connection is a stranger.
  std::string address;
  for (const Peer* peer : ranks_) {
    if (peer->trusted) continue;
    const std::string here = peer->stream.local_address();
    if (address.empty() || is_loopback(address)) address = here;
  }
  for (Claim& claim : claims_)
    if (claim.address.empty() || (claim.host == claims_[0].host && is_loopback(claim.address)))
      claim.address = address.empty() ? "127.0.0.1" : address;
  Packer all;
  for (const Claim& claim : claims_) {
    Claim brief = claim;
    brief.config.clear();
    pack(all, brief);
  }
  const std::string payload = all.take();
  for (Peer* peer : ranks_) {
    const std::string signature =
        proof(options_.launch.secret, "roster", peer->own_nonce, peer->their_nonce, payload);
    peer->stream.send(FrameKind::roster, Packer().text(payload).text(signature).take());
    peer->heard = Clock::now();  // it had nothing to send while it waited for the others.
  }
  complete_ = true;
  last_progress_ = Clock::now();
}

/// The number of the host of `rank`, one of `ranks`; -1 for no rank.
int Server::host_of(int rank, int ranks) const {
  return rank < 0 ? -1 : rank / std::max(1, ranks / options_.launch.nodes);
}

/// All work is done. From here on the run cannot fail: its own host knows it first, then every
/// rank's.
void Server::end_run() {
  over_ = true;
  if (options_.over) options_.over();
  send_all(FrameKind::all_left, "");
}

/// The host of a rank that may not have heard that the run is over. It will start its ranks again,
/// and these will look for rank 0.
void Server::lost_at_the_end(int rank) {
  if (!options_.comes_back) return;
  return_.insert(host_of(rank, options_.launch.world_size));
  if (listener_ || options_.launch.listener >= 0) return;
  try {
    ControlOptions again = options_;
    Door door = open_door(again);
    listener_ = Listener(std::move(door.listener));
    door_file_ = door.file;
  } catch (const std::exception&) {
    return_.clear();  // nobody can be told.
  }
}

void Server::tell_over(Peer& peer) {
  const std::string status = Packer().number(status_).take();
  const std::string signature =
      proof(options_.launch.secret, "over", peer.own_nonce, peer.their_nonce, status);
  if (peer.stream.send(FrameKind::over, Packer().text(status).text(signature).take()))
    know_.insert(peer.host);
}

/// What rank 0 waits for: an end that every host knows.
void Server::count_hosts() {
  const int hosts = options_.launch.nodes;
  hosts_told_ = std::ranges::count_if(told_, [](int host) { return host > 0; }) == hosts - 1;
  if (!over_) return;
  const bool heard = std::ranges::all_of(
      ranks_, [](const Peer* p) { return p == nullptr || p->trusted || p->knows; });
  hosts_know_ = heard && std::ranges::includes(know_, return_);
}

void Server::answer_get(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  for (const int rank : wanted_[key])
    if (Peer* peer = ranks_[static_cast<size_t>(rank)])
      peer->stream.send(FrameKind::value, Packer().text(key).text(found->second).take());
  wanted_.erase(key);
}

void Server::collect(int64_t round) {
  const std::map<int, std::string>& values = rounds_[round];
  if (values.size() < ranks_.size()) return;
  Packer out;
  out.number(round);
  for (const auto& [rank, value] : values) out.text(value);
  rounds_.erase(round);
  send_all(FrameKind::collected, out.take());
}

/// Forwards to one rank, or to all but the sender. A lost rank gets nothing: the verdict follows.
void Server::forward(const Peer& from, Unpacker& in) {
  const int64_t to = in.number(), topic = in.number();
  const std::string payload = Packer().number(from.rank).number(topic).text(in.text()).take();
  for (Peer* peer : ranks_)
    if (peer != nullptr && peer != &from && (to < 0 || peer->rank == to))
      peer->stream.send(FrameKind::post, payload);
}

void Server::send_all(FrameKind kind, const std::string& payload) {
  for (Peer* peer : ranks_)
    if (peer != nullptr) peer->stream.send(kind, payload);
}

}  // namespace rendezvous
