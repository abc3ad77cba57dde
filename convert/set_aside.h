// SPDX-License-Identifier: MIT
// Room: convert. The names that a model gets in its folder, and those of the one that it replaces:
// they change together. The old ones wait in FOLDER/.replaced, with a record of every change, from
// which an error, or the next conversion after a kill, undoes them all. Not here: which names these
// are (megatron_target.h, trainer_source.h, hf_folder.h, tokenizer_files.h).
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace indexed {
class OutputFile;
}

namespace convert {

/// The name that is given last in a root of checkpoints, and in a folder for transformers.
inline constexpr const char* kTracker = "latest_checkpointed_iteration.txt";
inline constexpr const char* kConfig = "config.json";

/// Changes of names below a root, undone unless keep() ends them. `last` is the first name that is
/// taken and the last one that is given: while it is not there, the changes are unfinished.
class SetAside {
 public:
  /// Changes nothing yet. `last`: kTracker or kConfig.
  SetAside(const std::string& root, std::string last);
  /// Without keep(): undoes the changes, the last name's too, as far as the disk allows; the next
  /// conversion does the rest.
  ~SetAside();
  SetAside(const SetAside&) = delete;
  SetAside& operator=(const SetAside&) = delete;

  /// Sets `path`, below the root, aside if there is one; of a link the link itself.
  /// Errors: std::system_error.
  void take(const std::filesystem::path& path);

  /// Makes a folder, and those above it. Errors: std::system_error.
  void make_folders(const std::filesystem::path& path);

  /// Gives a finished file a name that is free. Errors: std::system_error, EEXIST if it is not.
  void name(const std::filesystem::path& file, const std::filesystem::path& path);

  /// The same, but one that is there already is replaced, and stays in the record as if it had
  /// always been there: the caller knows that it has the same bytes. Errors: std::system_error.
  void name_again(const std::filesystem::path& file, const std::filesystem::path& path);

  /// What is now called `unfinished` is about to get the name `path`. Errors: std::system_error.
  void expect(const std::filesystem::path& path, const std::filesystem::path& unfinished);

  /// Records that `file`, whose bytes are on the disk, is about to get the last name. After an
  /// error it loses that name. Errors: std::system_error.
  void expect_last(const indexed::OutputFile& file);

  /// Puts all names on the disk. After that only the last one may be given, and those that are
  /// expected. Errors: std::system_error.
  void end_names();

  /// end_names(), then gives a finished file the last name, on the disk, too. Errors: as of name().
  void name_last(const std::filesystem::path& file);

  /// The new model has all its names: removes what was set aside, as far as the disk allows.
  void keep() noexcept;

 private:
  void record(const std::string& change);
  void begin_record();
  void append(const std::string& change) const;

  std::filesystem::path root_, aside_;
  std::string last_;
  std::set<std::filesystem::path> changed_;  ///< Folders.
  int record_ = -1;
};

/// Whether a conversion that gives `last` last was killed among its changes of names in this
/// folder. Errors: std::system_error.
bool has_unfinished_changes(const std::string& root, const std::string& last);

/// Undoes what a killed conversion has changed in a root, if it had no time to give the last name:
/// the old model gets its names back, and what has a new name goes, if it is still the file that
/// the conversion named. The caller has the root's FolderLock. No effect where there is none.
/// Errors: std::system_error (EEXIST) where something else has the old model's name now.
void undo_killed(const std::string& root);

/// The names that undo_killed() would remove. Errors: std::system_error.
std::vector<std::string> names_of_killed(const std::string& root);

}  // namespace convert
