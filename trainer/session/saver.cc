// See saver.h. The thread touches the snapshot's bytes, the root folder and outcome_, and nothing
// else; the other side touches those only after joining it.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/saver.h"

#include <utility>

#include "tools/cli/run.h"

namespace trainer {

Saver::Saver(Engine& engine, SaverOptions options)
    : options_(std::move(options)),
      root_(options_.root,
            {.rank = engine.topology().rank(), .world = engine.topology().world_size()}),
      snapshot_(engine, options_.optimizer, options_.ahead) {}

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
}

void Saver::save(CheckpointMeta meta) {
  if (thread_.joinable()) thread_.join();
  snapshot_.take();
  done_ = false;
  outcome_ = {meta.state.iteration, {}};
  thread_ = std::thread([this, meta = std::move(meta)]() mutable { write(std::move(meta)); });
}

void Saver::write(CheckpointMeta meta) noexcept {
  try {
    snapshot_.wait();
    root_.save(std::move(meta), snapshot_.shards(), options_.keep_last);
  } catch (const std::exception& error) {
    outcome_.error = cli::describe(error);
  }
  done_ = true;
}

std::optional<Saver::Outcome> Saver::outcome() {
  if (!thread_.joinable() || (options_.background && !done_)) return std::nullopt;
  return finish();
}

std::optional<Saver::Outcome> Saver::finish() {
  if (!thread_.joinable()) return std::nullopt;
  thread_.join();
  if (outcome_.error.empty()) last_whole_ = outcome_.iteration;
  return outcome_;
}

}  // namespace trainer
