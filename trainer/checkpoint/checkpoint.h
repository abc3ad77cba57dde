// Checkpoints on disk: a folder iter_0001000 of safetensors shards and meta.json, the root folder
// with several of these, and latest_checkpointed_iteration.txt, which names the current one. A
// folder has its name only when it is complete; a reader gets no byte without verifying its
// checksum. Host memory only: the caller copies from and to a device. Not here: the meaning of
// tensors (layout.h and the callers).
// Source: docs/format/checkpoint.5.md; Megatron-LM for the names of root, folder and tracker.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/layout.h"

namespace indexed {
class OutputFile;
}

namespace trainer {

class SafetensorsFile;

/// A whole checkpoint, open for reading.
/// State: which blocks were checked; any number of threads may read.
class Checkpoint {
 public:
  /// Opens folder `path` (an iter_* folder): reads meta.json and checks that every file exists with
  /// the right size.
  /// Errors: std::system_error; indexed::FormatError "path: what: why".
  static Checkpoint open(const std::string& path);
  /// Opens one whose files are not in a folder: `files` has the path of each, and `name` is its
  /// path() in messages. Errors: as open().
  static Checkpoint open(const std::string& name, CheckpointMeta meta,
                         std::map<std::string, std::string> files);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& path() const noexcept { return path_; }
  const CheckpointMeta& meta() const noexcept { return meta_; }

  /// Fills `out` with the bytes of `piece` of a tensor, joined from the shards that have it; the
  /// blocks read are verified first.
  /// Errors: indexed::FormatError naming file, tensor and why: damaged, missing elements, wrong
  /// size of `out`.
  void read(const TensorRecord& tensor, const Piece& piece, std::span<std::byte> out);

  /// All of a tensor.
  std::vector<std::byte> read(const TensorRecord& tensor);

  /// Bytes begin .. end - 1 of a shard of a tensor where its file is mapped, their blocks checked;
  /// valid as long as this object. Errors: as read().
  std::span<const std::byte> view(const TensorRecord& tensor, const ShardRecord& shard,
                                  int64_t begin, int64_t end);

  /// Tells the system that those bytes are not needed again soon.
  void release(const ShardRecord& shard, int64_t begin, int64_t end);

  /// Checks every byte of all files, or of those that `wanted` chooses. Errors: as read().
  void verify(const std::function<bool(const std::string& file)>& wanted = {});

 private:
  struct OpenFile;
  struct Shared;
  Checkpoint();
  std::string place(const std::string& file) const;
  OpenFile& file(const std::string& name);
  bool take_block(OpenFile& open, const ShardRecord& shard, int64_t block);
  void end_block(OpenFile& open, const ShardRecord& shard, int64_t block, bool good);

  std::string path_;
  std::map<std::string, std::string> places_;  ///< Of files that are not in the folder path_.
  CheckpointMeta meta_;
  std::map<std::string, std::unique_ptr<OpenFile>> open_;
  std::unique_ptr<Shared> shared_;  ///< guards open_ and what it says of blocks
};

/// One piece to be written: host memory that stays as it is until the write is done, or what gives
/// its bytes, a part at a time.
struct ShardSource {
  std::string group;
  std::string name;
  std::string dtype;
  std::vector<int64_t> whole_shape;
  Piece piece;
  std::span<const std::byte> bytes;
  /// The piece's bytes at .. at + size - 1, which stay until the same thread asks again. Any
  /// thread, several at a time; in place of `bytes`, where that is empty.
  std::function<std::span<const std::byte>(int64_t at, int64_t size)> read = {};
  std::function<void()> done = {};  ///< After the last byte was written; may be empty.

  int64_t size_bytes() const;
};

/// A message from one writer to another.
struct WriterLetter {
  int from = 0;
  std::string text;
};

/// One of the processes that write a checkpoint together, and its messages to the others.
struct WriterPlace {
  int rank = 0, world = 1;
  int threads = 1;                     ///< That read, sum and write at the same time.
  std::chrono::seconds patience{600};  ///< How long to wait for the others once this one is done.
  /// Tells writer `to`, or all others (-1), something about save number `save`. Any thread.
  std::function<void(int to, int64_t save, const std::string& text)> post = {};
  /// The messages about that save since the last call; waits at most `wait` for a first one.
  std::function<std::vector<WriterLetter>(int64_t save, std::chrono::milliseconds wait)> letters =
      {};
  /// Rank 0 calls it in save() when all files are written, before their folder, now called
  /// `unfinished`, gets its name. What it throws drops the save. Who gives it undoes an error after
  /// it, too.
  std::function<void(const std::string& unfinished)> before_naming = {};
  std::function<std::string(int rank)> name = {};                   ///< Empty: "rank 3".
  std::function<std::string(const std::exception&)> describe = {};  ///< Empty: what().
};

/// The root folder of a run's checkpoints, for one writer.
class CheckpointRoot {
 public:
  /// Rank 0 locks the folder for writing, creating it if necessary, and removes unfinished files of
  /// a killed writer, as far as it can; no other rank may save before that. Errors:
  /// std::system_error; std::runtime_error if another process is writing there. `only_own`: save()
  /// removes no checkpoint but those of this object, and of this run by its number.
  explicit CheckpointRoot(std::string path, const WriterPlace& place = {}, bool only_own = false);
  ~CheckpointRoot();
  CheckpointRoot(const CheckpointRoot&) = delete;
  CheckpointRoot& operator=(const CheckpointRoot&) = delete;

