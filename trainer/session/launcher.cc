// See launcher.h. Signals are taken one by one from a blocked set, so the loop has no handler.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/launcher.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <system_error>

#include "tools/cli/text.h"
#include "trainer/comm/sha256.h"
#include "trainer/comm/wire.h"
#include "trainer/session/training_loop.h"

namespace trainer {
namespace {

using cli::concat;
using Clock = std::chrono::steady_clock;

constexpr int kWatched[] = {SIGCHLD, SIGTERM, SIGUSR1, SIGINT, SIGHUP};

sigset_t watched_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kWatched) sigaddset(&set, number);
  return set;
}

/// One start of all ranks of this host.
class Attempt {
 public:
  Attempt(const LauncherOptions& options, int processes, int restarts);
  /// The status of the whole, once every process has ended.
  int wait();
  /// The signal that asked for the end; 0: none.
  int stopped_by() const noexcept { return stopped_by_; }

 private:
  struct Process {
    pid_t pid = 0;
    int rank = 0;
    bool over = false;
    int status = 0;  ///< Exit status, or 128 + signal.
  };
  void spawn(const comm::Launch& rank, const std::vector<std::string>& words, pid_t parent);
  void reap();
  void pass_on(int number);
  int verdict() const;

  std::vector<Process> processes_;
  bool failed_ = false;
  std::chrono::milliseconds grace_;
  Clock::time_point kill_at_{};
  int stopped_by_ = 0;
};

Attempt::Attempt(const LauncherOptions& options, int processes, int restarts)
    : grace_(options.grace) {
  comm::Launch host = options.host;
  comm::Socket listener;
  host.restarts = restarts;
  if (host.world_size == 1 && host.launcher.empty()) {
    listener = comm::listen_on("127.0.0.1", 0);
    host.address = "127.0.0.1";
    host.port = comm::port_of(listener);
    host.exact_port = true;
    host.secret = comm::to_hex(comm::random_bytes(32));
    host.job = concat("trainer ", getpid(), " ", restarts);
  }
  const pid_t parent = getpid();
  for (comm::Launch& rank : comm::ranks_on_host(host, processes)) {
    if (rank.rank == 0 && listener) {
      rank.listener = dup(listener.fd());  // without close-on-exec.
      spawn(rank, options.words, parent);
      close(rank.listener);
    } else {
      spawn(rank, options.words, parent);
    }
  }
}

void Attempt::spawn(const comm::Launch& rank, const std::vector<std::string>& words, pid_t parent) {
  std::vector<char*> argv;
  std::vector<std::string> copy = words;
  for (std::string& word : copy) argv.push_back(word.data());
  argv.push_back(nullptr);
  const auto variables = comm::to_variables(rank);
  const pid_t pid = fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "a rank's process");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kFailed);
    const sigset_t set = watched_set();
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  processes_.push_back({.pid = pid, .rank = rank.rank});
}

void Attempt::reap() {
  for (Process& process : processes_) {
    int status = 0;
    if (process.over || waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
    process.over = true;
    process.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const bool in_order = process.status == kComplete || process.status == kGoOn;
    if (in_order || failed_) continue;
    failed_ = true;
    kill_at_ = Clock::now() + grace_;
  }
}

void Attempt::pass_on(int number) {
  if (stopped_by_ == 0) stopped_by_ = number;
  for (const Process& process : processes_)
    if (!process.over) kill(process.pid, number);
}

int Attempt::wait() {
  const sigset_t set = watched_set();
  while (true) {
    reap();
    const auto running =
        std::ranges::count_if(processes_, [](const Process& p) { return !p.over; });
    if (running == 0) return verdict();
    if (failed_ && Clock::now() >= kill_at_) {
      for (const Process& process : processes_)
        if (!process.over) kill(process.pid, SIGKILL);
    }
    const timespec patience{.tv_sec = 0, .tv_nsec = 200'000'000};
    const int number = sigtimedwait(&set, nullptr, &patience);
    if (number > 0 && number != SIGCHLD) pass_on(number);
  }
}

/// A wrong command line before a failure before a loss before a stop before the end.
int Attempt::verdict() const {
  const auto any = [&](auto matches) {
    return std::ranges::any_of(processes_, [&](const Process& p) { return matches(p.status); });
  };
  for (const int status : {2, kFailed, 127, kLost})
    if (any([&](int s) { return s == status; })) return status;
  if (any([&](int s) { return s > 128 && s != 128 + stopped_by_; })) return kFailed;
  if (any([](int s) { return s > 128; })) return 128 + stopped_by_;  // before its handlers stood.
  for (const int status : {kGoOn, kComplete})
    if (any([&](int s) { return s == status; })) return status;
  return kFailed;
}

}  // namespace

int launch_ranks(const LauncherOptions& options, cli::Console& console) {
  const sigset_t set = watched_set();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &set, &before);
  int processes = options.processes, status = kFailed;
  for (int64_t restarts = 0;; ++restarts) {
    Attempt start(options, processes, static_cast<int>(restarts));
    status = start.wait();
    const int signal = start.stopped_by();
    if (signal == SIGINT || signal == SIGHUP) {
      sigprocmask(SIG_SETMASK, &before, nullptr);
      std::signal(signal, SIG_DFL);
      std::raise(signal);
    }
    if (status != kLost) break;
    status = kGoOn;
    if (signal != 0 || restarts >= options.max_restarts) break;
    processes = options.count_again();
    if (processes == 0) break;
    console.note(concat("restart ", restarts + 1, " of ", options.max_restarts, " with ",
                        cli::counted(processes, "rank")));
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace trainer
