// SPDX-License-Identifier: MIT
// set_aside.h: renames within one root, and their reverse. Each change is on the disk in the record
// before it is made; its reverse has no effect where it was not made, or is undone already. So a
// kill at any point, among the reverses too, leaves what the next conversion can undo.
#include "convert/set_aside.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <vector>

#include "convert/file_identity.h"
#include "libindexed/read_file.h"

namespace convert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = ".replaced";
constexpr const char* kRecord = ".changes";
constexpr const char* kTracker = "latest_checkpointed_iteration.txt";

/// How a change begins in the record; its path below the root and a NUL follow, and before the path
/// of a new name the identity of what has it.
constexpr std::string_view kTaken = "taken ", kMade = "made ", kNamed = "named ";

[[noreturn]] void fail(const fs::path& path) {
  throw std::system_error(errno, std::generic_category(), path.string());
}

// Of the name itself, not of what a link leads to.
fs::file_type kind_of(const fs::path& path) {
  std::error_code none;
  return fs::symlink_status(path, none).type();
}
bool is_there(const fs::path& path) { return kind_of(path) != fs::file_type::not_found; }

// The changes in a record, without what a kill has cut off.
std::vector<std::string> changes_in(const fs::path& record) {
  std::vector<std::string> changes;
  const std::string text = indexed::read_file(record.string());
  for (size_t at = 0, end; (end = text.find('\0', at)) != text.npos; at = end + 1)
    changes.push_back(text.substr(at, end - at));
  return changes;
}

// Puts a folder's names on the disk, if the disk can.
void sync_folder(const fs::path& folder) noexcept {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

bool has_file(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_symlink() || !entry.is_directory()) return true;
  return false;
}

fs::path path_of(const fs::path& root, std::string_view change) {
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

// The record of a conversion that was killed before it had named the tracker; "" if there is none.
fs::path record_of_killed(const fs::path& root) {
  const fs::path record = root / kFolder / kRecord;
  const bool there = kind_of(root / kFolder) == fs::file_type::directory &&
                     kind_of(record) == fs::file_type::regular;
  return there && !is_there(root / kTracker) ? record : fs::path();
}

void give_back(const fs::path& root, const std::string& change) {
  const std::string_view what(change);
  const fs::path path = path_of(root, change);
  if (what.starts_with(kMade)) {
    std::error_code ignored;  // one that is not empty any more stays
    if (kind_of(path) == fs::file_type::directory) fs::remove(path, ignored);
  } else if (what.starts_with(kNamed)) {
    if (is_own_name(path, change)) fs::remove_all(path);
  } else if (what.starts_with(kTaken)) {
    const fs::path old = root / kFolder / path.lexically_relative(root);
    if (!is_there(old)) return;
    if (is_there(path))
      throw std::system_error(EEXIST, std::generic_category(),
                              path.string() + ": in the place of the old model's, which a killed " +
                                  "conversion has moved to " + old.string() +
                                  ": remove one of the two");
    fs::create_directories(path.parent_path());
    fs::rename(old, path);
  }
}

}  // namespace

SetAside::SetAside(const std::string& root) : root_(root), aside_(root_ / kFolder) {}

SetAside::~SetAside() {
  if (record_ < 0) return;
  ::close(record_);
  try {
    undo_killed(root_.string());
  } catch (const std::exception&) {  // the error that led here is told
  }
}

void SetAside::record(const std::string& change) {
  const fs::path path = aside_ / kRecord;
  if (record_ < 0) {
    // Of a conversion that had its tracker; what else is there is not known, and stays.
    if (is_there(root_ / kTracker)) fs::remove_all(aside_);
    fs::path free = aside_;
    for (int i = 2; is_there(free); ++i) free = aside_.string() + "." + std::to_string(i);
    if (free != aside_) fs::rename(aside_, free);
    fs::create_directory(aside_);
    record_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (record_ < 0) fail(path);
  }
  const ssize_t size = static_cast<ssize_t>(change.size()) + 1;
  errno = ENOSPC;  // where only some bytes are written
  if (::write(record_, change.c_str(), change.size() + 1) != size || ::fdatasync(record_) != 0)
    fail(path);
}

void SetAside::take(const fs::path& path) {
  if (!is_there(path)) return;
  const fs::path name = path.lexically_relative(root_);
  record(std::string(kTaken) + name.string());
  const fs::path old = aside_ / name;
  fs::create_directories(old.parent_path());
  fs::rename(path, old);
}

void SetAside::make_folders(const fs::path& path) {
  if (path.empty() || fs::is_directory(path)) return;
  make_folders(path.parent_path());
  record(std::string(kMade) + path.lexically_relative(root_).string());
  fs::create_directory(path);
}

void SetAside::name(const fs::path& file, const fs::path& path) {
  if (!is_there(path)) expect(path, file);
  fs::rename(file, path);
}

void SetAside::expect(const fs::path& path, const fs::path& unfinished) {
  record(std::string(kNamed) + file_identity(unfinished) + " " +
         path.lexically_relative(root_).string());
}

void SetAside::keep() noexcept {
  std::error_code ignored;
  if (record_ >= 0) ::close(record_);
  record_ = -1;
  // First, and on the disk: without it nothing is undone.
  fs::remove(aside_ / kRecord, ignored);
  sync_folder(aside_);
  fs::remove_all(aside_, ignored);
}

void undo_killed(const std::string& root) {
  const fs::path record = record_of_killed(root);
  if (record.empty()) return;
  const std::vector<std::string> changes = changes_in(record);
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) give_back(root, *change);
  fs::remove(record);
  if (!has_file(record.parent_path())) fs::remove_all(record.parent_path());
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
