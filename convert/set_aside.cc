// SPDX-License-Identifier: MIT
// set_aside.h: renames within one root, and their reverse. Each change is on the disk in the record
// before it is made; its reverse has no effect where it was not made, or is undone already. So a
// kill at any point, among the reverses too, leaves what the next conversion can undo.
#include "convert/set_aside.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "convert/file_identity.h"
#include "libindexed/output_file.h"
#include "libindexed/read_file.h"
#include "libindexed/sync_folder.h"
#include "trainer/checkpoint/killed_conversion.h"

namespace convert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = trainer::kReplaced;
constexpr const char* kRecord = trainer::kChanges;
constexpr const char* kRemoved = ".removed";
/// A kFolder that is no longer needed is renamed to this, or to this and a number.
constexpr const char* kDone = ".replaced.done";

/// How a change begins in the record; its path below the root and a NUL follow, and before the path
/// of a new name the identity of what has it. Before all changes stands the last name.
constexpr std::string_view kLast = "last ", kTaken = "taken ", kMade = "made ", kNamed = "named ";

/// What the record has when all names but the last are given or expected; when the last is given.
constexpr std::string_view kAll = "all", kFinished = "finished";

[[noreturn]] void fail(const fs::path& path) {
  throw std::system_error(errno, std::generic_category(), path.string());
}

// Of the name itself, not of what a link leads to. Errors: all but that there is none.
fs::file_type kind_of(const fs::path& path) { return fs::symlink_status(path).type(); }
bool is_there(const fs::path& path) { return kind_of(path) != fs::file_type::not_found; }

// The changes in a record, without what a kill has cut off.
std::vector<std::string> changes_in(const fs::path& record) {
  std::vector<std::string> changes;
  const std::string text = indexed::read_file(record.string());
  for (size_t at = 0, end; (end = text.find('\0', at)) != text.npos; at = end + 1)
    changes.push_back(text.substr(at, end - at));
  return changes;
}

// Whether there are files beside this one, or below.
bool has_file_but(const fs::path& record) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(record.parent_path()))
    if (entry.path() != record && (entry.is_symlink() || !entry.is_directory())) return true;
  return false;
}

// Gives a file a name that is free.
void rename_to_free(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) fail(to);  // a file system without it
  if (is_there(to)) throw std::system_error(EEXIST, std::generic_category(), to.string());
  fs::rename(from, to);
}

fs::path path_of(const fs::path& root, std::string_view change) {
  if (change == kAll || change == kFinished) return {};
  size_t at = change.find(' ') + 1;
  if (change.starts_with(kNamed)) at = change.find(' ', at) + 1;
  return root / change.substr(at);
}

// Whether a name is that of the file that the conversion named, and of no other since.
bool is_own_name(const fs::path& path, std::string_view change) {
  const std::string identity = file_identity(path);
  return change.starts_with(kNamed) && !identity.empty() &&
         change.substr(kNamed.size()).starts_with(identity + " ");
}

// The record of a conversion, finished or not; "" if there is none.
fs::path record_in(const fs::path& root) {
  const fs::path record = root / kFolder / kRecord;
  const bool there = kind_of(root / kFolder) == fs::file_type::directory &&
                     kind_of(record) == fs::file_type::regular;
  return there ? record : fs::path();
}

// Records of earlier versions do not say it.
std::string last_name(const std::vector<std::string>& changes) {
  return !changes.empty() && changes[0].starts_with(kLast) ? changes[0].substr(kLast.size())
                                                           : kTracker;
}

bool has(const std::vector<std::string>& changes, std::string_view mark) {
  return std::ranges::find(changes, mark) != changes.end();
}

// Whether a name is one that the conversion gave, or a folder that it made and that has no others.
bool is_own(const fs::path& root, const std::vector<std::string>& changes, const fs::path& path) {
  bool made = false;
  for (const std::string& change : changes) {
    if (path_of(root, change) != path) continue;
    if (is_own_name(path, change)) return true;
    made = made || change.starts_with(kMade);
  }
  if (!made || kind_of(path) != fs::file_type::directory) return false;
  return std::ranges::all_of(fs::directory_iterator(path), [&](const fs::directory_entry& entry) {
    return is_own(root, changes, entry.path());
  });
}

