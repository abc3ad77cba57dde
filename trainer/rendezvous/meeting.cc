// The rendezvous, from a rank's side.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/meeting.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <thread>

#include "trainer/rendezvous/interfaces.h"
#include "trainer/rendezvous/server.h"
#include "trainer/rendezvous/sha256.h"

namespace rendezvous {
namespace {

constexpr std::chrono::milliseconds kAttempt{1500}, kPause{50};
// A rank that comes before rank 0 retries so soon that all meet within a second of the last one.
static_assert(kPause * 10 <= std::chrono::seconds(1));

/// The file by which a job's ranks on one host find each other. Without a job name from the
/// launcher, ranks use their common parent's pid.
std::string meeting_file(const ControlOptions& options) {
  if (!options.meeting_file.empty()) return options.meeting_file;
  const std::string folder = "/tmp/gristmill-" + std::to_string(getuid());
  mkdir(folder.c_str(), 0700);
  struct stat about {};
  if (lstat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != getuid() ||
      (about.st_mode & 077) != 0)
    throw LaunchError(folder + ": not a folder of this user alone: use --rendezvous file:PATH");
  const std::string job =
      options.launch.job.empty() ? "parent " + std::to_string(getppid()) : options.launch.job;
  return folder + "/" + to_hex(sha256(job)).substr(0, 32);
}

void write_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  unlink(temporary.c_str());
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool whole =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!whole || std::rename(temporary.c_str(), path.c_str()) != 0)
    throw std::system_error(whole ? errno : error, std::generic_category(), path);
}

/// Reads address, port and secret from a meeting file of this user; false if there is none yet.
bool read_file(const std::string& path, Launch& launch) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  char text[1024];
  struct stat about {};
  const bool ours = fstat(fd, &about) == 0 && about.st_uid == getuid();
  const ssize_t length = read(fd, text, sizeof text);
  close(fd);
  if (!ours || length <= 0) return false;
  std::istringstream in(std::string(text, static_cast<size_t>(length)));
  std::string secret;
  in >> launch.address >> launch.port >> secret;
  if (!secret.empty()) launch.secret = secret;
  launch.exact_port = true;
  return !launch.address.empty();
}

bool by_file(const ControlOptions& options) {
  return !options.meeting_file.empty() || options.launch.address.empty();
}

std::vector<Claim> unpack_roster(const std::string& payload, int size) {
  Unpacker in(payload);
  std::vector<Claim> out;
  for (int i = 0; i < size; ++i) out.push_back(unpack_claim(in));
  return out;
}

std::string packed(const Claim& claim) {
  Packer out;
  pack(out, claim);
  return out.take();
}

/// Why an attempt to connect failed.
struct Attempt {
  std::string why;
  bool silent = false;  ///< Something listens there, but does not answer.
};

/// Both ends prove that they know the secret. Returns rank 0's nonce, or nothing.
std::string greet(FrameStream& stream, const std::string& secret, const std::string& nonce,
                  Clock::time_point deadline, Attempt& attempt) {
  const std::string proven = proof(secret, "hello", nonce, "", "");
  stream.send(FrameKind::hello, std::string(kMagic) + nonce + proven);
  const std::optional<Frame> answer = stream.wait(deadline, kStrangerLimit);
  attempt.silent = !answer && !stream.over();
  if (!answer) {
    attempt.why += attempt.silent
                       ? ": no answer: rank 0 stands still, or something else listens there"
                       : ": refused: it is of another job, or has another secret";
    return "";
  }
  if (answer->kind != FrameKind::challenge || answer->payload.size() != kNonce + kProof) {
    attempt.why += ": something else listens there";
    return "";
  }
  const std::string theirs = answer->payload.substr(0, kNonce);
  if (same_bytes(answer->payload.substr(kNonce), proof(secret, "challenge", nonce, theirs, "")))
    return theirs;
  attempt.why += ": does not know this job's secret";
  return "";
}

/// Why this rank waits for the others no longer; empty: it waits.
std::string heard_stop(const ControlOptions& options) {
  const std::string why = options.stop ? options.stop() : "";
  return why.empty() ? "" : why + ": stopped while it waited for the others";
}

[[noreturn]] void stop_alone(const ControlOptions& options, const std::string& why) {
  throw MeetingError(options.claim.name() + ": " + why, false, MeetingEnd::retryable);
}

