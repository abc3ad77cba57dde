// Checkpoints in memory that outlives the ranks of a host. The launcher owns unnamed files
// (memfd_create) for two checkpoints and hands them to every rank that it starts, so a rank that is
// killed takes nothing with it, and nothing is left once the launcher has ended, whatever ended it.
// With several hosts each also has the files of the host before it, in a ring, and the record of
// all: what one host loses, the next one has. The files have the same bytes as those of a
// checkpoint on disk. Not here: which of memory and disk a start continues from
// (session/memory_start.h), and what hosts give back to each other (session/memory_hosts.h). May
// include: checkpoint/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"

namespace trainer {

class Meeting;

/// The hosts whose memory a run's checkpoints are in.
struct MemoryHosts {
  int count = 1, ranks = 1, own = 0;  ///< Hosts, ranks on each, and which of the hosts this is.
  /// Sends this rank's files to its partner, the rank of the same place on the next host, while it
  /// receives those of the one whose partner it is; -1 in `out`: there is none. False if
  /// `given_up` became true before the end. Needed for a save with several hosts.
  std::function<bool(int64_t number, const std::vector<int>& out, const std::vector<int>& in,
                     const std::function<bool()>& given_up)>
      exchange = {};

  int before() const noexcept { return (own + count - 1) % count; }
  /// The ranks whose files this host has: its own, then those of the host before it.
  std::vector<int> held() const;
};

/// Owns the files; for a launcher.
class MemoryFiles {
 public:
  /// Empty files for the checkpoints of so many ranks: MemoryHosts::held(). Errors:
  /// std::system_error.
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
  /// Without `hosts` there is one.
  explicit MemoryCheckpoints(const std::vector<int>& descriptors, WriterPlace place = {},
                             MemoryHosts hosts = {});

  /// A complete checkpoint, or this host's part of it: all ranks have written their files, and the
  /// sizes are right. No tensor is read.
  struct Kept {
    int slot = 0;  ///< 0 or 1.
    int64_t iteration = 0;
    std::string record;  ///< meta.json.
  };
  /// The newest first.
  std::vector<Kept> kept() const;
  /// Their iterations.
  std::vector<int64_t> iterations() const;

  /// Opens the complete checkpoint of an iteration; valid until the next save but one. Errors:
  /// indexed::FormatError.
  Checkpoint open(int64_t iteration) const;

  /// Makes checkpoints above an iteration incomplete: a run continues below them.
  void forget_after(int64_t iteration) const;

  /// How many ranks' files this host has.
  int held() const noexcept { return static_cast<int>(files_[0].size()) / 2; }

  /// Several hosts, before the first save: the slot for a checkpoint that this host lacks, which is
  /// not that of its newest.
  int free_slot() const;
  /// Descriptors of a held rank's files: weights, everything else.
  std::array<int, 2> files(int slot, int rank) const;
  /// Completes what is in a slot, or makes it incomplete: an empty record. Errors:
  /// std::system_error.
  void write_record(int slot, const std::string& record) const;
  /// Checks every byte of a held rank's files. Returns what is wrong; empty: nothing.
  std::string damage(int slot, const std::string& record, int rank) const;
  /// The whole checkpoint, of what is in a slot and `others`, paths by name. Errors:
  /// indexed::FormatError.
  Checkpoint open(int slot, const std::string& record,
                  std::map<std::string, std::string> others) const;

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
  std::optional<Checkpoint> complete(const Files& files) const;
  size_t target() const;
  void copy_to_partner(size_t slot, const CheckpointMeta& meta,
                       const std::function<bool()>& given_up) const;
  void write_shards(size_t slot, CheckpointMeta& meta, const std::vector<ShardSource>& shards,
                    Meeting& meeting) const;
  void write(const Files& files, CheckpointMeta& meta, const std::vector<ShardSource>& shards,
             const std::function<bool()>& given_up) const;

  std::array<Files, 2> files_;
  WriterPlace place_;
  MemoryHosts hosts_;
  int64_t saves_ = 0;  ///< The number of saves, the same on all ranks.
  /// Several hosts: where the next save goes, the same on all ranks of a host. Their records are
  /// written by one of them, at its own time, so the files cannot tell.
  std::optional<size_t> next_;
};

}  // namespace trainer
