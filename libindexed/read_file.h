// SPDX-License-Identifier: MIT
// read_file: a whole file as text, for the small files of configurations and tokenizers.
#pragma once

#include <string>

namespace indexed {

/// The content of a file that fits in memory. A regular one counts for check_mapped_files(); a pipe
/// is read to its end.
/// Errors: std::system_error carrying errno and path.
std::string read_file(const std::string& path);

}  // namespace indexed