/// `text`: the packed status of the run.
[[noreturn]] void throw_over(const std::string& text) {
  MeetingError error("the run was over when the ranks of this host were lost", true,
                     MeetingEnd::over);
  error.status = static_cast<int>(Unpacker(text).number());
  throw error;
}

/// Ends the rendezvous by rank 0's packed Refusal.
[[noreturn]] void refused(const std::string& text, bool told) {
  Unpacker in(text);
  const Refusal refusal = unpack_refusal(in);
  throw MeetingError(refusal.why, told,
                     refusal.retryable ? MeetingEnd::retryable : MeetingEnd::failed);
}

/// Waits for rank 0's roster or refusal, as long as rank 0's heartbeats arrive: two a second. Once
/// this rank is to stop, rank 0 is told, and sends it no more of them; its answer is that refusal,
/// or the roster if all have met.
std::optional<Frame> wait_for_all(FrameStream& stream, const ControlOptions& options,
                                  Attempt& attempt) {
  constexpr std::chrono::milliseconds kSlice{500};
  Clock::duration silence{0};  // not while this process was stopped.
  std::string stopped;
  Clock::time_point last{};
  while (true) {
    std::optional<Frame> frame = stream.wait(Clock::now() + kSlice, kRankLimit);
    if (frame && frame->kind != FrameKind::beat) return frame;
    silence = frame || !stopped.empty() ? Clock::duration(0) : silence + kSlice;
    if (stream.over() || silence >= options.timeout) {
      attempt.why += stream.over() ? ": the connection closed before all had come"
                                   : ": no answer: rank 0 stands still";
      return std::nullopt;
    }
    if (const std::string why = stopped.empty() ? heard_stop(options) : ""; !why.empty()) {
      if (options.claim.stopped && !options.tells) continue;  // rank 0 knows.
      if (!options.claim.error.empty()) stop_alone(options, why);
      stopped = why;
      stream.send(FrameKind::stop, Packer().text(stopped).take());
      last = Clock::now() + options.stop_is_told + kSlice;
    }
    if (!stopped.empty() && Clock::now() >= last) stop_alone(options, stopped);
  }
}

/// The exchange on one connection. Empty if the other side is not rank 0 of this job, or ends
/// before all ranks have connected.
std::vector<Claim> introduce(FrameStream& stream, const ControlOptions& options, Claim claim,
                             Clock::time_point deadline, Attempt& attempt) {
  const std::string nonce = random_bytes(kNonce), &secret = options.launch.secret;
  const Clock::time_point soon = std::min(deadline, Clock::now() + kAttempt);
  const std::string theirs = greet(stream, secret, nonce, soon, attempt);
  if (theirs.empty()) return {};
  if (claim.address.empty()) claim.address = stream.local_address();
  const std::string payload = packed(claim);
  const std::string proven = proof(secret, "claim", nonce, theirs, payload);
  stream.send(FrameKind::claim, Packer().text(payload).text(proven).take());
  const std::optional<Frame> verdict = wait_for_all(stream, options, attempt);
  if (!verdict) return {};
  Unpacker in(verdict->payload);
  const std::string text = in.text(), signature = in.text();
  const bool roster = verdict->kind == FrameKind::roster, over = verdict->kind == FrameKind::over;
  const char* const what = roster ? "roster" : over ? "over" : "refusal";
  if (!same_bytes(signature, proof(secret, what, theirs, nonce, text))) {
    attempt.why += ": does not know this job's secret";
    return {};
  }
  if (over) throw_over(text);
  if (!roster) refused(text, true);
  return unpack_roster(text, claim.world_size);
}

/// Like introduce(), but also handles invalid answers.
std::vector<Claim> try_introduce(FrameStream& stream, const ControlOptions& options,
                                 Clock::time_point deadline, Attempt& attempt) {
  try {
    return introduce(stream, options, options.claim, deadline, attempt);
  } catch (const MeetingError&) {
    throw;
  } catch (const ops::DeviceError&) {
    attempt.why += ": something else listens there";
    return {};
  }
}

/// Tells another rank 0 of this job that there are two; it then tells all ranks that have connected
/// to it.
void look_for_others(const ControlOptions& options,
                     const std::vector<std::pair<std::string, int>>& others) {
  for (const auto& [address, port] : others) {
    const Clock::time_point soon = Clock::now() + std::chrono::milliseconds(300);
    Attempt attempt;
    Socket socket = connect_to(address, port, soon, attempt.why);
    if (!socket) continue;
    FrameStream stream(std::move(socket));
    try {
      try_introduce(stream, options, soon, attempt);
    } catch (const MeetingError& refusal) {
      throw MeetingError(refusal.what(), false);  // this end tells the ranks that connected here.
    }
  }
}