  /// Writes this rank's shards; `meta` without files and tensors, which are filled in here. The
  /// weights go into one file and everything else into another; a record of both goes to rank 0,
  /// which waits for those of all ranks, merges them, gives the folder its name, then updates the
  /// tracker, then removes all but the newest `keep_last` folders (0: none) of those that it may
  /// (see the constructor); the others wait for
  /// its result. Ranks communicate only by letters, so any thread may call it while training
  /// continues. If one fails, all stop writing and drop this save. `failure`: why this rank has
  /// nothing to write; the save is then dropped. The tracker always names a complete checkpoint, or
  /// there is none yet. Returns which older checkpoints could not be removed; empty: none. Errors,
  /// on every rank: std::system_error (ENOSPC before anything is written, if it can be known); with
  /// several ranks std::runtime_error that names the rank that failed first, and why. Leaves only
  /// files that the disk refuses to remove, which the next save removes.
  std::string save(CheckpointMeta meta, const std::vector<ShardSource>& shards, int64_t keep_last,
                   const std::string& failure = {});

 private:
  std::string describe(const std::exception& error) const;
  void commit(const CheckpointMeta& meta, const std::string& temporary);
  bool removable(int64_t iteration, const std::string& run) const;
  std::string remove_older(const CheckpointMeta& newest, int64_t keep_last) const;
  void remove_leftovers(const std::string& but) const;

  std::string path_;
  WriterPlace place_;
  bool only_own_;
  std::set<int64_t> written_;  ///< Iterations that have their name from this object.
  int64_t saves_ = 0;          ///< The number of saves, the same on all ranks.
  int lock_ = -1;
};

/// A new file in the root folder, whose name was never there before: hosts that see it have the
/// same folder. The destructor removes it; after a SIGKILL the next save does.
class FolderMark {
 public:
  /// `word`: for the name, never given before. Errors: std::system_error, as for a full disk.
  FolderMark(const std::string& root, const std::string& word);
  ~FolderMark();
  FolderMark(const FolderMark&) = delete;
  FolderMark& operator=(const FolderMark&) = delete;
  const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  std::unique_ptr<indexed::OutputFile> file_;
};

/// Whether another host's mark of that name is in `root` here. Looks again for `patience`: a
/// network file system may show a new file late.
bool sees_mark(const std::string& root, const std::string& name,
               std::chrono::milliseconds patience);

/// Whether a folder is a checkpoint: it has a meta.json which is not another program's. One that
/// cannot be read, or is damaged, counts. Errors: none.
bool is_checkpoint(const std::string& folder);

/// Whether a folder certainly is one, and may be removed: its meta.json begins as ours do. One that
/// is damaged there is not. Errors: none.
bool is_certainly_checkpoint(const std::string& folder);

/// A path without "." and "..", each ".." taken as the file system does: above what a link leads
/// to. Links after the last ".." stay as they are. Errors: none.
std::filesystem::path without_dots(const std::filesystem::path& path);

/// A folder's path from the root of the file system, without dots and a slash at its end:
/// parent_path() is the folder that has it under this name.
std::filesystem::path plain_path(const std::string& folder);

/// Whether `path` is an entry of `folder`, by its own name or, if it is a link, by that of what it
/// leads to.
bool lies_in(const std::string& path, const std::string& folder);

/// Whether two paths are the same folder, existing or not: one may be relative, end with a slash,
/// or contain a link. An empty path is never the same as another.
bool same_folder(const std::string& a, const std::string& b);

/// ROOT/iter_0001000.
std::string iteration_folder(const std::string& root, int64_t iteration);

/// Iterations whose folders in `root` are checkpoints (is_checkpoint), ascending. Reads no tensor.
std::vector<int64_t> stored_iterations(const std::string& root);

/// The iteration that the root's tracker names; nothing if there is no tracker. Errors:
/// indexed::FormatError for one without a number, or a link that leads nowhere.
std::optional<int64_t> tracked_iteration(const std::string& root);

/// A text that is another one once a save has replaced the root's tracker, even with the same
/// number; "" if there is none. Errors: none.
std::string tracker_state(const std::string& root);

/// The checkpoint that `--load root` means: `step` if given, else the tracker's, else, without a
/// tracker, the newest stored one; nothing if there is none. A root that is itself a checkpoint
/// means itself. Errors: indexed::FormatError for a tracker without a number, or one that names a
/// missing folder, with the newest stored iteration in the message; for a root that is a checkpoint
/// of another step.
std::optional<std::string> find_checkpoint(const std::string& root, std::optional<int64_t> step);

/// Text for a message about a damaged checkpoint: names the newest undamaged one below `iteration`,
/// and `how` to take it, or says that there is none.
std::string offer_previous(const std::string& root, int64_t iteration,
                           const std::function<std::string(int64_t step)>& how);

}  // namespace trainer
