// SPDX-License-Identifier: MIT
// target_root.h: names in a root folder of checkpoints. A link counts as a link, wherever it leads:
// with --force it is replaced, so that what it leads to stays.
#include "convert/target_root.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "convert/megatron_source.h"
#include "convert/set_aside.h"
#include "libindexed/read_file.h"
#include "trainer/checkpoint/checkpoint.h"

namespace convert {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(int error, const fs::path& path, const std::string& why) {
  throw std::system_error(error, std::generic_category(), path.string() + ": " + why);
}

// Of the name itself, not of what a link leads to.
fs::file_type kind_of(const fs::path& path) {
  std::error_code none;
  return fs::symlink_status(path, none).type();
}
bool is_there(const fs::path& path) { return kind_of(path) != fs::file_type::not_found; }
bool is_own_folder(const fs::path& path) { return kind_of(path) == fs::file_type::directory; }

// Before names in a folder are changed.
void refuse_unwritable(const fs::path& folder) {
  if (is_own_folder(folder) && ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    throw std::system_error(errno, std::generic_category(), folder.string());
}

// Whether the readers of some form take an entry of this name for a checkpoint.
bool is_checkpoint_name(std::string_view name) {
  if (name == "release") return true;
  for (const std::string_view head : {"iter_", "global_step"}) {
    if (!name.starts_with(head)) continue;
    name.remove_prefix(head.size());
    return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
  }
  return false;
}

// Of a killed writer, or of a user, there may be folders without a file.
bool has_file(const fs::path& folder) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, none))
    if (entry.is_symlink(none) || !entry.is_directory(none)) return true;
  return static_cast<bool>(none);
}

void refuse_other_checkpoints(const fs::path& root, const std::string& own) {
  std::string other;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    std::error_code none;
    if (name != own && is_checkpoint_name(name) && entry.is_directory(none) &&
        has_file(entry.path()))
      other = std::max(other, name);
  }
  if (!other.empty())
    refuse(EEXIST, root / other,
           "another checkpoint, which would get the new one's tokenizer: not written, with or "
           "without --force");
}

// Files that a conversion did not write, and that are read with those it writes.
void refuse_other_files(const fs::path& folder, std::string_view own) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != own && !name.starts_with('.'))
      refuse(EEXIST, entry.path(), "not of a conversion: not replaced, with or without --force");
  }
}

void refuse_bad_release(const fs::path& root, bool replace) {
  if (is_there(root / "latest"))
    refuse(EEXIST, root / "latest", "DeepSpeed's tracker: would be read in place of Megatron-LM's");
  const fs::path folder = root / "release", rank = folder / "mp_rank_00";
  refuse_no_folder(folder.string(), replace);
  if (!is_own_folder(folder)) return;
  refuse_other_files(folder, "mp_rank_00");
  refuse_no_folder(rank.string(), replace);
  if (!is_own_folder(rank)) return;
  const fs::path file = rank / "model_optim_rng.pt";
  refuse_existing(file, replace);
  refuse_folder(file.string());
  refuse_other_files(rank, "model_optim_rng.pt");
}

void refuse_bad_iteration(const fs::path& folder, bool replace) {
  refuse_no_folder(folder, replace);
  if (!is_own_folder(folder) || fs::is_empty(folder)) return;
  if (!fs::exists(folder / "meta.json"))
    refuse(EEXIST, folder, "not the trainer's: not replaced, with or without --force");
  refuse_existing(folder / "meta.json", replace);
}

// The file's new text; null where it gets none.
const std::string* text_of(const TokenizerFiles& tokenizer, const std::string& name) {
  for (const std::vector<TokenizerFile>* files : {&tokenizer.files, &tokenizer.model_files})
    for (const TokenizerFile& file : *files)
      if (file.name == name) return &file.text;
  return nullptr;
}

// A killed conversion leaves some of its own files, which the same command finds again.
void refuse_bad_tokenizer(const fs::path& folder, const TokenizerFiles& tokenizer, bool replace) {
  refuse_no_folder(folder.string(), replace);
  if (!is_own_folder(folder)) return;
  refuse_no_folder((folder / kTemplatesFolder).string(), replace);
  for (const fs::path& changed : {folder, folder / kTemplatesFolder}) refuse_unwritable(changed);
  for (const std::vector<TokenizerFile>* files : {&tokenizer.files, &tokenizer.model_files})
    for (const TokenizerFile& file : *files) refuse_folder((folder / file.name).string());
  if (replace) return;
  std::vector<std::string> names = tokenizer_file_names(folder.string());
  for (const char* name : {"config.json", "generation_config.json"})
    if (fs::exists(folder / name)) names.push_back(name);
  for (const std::string& name : names) {
    const std::string* text = text_of(tokenizer, name);
    if (text == nullptr || fs::is_symlink(folder / name) ||
        indexed::read_file((folder / name).string()) != *text)
      refuse_existing(folder / name, false);
  }
}

}  // namespace

void refuse_existing(const std::string& path, bool replace) {
  if (!replace && is_there(path)) refuse(EEXIST, path, "not replaced without --force");
}

void refuse_no_folder(const std::string& path, bool replace) {
  const fs::file_type kind = kind_of(path);
  if (kind == fs::file_type::symlink) {
    if (!replace) refuse(EEXIST, path, "a link, not replaced without --force");
  } else if (kind != fs::file_type::not_found && kind != fs::file_type::directory) {
    refuse(ENOTDIR, path, "in the place of a folder");
  }
}

void refuse_folder(const std::string& path) {
  if (is_own_folder(path)) refuse(EISDIR, path, "in the place of a file");
}

void refuse_bad_root(const RootTarget& target, const TokenizerFiles& tokenizer) {
  const fs::path root(target.root);
  if (!fs::exists(root)) return;
  if (!fs::is_directory(root)) refuse(ENOTDIR, root, "in the place of a folder");
  if (trainer::is_checkpoint(root) || is_megatron_checkpoint(root))
    refuse(EEXIST, root, "is a checkpoint itself: name the folder that holds it, or another");
  refuse_other_checkpoints(root, target.checkpoint);
  const fs::path tracker = root / "latest_checkpointed_iteration.txt";
  refuse_existing(tracker, target.replace);
  refuse_folder(tracker.string());
  if (target.checkpoint == "release")
    refuse_bad_release(root, target.replace);
  else
    refuse_bad_iteration(root / target.checkpoint, target.replace);
  refuse_bad_tokenizer(root / "tokenizer", tokenizer, target.replace);
}

FolderLock::FolderLock(const std::string& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), folder);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  refuse(EBUSY, folder, "another conversion is writing there");
}

FolderLock::~FolderLock() { ::close(descriptor_); }

namespace {

// A trainer takes its checkpoints' tokenizer from beside them.
void refuse_running_trainer(const std::string& root) {
  const int lock = ::open((root + "/.trainer.lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (lock < 0) return;
  const bool is_held = ::flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(lock);
  if (is_held) refuse(EBUSY, root, "a trainer is saving there");
}

}  // namespace

std::unique_ptr<FolderLock> open_root(const RootTarget& target, const TokenizerFiles& tokenizer) {
  if (!fs::is_directory(target.root)) {
    refuse_bad_root(target, tokenizer);
    fs::create_directories(target.root);
  }
  auto lock = std::make_unique<FolderLock>(target.root);
  refuse_running_trainer(target.root);
  undo_killed(target.root);
  refuse_bad_root(target, tokenizer);
  return lock;
}

}  // namespace convert