/// The interface of this host that has `address`; empty: it is another host's.
std::string interface_of(const std::string& address) {
  const std::vector<std::string> numbers = addresses_of(address);
  for (const auto& [name, number] : interfaces())
    if (!number.empty() && std::ranges::count(numbers, number) != 0) return name;
  return "";
}

/// The same, but only for an interface shared by virtual machines or containers of this host.
std::string bridge_of(const std::string& address) {
  const std::string name = interface_of(address);
  for (const char* start : {"docker", "podman", "cni", "virbr", "lxcbr", "lxdbr", "br-"})
    if (name.starts_with(start)) return name;
  return "";
}

}  // namespace

Door open_door(ControlOptions& options) {
  Launch& launch = options.launch;
  Door door;
  if (launch.listener >= 0) {
    fcntl(launch.listener, F_SETFD, FD_CLOEXEC);
    fcntl(launch.listener, F_SETFL, O_NONBLOCK);
    door.listener = Socket(launch.listener);
    return door;
  }
  if (by_file(options)) {
    if (launch.secret.empty()) launch.secret = to_hex(random_bytes(32));
    door.listener = listen_on(launch.nodes > 1 ? "" : "127.0.0.1", 0);
    door.file = meeting_file(options);
    write_file(door.file, (launch.nodes > 1 ? host_name() : "127.0.0.1") + std::string(" ") +
                              std::to_string(port_of(door.listener)) + " " + launch.secret + "\n");
    return door;
  }
  if (launch.secret.empty()) launch.secret = "job " + launch.job;
  // If a host's own name is its loopback, the others could not connect.
  const bool loopback = launch.nodes > 1 && is_loopback(launch.address);
  const std::string address = loopback ? "" : launch.address;
  if (loopback)
    options.doubt = launch.address + " is the loopback of each host: is it " + options.claim.host +
                    " to the others?";
  const std::string bridge = launch.nodes > 1 ? bridge_of(launch.address) : "";
  if (!bridge.empty())
    options.doubt = launch.address + " is " + bridge + " of " + options.claim.host +
                    ", which other hosts have too: do they reach this one by it?";
  const int ports = launch.exact_port ? 1 : kPorts;
  for (int i = 0;; ++i) {
    try {
      door.listener = listen_on(address, launch.port + i);
      return door;
    } catch (const std::system_error& error) {
      if (error.code().value() == EADDRINUSE)
        door.others.emplace_back(launch.address, launch.port + i);
      if (error.code().value() == EADDRNOTAVAIL) {
        for (int port = 0; port < ports; ++port)
          door.others.emplace_back(launch.address, launch.port + port);
        door.listener = listen_on("", launch.port + i);
        options.doubt = launch.address + " is no address of " + options.claim.host +
                        ", where rank 0 is: does it lead there?";
        return door;
      }
      if (error.code().value() != EADDRINUSE) throw;
      if (i + 1 == ports)
        throw LaunchError(launch.address + " port " + std::to_string(launch.port) +
                          (ports > 1 ? " and the 15 after it are taken" : " is taken") +
                          ": another job runs there, or several tasks were started as rank 0; "
                          "say another MASTER_PORT or --rendezvous HOST:PORT");
    }
  }
}

