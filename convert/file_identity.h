// SPDX-License-Identifier: MIT
// Room: convert. How a conversion recognises a file that it has named, after a kill: what the file
// keeps when it is renamed, and no other one has. Its number, and the time when its bytes last
// changed.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>

namespace convert {

/// Text without blanks.
inline std::string file_identity(const struct stat& info) {
  return std::to_string(info.st_ino) + ":" + std::to_string(info.st_mtim.tv_sec) + "." +
         std::to_string(info.st_mtim.tv_nsec);
}

/// Of a name itself, not of what a link leads to; "" if there is none.
inline std::string file_identity(const std::filesystem::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? file_identity(info) : "";
}

}  // namespace convert
