// The card that is planned for, and the layout that a command leaves open: found for the trainer
// itself (--auto-layout, --max-global-batch-size) and for plan-training. Files and environment are
// read here. Not here: the search (layout_search.h).
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

/// A card's table, and what is to be said of how it was found.
struct CardChoice {
  Card card;
  std::string note;  ///< Empty where there is nothing to say.
};

/// The card of --gpu (a name, or the file of a table), or else the GPU that is here; empty where
/// there is neither. --network-gb-per-s, and DEVICE_MEMORY_GB of the environment, count.
/// Errors: cli::UsageError for a name that is none, a card that is too old, a variable that is no
/// number; std::system_error and std::runtime_error for a file.
std::optional<CardChoice> find_card(const TrainConfig& config);

/// Refuses a --gpu that is neither card nor file, or where nothing is planned. Errors: as
/// find_card.
void check_planned_gpu(const TrainConfig& config);

/// A processor of this machine, for ranks without a GPU: rates by guess, which rank layouts but say
/// nothing of seconds.
Card processor_card(int64_t ranks_on_host);

/// A card with the memory of one that is sold with `gib`.
void set_device_memory(Card& card, double gib);

/// "H200: measured; collectives not measured": one line on what a table rests on.
std::string basis_of(const Card& card);

/// Whether the command leaves its layout to us.
bool wants_layout(const TrainConfig& config) noexcept;

/// The task of a command for `cluster`; with --global-batch-size every step has as many samples.
/// Errors: cli::UsageError where that is more than --max-global-batch-size, or none is given.
SearchTask search_task(const TrainConfig& config, const Given& given, const Cluster& cluster,
                       Card card, int64_t vocab_size);

/// Sets the layout that the command leaves open: that of the checkpoint it goes on from where there
/// is one for as many ranks, else the fastest that fits. Every rank of a job chooses the same.
/// State: `config` and `given`; nothing without wants_layout(). Says what was chosen.
/// Errors: cli::UsageError where none can run or fits.
void choose_layout(TrainConfig& config, Given& given, const Cluster& cluster,
                   cli::Console& console);

}  // namespace trainer
