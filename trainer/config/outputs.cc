// SPDX-License-Identifier: MIT
// Room: trainer/config. The inputs that flags name, compared with the outputs; see outputs.h.
#include "trainer/config/outputs.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "tools/cli/output_path.h"
#include "tools/cli/same_file.h"

namespace trainer {

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