// Whether all names were given. Where no old model would come back, a file of the last name is
// enough, if the others are there or a tracker says so: it may have been edited since. Otherwise it
// must be the file that the conversion named. Of a tracker that trainer::CheckpointRoot wrote there
// is no record: then all others must be.
bool is_finished(const fs::path& root, const std::vector<std::string>& changes) {
  const std::string last = last_name(changes);
  if (has(changes, kFinished)) return true;
  if (changes.size() < 2 || !is_there(root / last)) return false;
  const bool all = has(changes, kAll);
  if (!has(changes, std::string(kTaken) + last)) return all || last == kTracker;
  if (!all) return false;
  bool all_own = true;
  for (const std::string& change : changes) {
    if (!change.starts_with(kNamed)) continue;
    const fs::path path = path_of(root, change);
    if (path == root / last) return is_own_name(path, change);
    all_own = all_own && is_own_name(path, change);
  }
  return all_own;
}

// The record of a conversion that was killed before it had given the last name; "" if none.
fs::path record_of_killed(const fs::path& root) {
  const fs::path record = record_in(root);
  return record.empty() || is_finished(root, changes_in(record)) ? fs::path() : record;
}

void give_back(const fs::path& root, const std::string& change) {
  const std::string_view what(change);
  const fs::path path = path_of(root, change);
  if (what.starts_with(kMade)) {
    std::error_code ignored;  // one that is not empty any more stays
    if (kind_of(path) == fs::file_type::directory) fs::remove(path, ignored);
  } else if (what.starts_with(kNamed)) {
    // A folder is no longer known as its own once a file in it is gone.
    const fs::path removed = root / kFolder / kRemoved;
    fs::remove_all(removed);
    if (is_own_name(path, change)) fs::rename(path, removed);
    fs::remove_all(removed);
  } else if (what.starts_with(kTaken)) {
    const fs::path old = root / kFolder / path.lexically_relative(root);
    if (!is_there(old)) return;
    fs::create_directories(path.parent_path());
    rename_to_free(old, path);
  }
}

// Before anything is undone: what somebody has put in the place of the old model's.
void refuse_others(const fs::path& root, const std::vector<std::string>& changes) {
  for (const std::string& change : changes) {
    if (!change.starts_with(kTaken)) continue;
    const fs::path path = path_of(root, change);
    const fs::path old = root / kFolder / path.lexically_relative(root);
    if (is_there(old) && is_there(path) && !is_own(root, changes, path))
      throw std::system_error(EEXIST, std::generic_category(),
                              path.string() + ": in the place of the old model's, which a killed " +
                                  "conversion has moved to " + old.string() +
                                  ": remove one of the two");
  }
}

// Removes the folders that begin with kDone and have a record, which goes last. Errors are ignored.
void remove_done(const fs::path& root) noexcept {
  std::error_code ignored;
  for (fs::directory_iterator at(root, ignored), end; at != end; at.increment(ignored)) {
    if (ignored) return;
    const fs::path folder = at->path();
    if (!folder.filename().string().starts_with(kDone) || !fs::exists(folder / kRecord, ignored))
      continue;
    bool is_empty = true;
    for (fs::directory_iterator in(folder, ignored); in != end; in.increment(ignored)) {
      if (ignored) return;
      if (in->path().filename() == kRecord) continue;
      fs::remove_all(in->path(), ignored);
      is_empty = is_empty && !ignored;
    }
    if (is_empty) fs::remove_all(folder, ignored);
  }
}

// Renames a kFolder to kDone, from which on nobody reads it, and removes it if the disk allows.
void discard(const fs::path& root, const fs::path& folder) {
  fs::path done = root / kDone;
  for (int i = 2; is_there(done); ++i) done = root / (kDone + ("." + std::to_string(i)));
  fs::rename(folder, done);
  indexed::sync_folder(root);
  remove_done(root);
}

}  // namespace

SetAside::SetAside(const std::string& root, std::string last)
    : root_(root), aside_(root_ / kFolder), last_(std::move(last)) {}

SetAside::~SetAside() {
  if (record_ < 0) return;
  ::close(record_);
  try {
    // An error after the last name: it must go, or the changes count as finished.
    for (const std::string& change : changes_in(aside_ / kRecord))
      if (path_of(root_, change) == root_ / last_ && is_own_name(root_ / last_, change))
        fs::remove(root_ / last_);
    undo_killed(root_.string());
  } catch (const std::exception&) {  // the error that led here is told
  }
}

