// Meeting, from a rank's side.
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/meeting.h"

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

#include "trainer/comm/server.h"
#include "trainer/comm/sha256.h"

namespace comm {
namespace {

constexpr size_t kNonce = 16;
constexpr int kPorts = 16;
constexpr std::chrono::milliseconds kAttempt{1500}, kPause{50};
// Who comes before rank 0 looks again so soon that all meet within a second of the last one.
static_assert(kPause * 10 <= std::chrono::seconds(1));

/// The file by which a job's ranks on one host find each other. Ranks of a launcher that gives the
/// job no name have their parent in common.
std::string meeting_file(const ControlOptions& options) {
  if (!options.meeting_file.empty()) return options.meeting_file;
  const std::string folder = "/tmp/gristmill-" + std::to_string(getuid());
  mkdir(folder.c_str(), 0700);
  struct stat about {};
  if (lstat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != getuid() ||
      (about.st_mode & 077) != 0)
    throw LaunchError(folder + ": not a folder of this user alone: say --rendezvous file:PATH");
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

/// Address, port and secret out of a meeting file of this user; false where there is none yet.
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

/// One connection's exchange. Empty when the other side is not rank 0 of this job; `why` then says
/// what happened.
std::vector<Claim> introduce(FrameStream& stream, const ControlOptions& options, Claim claim,
                             Clock::time_point deadline, std::string& why) {
  const std::string nonce = random_bytes(kNonce);
  const Clock::time_point soon = std::min(deadline, Clock::now() + kAttempt);
  if (!stream.send(FrameKind::hello, std::string(kMagic) + nonce)) return {};
  const std::optional<Frame> answer = stream.wait(soon, kStrangerLimit);
  if (!answer || answer->kind != FrameKind::challenge || answer->payload.size() != kNonce) {
    why += answer ? ": something else listens there"
                  : ": no answer: rank 0 stands still, or something else listens there";
    return {};
  }
  if (claim.address.empty()) claim.address = stream.local_address();
  const std::string payload = packed(claim), &secret = options.launch.secret;
  const std::string proven = proof(secret, "claim", nonce, answer->payload, payload);
  stream.send(FrameKind::claim, Packer().text(payload).text(proven).take());
  const std::optional<Frame> verdict = stream.wait(deadline + std::chrono::seconds(2), kRankLimit);
  if (!verdict) {
    why += ": refused: it is of another job, or has another secret";
    return {};
  }
  Unpacker in(verdict->payload);
  const std::string text = in.text(), signature = in.text();
  const bool roster = verdict->kind == FrameKind::roster;
  const std::string expected =
      proof(secret, roster ? "roster" : "refusal", answer->payload, nonce, text);
  if (!same_bytes(signature, expected)) {
    why += ": does not know this job's secret";
    return {};
  }
  if (!roster) throw MeetingError(text, true);
  return unpack_roster(text, claim.world_size);
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
  // A host whose own name is its loopback would shut the others out.
  const bool loopback = launch.nodes > 1 && is_loopback(launch.address);
  const std::string address = loopback ? "" : launch.address;
  if (loopback)
    options.doubt = launch.address + " is the loopback of each host: is it " + options.claim.host +
                    " to the others?";
  const int ports = launch.exact_port ? 1 : kPorts;
  for (int i = 0;; ++i) {
    try {
      door.listener = listen_on(address, launch.port + i);
      return door;
    } catch (const std::system_error& error) {
      if (error.code().value() == EADDRNOTAVAIL) {
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
  const Clock::time_point deadline = Clock::now() + options.timeout;
  Launch& launch = options.launch;
  const bool file = by_file(options);
  const std::string path = file ? meeting_file(options) : "";
  if (!file && launch.secret.empty()) launch.secret = "job " + launch.job;
  std::string last = file ? path + " did not appear" : launch.address + " was not reached";
  for (int looks = 1; Clock::now() < deadline; ++looks) {
    if (!file || read_file(path, launch)) {
      for (int i = 0; i < (launch.exact_port ? 1 : kPorts); ++i) {
        std::string why = launch.address + " port " + std::to_string(launch.port + i);
        Socket socket = connect_to(launch.address, launch.port + i,
                                   std::min(deadline, Clock::now() + kAttempt), why);
        if (!socket) {
          if (i == 0) last = why;
          continue;
        }
        FrameStream stream(std::move(socket));
        std::vector<Claim> roster = introduce(stream, options, options.claim, deadline, why);
        if (!roster.empty()) return {std::move(stream), std::move(roster), looks};
        last = why;
      }
    }
    std::this_thread::sleep_for(kPause);
  }
  if (launch.nodes > 1 && !file && is_loopback(launch.address))
    last += "; that name is the loopback on " + options.claim.host +
            ": name rank 0's host by an address that the others reach";
  throw MeetingError(options.claim.name() + ": rank 0 was not found within " +
                         std::to_string(options.timeout.count() / 1000) + " s: " + last,
                     false);
}

Entry enter_own(const ControlOptions& options, Socket own) {
  FrameStream stream(std::move(own));
  stream.send(FrameKind::claim, Packer().text(packed(options.claim)).text("").take());
  const std::optional<Frame> answer =
      stream.wait(Clock::now() + options.timeout + std::chrono::seconds(30), kRankLimit);
  if (!answer) throw MeetingError(options.claim.name() + ": the meeting ended early", false);
  Unpacker in(answer->payload);
  const std::string text = in.text();
  if (answer->kind != FrameKind::roster) throw MeetingError(text, false);
  return {std::move(stream), unpack_roster(text, options.claim.world_size)};
}

}  // namespace comm
