// Server: why a run does not start, and telling it: what claims contradict, ranks that are asked to
// stop. Who is missing: server_watch.cc.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <sstream>
#include <utility>

#include "trainer/rendezvous/server.h"
#include "trainer/rendezvous/server_peer.h"

namespace rendezvous {
namespace {

std::string other_size(const Claim& claim, const Claim& ours) {
  return claim.name() + " is one of " + std::to_string(claim.world_size) + " ranks, " +
         ours.name() + " is one of " + std::to_string(ours.world_size) +
         ": start as many processes on each host (--nproc-per-node, the GPUs it sees)";
}

/// The first line that differs between two configurations.
std::string first_difference(const std::string& theirs, const std::string& ours) {
  std::istringstream a(theirs), b(ours);
  std::string left, right;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(a, left));
    const bool more_b = static_cast<bool>(std::getline(b, right));
    if (!more_a) left = "nothing";
    if (!more_b) right = "nothing";
    if ((!more_a && !more_b) || left != right) return left + " there, " + right + " on rank 0";
  }
}

}  // namespace

/// Every rank is here, or has said why it does not take part.
void Server::refuse_if_clear() {
  const auto missing = std::ranges::count(ranks_, nullptr);
  // One that was stopped may have been started again.
  const auto absent = std::ranges::count_if(objections_, [&](const Objection& o) {
    return o.stopped < 0 || ranks_[static_cast<size_t>(o.stopped)] == nullptr;
  });
  if (missing <= absent && !objections_.empty()) refuse(why_not());
}

/// A rank that was here no longer takes part. One whose stop crosses the roster does, and the run
/// then stops.
void Server::stopped(Peer& peer, const std::string& why) {
  if (complete_ || judged_) return;
  const std::string line = claims_[static_cast<size_t>(peer.rank)].name() + ": " + why;
  ranks_[static_cast<size_t>(peer.rank)] = nullptr;
  claims_[static_cast<size_t>(peer.rank)] = {};
  peer.rank = -1;
  peer.state = Peer::State::refused;
  object({.why = line, .stopped = peer.claimed});
  refuse_if_clear();
}

/// The first objection gives the ranks that are not here some time: they may say a better one, and
/// are told.
void Server::object(Objection objection) {
  const bool stops = objection.stopped >= 0;
  const auto same = [&](const Objection& o) { return stops && o.stopped == objection.stopped; };
  if (std::ranges::any_of(objections_, same))
    return;  // it has lost its connection, and comes again.
  if (objections_.empty()) {
    refuse_at_ = Clock::now() + std::min(options_.timeout, options_.late_comers);
    if (stops && !options_.tells)
      refuse_at_ = std::max(start_ + options_.stop_is_told, Clock::now() + kLateStopIsTold);
  }
  objections_.push_back(std::move(objection));
}

/// The best of the objections.
Refusal Server::why_not() const {
  auto best = std::ranges::find_if(objections_, &Objection::other_size);
  const auto is_error = [](const Objection& o) { return o.stopped < 0; };
  if (best == objections_.end()) best = std::ranges::find_if(objections_, is_error);
  if (best == objections_.end()) best = objections_.begin();
  return {.why = best->why, .retryable = best->stopped >= 0};
}

/// Why `claim` is refused; empty if it is accepted.
std::string Server::objection(const Claim& claim) const {
  const Claim& ours = options_.claim;
  if (claim.version != ours.version)
    return claim.name() + " is release " + claim.version + ", " + ours.name() + " is release " +
           ours.version + ": install one release on all hosts";
  // Before its own error, which is often a consequence.
  if (claim.world_size != ours.world_size) return other_size(claim, ours);
  if (!claim.error.empty()) return claim.name() + ": " + claim.error;
  if (claim.rank < 0 || claim.rank >= claim.world_size)
    return claim.name() + ": no such rank among " + std::to_string(claim.world_size);
  if (ranks_[static_cast<size_t>(claim.rank)] != nullptr)
    return claim.name() + " has come twice: also from " +
           claims_[static_cast<size_t>(claim.rank)].host + " as process " +
           std::to_string(claims_[static_cast<size_t>(claim.rank)].pid) +
           ": give each process a rank of its own";
  if (claim.config != ours.config)
    return claim.name() +
           " has another configuration: " + first_difference(claim.config, ours.config);
  for (const Claim& other : claims_)
    if (!claim.unique_device.empty() && other.host == claim.host &&
        other.unique_device == claim.unique_device)
      return claim.name() + " and " + other.name() +
             " have the same GPU: start as many ranks a host as it has GPUs, or give each its own "
             "CUDA_VISIBLE_DEVICES";
  return "";
}

/// The run does not start. Every connected rank is told why, and so is every one that connects
/// while this process runs.
void Server::refuse(const Refusal& refusal) {
  if (judged_) return;
  judged_ = true;
  refusal_ = refusal;
  for (const std::unique_ptr<Peer>& peer : peers_) {
    const bool claimed = peer->state == Peer::State::ranked || peer->state == Peer::State::refused;
    if (claimed || peer->trusted) tell_refusal(*peer);
  }
}

void Server::tell_refusal(Peer& peer) {
  Packer packer;
  pack(packer, refusal_);
  const std::string text = packer.take();
  const std::string signature =
      proof(options_.launch.secret, "refusal", peer.own_nonce, peer.their_nonce, text);
  if (peer.stream.send(FrameKind::refusal, Packer().text(text).text(signature).take()))
    told_.insert(peer.host);
}

}  // namespace rendezvous
