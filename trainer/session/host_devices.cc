// See host_devices.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/host_devices.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "tools/cli/text.h"

namespace trainer {
namespace {

using cli::concat;

/// "device 1", "devices 0, 2, 3".
std::string listed(const std::vector<int>& devices) {
  std::vector<std::string> names;
  for (const int device : devices) names.push_back(std::to_string(device));
  return (names.size() == 1 ? "device " : "devices ") + cli::join(names, ", ");
}

}  // namespace

HostDevices::HostDevices(const LauncherOptions& options, cli::Console& console, int64_t begun_at)
    : options_(options),
      console_(console),
      whole_(static_cast<size_t>(options.processes)),
      begun_at_(begun_at) {
  std::iota(whole_.begin(), whole_.end(), 0);
  in_use_ = whole_;
}

/// Devices that the ranks could not open, and one that has failed twice without progress in
/// between.
std::vector<int> HostDevices::all_gone(const std::vector<int>& gone, std::optional<int> lost,
                                       int64_t now) {
  std::vector<int> out = gone;
  if (!options_.allow_fewer) return out;
  if (lost && suspect_ == lost && now == begun_at_) out.push_back(*lost);
  suspect_ = lost;
  begun_at_ = now;
  return out;
}

bool HostDevices::go_on(const std::vector<int>& gone, std::optional<int> lost, int64_t now) {
  const std::vector<int> gone_now = all_gone(gone, lost, now);
  if (gone_now.empty()) return true;
  const std::string names = listed(gone_now);
  if (!options_.allow_fewer) {
    console_.error(concat(names, ": gone: --allow-fewer-devices continues without it"));
    return false;
  }
  std::erase_if(whole_, [&](int device) { return std::ranges::count(gone_now, device) != 0; });
  const int left = static_cast<int>(whole_.size());
  const int used = left > 0 ? options_.fitting(left) : 0;
  if (used == 0) {
    console_.error(concat(names, ": gone, and the layout fits no number of the ", left, " left"));
    return false;
  }
  in_use_.assign(whole_.begin(), whole_.begin() + used);
  console_.note(concat(names, ": gone: continuing with ", listed(in_use_)));
  suspect_.reset();
  return true;
}

}  // namespace trainer
