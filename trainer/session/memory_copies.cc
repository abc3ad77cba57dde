// See memory_copies.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/memory_copies.h"

#include <chrono>
#include <utility>

#include "tools/cli/text.h"

namespace trainer {
namespace {

using cli::concat;

/// A shorter wait is not worth a line.
constexpr std::chrono::seconds kLongWait{1};

}  // namespace

MemoryCopies::MemoryCopies(Engine& engine, SaverOptions options, int64_t interval, Voice voice)
    : saver_(engine, std::move(options)), interval_(interval), voice_(std::move(voice)) {}

void MemoryCopies::start(CheckpointMeta meta) {
  const auto begin = std::chrono::steady_clock::now();
  const std::optional<Saver::Outcome> last = saver_.finish();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  report(last);
  if (last && last->error.empty() && waited > kLongWait && !std::exchange(waited_, true) &&
      voice_.speaks)
    voice_.console.note(concat("--in-memory-checkpoint ", interval_, ": training waited ",
                               cli::readable_time(waited.count()), " at step ",
                               meta.state.iteration, " for the copy of step ", last->iteration,
                               ", which took ", cli::readable_time(last->seconds),
                               started_ <= 2
                                   ? "; the first two also take the memory, later ones are faster"
                                   : "; with more steps from one to the next it would not"));
  saver_.save(std::move(meta));
  ++started_;
}

void MemoryCopies::report(const std::optional<Saver::Outcome>& outcome) {
  if (!outcome || !voice_.speaks) return;
  if (outcome->error.empty()) {
    if (std::exchange(one_is_complete_, true)) return;
    voice_.print(concat("  the checkpoint of step ", outcome->iteration, " is complete in memory, ",
                        cli::readable_time(outcome->seconds), " after its step"));
    return;
  }
  voice_.console.error(concat(outcome->error, ": the checkpoint of step ", outcome->iteration,
                              " was not copied to memory; training continues"));
  voice_.metrics.event("checkpoint not copied", outcome->iteration, {{"error", outcome->error}});
}

}  // namespace trainer
