// SPDX-License-Identifier: MIT
// Room: tools/cli. Compares files by device and inode; see same_file.h.
#include "tools/cli/same_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"

namespace cli {

void refuse_input_as_output(std::string_view flag, const std::string& output,
                            const std::vector<std::string>& inputs) {
  struct stat written = {};
  if (output.empty() || output == "-" || stat(output.c_str(), &written) != 0) return;
  for (const std::string& input : inputs) {
    struct stat read = {};
    const bool exists =
        (input == "-" ? fstat(STDIN_FILENO, &read) : stat(input.c_str(), &read)) == 0;
    if (!exists || read.st_dev != written.st_dev || read.st_ino != written.st_ino) continue;
    if (input == output) throw UsageError(concat(flag, " ", output, " is also an input"));
    throw UsageError(concat(flag, " ", output, " is the same file as ",
                            input == "-" ? "standard input" : concat("the input ", input)));
  }
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
