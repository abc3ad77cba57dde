// SPDX-License-Identifier: MIT
// The names of OutputFile's temporary files: `.NAME.PID.tmp` beside the target NAME. Where the file
// system has no room for that, `.BEGINNING~HASH.PID.tmp`, of the name's first characters and the
// MD5 of all of it: so every name that the file system takes can be written, and the next run for
// the same target finds what a killed one left. Text only: output_file.cc opens and removes.
#pragma once

#include <string>
#include <string_view>

namespace indexed {

/// The folder of a path: "." for a name alone, "/" for one below the root.
std::string folder_of(const std::string& path);

/// The last part of a path.
std::string name_of(const std::string& path);

/// `name` in the folder of `path`, written as `path` is.
std::string in_folder_of(const std::string& path, const std::string& name);

/// Names for one target.
class TemporaryNames {
 public:
  explicit TemporaryNames(const std::string& target);

  /// The path of this process' temporary file.
  std::string own() const;

  /// A path for mkostemp(3).
  std::string scratch() const;

  /// Whether a file of the target's folder has a name that a process gives to a temporary file of
  /// the target.
  bool contains(std::string_view name) const;

 private:
  std::string target_;
  std::string whole_;    // .NAME.
  std::string shorter_;  // .BEGINNING~HASH.
  bool fits_;            // whole_ with what follows
};

}  // namespace indexed
