// SPDX-License-Identifier: MIT
// Room: convert. The names that a model gets in its root, and those of the one that it replaces:
// they change together. The old ones wait in ROOT/.replaced, with a record of every change, from
// which an error, or the next conversion after a kill, undoes them all. Not here: which names these
// are (megatron_target.h, trainer_source.h, tokenizer_files.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace convert {

/// Changes of names below a root, undone unless keep() ends them. The tracker's is the first name
/// that is taken and the last one that is given: while there is none, the changes are unfinished.
class SetAside {
 public:
  /// Changes nothing yet. What a killed conversion has left was undone before (undo_killed).
  explicit SetAside(const std::string& root);
  /// Without keep(): undoes the changes, as far as the disk allows; the next conversion does the
  /// rest.
  ~SetAside();
  SetAside(const SetAside&) = delete;
  SetAside& operator=(const SetAside&) = delete;

  /// Sets `path`, below the root, aside if there is one; of a link the link itself.
  /// Errors: std::system_error.
  void take(const std::filesystem::path& path);

  /// Makes a folder, and those above it. Errors: std::system_error.
  void make_folders(const std::filesystem::path& path);

  /// Gives a finished file its name. One that is there already stays in the record as if it had
  /// always been there: the caller knows that it has the same bytes. Errors: std::system_error.
  void name(const std::filesystem::path& file, const std::filesystem::path& path);

  /// What is now called `unfinished` is about to get the name `path`. Errors: std::system_error.
  void expect(const std::filesystem::path& path, const std::filesystem::path& unfinished);

  /// The new model has all its names: removes what was set aside, as far as the disk allows.
  void keep() noexcept;

 private:
  void record(const std::string& change);

  std::filesystem::path root_, aside_;
  int record_ = -1;
};

/// Undoes what a killed conversion has changed in a root, if it had no time to name the tracker:
/// the old model gets its names back, and what has a new name goes, if it is still the file that
/// the conversion named. The caller has the root's FolderLock. No effect where there is none.
/// Errors: std::system_error (EEXIST) where something else has the old model's name now.
void undo_killed(const std::string& root);

/// The names that undo_killed() would remove. Errors: std::system_error.
std::vector<std::string> names_of_killed(const std::string& root);

}  // namespace convert