void SetAside::begin_record() {
  undo_killed(root_.string());
  // A finished conversion's goes, and an empty one. Any other is somebody else's, and is renamed.
  const bool is_folder = kind_of(aside_) == fs::file_type::directory;
  if (is_folder && !record_in(root_).empty()) discard(root_, aside_);
  if (is_folder && is_there(aside_) && fs::is_empty(aside_)) fs::remove(aside_);
  fs::path free = aside_;
  for (int i = 2; is_there(free); ++i) free = aside_.string() + "." + std::to_string(i);
  if (free != aside_) fs::rename(aside_, free);
  fs::create_directory(aside_);
  const fs::path path = aside_ / kRecord;
  record_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (record_ < 0) {
    const int error = errno;
    std::error_code ignored;
    fs::remove(aside_, ignored);
    throw std::system_error(error, std::generic_category(), path.string());
  }
  append(std::string(kLast) + last_);
}

void SetAside::append(const std::string& change) const {
  const ssize_t size = static_cast<ssize_t>(change.size()) + 1;
  errno = ENOSPC;  // where only some bytes are written
  if (::write(record_, change.c_str(), change.size() + 1) != size || ::fdatasync(record_) != 0)
    fail(aside_ / kRecord);
}

void SetAside::record(const std::string& change) {
  if (record_ < 0) begin_record();
  append(change);
}

void SetAside::take(const fs::path& path) {
  if (!is_there(path)) return;
  const fs::path name = path.lexically_relative(root_);
  record(std::string(kTaken) + name.string());
  const fs::path old = aside_ / name;
  fs::create_directories(old.parent_path());
  changed_.insert({path.parent_path(), old.parent_path()});
  fs::rename(path, old);
}

void SetAside::make_folders(const fs::path& path) {
  if (path.empty() || fs::is_directory(path)) return;
  make_folders(path.parent_path());
  record(std::string(kMade) + path.lexically_relative(root_).string());
  changed_.insert(path.parent_path());
  fs::create_directory(path);
}

void SetAside::name(const fs::path& file, const fs::path& path) {
  expect(path, file);
  changed_.insert(path.parent_path());
  rename_to_free(file, path);
}

void SetAside::name_again(const fs::path& file, const fs::path& path) {
  if (!is_there(path)) return name(file, path);
  changed_.insert(path.parent_path());
  fs::rename(file, path);
}

void SetAside::expect(const fs::path& path, const fs::path& unfinished) {
  record(std::string(kNamed) + file_identity(unfinished) + " " +
         path.lexically_relative(root_).string());
}

void SetAside::expect_last(const indexed::OutputFile& file) {
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) fail(file.path());
  record(std::string(kNamed) + file_identity(info) + " " + last_);
}

void SetAside::end_names() {
  for (const fs::path& folder : changed_)
    if (const int error = fs::is_directory(folder) ? indexed::sync_folder(folder) : 0; error != 0)
      throw std::system_error(error, std::generic_category(), folder.string());
  record(std::string(kAll));
}

void SetAside::name_last(const fs::path& file) {
  const fs::path path = root_ / last_;
  expect(path, file);
  end_names();
  rename_to_free(file, path);
  if (const int error = indexed::sync_folder(root_); error != 0)
    throw std::system_error(error, std::generic_category(), root_.string());
}

void SetAside::keep() noexcept {
  if (record_ < 0) return;
  try {
    append(std::string(kFinished));
  } catch (const std::exception&) {  // the names say so, too
  }
  ::close(record_);
  record_ = -1;
  try {
    discard(root_, aside_);
  } catch (const std::exception&) {  // the next conversion does it
  }
}

bool has_unfinished_changes(const std::string& root, const std::string& last) {
  const fs::path record = record_of_killed(root);
  return !record.empty() && last_name(changes_in(record)) == last;
}

void undo_killed(const std::string& root) {
  remove_done(root);
  const fs::path record = record_of_killed(root);
  if (record.empty()) return;
  const std::vector<std::string> changes = changes_in(record);
  refuse_others(root, changes);
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) give_back(root, *change);
  if (has_file_but(record))
    fs::remove(record);
  else
    discard(root, record.parent_path());
}

std::vector<std::string> names_of_killed(const std::string& root) {
  std::vector<std::string> names;
  const fs::path record = record_of_killed(root);
  if (record.empty()) return names;
  for (const std::string& change : changes_in(record))
    if (const fs::path path = path_of(root, change); is_own_name(path, change))
      names.push_back(path.string());
  return names;
}

}  // namespace convert
