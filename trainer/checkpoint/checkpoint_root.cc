// See checkpoint.h: writing. The order of the last steps is guaranteed: shard files are on disk,
// meta.json is on disk, the folder gets its name, the tracker is replaced, and only then older
// folders are removed.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "libindexed/message.h"
#include "libindexed/output_file.h"
#include "libindexed/sync_folder.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/meeting.h"
#include "trainer/checkpoint/shard_files.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using indexed::message;

/// How long another rank's shards may be invisible on this host.
constexpr std::chrono::seconds kMostDelay{60};
/// How often to look again meanwhile.
constexpr std::chrono::milliseconds kLookAgain{50};
/// How the name of a FolderMark begins.
constexpr std::string_view kMark = ".start_";

[[noreturn]] void fail(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

// The entries of a folder, as far as it can be read.
std::vector<fs::path> entries(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) found.push_back(at->path());
  return found;
}

// An unfinished folder, removed on every exit except after release().
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  ~TemporaryFolder() {
    std::error_code ignored;  // the next save tries again.
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  void release() { path_.clear(); }

 private:
  std::string path_;
};

// Creates the folder; if several ranks share it, the first one does.
void make_temporary(const std::string& path, bool shared) {
  if (::mkdir(path.c_str(), 0777) == 0 || (shared && errno == EEXIST)) return;
  if (errno != EEXIST) fail(path);
  fs::remove_all(path);
  if (::mkdir(path.c_str(), 0777) != 0) fail(path);
}

bool is_temporary(const std::string& name) {
  const bool ours = name.starts_with(".iter_") || name.starts_with(kMark);
  return ours && name.ends_with(".tmp");
}

// A folder that no trainer of ours wrote, such as Megatron's of the same iteration, must not be
// removed: it is renamed to a free name beside it.
void set_aside_foreign(const std::string& path) {
  if (!fs::exists(path) || is_certainly_checkpoint(path)) return;
  std::string aside = path + ".set_aside";
  for (int i = 2; fs::exists(aside); ++i) aside = message(path, ".set_aside.", i);
  if (::rename(path.c_str(), aside.c_str()) != 0) fail(path);
}

// Renames `from` to `to`. An older checkpoint of that name is exchanged with it atomically, if the
// file system can do that, and removed.
void put_in_place(const std::string& from, const std::string& to) {
  set_aside_foreign(to);
  std::error_code ignored;  // the next save removes what is left of the older folder.
  struct stat about {};
  if (::lstat(to.c_str(), &about) != 0) {
    if (errno != ENOENT || ::rename(from.c_str(), to.c_str()) != 0) fail(to);
    return;
  }
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(from, ignored);
    return;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) fail(to);
  const std::string old = from + ".old.tmp";
  if (::rename(to.c_str(), old.c_str()) != 0) fail(to);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    ::rename(old.c_str(), to.c_str());
    errno = error;
    fail(to);
  }
  fs::remove_all(old, ignored);
}

void refuse_full_disk(const std::string& path, const std::vector<ShardSource>& shards) {
  uint64_t needed = 1 << 20;
  for (const ShardSource& shard : shards) needed += static_cast<uint64_t>(shard.size_bytes());
  struct statvfs space {};
  if (::statvfs(path.c_str(), &space) != 0) return;
  const uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
  if (free < needed) {
    throw std::system_error(ENOSPC, std::generic_category(),
                            message(path, ": this rank's part of a checkpoint takes ", needed >> 20,
                                    " MiB, ", free >> 20, " MiB are free"));
  }
}

// A killed writer may have left a file of that name.
std::unique_ptr<SafetensorsWriter> create(const std::string& path,
                                          std::vector<TensorEntry> tensors) {
  return std::make_unique<SafetensorsWriter>(path, std::move(tensors), kShardMetadata,
                                             indexed::Existing::replace);
}

