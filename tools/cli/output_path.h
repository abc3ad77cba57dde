// SPDX-License-Identifier: MIT
// Room: tools/cli. Outputs that are no files: standard output under its names, pipes and devices.
#pragma once

#include <optional>
#include <string>

namespace cli {

/// "-" where `path` is empty or a name of standard output (/dev/stdout, /dev/fd/1,
/// /proc/self/fd/1, /proc/thread-self/fd/1), otherwise `path`.
std::string output_path(const std::string& path);

/// N where `path` is /dev/fd/N, /proc/self/fd/N or /proc/thread-self/fd/N, 2 where it is
/// /dev/stderr: a file that is open already, whatever it is, and which is written from where it
/// stands.
std::optional<int> open_descriptor(const std::string& path);

/// Whether bytes written to `path` are gone at once, so that there is nothing to rename in the end:
/// standard output ("" or "-"), an open descriptor, or a pipe or character device that exists
/// (/dev/null, >(...)).
bool is_stream(const std::string& path);

}  // namespace cli
