// Finds the card to plan for, and the layout that a command leaves open, for the trainer itself
// (--auto-layout, --max-global-batch-size) and for plan-training. Reads files and environment
// variables. Not here: the search (layout_search.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/cli/console.h"
#include "trainer/config/flags.h"
#include "trainer/session/layout_search.h"

namespace trainer {

/// A card's table, and a note on how it was found.
struct CardChoice {
  Card card;
  std::string note;  ///< May be empty.
};

/// The card of --gpu (a name, or a table's file), or else this machine's GPU; empty if there is
/// neither. Applies --network-gb-per-s and the environment's DEVICE_MEMORY_GB. Errors:
/// cli::UsageError for an unknown name, a card that is too old, a variable that is not a number;
/// std::system_error and std::runtime_error for a file.
std::optional<CardChoice> find_card(const TrainConfig& config);

/// Refuses a --gpu that is neither a card nor a file, or that is given without planning. Errors: as
/// find_card.
void check_planned_gpu(const TrainConfig& config);

/// This machine's CPU, for ranks without a GPU: with guessed rates, which are enough to compare
/// layouts, but not to estimate seconds.
Card processor_card(int64_t ranks_on_host);

/// Sets a card's memory to that of a product with `gib`.
void set_device_memory(Card& card, double gib);

/// "H200: measured; collectives not measured": one line on the source of a table.
std::string basis_of(const Card& card);

/// Whether the command leaves the choice of its layout to the trainer.
bool wants_layout(const TrainConfig& config) noexcept;

/// The task of a command for `cluster`; with --global-batch-size every step has that many samples.
/// Errors: cli::UsageError if that is more than --max-global-batch-size, or neither is given.
SearchTask search_task(const TrainConfig& config, const Given& given, const Cluster& cluster,
                       Card card, int64_t vocab_size);

/// Sets the layout that the command leaves open: that of the checkpoint from which it resumes, if
/// it has one for this number of ranks, else the fastest that fits. Every rank of a job chooses the
/// same. State: changes `config` and `given`; nothing without wants_layout(). Prints the choice.
/// Errors: cli::UsageError if none can run or fits.
void choose_layout(TrainConfig& config, Given& given, const Cluster& cluster,
                   cli::Console& console);

}  // namespace trainer
