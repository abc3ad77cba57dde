// See saver.h. The thread uses only the snapshot's bytes, the root folder and outcome_; others use
// these only after joining it.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/saver.h"

#include <stdexcept>
#include <system_error>
#include <utility>

#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/ops/available_memory.h"

namespace trainer {

Saver::Saver(Engine& engine, SaverOptions options)
    : options_(std::move(options)), snapshot_(engine, options_.optimizer, options_.ahead) {
  if (options_.memory == nullptr) root_.emplace(options_.root, options_.place, options_.only_own);
}

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
}

void Saver::save(CheckpointMeta meta) {
  if (thread_.joinable()) thread_.join();
  begun_ = std::chrono::steady_clock::now();
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
  outcome_ = {.iteration = meta_.state.iteration};
  try {
    thread_ = std::thread([this] { write(); });
  } catch (const std::system_error&) {  // no thread is available: training waits for this save.
    write();
  }
}

void Saver::write() noexcept {
  try {
    if (failure_.empty()) snapshot_.wait();
    if (failure_.empty() && options_.memory != nullptr) check_memory();
  } catch (const std::exception& error) {
    failure_ = cli::describe(error);
  }
  try {
    if (options_.memory != nullptr)
      options_.memory->save(std::move(meta_), snapshot_.shards(), failure_);
    else
      outcome_.remark =
          root_->save(std::move(meta_), snapshot_.shards(), options_.keep_last, failure_);
  } catch (const std::exception& error) {
    outcome_.error = cli::describe(error);
  }
  outcome_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  done_ = true;
}

// Who takes memory that is not there is killed, and a copy is not worth that. All ranks whose files
// this host has take about as much at the same time.
void Saver::check_memory() const {
  const int64_t needed = options_.memory->more_bytes(snapshot_.shards()) * options_.memory->held();
  const int64_t available = ops::available_host_bytes();
  if (needed <= available) return;
  throw std::runtime_error(cli::concat(
      "a checkpoint in memory takes ", cli::readable_bytes(static_cast<double>(needed)), " more, ",
      cli::readable_bytes(static_cast<double>(available)), " are available"));
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
