// See foreign.h. Source: save_checkpoint of Megatron-LM (iter_*, release, mp_rank_XX[_YYY]),
// Megatron-core's dist_checkpointing, DeepSpeed's engine (latest, global_step*, *_states.pt).
//
// SPDX-License-Identifier: MIT
#include "trainer/session/foreign.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "trainer/checkpoint/checkpoint.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using cli::concat;

/// Nothing if it is not a regular file: opening a FIFO would block.
std::string first_word(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return {};
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

/// The folder with the files of one iteration: `root` itself, or what its tracker names, or any
/// that looks like one.
fs::path newest(const fs::path& root) {
  std::error_code none;
  const std::string step = first_word(root / "latest");  // DeepSpeed's.
  if (!step.empty() && fs::is_directory(root / step, none)) return root / step;
  if (first_word(root / "latest_checkpointed_iteration.txt") == "release") return root / "release";
  fs::path last;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, none)) {
    const std::string name = entry.path().filename().string();
    const bool iteration =
        name.starts_with("iter_") || name.starts_with("global_step") || name == "release";
    if (iteration && entry.is_directory(none)) last = std::max(last, entry.path());
  }
  return last.empty() ? root : last;
}

}  // namespace

std::string foreign_checkpoint(const std::string& path) {
  std::error_code none;
  const fs::path root(path);
  if (fs::is_regular_file(root, none))
    return root.extension() == ".pt" ? "a file of torch.save" : "";
  if (!fs::is_directory(root, none)) return "";
  const fs::path folder = newest(root);
  if (is_checkpoint(folder)) return "";
  if (fs::exists(folder / "common.pt", none) || fs::exists(folder / ".metadata", none))
    return "Megatron-core's torch_dist checkpoint";
  // Its layers count from 0, Megatron-DeepSpeed's from 1.
  if (fs::exists(folder / "layer_00-model_00-model_states.pt", none))
    return "GPT-NeoX's checkpoint";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with("_states.pt")) return "DeepSpeed's checkpoint";
    if (name.starts_with("mp_rank_")) return "Megatron-LM's checkpoint";
  }
  return fs::exists(root / "config.json", none) ? "a transformers folder" : "";
}

void refuse_foreign(const TrainConfig& config) {
  const auto refuse = [&](const char* flag, const std::string& path, bool start) {
    const std::string kind = path.empty() ? "" : foreign_checkpoint(path);
    const bool hf = kind == "a transformers folder";
    std::error_code none;
    if (kind.empty() && fs::is_regular_file(path, none))
      throw cli::UsageError(concat(flag, " ", path, ": a file, where a folder is expected"));
    if (kind.empty() || (hf && !start)) return;
    if (!start)
      throw cli::UsageError(concat(flag, " ", path, ": holds ", kind,
                                   ", which a tracker of this run would hide: name another "
                                   "folder"));
    const std::string output =
        cli::shell_word(concat(fs::path(path + "/.").parent_path().string(), "-start"));
    std::string command = concat(hf ? "hf-to-megatron" : "megatron-to-hf --to trainer", " --input ",
                                 cli::shell_word(path), " --output ", output);
    if (config.ckpt_step && !hf) command += concat(" --iteration ", *config.ckpt_step);
    if (!config.vocab_file.empty() && !config.merge_file.empty() && !hf)
      command += concat(" --vocab-file ", cli::shell_word(config.vocab_file), " --merge-file ",
                        cli::shell_word(config.merge_file));
    throw cli::UsageError(concat(flag, " ", path, ": ", kind, ": convert it with ", command,
                                 " and give --load ", output, " --finetune"));
  };
  refuse("--load", config.load, true);
  refuse("--pretrained-checkpoint", config.pretrained_checkpoint, true);
  if (!same_folder(config.save, config.load)) refuse("--save", config.save, false);
}

}  // namespace trainer
