// trainer: GPT pre-training from an indexed dataset. The spine: rows become a configuration, the
// configuration becomes parts, the parts meet in a TrainingLoop. The only place that chooses a
// device.
// Not here: the loop (session/training_loop.h), the model (engine.h), the flags (config/).
//
// SPDX-License-Identifier: MIT
#include <sys/prctl.h>

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
#include "trainer/session/job.h"
#include "trainer/session/launcher.h"
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

// Ranks that this host gets where a launcher does not say: as asked, or one for each GPU.
int ranks_here(const TrainConfig& config) {
  if (config.nproc_per_node) return static_cast<int>(*config.nproc_per_node);
  return std::max(1, visible_gpus(config));
}

// Everything that a wrong command line can be told, before anything is opened for writing.
void complete_config(TrainConfig& config, cli::Invocation& call, int64_t world_size) {
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
  for (const std::string& note : derive_and_check(config, given, world_size))
    call.console.note(note);
}

// Elements of the parameters that this rank holds.
int64_t parameters_held(const Engine& engine) {
  int64_t sum = 0;
  for (const ParamView& view : engine.parameters()) sum += view.param->elements();
  return sum;
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

// A start after a failure goes on from what the run itself has saved.
void go_on_after_restart(TrainConfig& config, int restarts) {
  if (restarts == 0 || config.save.empty() || !find_checkpoint(config.save, std::nullopt)) return;
  config.load = config.save;
  config.finetune = false;
  config.ckpt_step.reset();
}

// Everything that can be refused before memory is taken and others are met.
struct Prepared {
  Vocabulary vocabulary;
  ModelSpec spec;
  EngineOptions options;
};
Prepared prepare(TrainConfig& config, cli::Invocation& call, const Job& job, int64_t world_size) {
  complete_config(config, call, world_size);
  Prepared out{.vocabulary = find_vocabulary(config)};
  out.spec = model_spec(config, out.vocabulary.vocab_size);
  take_padding(config, out.spec, call.console);
  out.options = engine_options(config);
  const int tensor = static_cast<int>(config.tensor_model_parallel_size);
  const int pipeline = static_cast<int>(config.pipeline_model_parallel_size);
  const std::string refusal =
      Engine::refusal(out.spec, out.options,
                      make_topology(job.rank(), static_cast<int>(world_size), tensor, pipeline));
  if (!refusal.empty()) throw UsageError(refusal);
  return out;
}

// This process as one rank: from its device to the end of its run.
int run_rank(TrainConfig& config, cli::Invocation& call, Job& job, Prepared& prepared) {
  StopRequest own_stop(config.exit_duration_in_mins, config.stop_file);
  SharedStop stop(own_stop, job);
  const std::unique_ptr<ops::Ops> ops = job.open_device();
  job.meet(ops.get(), "");
  return job.run([&] {
    const ModelSpec& spec = prepared.spec;
    EngineOptions& options = prepared.options;
    job.enter(comm::Phase::load, 0);
    LrSchedule schedule = lr_schedule(config);
    Start start = find_start(config, spec, schedule, call.console);
    if (start.checkpoint && !start.weights_only && !config.no_load_rng) {
      options.seed = static_cast<uint32_t>(start.checkpoint->meta().state.seed);
    }
    print_config(config, call);
    const indexed::TrainingData data = open_training_data(config);
    Engine engine(spec, options, *ops, job.open_groups(*ops));
    call.console.log(concat(ops->describe(), "\n", engine.memory_plan().report));
    if (!call.console.quiet()) {
      std::printf(
          " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): %lld\n",
          static_cast<long long>(parameters_held(engine)));
    }
    TrainingLoop loop({.config = config,
                       .spec = spec,
                       .engine = engine,
                       .data = data,
                       .vocabulary = prepared.vocabulary,
                       .schedule = schedule,
                       .stop = stop,
                       .job = job,
                       .console = call.console},
                      std::move(start));
    if (job.speaks()) save_config(config);
    job.barrier();  // rank 0 holds the folder of checkpoints.
    return job.guard([&] { return loop.run(); });
  });
}

// --dry-run: for the device that is here, or for the GPU that is meant and is elsewhere.
int plan_run(const TrainConfig& config, const Prepared& prepared, Job& job) {
  const bool for_gpu = config.device == "cuda" || config.fp16 || config.bf16;
  const bool absent = for_gpu && config.device != "cpu" && visible_gpus(config) == 0;
  const std::unique_ptr<ops::Ops> ops = absent ? nullptr : job.open_device();
  return dry_run(config, prepared.spec, prepared.options, ops.get());
}

// This process as the launcher of this host's ranks.
int launch(const TrainConfig& config, cli::Invocation& call, const comm::Launch& host, int ranks) {
  const int64_t model = config.tensor_model_parallel_size * config.pipeline_model_parallel_size;
  const auto count_again = [&] {
    const int now = visible_gpus(config) > 0 ? std::min(ranks, visible_gpus(config)) : ranks;
    if (now >= ranks || !config.allow_fewer_devices) return ranks;
    const int64_t fitting = now / model * model;
    return static_cast<int>(fitting);
  };
  return launch_ranks({.host = host,
                       .processes = ranks,
                       .max_restarts = config.max_restarts,
                       .grace = std::chrono::milliseconds(static_cast<int64_t>(
                           1000 * std::clamp(config.hang_timeout_seconds, 1.0, 5.0))),
                       .words = call.arguments,
                       .count_again = count_again},
                      call.console);
}

int train(TrainConfig& config, cli::Invocation& call) {
  const int ranks = ranks_here(config);
  const comm::Launch place =
      comm::detect_launch([](const char* name) { return std::getenv(name); }, ranks);
  if (place.rank != 0) call.console.set_quiet(true);
  for (const std::string& remark : place.remarks) call.console.note(remark);
  go_on_after_restart(config, place.restarts);
  Job job(place, config, call.console);
  const int64_t world_size = int64_t{place.world_size} * (place.per_node ? ranks : 1);
  Prepared prepared;
  const bool quiet = call.console.quiet();
  try {
    if (place.per_node && !config.dry_run) call.console.set_quiet(true);  // rank 0 says it
    prepared = prepare(config, call, job, world_size);
    call.console.set_quiet(quiet);
  } catch (const std::exception& error) {
    if (place.rank == 0 || place.per_node) throw;
    return job.tell(error);
  }
  if (config.dry_run) return place.rank == 0 ? plan_run(config, prepared, job) : 0;
  if (place.per_node) return launch(config, call, place, ranks);
  try {
    return run_rank(config, call, job, prepared);
  } catch (const comm::MeetingError& error) {
    // Rank 0 says why; where it was not found, each host's first rank does.
    if (!error.told && place.local_rank == 0) throw;
    return kFailed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_NAME, "trainer");  // ranks are started by /proc/self/exe, and would be "exe".
  return cli::run(kProgram, trainer::flag_table(), argc, argv, train);
}
