// SPDX-License-Identifier: MIT
// Room: tools/cli. Compares files by device and inode; see same_file.h.
#include "tools/cli/same_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tools/cli/flags.h"
#include "tools/cli/output_path.h"
#include "tools/cli/text.h"

namespace cli {

namespace {

/// The status of a named file, or of `standard` where the name is "-"; none if it does not exist
/// or is a device or a socket.
std::optional<struct stat> status_of(const std::string& name, int standard) {
  struct stat info = {};
  const int result = name == "-" ? fstat(standard, &info) : stat(name.c_str(), &info);
  if (result != 0 || S_ISCHR(info.st_mode) || S_ISSOCK(info.st_mode)) return std::nullopt;
  return info;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

void refuse_input_as_output(std::string_view flag, const std::string& output,
                            const std::vector<std::string>& inputs) {
  if (output.empty()) return;
  const std::optional<struct stat> written = status_of(output, STDOUT_FILENO);
  if (!written) return;
  const std::string what = output == "-" ? "standard output" : concat(flag, " ", output);
  for (const std::string& input : inputs) {
    const std::optional<struct stat> read = status_of(input, STDIN_FILENO);
    if (!read || !same_file(*read, *written)) continue;
    if (input == output && input != "-") throw UsageError(concat(what, " is also an input"));
    throw UsageError(concat(what, " is the same file as ",
                            input == "-" ? "standard input" : concat("the input ", input)));
  }
}

void refuse_open_output(std::string_view flag, const std::string& path, const std::string& output) {
  if (path.empty() || !is_stream(output)) return;
  const std::optional<struct stat> written = status_of(output, STDOUT_FILENO);
  const std::optional<struct stat> other = status_of(path, STDOUT_FILENO);
  if (written && other && same_file(*written, *other))
    throw UsageError(concat(flag, " ", path, " is the same file as ",
                            output == "-" ? "standard output" : concat("--output ", output)));
}

std::vector<std::string> tokenizer_inputs(const std::string& path) {
  constexpr std::string_view kEndings[] = {".json", ".txt", ".jinja", ".model", ".tiktoken"};
  std::vector<std::string> files = {path};
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(path, none)) {
    if (std::ranges::find(kEndings, entry.path().extension().string()) != std::end(kEndings))
      files.push_back(entry.path().string());
  }
  return files;
}

}  // namespace cli
