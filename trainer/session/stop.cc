// See stop.h. The handler only reads the clock and stores numbers, so it is safe at any moment of a
// step. A later signal means that the sender does not want to wait for the checkpoint.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/stop.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "tools/cli/text.h"

namespace trainer {
namespace {

// Any thread may receive the signal.
std::atomic<int> signal_seen = 0;
std::atomic<int64_t> seen_at_ms = 0;  // 0: not yet.
static_assert(decltype(signal_seen)::is_always_lock_free &&
              decltype(seen_at_ms)::is_always_lock_free);

void on_signal(int number) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_ms = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;
  int64_t first_ms = 0;
  if (seen_at_ms.compare_exchange_strong(first_ms, now_ms)) {
    signal_seen = number;
  } else if (now_ms - first_ms >= std::chrono::milliseconds(StopRequest::kTogether).count()) {
    std::signal(number, SIG_DFL);
    std::raise(number);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    _exit(128 + number);  // a container's first process ignores the default action.
  }
}

bool exists(const std::string& file) {
  std::error_code ignored;
  return std::filesystem::exists(file, ignored);
}

sigset_t stop_signals() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

void hold_stop_signals() noexcept {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void release_stop_signals() noexcept {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

StopRequest::StopRequest(std::optional<double> deadline_mins, std::string stop_file,
                         std::chrono::steady_clock::time_point begin)
    : deadline_mins_(deadline_mins),
      stop_file_(std::move(stop_file)),
      begin_(begin),
      file_is_old_(exists(stop_file_)) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  release_stop_signals();
}

bool StopRequest::signalled() noexcept { return signal_seen != 0; }

std::optional<std::string> StopRequest::reason() {
  const int seen = signal_seen;
  if (seen != 0) return seen == SIGTERM ? "SIGTERM" : "SIGUSR1";
  const Clock::time_point now = Clock::now();
  if (deadline_mins_ &&
      now - begin_ >= std::chrono::duration<double, std::ratio<60>>(*deadline_mins_)) {
    return cli::concat("--exit-duration-in-mins ", *deadline_mins_);
  }
  if (!stop_file_.empty() && now >= next_look_) {
    next_look_ = now + std::chrono::seconds(1);
    file_seen_ = exists(stop_file_);
  }
  if (file_seen_)
    return cli::concat("stop file ", stop_file_,
                       file_is_old_ ? " (older than this run: remove it)" : "");
  return std::nullopt;
}

}  // namespace trainer
