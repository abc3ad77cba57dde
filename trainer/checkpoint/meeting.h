// Meeting: how the ranks that write one checkpoint learn of each other's end, by files in the
// folder they write: a record of each rank's shards, or of why it failed. No collective is used, so
// it goes on beside the training, and a killed rank leaves nothing but a half-written folder that
// has no name yet. Not here: writing shards (checkpoint_root.cc). May include: checkpoint/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "trainer/checkpoint/checkpoint.h"

namespace trainer {

/// One rank's side of one save.
class Meeting {
 public:
  /// `temporary`: the folder being written; `named`: what it will be called.
  Meeting(std::string temporary, std::string named, const WriterPlace& place);

  /// Rank 0: adds the files and tensors of all other ranks to `meta`, which has its own.
  /// `failure`: why this rank failed, or empty. Waits for every rank. Errors: std::runtime_error
  /// with the first rank's reason, or when one does not come within the patience.
  void gather(CheckpointMeta& meta, const std::string& failure);

  /// Rank 0, once the folder has its name: removes the records.
  void clean() const;

  /// Other ranks: leaves the record, or why there is none, and waits until rank 0 has named the
  /// folder or given it up. Errors: std::runtime_error with `failure`, or when it gave up.
  void report_and_wait(const CheckpointMeta& meta, const std::string& failure);

 private:
  std::string record(const std::string& folder, int rank) const;
  std::string failed(const std::string& folder, int rank) const;

  std::string temporary_, named_;
  WriterPlace place_;
};

}  // namespace trainer