// Files that other ranks have written must be visible here too; a network file system may show them
// late.
void expect_files(const CheckpointMeta& meta, const std::string& folder,
                  std::chrono::seconds patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::min(patience, kMostDelay);
  for (const auto& [name, bytes] : meta.files) {
    const std::string path = folder + "/" + name;
    struct stat about {};
    while (::stat(path.c_str(), &about) != 0 || about.st_size != bytes) {
      const bool absent = about.st_nlink == 0;
      if (absent && errno != ENOENT) fail(path);
      if (Clock::now() >= end)
        throw std::runtime_error(
            message(path, absent ? ": is not here" : ": has another size here",
                    ", though its rank wrote it: --save must be one folder for all hosts"));
      std::this_thread::sleep_for(kLookAgain);
      about = {};
    }
  }
}

// Removes files of a killed or slow writer from a folder that is about to get its name.
void remove_strangers(const CheckpointMeta& meta, const std::string& folder) {
  std::error_code ignored;
  for (const fs::path& path : entries(folder))
    if (!meta.files.contains(path.filename().string())) fs::remove_all(path, ignored);
}

// In a root that was copied with links it may be another run's.
void write_tracker(const std::string& root, int64_t iteration) {
  indexed::OutputFile out(root + "/latest_checkpointed_iteration.txt",
                          indexed::Existing::replace_link);
  out.write(std::to_string(iteration));
  out.commit();
}

// Removes a checkpoint so that an incomplete one never has its name.
void remove_checkpoint(const std::string& root, int64_t iteration) {
  const std::string folder = iteration_folder(root, iteration);
  const std::string doomed = root + "/." + fs::path(folder).filename().string() + ".old.tmp";
  fs::remove_all(doomed);
  if (::rename(folder.c_str(), doomed.c_str()) != 0) fail(folder);
  fs::remove_all(doomed);
}

}  // namespace

// The temporary file of an output that is never completed: it goes however this process ends.
FolderMark::FolderMark(const std::string& root, const std::string& word)
    : name_(message(kMark, word, ".", ::getpid(), ".tmp")),
      file_(std::make_unique<indexed::OutputFile>(message(root, "/", kMark.substr(1), word))) {}

FolderMark::~FolderMark() = default;

bool sees_mark(const std::string& root, const std::string& name,
               std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const std::string path = root + "/" + name;
  const Clock::time_point end = Clock::now() + patience;
  struct stat about {};
  while (::stat(path.c_str(), &about) != 0) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(kLookAgain);
  }
  return true;
}

int64_t ShardSource::size_bytes() const {
  if (!read) return static_cast<int64_t>(bytes.size());
  return safetensors_bytes(dtype, std::vector<int64_t>{piece.count});
}

CheckpointRoot::CheckpointRoot(std::string path, const WriterPlace& place, bool only_own)
    : path_(std::move(path)), place_(place), only_own_(only_own) {
  if (place_.rank > 0) return;
  fs::create_directories(path_);
  const std::string lock_path = path_ + "/.trainer.lock";
  const auto open_lock = [&] {
    return ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  };
  lock_ = open_lock();
  if (lock_ < 0 && errno == ELOOP) {  // a folder copied with links has another run's.
    std::error_code ignored;
    fs::remove(lock_path, ignored);
    lock_ = open_lock();
  }
  if (lock_ < 0) fail(lock_path);
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    struct stat about {};
    const bool is_shared = ::fstat(lock_, &about) == 0 && about.st_nlink > 1;
    ::close(lock_);
    throw std::runtime_error(path_ + ": another trainer is saving there" +
                             (is_shared
                                  ? message(", or in a folder that shares ", lock_path,
                                            " with it by a hard link: then remove this file here")
                                  : ""));
  }
  remove_leftovers("");
}

CheckpointRoot::~CheckpointRoot() {
  if (lock_ >= 0) ::close(lock_);
}

// Removes temporary folders, except `but`. What cannot be removed is left for the next save.
void CheckpointRoot::remove_leftovers(const std::string& but) const {
  std::error_code ignored;
  for (const fs::path& path : entries(path_))
    if (is_temporary(path.filename().string()) && path != but) fs::remove_all(path, ignored);
}

std::string CheckpointRoot::describe(const std::exception& error) const {
  return place_.describe ? place_.describe(error) : error.what();
}