Entry enter(ControlOptions& options) {
  const Clock::time_point start = Clock::now();
  Launch& launch = options.launch;
  const bool file = by_file(options);
  // Rank 0's host may start late; but if its address is this host's own, no other host will answer.
  const std::string own =
      launch.nodes > 1 && launch.node > 0 && !file ? interface_of(launch.address) : "";
  const std::chrono::milliseconds host_timeout =
      launch.restarts > 0 ? options.rejoin_timeout : options.host_timeout;
  const std::chrono::milliseconds patience =
      launch.nodes > 1 && own.empty() ? std::max(options.timeout, host_timeout) : options.timeout;
  Clock::time_point deadline = start + patience;
  const std::string path = file ? meeting_file(options) : "";
  if (!file && launch.secret.empty()) launch.secret = "job " + launch.job;
  std::string last = file ? path + " did not appear" : launch.address + " was not reached";
  bool spoken = false;
  Clock::duration silence{0};  // of who was reached; not while this process was stopped.
  bool says = launch.restarts > 0 && launch.local_rank == 0 && options.hosts_apart && options.print;
  // Once this rank is to stop, it looks for rank 0 only to say so.
  const auto heed = [&] {
    const std::string why = heard_stop(options);
    if (why.empty()) return;
    if (options.tells) stop_alone(options, why);
    if (options.claim.stopped) return;
    if (options.claim.error.empty()) {
      options.claim.error = why;
      options.claim.stopped = true;
    }
    deadline =
        std::min(deadline, std::max(start + options.stop_is_told, Clock::now() + kLateStopIsTold));
    says = false;
  };
  for (int looks = 1; Clock::now() < deadline && silence < options.timeout; ++looks) {
    const Clock::time_point look = Clock::now();
    heed();
    if (says && Clock::now() >= start + kWaitIsSaid) {
      says = false;
      options.print(options.claim.name() + ": rank 0 is not back: waiting for it, at most " +
                    std::to_string(std::chrono::ceil<std::chrono::seconds>(patience).count()) +
                    " s: " + last);
    }
    bool silent = false;
    if (!file || read_file(path, launch)) {
      for (int i = 0; i < (launch.exact_port ? 1 : kPorts); ++i) {
        if (i > 0) heed();  // where rank 0's machine is off, each port takes seconds.
        if (Clock::now() >= deadline) break;
        Attempt attempt{.why = launch.address + " port " + std::to_string(launch.port + i)};
        Socket socket = connect_to(launch.address, launch.port + i,
                                   std::min(deadline, Clock::now() + kAttempt), attempt.why);
        if (!socket) {
          if (i == 0 && !spoken) last = attempt.why;
          continue;
        }
        FrameStream stream(std::move(socket));
        std::vector<Claim> roster = try_introduce(stream, options, deadline, attempt);
        if (!roster.empty()) return {std::move(stream), std::move(roster), looks};
        // Who answers says more than who is silent, or gone when the time is over.
        if (!attempt.silent || !spoken) last = attempt.why;
        spoken = spoken || !attempt.silent;
        silent = silent || (i == 0 && attempt.silent);
      }
    }
    silence = silent ? silence + (Clock::now() - look) + kPause : Clock::duration(0);
    std::this_thread::sleep_for(kPause);
  }
  if (options.claim.stopped) stop_alone(options, options.claim.error);
  if (launch.nodes > 1 && !file && is_loopback(launch.address))
    last += "; that name is the loopback on " + options.claim.host +
            ": name rank 0's host by an address that the others reach";
  else if (!own.empty())
    last += "; that address is " + own + " of " + options.claim.host +
            " itself: name rank 0's host by an address that the others reach";
  const auto waited = std::chrono::round<std::chrono::seconds>(Clock::now() - start);
  throw MeetingError(options.claim.name() + ": rank 0 was not found within " +
                         std::to_string(waited.count()) + " s: " + last,
                     false);
}

Entry enter_own(const ControlOptions& options, Socket own,
                const std::vector<std::pair<std::string, int>>& others) {
  FrameStream stream(std::move(own));
  stream.send(FrameKind::claim, Packer().text(packed(options.claim)).text("").take());
  std::optional<Frame> answer;
  Clock::time_point next_look = Clock::now();
  bool stops = false;
  // Its own server always answers, and stops only when this thread does.
  while (!answer || answer->kind == FrameKind::beat) {
    if (stream.over())
      throw MeetingError(options.claim.name() + ": the meeting ended early", false);
    if (!others.empty() && Clock::now() >= next_look) {
      look_for_others(options, others);
      next_look = Clock::now() + std::chrono::seconds(1);
    }
    if (const std::string why = stops ? "" : heard_stop(options); !why.empty()) {
      if (options.tells) stop_alone(options, why);
      stops = true;  // the answer follows; with an error of its own, it does so anyway.
      if (options.claim.error.empty()) stream.send(FrameKind::stop, Packer().text(why).take());
    }
    answer = stream.wait(Clock::now() + std::chrono::seconds(1), kRankLimit);
  }
  Unpacker in(answer->payload);
  const std::string text = in.text();
  if (answer->kind != FrameKind::roster) refused(text, false);
  return {std::move(stream), unpack_roster(text, options.claim.world_size)};
}

}  // namespace rendezvous
