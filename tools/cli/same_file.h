// SPDX-License-Identifier: MIT
// Room: tools/cli. An output must not be one of its command's inputs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cli {

/// Refuses an output that is the same file as an input, under whatever name: links are followed,
/// device and inode are compared. "" is no output; "-" is standard output and standard input. What
/// does not exist is passed over, and so are devices and sockets: what is written to one is not
/// read from it.
/// Errors: UsageError naming `flag` and both names.
void refuse_input_as_output(std::string_view flag, const std::string& output,
                            const std::vector<std::string>& inputs);

/// Refuses a file `path` that gets its name at the end, where the other output is that file and is
/// written as it is: "-" for standard output, or a name of an open file (/dev/fd/3). One would
/// replace the other. Errors: UsageError naming `flag`, `path` and `output`.
void refuse_open_output(std::string_view flag, const std::string& path, const std::string& output);

/// The files that a tokenizer's flag may read: `path` itself, or of a folder those whose names end
/// as a tokenizer's do (.json, .txt, .jinja, .model, .tiktoken).
std::vector<std::string> tokenizer_inputs(const std::string& path);

}  // namespace cli
