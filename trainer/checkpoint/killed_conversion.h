// What a conversion that was killed among its last renames leaves in a folder, which then has no
// model: its record (convert/set_aside.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace trainer {

/// The rest of a message that there is no model in `folder`: ": " and what to do where a conversion
/// was killed there among its changes of names, else "".
inline std::string killed_conversion(const std::string& folder) {
  std::error_code none;
  const bool killed =
      std::filesystem::exists(std::filesystem::path(folder) / ".replaced" / ".changes", none);
  return killed ? ": a conversion was killed, and has put aside what was there (.replaced); run it "
                  "again"
                : "";
}

}  // namespace trainer
