// Names of files that must survive a loss of power.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace indexed {

/// Puts the names in a folder on the disk. Returns 0, or errno. 0 also where that cannot be asked
/// for: of a folder that may be written but not read, or of a file system without it.
int sync_folder(const std::string& folder) noexcept;

}  // namespace indexed
