// Server: conclusions from silence, lost connections and ranks without progress. Direct evidence (a
// closed connection, a rank's own error) ends the job at once; a rank that lost a peer may only be
// the first to notice, so its report waits briefly for better evidence.
//
// SPDX-License-Identifier: MIT
#include <sys/socket.h>

#include <algorithm>

#include "tools/cli/exit_status.h"
#include "trainer/rendezvous/server_peer.h"

namespace rendezvous {
namespace {

/// How long a connection may take to prove that it knows the secret, and then to send its claim.
constexpr std::chrono::seconds kStrangerPatience{3}, kClaimPatience{10};
/// A rank that waits in vain at a start gives up after the same time as this one, and says for
/// whom: its report comes first.
constexpr std::chrono::seconds kReport{5};

std::string seconds(Clock::duration d) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(d).count()) + " s";
}

}  // namespace

/// "rank 2 (n07, GPU 3): in step 12, last collective ...".
std::string Server::place(int rank) const {
  const Peer* peer = ranks_[static_cast<size_t>(rank)];
  std::string out = claims_[static_cast<size_t>(rank)].name() + ": ";
  if (peer == nullptr) return out;
  const Status& s = peer->status;
  out += s.phase == Phase::step
             ? "in step " + std::to_string(s.step)
             : std::string("in phase ") + name(s.phase) + " at step " + std::to_string(s.step);
  if (!s.call.empty()) out += ", last collective: " + s.call;
  return out;
}

/// The exit status of a failure that was not caused by the model or the data.
int Server::going_on() const {
  const bool resumable = options_.resumable || std::ranges::any_of(ranks_, [](const Peer* p) {
                           return p != nullptr && p->status.resumable;
                         });
  return resumable ? exit_status::kResumable : exit_status::kFailed;
}

/// `lost`: the rank that will not hear it, if any.
void Server::judge(const std::string& line, int status, int lost) {
  if (judged_) return;
  judged_ = true;
  send_all(FrameKind::verdict, Packer().number(status).number(lost).text(line).take());
}

void Server::suspect(const Suspicion& suspicion) {
  if (!suspicion_ || suspicion.when < suspicion_->when) suspicion_ = suspicion;
}

void Server::closed(Peer& peer) {
  if (peer.closed) return;
  peer.closed = true;
  peer.stream.close();
  const int rank = peer.rank;
  if (rank < 0) return;
  const size_t index = static_cast<size_t>(rank);
  if (!complete_) {  // it may connect again
    ranks_[index] = nullptr;
    claims_[index] = {};
    return;
  }
  if (over_) {
    if (!peer.knows) lost_at_the_end(rank);
  } else if (!peer.reported) {
    // Also of a rank that has left: its launcher cannot know that the others will.
    suspect({.line = place(rank) + ": its connection closed: killed, or crashed",
             .when = Clock::now() + std::chrono::milliseconds(100),
             .status = going_on(),
             .lost = rank});
  }
  ranks_[index] = nullptr;
}

void Server::update(Peer& peer, const Status& status) {
  if (status.progress != peer.status.progress) {
    const Clock::time_point now = Clock::now();
    if (stepped_) longest_pause_ = std::max(longest_pause_, now - last_progress_);
    last_progress_ = now;
    if (first_step_ < 0 && status.phase == Phase::step) first_step_ = status.step;
    stepped_ = stepped_ || (first_step_ >= 0 && status.step > first_step_ + 1);
  }
  peer.status = status;
}

void Server::watch() {
  const Clock::time_point now = Clock::now();
  // This thread was itself stopped (the process was stopped and continued), so it cannot judge the
  // others.
  if (now - last_look_ > std::chrono::seconds(2)) {
    for (const std::unique_ptr<Peer>& peer : peers_) peer->heard = now;
    last_progress_ = now;
  }
  last_look_ = now;
  watch_strangers(now);
  if (judged_) return;
  if (now - last_beat_ > std::chrono::milliseconds(500)) {
    last_beat_ = now;
    send_all(FrameKind::beat, "");
  }
  if (!complete_) return watch_meeting(now);
  if (over_) return;
  if (suspicion_ && now >= suspicion_->when)
    return judge(suspicion_->line, suspicion_->status, suspicion_->lost);
  watch_ranks(now);
}

void Server::watch_strangers(Clock::time_point now) {
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (peer->trusted || peer->closed) continue;
    const Clock::duration had = now - peer->since;
    if ((peer->state == Peer::State::stranger && had > kStrangerPatience) ||
        (peer->state == Peer::State::challenged && had > kClaimPatience))
      closed(*peer);
  }
}

