// HostDevices: which devices of this host its ranks use, from one start to the next. Here: leaving
// out those that are gone, where that is allowed. Not here: starting ranks (launcher.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/cli/console.h"
#include "trainer/session/launcher.h"

namespace trainer {

/// See the room card. The references must outlive it.
class HostDevices {
 public:
  HostDevices(const LauncherOptions& options, cli::Console& console, int64_t begun_at);
  const std::vector<int>& in_use() const noexcept { return in_use_; }
  /// Chooses the devices for the next start; false, with a message, if none is possible. `gone`:
  /// those that could not be opened; `lost`: that of the lost rank, if it is clear which; `now`:
  /// the iteration from which the next start continues.
  bool go_on(const std::vector<int>& gone, std::optional<int> lost, int64_t now);

 private:
  std::vector<int> all_gone(const std::vector<int>& gone, std::optional<int> lost, int64_t now);

  const LauncherOptions& options_;
  cli::Console& console_;
  std::vector<int> whole_, in_use_;
  std::optional<int> suspect_;
  int64_t begun_at_;
};

}  // namespace trainer
