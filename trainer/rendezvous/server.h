// Server: rank 0's side of all Controls. Here: admission, the store, the rounds, and the verdict:
// which rank ended the job, and why. One thread, one poll loop; nothing that a stranger sends can
// stop it. Not here: the ranks' side (control.h). May include: ops/tensor.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "trainer/rendezvous/control.h"
#include "trainer/rendezvous/wire.h"

namespace rendezvous {

/// The proof, from `what` and both nonces, that the sender knows the secret.
std::string proof(const std::string& secret, std::string_view what, const std::string& nonce_a,
                  const std::string& nonce_b, std::string_view payload);

void pack(Packer& out, const Claim& claim);
Claim unpack_claim(Unpacker& in);
void pack(Packer& out, const Status& status);
Status unpack_status(Unpacker& in);

/// Why there is no run.
struct Refusal {
  std::string why;
  bool retryable = false;  ///< MeetingEnd::retryable.
};
void pack(Packer& out, const Refusal& refusal);
Refusal unpack_refusal(Unpacker& in);

/// First bytes of every connection.
inline constexpr std::string_view kMagic = "gristmill control 3";
inline constexpr size_t kNonce = 16, kProof = 32;
/// Longest frame of a side that has not yet proved that it knows the secret, of a claim, and of a
/// rank.
inline constexpr size_t kStrangerLimit = 1 + kMagic.size() + kNonce + kProof, kClaimLimit = 1 << 18,
                        kRankLimit = 1 << 26;

/// See the room card.
class Server {
 public:
  /// `listener` may be empty (a job with only rank 0); `own` is rank 0's connection, which needs no
  /// proof.
  Server(const ControlOptions& options, Socket listener, Socket own);
  /// Ends the thread; connections close.
  ~Server();
  /// Whether a rank of every host has been told why there is no run. Any thread.
  bool all_hosts_told() const noexcept { return hosts_told_; }
  /// Whether every host knows that the run is over. Any thread.
  bool all_hosts_know() const noexcept { return hosts_know_; }
  /// Waits until that is so, at most the rendezvous' timeout, or until rank 0 is told to stop.
  void wait_until(bool (Server::*is_so)() const noexcept) const;

 private:
  struct Peer;
  using PeerList = std::vector<std::unique_ptr<Peer>>;
  /// Why the run will not start.
  struct Objection {
    std::string why;
    bool other_size = false;  ///< Ranks differ in their number: the cause of other objections.
    int before = -1;   ///< A rank's own error: it does not count once the rank comes without one.
    int stopped = -1;  ///< The rank that was asked to stop, if that is why.
  };

  void run();
  void accept_some();
  void make_room();
  void receive(Peer& peer);
  void handle(Peer& peer, const Frame& frame);
  void challenge(Peer& peer, const Frame& frame);
  void admit(Peer& peer, const Frame& frame);
  std::string objection(const Claim& claim) const;
  bool enters(Peer& peer, const Claim& claim);
  void object(Objection objection);
  void refuse_if_clear();
  void stopped(Peer& peer, const std::string& why);
  Refusal why_not() const;
  void welcome();
  void refuse(const Refusal& refusal);
  void tell_refusal(Peer& peer);
  void closed(Peer& peer);
  int host_of(int rank, int ranks) const;
  void end_run();
  void lost_at_the_end(int rank);
  void tell_over(Peer& peer);
  void count_hosts();
  void answer_get(const std::string& key);
  void collect(int64_t round);
  void forward(const Peer& from, Unpacker& in);
  void watch();
  void watch_strangers(Clock::time_point now);
  void watch_meeting(Clock::time_point now);
  void say_who_is_missing(Clock::time_point now);
  std::string missing() const;
  std::string who_is_missing() const;
  std::string refused() const;
  bool restarted() const;
  Clock::duration patience() const;
  void watch_ranks(Clock::time_point now);
  void update(Peer& peer, const Status& status);
  struct Suspicion {
    std::string line;
    Clock::time_point when;
    int status = 0;
    int lost = -1;  ///< As of judge().
  };
  void suspect(const Suspicion& suspicion);
  void judge(const std::string& line, int status, int lost = -1);
  std::string place(int rank) const;
  int going_on() const;
  void send_all(FrameKind kind, const std::string& payload);

  const ControlOptions options_;
  Listener listener_;      ///< Closed when all ranks have connected.
  std::string door_file_;  ///< Names the listener that was opened again; may be empty.
  PeerList peers_;
  std::vector<Peer*> ranks_;  ///< By rank; null: not there yet, or gone.
  std::vector<Claim> claims_;
  bool complete_ = false, judged_ = false, over_ = false;
  std::set<int> told_;    ///< Hosts, by number, that know why there is no run.
  std::set<int> know_;    ///< Hosts that know that the run is over,
  std::set<int> return_;  ///< and that will come again, because their ranks were lost then.
  std::atomic<bool> hosts_told_ = false, hosts_know_ = false;
  std::vector<Objection> objections_;  ///< Later ranks are told too.
  Clock::time_point refuse_at_{};
  Refusal refusal_;               ///< Once it has been told.
  bool waits_ = false;            ///< It has been said who is waited for.
  bool restarted_ = false;        ///< A rank that was started again has come.
  int64_t status_ = 0;            ///< Of the run, as rank 0 has left it.
  std::set<std::string> nonces_;  ///< Nonces of all proved hellos: none is accepted twice.
  int refused_ = 0;               ///< Number of connections without the secret, and some of their
                                  ///< addresses.
  std::set<std::string> refused_from_;
  size_t most_ = 0;  ///< The most ranks connected at a time; and since when.
  std::map<std::string, std::string> values_;
  std::map<std::string, std::set<int>> wanted_;
  std::map<int64_t, std::map<int, std::string>> rounds_;
  std::optional<Suspicion> suspicion_;
  Clock::time_point start_ = Clock::now(), last_progress_ = start_, last_look_ = start_,
                    last_beat_ = start_, last_arrival_ = start_;
  Clock::duration longest_pause_{};
  int64_t first_step_ = -1;
  bool stepped_ = false;  ///< A step has ended, so its duration is known.
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace rendezvous