/// Ranks of one host are started together, hosts not always: the first rank of a host has more time
/// than its others.
Clock::duration Server::patience() const {
  std::set<std::string> hosts;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i] != nullptr) hosts.insert(claims_[i].host);
  const bool all_hosts = static_cast<int>(hosts.size()) >= options_.launch.nodes;
  if (all_hosts) return options_.timeout;
  return std::max(options_.timeout, restarted() ? options_.rejoin_timeout : options_.host_timeout);
}

/// Whether this is no first start of the run. Rank 0's own host may be new in it.
bool Server::restarted() const { return options_.launch.restarts > 0 || restarted_; }

void Server::watch_meeting(Clock::time_point now) {
  if (!objections_.empty()) {  // they say more than who is missing.
    if (now >= refuse_at_) refuse(why_not());
    return;
  }
  if (now - last_arrival_ >= patience())
    return refuse({.why = who_is_missing(), .retryable = restarted()});
  say_who_is_missing(now);
}

/// Once, where a restart waits for a host that may be gone.
void Server::say_who_is_missing(Clock::time_point now) {
  if (waits_ || !restarted() || now - start_ < kWaitIsSaid) return;
  waits_ = true;
  if (options_.print)
    options_.print(missing() + ": not back: waiting, at most " + seconds(patience()));
}

/// "ranks 2, 3 of 4".
std::string Server::missing() const {
  std::string list;
  int lost = 0;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i] == nullptr && ++lost <= 16)
      list += (list.empty() ? "" : ", ") + std::to_string(i);
  return (lost == 1 ? "rank " : "ranks ") + list + (lost > 16 ? ", ..." : "") + " of " +
         std::to_string(ranks_.size());
}

std::string Server::who_is_missing() const {
  std::string there;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i] != nullptr && there.size() < 400)
      there += (there.empty() ? "" : ", ") + claims_[i].name();
  std::string line =
      missing() + " did not come within " + seconds(patience()) + "; there are " + there;
  if (refused_ > 0) line += "; " + refused();
  if (!options_.doubt.empty()) line += "; " + options_.doubt;
  return line;
}

/// Describes the connections without the secret. Usually they are a neighbouring job's ranks, which
/// look for their rank 0 on the same ports.
std::string Server::refused() const {
  const Launch& launch = options_.launch;
  const bool one = refused_ == 1;
  std::string from;
  for (const std::string& address : refused_from_) from += (from.empty() ? "" : ", ") + address;
  std::string line = std::to_string(refused_) + (one ? " connection" : " connections") + " from " +
                     from + (one ? " was" : " were") + " refused, because " +
                     (one ? "it does" : "they do") + " not know this job's secret";
  if (launch.port == 0 || launch.listener >= 0) return line;  // no other job can use this port.
  line += launch.exact_port
              ? ": another job meets here"
              : ": another job looks for its rank 0 on ports " + std::to_string(launch.port) +
                    " to " + std::to_string(launch.port + kPorts - 1);
  return line + ", or GRISTMILL_JOB_SECRET differs between hosts";
}

void Server::watch_ranks(Clock::time_point now) {
  bool unknown = !stepped_, all_wait = true;  // unknown: how long it may take.
  int stuck = -1;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Peer* peer = ranks_[i];
    if (peer == nullptr || peer->left || peer->reported) continue;
    if (now - peer->heard > options_.hang_timeout)
      return judge(place(static_cast<int>(i)) + ": silent for " + seconds(now - peer->heard) +
                       ": stopped, or its machine hangs",
                   going_on(), static_cast<int>(i));
    unknown = unknown || peer->status.phase == Phase::save || peer->status.first_evaluation;
    if (stuck < 0 || (all_wait && !peer->status.waiting) ||
        (all_wait == peer->status.waiting &&
         peer->status.progress < ranks_[static_cast<size_t>(stuck)]->status.progress))
      stuck = static_cast<int>(i);
    all_wait = all_wait && peer->status.waiting;
  }
  if (stuck < 0) return;
  Clock::duration limit = options_.hang_timeout;
  limit = std::max<Clock::duration>(limit, 4 * longest_pause_);
  if (unknown) limit = std::max<Clock::duration>(limit, options_.start_timeout + kReport);
  if (now - last_progress_ > limit)
    judge(place(stuck) + ": nothing has moved for " + seconds(now - last_progress_) +
              (all_wait ? ", every rank waits in a collective: this one is behind the others"
                        : ", and this rank is the one that the others wait for"),
          going_on());
}

}  // namespace rendezvous
