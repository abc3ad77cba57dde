// SPDX-License-Identifier: MIT
// See output_path.h.
#include "tools/cli/output_path.h"

#include <sys/stat.h>

namespace cli {

std::string output_path(const std::string& path) {
  const bool standard = path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1";
  return standard ? "-" : path;
}

bool is_stream(const std::string& path) {
  struct stat info = {};
  return path.empty() || path == "-" ||
         (stat(path.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)));
}

}  // namespace cli
