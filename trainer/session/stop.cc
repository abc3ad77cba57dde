// See stop.h. The handler only stores a number, so it is safe at any moment of a step.
// A second signal means that somebody does not want to wait for the checkpoint.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/stop.h"

#include <csignal>
#include <filesystem>
#include <system_error>

#include "tools/cli/text.h"

namespace trainer {
namespace {

volatile std::sig_atomic_t signal_seen = 0;

void on_signal(int number) {
  if (signal_seen != 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
    return;
  }
  signal_seen = number;
}

}  // namespace

StopRequest::StopRequest(std::optional<double> deadline_mins, std::string stop_file)
    : deadline_mins_(deadline_mins), stop_file_(std::move(stop_file)) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
}

// The handlers stay: a first signal that comes while the process ends finds its work done.
StopRequest::~StopRequest() = default;

std::optional<std::string> StopRequest::reason() {
  if (signal_seen == SIGTERM) return "SIGTERM";
  if (signal_seen == SIGUSR1) return "SIGUSR1";
  const Clock::time_point now = Clock::now();
  if (deadline_mins_ &&
      now - start_ >= std::chrono::duration<double, std::ratio<60>>(*deadline_mins_)) {
    return cli::concat("--exit-duration-in-mins ", *deadline_mins_);
  }
  if (!stop_file_.empty() && now >= next_look_) {
    next_look_ = now + std::chrono::seconds(1);
    std::error_code ignored;
    file_seen_ = std::filesystem::exists(stop_file_, ignored);
  }
  if (file_seen_) return "stop file " + stop_file_;
  return std::nullopt;
}

}  // namespace trainer
