// What a conversion that was killed among its last renames leaves in a folder, which then has no
// model: its record (convert/set_aside.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace trainer {

/// The folder beside a model in which an old one's files wait while a conversion replaces it, and
/// in that folder the record of all changes.
inline constexpr const char* kReplaced = ".replaced";
inline constexpr const char* kChanges = ".changes";

/// The rest of a message that there is no model in `folder`: ": " and what to do where a conversion
/// was killed there among its changes of names, else "".
inline std::string killed_conversion(const std::string& folder) {
  std::error_code none;
  const bool killed =
      std::filesystem::exists(std::filesystem::path(folder) / kReplaced / kChanges, none);
  return killed ? ": a conversion was killed, and has put aside what was there (.replaced); run it "
                  "again"
                : "";
}

}  // namespace trainer
