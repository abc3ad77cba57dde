// See restart.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/restart.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <ranges>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "libindexed/read_file.h"
#include "tools/cli/fields.h"
#include "tools/cli/parse.h"
#include "tools/cli/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/flags.h"
#include "trainer/session/job.h"

namespace trainer {
namespace {

SavedStep step_of(const CheckpointMeta& meta, bool tracked) {
  return {.iteration = meta.state.iteration, .optimizer = meta.has_optimizer, .tracked = tracked};
}

// What the config.toml of a folder says of --metrics-file; empty if nothing, or if it is no such
// file.
std::string metrics_named_in(const std::string& folder) {
  TrainConfig config;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), config);
  const std::string path = folder + "/config.toml";
  cli::Parsed parsed;
  try {
    if (std::filesystem::is_regular_file(path))
      cli::read_config(rows, indexed::read_file(path), path, parsed);
  } catch (const std::exception&) {
    return "";
  }
  return config.metrics_file;
}

/// Whether run `run` has saved a checkpoint, or may have: expect_own_start decides.
bool may_be_own(const Checkpoint& checkpoint, const std::string& run) {
  return checkpoint.meta().run == run || rendezvous::may_be_one_run(checkpoint.meta().run, run);
}

/// What run `run` has saved in a folder.
struct OwnSaves {
  std::optional<SavedStep> newest;
  bool unreadable = false;  ///< A checkpoint there cannot be read: it may be another one.
};
OwnSaves own_saves(const std::string& root, const std::string& run) {
  OwnSaves out;
  for (const int64_t iteration : stored_iterations(root) | std::views::reverse) {
    try {
      const Checkpoint checkpoint = Checkpoint::open(iteration_folder(root, iteration));
      if (!may_be_own(checkpoint, run)) continue;
      out.newest = step_of(checkpoint.meta(), false);
      break;
    } catch (const std::exception&) {
      out.unreadable = true;
    }
  }
  return out;
}

/// For a folder whose newest checkpoint cannot be read: whether it may be one that the run of
/// `launch` has saved. It is not if the tracker is as it was when the run began, and every
/// checkpoint there can be read and is another run's.
bool may_have_saved(const TrainConfig& config, const rendezvous::Launch& launch) {
  if (launch.run.empty() || goes_on_from_save(config)) return true;
  if (launch.by_trainer && tracker_state(config.save) != launch.tracker) return true;
  try {
    const OwnSaves own = own_saves(config.save, launch.run);
    return own.newest || own.unreadable;
  } catch (const std::exception&) {
    return true;
  }
}

/// saved_step; where the newest checkpoint cannot be read and may be the run's, one without a
/// number: find_start says what is wrong there.
std::optional<SavedStep> step_or_unknown(const TrainConfig& config,
                                         const rendezvous::Launch& launch) {
  try {
    return saved_step(config, launch.run);
  } catch (const std::exception&) {
    if (may_have_saved(config, launch)) return SavedStep{};
    return std::nullopt;
  }
}

}  // namespace

std::optional<SavedStep> saved_step(const TrainConfig& config, const std::string& run) {
  if (config.save.empty()) return std::nullopt;
  const std::optional<std::string> folder = find_checkpoint(config.save, std::nullopt);
  if (!folder) return std::nullopt;
  const Checkpoint checkpoint = Checkpoint::open(*folder);
  const bool own = run.empty() || may_be_own(checkpoint, run);
  // The same command would go on from there as well, whoever wrote it.
  if (own || goes_on_from_save(config)) return step_of(checkpoint.meta(), true);
  return own_saves(config.save, run).newest;
}

int64_t whole_saved_iteration(const TrainConfig& config, const std::string& run) {
  try {
    const std::optional<SavedStep> saved = saved_step(config, run);
    return saved && saved->optimizer ? saved->iteration : -1;
  } catch (const std::exception&) {  // a start from the disk reports it.
    return -1;
  }
}

bool tracker_names(const std::string& root, int64_t iteration) {
  try {
    return tracked_iteration(root) == iteration;
  } catch (const std::exception&) {  // the next save replaces it.
    return false;
  }
}

