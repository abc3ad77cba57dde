// See checkpoint.h: writing. The order of the last acts is the promise: shard files are on disk,
// meta.json is on disk, the folder gets its name, the tracker is replaced, and only then older
// folders go.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "libindexed/crc32c.h"
#include "libindexed/message.h"
#include "libindexed/output_file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/meeting.h"
#include "trainer/checkpoint/safetensors.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using indexed::message;

[[noreturn]] void fail(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

void sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(path);
  const int result = ::fsync(fd);
  const int saved = errno;
  ::close(fd);
  errno = saved;
  if (result != 0) fail(path);
}

// A half-written folder, removed on every way out but release(). Of several ranks' one, whoever
// comes first makes it.
class TemporaryFolder {
 public:
  TemporaryFolder(std::string path, bool shared) : path_(std::move(path)) {
    if (!shared) fs::remove_all(path_);
    if (::mkdir(path_.c_str(), 0777) != 0 && !(shared && errno == EEXIST)) fail(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  void release() { path_.clear(); }

 private:
  std::string path_;
};

bool is_temporary(const std::string& name) {
  return name.starts_with(".iter_") && name.ends_with(".tmp");
}

// A folder that no trainer of ours wrote, such as Megatron's of the same iteration, is not ours to
// remove: it takes a free name beside.
void set_aside_foreign(const std::string& path) {
  if (!fs::exists(path) || fs::exists(path + "/meta.json")) return;
  std::string aside = path + ".set_aside";
  for (int i = 2; fs::exists(aside); ++i) aside = message(path, ".set_aside.", i);
  if (::rename(path.c_str(), aside.c_str()) != 0) fail(path);
}

// Gives `from` the name `to`. An older checkpoint of that name takes `from`'s in the same instant
// where the file system can do that, and is removed.
void put_in_place(const std::string& from, const std::string& to) {
  set_aside_foreign(to);
  if (!fs::exists(to)) {
    if (::rename(from.c_str(), to.c_str()) != 0) fail(to);
    return;
  }
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(from);
    return;
  }
  const std::string old = from + ".old.tmp";
  if (::rename(to.c_str(), old.c_str()) != 0) fail(to);
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to);
  fs::remove_all(old);
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

// Bytes at .. at + size of a shard: where they lie, or filled into `memory`.
std::span<const std::byte> block_of(const ShardSource& shard, int64_t at, int64_t size,
                                    std::vector<std::byte>& memory) {
  if (!shard.fill) return shard.bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(size));
  memory.resize(static_cast<size_t>(size));
  shard.fill(at, memory);
  return memory;
}

// Writes the shards of one file and notes them in meta.
void write_file(CheckpointMeta& meta, const std::string& folder, const std::string& name,
                const std::vector<const ShardSource*>& shards) {
  std::vector<TensorEntry> entries;
  std::vector<std::string> keys;
  for (const ShardSource* shard : shards) {
    std::string key = shard->group == "model" ? shard->name : shard->group + "." + shard->name;
    const bool whole = shard->piece == Piece::whole(shard->whole_shape);
    if (!whole)
      key += message("@", shard->piece.offsets.empty() ? 0 : shard->piece.offsets[0], ".",
                     shard->piece.offsets.size() > 1 ? shard->piece.offsets[1] : 0, ".",
                     shard->piece.first);
    const bool is_box =
        shard->piece.first == 0 && shard->piece.count == Piece::whole(shard->piece.shape).count;
    entries.push_back(
        {.name = key,
         .dtype = shard->dtype,
         .shape = is_box ? shard->piece.shape : std::vector<int64_t>{shard->piece.count}});
    keys.push_back(std::move(key));
  }
  SafetensorsWriter writer(folder + "/" + name, entries, {{"format", "pt"}});
  std::vector<std::byte> memory;
  for (size_t i = 0; i < shards.size(); ++i) {
    const ShardSource& shard = *shards[i];
    ShardRecord record{name, keys[i], shard.piece, {}};
    const int64_t size = shard.size_bytes();
    for (int64_t at = 0; at < size; at += kChecksumBlock_bytes) {
      const std::span<const std::byte> block =
          block_of(shard, at, std::min(kChecksumBlock_bytes, size - at), memory);
      record.crc32c.push_back(indexed::crc32c(0, block));
      writer.append(keys[i], block);
    }
    TensorRecord* tensor = const_cast<TensorRecord*>(meta.find(shard.group, shard.name));
    if (!tensor) {
      meta.tensors.push_back({shard.group, shard.name, shard.dtype, shard.whole_shape, {}});
      tensor = &meta.tensors.back();
    }
    tensor->shards.push_back(std::move(record));
  }
  meta.files[name] = writer.file_bytes();
  writer.commit();
}

