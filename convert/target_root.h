// SPDX-License-Identifier: MIT
// Room: convert. The root folder of checkpoints that a conversion writes into: what stands there
// already, and what of it must stay. Everything that can be known is found here, before any work.
// Not here: inputs that would be outputs, too (overwritten.h); the writing (megatron_target.h,
// trainer_source.h).
#pragma once

#include <memory>
#include <string>

#include "convert/tokenizer_files.h"

namespace convert {

/// What a conversion is about to write.
struct RootTarget {
  std::string root;        ///< may not exist yet
  std::string checkpoint;  ///< name of the new checkpoint's folder: "release", "iter_0000000"
  bool replace = false;    ///< --force: one of that name, and its tokenizer, may be replaced
};

/// Refuses a root into which the checkpoint and its tokenizer cannot be written as promised:
/// - with another checkpoint, which would get the new one's tokenizer, `replace` or not;
/// - that is a checkpoint itself, where the new one would never be read;
/// - with files in the place of folders, or folders in the place of files;
/// - with a folder of the tokenizer that may not be changed;
/// - without `replace`, where a checkpoint, a tokenizer with other bytes, or a link would go.
/// Reads names, and the bytes of existing tokenizer files; changes nothing.
/// Errors: std::system_error (EEXIST, ENOTDIR, EISDIR, EACCES) naming the first thing in the way.
void refuse_bad_root(const RootTarget& target, const TokenizerFiles& tokenizer);

/// A folder that is being written: two conversions at once would mix their files. Where the file
/// system has no locks, as some network file systems, there is none.
class FolderLock {
 public:
  /// The folder must exist. Errors: std::system_error EBUSY if another process has it.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

/// Creates the root of a conversion, or undoes what a killed one has left there, and refuses a bad
/// one as refuse_bad_root() does. Errors: those of refuse_bad_root(), FolderLock, undo_killed().
std::unique_ptr<FolderLock> open_root(const RootTarget& target, const TokenizerFiles& tokenizer);

/// Refuses a name that is there, without `replace`. Errors: std::system_error EEXIST.
void refuse_existing(const std::string& path, bool replace);

/// Refuses what is no folder, or a link to one, or nothing. Without `replace` a link, too, for it
/// would be replaced. Errors: std::system_error ENOTDIR, EEXIST.
void refuse_no_folder(const std::string& path, bool replace);

/// Refuses a folder where a file will be written. Errors: std::system_error EISDIR.
void refuse_folder(const std::string& path);

}  // namespace convert