int64_t checkpoints_of_others(const std::string& root, const std::string& run) {
  const auto own = [&](int64_t iteration) {
    try {
      return !run.empty() && Checkpoint::open(iteration_folder(root, iteration)).meta().run == run;
    } catch (const std::exception&) {
      return false;
    }
  };
  try {
    const std::vector<int64_t> stored = stored_iterations(root);
    return static_cast<int64_t>(stored.size()) - std::ranges::count_if(stored, own);
  } catch (const std::exception&) {  // whoever needs the folder reports it
    return 0;
  }
}

// Before they meet, ranks may know less than all of them together.
void expect_own_start(const Start& start, const TrainConfig& config, bool from_save,
                      const Job& job) {
  const rendezvous::Launch& launch = job.launch();
  if (launch.restarts == 0 && !launch.requeued) return;
  if (from_save || !start.checkpoint || start.in_memory || config.save.empty()) return;
  const std::string& path = start.checkpoint->path();
  const std::string& stored = start.checkpoint->meta().run;
  if (!lies_in(path, config.save) || !rendezvous::may_be_one_run(stored, launch.run)) return;
  const bool knew = stored.size() > launch.run.size();
  throw std::runtime_error(
      cli::concat(path, ": saved under the same --rdzv-id ",
                  knew ? "in a SLURM job, and no rank of this start knows its own"
                       : "where no rank knew a SLURM job, and this start has one",
                  " (SLURM_JOB_ID): it may be another job's: --load ", cli::shell_word(config.save),
                  " goes on from it, another --rdzv-id begins anew"));
}

void go_on_after_restart(TrainConfig& config, const rendezvous::Launch& launch,
                         cli::Console& console) {
  // Without its id a requeued job would take whatever is in --save for its own.
  const bool requeued = launch.restarts == 0 && launch.requeued && !launch.run.empty();
  if ((launch.restarts == 0 && !requeued) || config.save.empty()) return;
  const std::optional<SavedStep> saved = step_or_unknown(config, launch);
  if (!saved) {
    if (!config.in_memory_checkpoint && !goes_on_from_save(config) && !requeued)
      console.note(
          cli::concat(config.save, ": this run has saved nothing there yet: it begins again"));
    return;
  }
  if (requeued && !goes_on_from_save(config))
    console.note(cli::concat(config.save,
                             ": SLURM has started this job again: it goes on from what "
                             "it has saved there"));
  config.load = config.save;
  config.finetune = false;
  config.ckpt_step.reset();
  if (!saved->tracked) config.ckpt_step = saved->iteration;
  // With --no-save-optim a checkpoint that has an optimizer is none of the run's own: the first
  // start may have left that optimizer out.
  if (saved->optimizer && !config.no_save_optim) config.no_load_optim = false;
  // Its own has none, so that it goes on from the weights; find_start says so. Memory has it.
  if (!saved->optimizer && config.no_save_optim && !config.in_memory_checkpoint)
    config.no_load_optim = true;
}

bool goes_on_without_optimizer(const TrainConfig& config, const Checkpoint& checkpoint) {
  return config.no_save_optim && !checkpoint.meta().has_optimizer &&
         lies_in(checkpoint.path(), config.save);
}

// torchrun starts ranks again that have refused a file: that it is another start says nothing.
bool has_metrics_of_others(const TrainConfig& config, const rendezvous::Launch& launch,
                           const CheckpointMeta* own) {
  const std::string& file = config.metrics_file;
  if (file.empty() || lies_in(file, config.save)) return false;
  if (config.save.empty())
    return !launch.requeued && (launch.restarts == 0 || launch.launcher == "torchrun");
  std::vector<std::string> known = {metrics_named_in(config.save)};
  if (own != nullptr && own->config.contains("metrics-file")) {
    const std::vector<std::string>& named = own->config.at("metrics-file");
    known.insert(known.end(), named.begin(), named.end());
  }
  return std::ranges::none_of(known, [&](const std::string& name) {
    std::error_code none;
    return name == file || std::filesystem::equivalent(name, file, none);
  });
}

}  // namespace trainer