// This rank's files.
void write_files(CheckpointMeta& meta, const std::string& folder, int rank,
                 const std::vector<ShardSource>& shards) {
  std::vector<const ShardSource*> weights, others;
  for (const ShardSource& shard : shards)
    (shard.group == "model" ? weights : others).push_back(&shard);
  char head[32];
  std::snprintf(head, sizeof head, "rank_%05d_", rank);
  if (!weights.empty()) write_file(meta, folder, message(head, "model.safetensors"), weights);
  if (!others.empty()) write_file(meta, folder, message(head, "optimizer.safetensors"), others);
}

void write_tracker(const std::string& root, int64_t iteration) {
  indexed::OutputFile out(root + "/latest_checkpointed_iteration.txt", indexed::Existing::replace);
  out.write(std::to_string(iteration));
  out.commit();
}

// Removes a whole checkpoint so that no half of it ever stands under its name.
void remove_checkpoint(const std::string& root, int64_t iteration) {
  const std::string folder = iteration_folder(root, iteration);
  const std::string doomed = root + "/." + fs::path(folder).filename().string() + ".old.tmp";
  fs::remove_all(doomed);
  if (::rename(folder.c_str(), doomed.c_str()) != 0) fail(folder);
  fs::remove_all(doomed);
}

}  // namespace

int64_t ShardSource::size_bytes() const {
  if (!fill) return static_cast<int64_t>(bytes.size());
  return safetensors_bytes(dtype, std::vector<int64_t>{piece.count});
}

CheckpointRoot::CheckpointRoot(std::string path, const WriterPlace& place)
    : path_(std::move(path)), place_(place) {
  if (place_.rank > 0) return;
  fs::create_directories(path_);
  const std::string lock_path = path_ + "/.trainer.lock";
  lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) fail(lock_path);
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(lock_);
    throw std::runtime_error(path_ + ": another trainer is saving there");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    if (is_temporary(entry.path().filename().string())) fs::remove_all(entry.path());
  }
}

CheckpointRoot::~CheckpointRoot() {
  if (lock_ >= 0) ::close(lock_);
}

void CheckpointRoot::commit(CheckpointMeta meta, const std::string& temporary, int64_t keep_last) {
  const int64_t iteration = meta.state.iteration;
  indexed::OutputFile record(temporary + "/meta.json");
  record.write(format_meta(meta));
  record.commit();
  sync_folder(temporary);
  put_in_place(temporary, iteration_folder(path_, iteration));
  sync_folder(path_);
  write_tracker(path_, iteration);
  if (keep_last == 0) return;
  std::vector<int64_t> stored = stored_iterations(path_);
  std::erase_if(stored, [&](int64_t other) { return other > iteration; });
  for (size_t i = 0; i + static_cast<size_t>(keep_last) < stored.size(); ++i) {
    remove_checkpoint(path_, stored[i]);
  }
}

void CheckpointRoot::save(CheckpointMeta meta, const std::vector<ShardSource>& shards,
                          int64_t keep_last) {
  const bool many = place_.world > 1;
  const std::string name =
      fs::path(iteration_folder(path_, meta.state.iteration)).filename().string();
  const std::string path = many ? message(path_, "/.", name, ".tmp")
                                : message(path_, "/.", name, ".", ::getpid(), ".tmp");
  meta.files.clear();
  meta.tensors.clear();
  std::optional<TemporaryFolder> folder;  // rank 0's, who removes it when anything fails.
  std::string failure;
  try {
    folder.emplace(path, many);
    refuse_full_disk(path_, shards);
    write_files(meta, path, place_.rank, shards);
  } catch (const std::exception& error) {
    if (!many) throw;
    failure = error.what();
  }
  if (!many) {
    commit(std::move(meta), path, keep_last);
    folder->release();
    return;
  }
  Meeting meeting(path, iteration_folder(path_, meta.state.iteration), place_);
  if (place_.rank > 0) {
    if (folder) folder->release();
    return meeting.report_and_wait(meta, failure);
  }
  meeting.gather(meta, failure);
  commit(std::move(meta), path, keep_last);
  folder->release();
  meeting.clean();
}

}  // namespace trainer
