// See saver.h. The thread uses only the snapshot's bytes, the root folder and outcome_; others use
// these only after joining it.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/saver.h"

#include <system_error>
#include <utility>

#include "tools/cli/run.h"

namespace trainer {

Saver::Saver(Engine& engine, SaverOptions options)
    : options_(std::move(options)),
      root_(options_.root, options_.place),
      snapshot_(engine, options_.optimizer, options_.ahead) {}

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
}

void Saver::save(CheckpointMeta meta) {
  if (thread_.joinable()) thread_.join();
  failure_.clear();
  try {
    snapshot_.take();
  } catch (const ops::DeviceFault&) {
    throw;
  } catch (const std::exception& error) {
    failure_ = cli::describe(error);
  }
  done_ = false;
  pending_ = true;
  meta_ = std::move(meta);
  outcome_ = {meta_.state.iteration, {}, {}};
  try {
    thread_ = std::thread([this] { write(); });
  } catch (const std::system_error&) {  // no thread is available: training waits for this save.
    write();
  }
}

void Saver::write() noexcept {
  try {
    if (failure_.empty()) snapshot_.wait();
  } catch (const std::exception& error) {
    failure_ = cli::describe(error);
  }
  try {
    outcome_.remark =
        root_.save(std::move(meta_), snapshot_.shards(), options_.keep_last, failure_);
  } catch (const std::exception& error) {
    outcome_.error = cli::describe(error);
  }
  done_ = true;
}

std::optional<Saver::Outcome> Saver::outcome() {
  if (!pending_ || (options_.background && !done_)) return std::nullopt;
  return finish();
}

std::optional<Saver::Outcome> Saver::finish() {
  if (!pending_) return std::nullopt;
  pending_ = false;
  if (thread_.joinable()) thread_.join();
  if (outcome_.error.empty()) last_whole_ = outcome_.iteration;
  return outcome_;
}

}  // namespace trainer