void CheckpointRoot::commit(const CheckpointMeta& meta, const std::string& temporary) {
  const int64_t iteration = meta.state.iteration;
  indexed::OutputFile record(temporary + "/meta.json", indexed::Existing::replace);
  record.write(format_meta(meta));
  record.commit();  // its folder is on the disk now, too.
  const std::string folder = iteration_folder(path_, iteration);
  if (place_.before_naming) place_.before_naming(temporary);
  {
    const indexed::NamingSection naming;  // one rank's files may be going: see save().
    put_in_place(temporary, folder);
  }
  written_.insert(iteration);
  try {
    if (const int error = indexed::sync_folder(path_); error != 0)
      throw std::system_error(error, std::generic_category(), path_);
    write_tracker(path_, iteration);
  } catch (const std::exception& error) {
    if (place_.before_naming) throw;
    throw std::runtime_error(
        message(describe(error), " (", folder, " is whole, but the tracker may not name it)"));
  }
}

// One that cannot be read is nobody's, or another program's.
bool CheckpointRoot::removable(int64_t iteration, const std::string& run) const {
  if (!is_certainly_checkpoint(iteration_folder(path_, iteration))) return false;
  if (!only_own_ || written_.contains(iteration)) return true;
  try {
    return !run.empty() && Checkpoint::open(iteration_folder(path_, iteration)).meta().run == run;
  } catch (const std::exception&) {
    return false;
  }
}

std::string CheckpointRoot::remove_older(const CheckpointMeta& newest, int64_t keep_last) const {
  if (keep_last == 0) return "";
  try {
    std::vector<int64_t> stored = stored_iterations(path_);
    std::erase_if(stored, [&](int64_t other) {
      return other > newest.state.iteration || !removable(other, newest.run);
    });
    for (size_t i = 0; i + static_cast<size_t>(keep_last) < stored.size(); ++i)
      remove_checkpoint(path_, stored[i]);
  } catch (const std::exception& error) {
    return describe(error);
  }
  return "";
}

std::string CheckpointRoot::save(CheckpointMeta meta, const std::vector<ShardSource>& shards,
                                 int64_t keep_last, const std::string& failure) {
  const bool many = place_.world > 1;
  const int64_t iteration = meta.state.iteration;
  const std::string name = fs::path(iteration_folder(path_, iteration)).filename().string();
  const std::string path = many ? message(path_, "/.", name, ".tmp")
                                : message(path_, "/.", name, ".", ::getpid(), ".tmp");
  meta.files.clear();
  meta.tensors.clear();
  Meeting meeting(++saves_, place_);
  TemporaryFolder folder(path);  // rank 0 removes it if anything fails.
  if (place_.rank > 0) folder.release();
  // Where several ranks save, one that ends takes nothing away: another may name the folder.
  std::vector<indexed::RemoveOnSignal> unnamed;
  const auto goes_at_signal = [&](const std::string& what) {
    if (!many) unnamed.emplace_back(what);
  };
  std::string why = failure;
  try {
    if (!failure.empty()) throw std::runtime_error(failure);
    goes_at_signal(path);
    make_temporary(path, many);
    if (place_.rank == 0) remove_leftovers(path);
    refuse_full_disk(path_, shards);
    write_shard_files(meta, place_.rank,
                      {.shards = shards,
                       .open =
                           [&](const std::string& file, std::vector<TensorEntry> tensors) {
                             goes_at_signal(message(path, "/", file));
                             return create(message(path, "/", file), std::move(tensors));
                           },
                       .given_up = [&] { return many && meeting.given_up(); },
                       .threads = many ? 1 : place_.threads});
  } catch (const std::exception& error) {
    if (!many) throw;
    why = describe(error);
  }
  if (place_.rank > 0) {
    meeting.report_and_wait(meta, why);
    return "";
  }
  if (many) meeting.gather(meta, why);
  try {
    if (many) {
      expect_files(meta, path, place_.patience);
      remove_strangers(meta, path);
    }
    goes_at_signal(path + "/meta.json");
    commit(meta, path);
  } catch (const std::exception& error) {
    if (!many) throw;
    meeting.drop(message(meeting.name(0), ": ", describe(error)));
  }
  folder.release();
  if (many) meeting.tell("");
  return remove_older(meta, keep_last);
}

}  // namespace trainer
