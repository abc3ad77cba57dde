// SPDX-License-Identifier: MIT
// See output_path.h.
#include "tools/cli/output_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

namespace cli {

std::string output_path(const std::string& path) {
  const bool standard =
      path.empty() || path == "/dev/stdout" || open_descriptor(path) == STDOUT_FILENO;
  return standard ? "-" : path;
}

std::optional<int> open_descriptor(const std::string& path) {
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    int number = -1;
    const char* const end = path.data() + path.size();
    const auto [at, error] = std::from_chars(path.data() + folder.size(), end, number);
    if (error == std::errc() && at == end && number >= 0) return number;
  }
  return std::nullopt;
}

bool is_stream(const std::string& path) {
  struct stat info = {};
  return path.empty() || path == "-" || open_descriptor(path) ||
         (stat(path.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)));
}

}  // namespace cli
