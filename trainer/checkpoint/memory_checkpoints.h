// Checkpoints in memory that outlives the ranks of a host. The launcher owns unnamed files
// (memfd_create) for two checkpoints and hands them to every rank that it starts, so a rank that is
// killed takes nothing with it, and nothing is left once the launcher has ended, whatever ended it.
// The files have the same bytes as those of a checkpoint on disk. Not here: which of memory and
// disk a start continues from (session/memory_start.h). May include: checkpoint/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"

namespace trainer {

/// Owns the files; for a launcher.
class MemoryFiles {
 public:
  /// Empty files for the checkpoints of `ranks` ranks. Errors: std::system_error.
  explicit MemoryFiles(int ranks);
  ~MemoryFiles();
  MemoryFiles(const MemoryFiles&) = delete;
  MemoryFiles& operator=(const MemoryFiles&) = delete;

  /// For the ranks, which inherit them: in the order that MemoryCheckpoints expects.
  const std::vector<int>& descriptors() const noexcept { return descriptors_; }

 private:
  std::vector<int> descriptors_;
};

/// One rank's, or the launcher's, view of the files. Two checkpoints are kept: a save overwrites
/// the one that is not the newest complete one, so a kill in the middle leaves that one. State: any
/// number of processes may read; all ranks save at the same time, one thread of each.
class MemoryCheckpoints {
 public:
  /// `descriptors` as MemoryFiles has them, open in this process. Without `place` it only reads.
  explicit MemoryCheckpoints(const std::vector<int>& descriptors, WriterPlace place = {});

  /// Iterations of the complete checkpoints, the newest first: all ranks have written their files,
  /// and the sizes are right. No tensor is read.
  std::vector<int64_t> iterations() const;

  /// Opens the complete checkpoint of an iteration; valid until the next save but one. Errors:
  /// indexed::FormatError.
  Checkpoint open(int64_t iteration) const;

  /// Makes checkpoints above an iteration incomplete: a run continues below them.
  void forget_after(int64_t iteration) const;

  /// Bytes that a save of these shards takes beyond what this rank's files already have: none after
  /// two saves.
  int64_t more_bytes(const std::vector<ShardSource>& shards) const;

  /// Like CheckpointRoot::save, into memory; all ranks call it. It returns on each rank only when
  /// the checkpoint is complete on all. Errors: the same; the newest complete checkpoint stays.
  void save(CheckpointMeta meta, const std::vector<ShardSource>& shards,
            const std::string& failure = {});

 private:
  /// A checkpoint's files, by name.
  using Files = std::map<std::string, int>;
  static std::optional<Checkpoint> complete(const Files& files);
  const Files& target() const;
  void write(const Files& files, CheckpointMeta& meta, const std::vector<ShardSource>& shards,
             const std::function<bool()>& given_up) const;

  std::array<Files, 2> files_;
  WriterPlace place_;
  int64_t saves_ = 0;  ///< The number of saves, the same on all ranks.
};

}  // namespace trainer
