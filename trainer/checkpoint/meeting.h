// Meeting: how the ranks that write one checkpoint learn of each other's end, by letters: each
// tells rank 0 what it has written, or why it could not, and rank 0 tells all how the save ended.
// No collective is used, so it goes on beside the training; and nothing is read out of the folder,
// so a disk that refuses, or shows a file late, hides no rank's word. Not here: writing shards
// (checkpoint_root.cc). May include: checkpoint/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"

namespace trainer {

/// This rank stops writing because another one has failed.
class GivenUp : public std::runtime_error {
 public:
  GivenUp() : runtime_error("given up by another rank") {}
};

/// One rank's side of one save.
class Meeting {
 public:
  Meeting(int64_t save, const WriterPlace& place);

  /// Whether some rank has failed, so that what is not written yet need not be. Does not wait; on
  /// rank 0 it also lets the others know.
  bool given_up();

  /// Rank 0: adds the files and tensors of all other ranks to `meta`, which has its own.
  /// `failure`: why this rank failed, or empty. Waits for every rank, so that nobody still writes
  /// when it returns or throws. Errors: std::runtime_error with the first rank's name and reason,
  /// or when one does not come within the patience.
  void gather(CheckpointMeta& meta, const std::string& failure);

  /// Rank 0: tells all how the save ended; empty: it is whole. Only the first word counts.
  void tell(const std::string& failure);
  /// Rank 0: the same, and ends this rank's part.
  [[noreturn]] void drop(const std::string& failure);

  /// Other ranks: tells rank 0 what is written, or why not, and waits for its word.
  /// Errors: std::runtime_error with the word where the save was dropped.
  void report_and_wait(const CheckpointMeta& meta, const std::string& failure);

  /// "rank 3 (n07, GPU 1)".
  std::string name(int rank) const;

 private:
  void receive(std::chrono::milliseconds wait);
  int missing() const;

  int64_t save_;
  const WriterPlace& place_;
  std::vector<std::optional<std::string>> words_;  ///< Rank 0: of each rank, when it has come.
  std::string failure_;                            ///< The first one's.
  std::optional<std::string> verdict_;
};

}  // namespace trainer
