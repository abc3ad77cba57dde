// SPDX-License-Identifier: MIT
// Room: convert. Which existing files a conversion reads, and which it would replace or remove: no
// file may be both, since a run that fails after it removed its own input leaves nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convert {

/// The files that a conversion of `path` may read: `path` itself, or the files of that folder. Of
/// a checkpoint also those of its folders, and the tokenizer beside it; but not an export that is
/// in the folder itself, nor what a killed conversion has set aside there, which no reader of
/// checkpoints opens: a new one may replace both.
std::vector<std::string> model_inputs(const std::string& path, bool hf_folder);

/// Existing files that write_hf_folder(), write_megatron() and write_start() replace or remove.
/// `path` is that of their target; `iteration` the model's.
std::vector<std::string> overwritten_by_hf(const std::string& path);
std::vector<std::string> overwritten_by_megatron(const std::string& path);
std::vector<std::string> overwritten_by_start(const std::string& path, int64_t iteration);

/// Refuses to overwrite one of `inputs`. Errors: cli::UsageError naming --output and both files.
void refuse_overwriting(const std::vector<std::string>& overwritten,
                        const std::vector<std::string>& inputs);

}  // namespace convert
