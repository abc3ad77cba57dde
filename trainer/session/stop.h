// StopRequest: everything that ends a run early, checked between two steps: SIGTERM and SIGUSR1,
// the deadline, the stop file. The training loop acts on it.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace trainer {

/// Keeps SIGTERM and SIGUSR1 waiting for a StopRequest, also in programs that this one starts.
void hold_stop_signals() noexcept;
/// They end the process again.
void release_stop_signals() noexcept;

/// One for each process, since it owns the handlers of the two signals.
class StopRequest {
 public:
  /// Signals within this time of the first one are the same request: timeout(1), slurmd and systemd
  /// signal a whole group of processes, and a launcher among them signals its ranks again.
  static constexpr std::chrono::seconds kTogether{3};

  /// Catches SIGTERM and SIGUSR1 from now on, and those that were held; a later one of them ends
  /// the process at once.
  /// `deadline_mins` counts from `begin`; `stop_file` may be empty.
  StopRequest(std::optional<double> deadline_mins, std::string stop_file,
              std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now());
  /// The handlers stay installed, for a first signal that arrives while the process ends.
  ~StopRequest() = default;
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// Whether one of the two signals has come. Any thread.
  static bool signalled() noexcept;
  /// Why to stop, for the log: "SIGTERM", "--exit-duration-in-mins 90", "stop file x"; nothing if
  /// there is no reason. Cheap enough for every step: the file is checked once per second.
  std::optional<std::string> reason();

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<double> deadline_mins_;
  std::string stop_file_;
  Clock::time_point begin_;
  Clock::time_point next_look_ = Clock::now();
  bool file_seen_ = false, file_is_old_;
};

}  // namespace trainer
