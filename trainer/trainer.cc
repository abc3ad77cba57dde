// trainer: GPT pre-training from an indexed dataset. The spine: rows become a configuration, the
// configuration becomes parts, the parts meet in a TrainingLoop. The only place that chooses a
// device.
// Not here: the loop (session/training_loop.h), the model (engine.h), the flags (config/).
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "libindexed/output_file.h"
#include "tools/cli/fields.h"
#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"
#include "trainer/session/assembly.h"
#include "trainer/session/checkpoint_args.h"
#include "trainer/session/devices.h"
#include "trainer/session/dry_run.h"
#include "trainer/session/training_loop.h"

namespace {

using namespace trainer;
using cli::concat;
using cli::UsageError;

const cli::Program kProgram = {.name = "trainer",
                               .summary = "train a language model from an indexed dataset",
                               .operands = "",
                               .at_signal = indexed::remove_temporaries,
                               .config_file = true};

// Processes that a launcher started; 1 without a launcher.
int64_t launched_processes() {
  for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* text = std::getenv(name)) return std::max<int64_t>(std::atoll(text), 1);
  }
  const char* tasks = std::getenv("SLURM_NTASKS");
  const bool is_step = std::getenv("SLURM_STEP_ID") && std::getenv("SLURM_PROCID");
  return tasks && is_step ? std::max<int64_t>(std::atoll(tasks), 1) : 1;
}

// Everything that a wrong command line can be told, before anything is opened for writing.
void complete_config(TrainConfig& config, cli::Invocation& call) {
  Given& given = call.parsed.given;
  if (!config.deepspeed_config.empty()) {
    const std::vector<std::string> idle = apply_deepspeed(
        config, given, read_text_file(config.deepspeed_config), config.deepspeed_config);
    if (!idle.empty()) {
      call.console.note(
          concat(config.deepspeed_config, ": no effect here: ", cli::join(idle, ", ")));
    }
  }
  take_checkpoint_args(config, given);
  const int64_t processes = std::max(launched_processes(), config.nproc_per_node.value_or(1));
  if (processes > 1) throw UsageError(concat(processes, " processes: this trainer runs as one"));
  for (const std::string& note : derive_and_check(config, given, launched_processes()))
    call.console.note(note);
}

void print_config(const TrainConfig& config, const cli::Invocation& call) {
  if (call.console.quiet()) return;
  std::printf(
      "------------------------ arguments ------------------------\n%s"
      "-------------------- end of arguments ---------------------\n",
      effective_config(config).c_str());
  cli::finish_stdout();
}

// Once the folder is known to be ours alone.
void save_config(const TrainConfig& config) {
  if (config.save.empty() || config.skip_train) return;
  indexed::OutputFile out(config.save + "/config.toml", indexed::Existing::replace);
  out.write(effective_config(config));
  out.commit();
}

int train(TrainConfig& config, cli::Invocation& call) {
  complete_config(config, call);
  StopRequest stop(config.exit_duration_in_mins, config.stop_file);
  const Vocabulary vocabulary = find_vocabulary(config);
  const ModelSpec spec = model_spec(config, vocabulary.vocab_size);
  EngineOptions options = engine_options(config);
  const std::unique_ptr<ops::Ops> ops = open_device(config);
  if (config.dry_run) return dry_run(config, spec, options, *ops);
  LrSchedule schedule = lr_schedule(config);
  Start start = find_start(config, spec, schedule, call.console);
  if (start.checkpoint && !start.weights_only && !config.no_load_rng) {
    options.seed = static_cast<uint32_t>(start.checkpoint->meta().state.seed);
  }
  print_config(config, call);
  const indexed::TrainingData data = open_training_data(config);
  Engine engine(spec, options, *ops);
  call.console.log(concat(ops->describe(), "\n", engine.memory_plan().report));
  if (!call.console.quiet()) {
    std::printf(" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): %lld\n",
                static_cast<long long>(count_parameters(spec)));
  }
  TrainingLoop loop({.config = config,
                     .spec = spec,
                     .engine = engine,
                     .data = data,
                     .vocabulary = vocabulary,
                     .schedule = schedule,
                     .stop = stop,
                     .console = call.console},
                    std::move(start));
  save_config(config);
  return loop.run();
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run(kProgram, trainer::flag_table(), argc, argv, train);
}
