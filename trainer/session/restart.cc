// See restart.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/restart.h"

#include <exception>

#include "tools/cli/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/session/job.h"

namespace trainer {
namespace {

/// For a folder whose newest checkpoint cannot be read: whether it may be one that run `run` has
/// saved. It is not if every checkpoint there can be read and is another run's.
bool may_have_saved(const TrainConfig& config, const std::string& run) {
  if (run.empty() || goes_on_from_save(config)) return true;
  try {
    for (const int64_t iteration : stored_iterations(config.save))
      if (Checkpoint::open(iteration_folder(config.save, iteration)).meta().run == run) return true;
  } catch (const std::exception&) {
    return true;
  }
  return false;
}

}  // namespace

std::optional<SavedStep> saved_step(const TrainConfig& config, const std::string& run) {
  if (config.save.empty()) return std::nullopt;
  const std::optional<std::string> folder = find_checkpoint(config.save, std::nullopt);
  if (!folder) return std::nullopt;
  const Checkpoint checkpoint = Checkpoint::open(*folder);
  const CheckpointMeta& meta = checkpoint.meta();
  if (!run.empty() && meta.run != run && !goes_on_from_save(config)) return std::nullopt;
  return SavedStep{.iteration = meta.state.iteration, .optimizer = meta.has_optimizer};
}

int64_t whole_saved_iteration(const TrainConfig& config, const std::string& run) {
  try {
    const std::optional<SavedStep> saved = saved_step(config, run);
    return saved && saved->optimizer ? saved->iteration : -1;
  } catch (const std::exception&) {  // a start from the disk reports it.
    return -1;
  }
}

void go_on_after_restart(TrainConfig& config, const rendezvous::Launch& launch,
                         cli::Console& console) {
  if (launch.restarts == 0 || config.save.empty()) return;
  std::optional<SavedStep> saved;
  try {
    saved = saved_step(config, launch.run);
  } catch (const std::exception&) {  // find_start says what is wrong there.
    if (may_have_saved(config, launch.run)) saved = SavedStep{};
  }
  if (!saved) {
    if (!config.in_memory_checkpoint && !goes_on_from_save(config))
      console.note(
          cli::concat(config.save, ": this run has saved nothing there yet: it begins again"));
    return;
  }
  config.load = config.save;
  config.finetune = false;
  config.ckpt_step.reset();
  if (saved->optimizer) config.no_load_optim = false;
}

}  // namespace trainer
