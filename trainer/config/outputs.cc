// SPDX-License-Identifier: MIT
// Room: trainer/config. The inputs that flags name, compared with the outputs; see outputs.h.
#include "trainer/config/outputs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tools/cli/flags.h"
#include "tools/cli/output_path.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

// The names by which a path may be known: its own, in the real folder, and that of each link that
// it leads to, whether it is there or not. std::filesystem::weakly_canonical follows no link to
// what is not there yet. `links`: how many may still be followed.
std::vector<fs::path> names_of(const fs::path& path, int& links) {
  const fs::path name = path.filename();
  if (!path.has_relative_path()) return {path};
  const fs::path folder = names_of(path.parent_path(), links).back();
  if (name.empty() || name == ".") return {folder};
  if (name == "..") return {folder.parent_path()};
  std::vector<fs::path> names = {folder / name};
  std::error_code none;
  if (!fs::is_symlink(names[0], none) || links-- <= 0) return names;
  for (fs::path& next : names_of(folder / fs::read_symlink(names[0], none), links))
    names.push_back(std::move(next));
  return names;
}

std::vector<fs::path> names_of(const std::string& path) {
  int links = 40;  // as the system's own bound
  return names_of(fs::absolute(path), links);
}

// Refuses an output that is a file which a run keeps for itself in --save, or is below a folder of
// it: the run would replace the one by the other.
void refuse_own_file(std::string_view flag, const std::string& output, const std::string& save) {
  if (output.empty() || save.empty()) return;
  constexpr std::array kOwn = {"config.toml", "latest_checkpointed_iteration.txt", "tokenizer",
                               "gemm_choices.txt", ".trainer.lock"};
  const fs::path folder = names_of(save).back();
  for (const fs::path& name : names_of(output)) {
    const std::string first = name.lexically_relative(folder).begin()->string();
    if (std::ranges::find(kOwn, first) == kOwn.end() && !first.starts_with("iter_") &&
        !first.starts_with(".iter_"))
      continue;
    throw cli::UsageError(
        cli::concat(flag, " ", output, ": the run keeps its own ", first, " in --save ", save));
  }
}

}  // namespace

std::vector<std::string> input_files(const TrainConfig& config) {
  std::vector<std::string> files = cli::tokenizer_inputs(config.tokenizer_model);
  files.insert(files.end(), {config.vocab_file, config.merge_file, config.data_args_path,
                             config.per_split_data_args_path, config.deepspeed_config, config.gpu,
                             config.job_secret_file});
  files.insert(files.end(), config.neox_config.begin(), config.neox_config.end());
  for (const auto* paths : {&config.data_path, &config.train_data_path, &config.valid_data_path,
                            &config.test_data_path}) {
    for (const std::string& prefix : *paths)  // weights are no files
      for (const char* end : {"", ".idx", ".bin", ".manifest"}) files.push_back(prefix + end);
  }
  return files;
}

void refuse_inputs_as_outputs(const TrainConfig& config, const std::vector<std::string>& others) {
  std::vector<std::string> inputs = input_files(config);
  inputs.insert(inputs.end(), others.begin(), others.end());
  cli::refuse_input_as_output("--metrics-file", config.metrics_file, inputs);
  cli::refuse_input_as_output("--schedule-svg", config.schedule_svg, inputs);
  refuse_own_file("--metrics-file", config.metrics_file, config.save);
  refuse_own_file("--schedule-svg", config.schedule_svg, config.save);
}

void forget_default_metrics_file(TrainConfig& config, cli::Parsed& parsed) {
  const auto metrics = parsed.in_files.find("metrics-file"), save = parsed.in_files.find("save");
  const auto none = parsed.in_files.end();
  if (metrics == none || save == none || parsed.on_line.contains("metrics-file")) return;
  if (metrics->second != cli::Values{save->second.front() + "/metrics.jsonl"}) return;
  config.metrics_file.clear();
  parsed.given.erase("metrics-file");
}

int metrics_descriptor(const TrainConfig& config) {
  const std::string& path = config.metrics_file;
  const int open = path == "/dev/stdout" ? STDOUT_FILENO : cli::open_descriptor(path).value_or(-1);
  if (open < 0) return -1;
  // What was closed at the start (cli::run) can be neither read nor written.
  const int flags = ::fcntl(open, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
    throw std::system_error(EBADF, std::generic_category(), path);
  return open;
}

}  // namespace trainer
