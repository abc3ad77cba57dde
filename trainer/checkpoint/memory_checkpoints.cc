// See memory_checkpoints.h. meta.json is the commit: every rank empties it before it writes its own
// files, and rank 0 writes it when all have written theirs. A kill needs no fsync: what write(2)
// has taken is in the file.
//
// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/memory_checkpoints.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "libindexed/format.h"
#include "libindexed/message.h"
#include "libindexed/output_file.h"
#include "trainer/checkpoint/meeting.h"
#include "trainer/checkpoint/shard_files.h"

namespace trainer {
namespace {

using indexed::message;

constexpr const char* kMeta = "meta.json";
constexpr const char* kName = "gristmill-checkpoint";

std::string name_of(int64_t iteration) { return iteration_folder("memory:", iteration); }

// All of a file. Not mapped, since another rank may empty it meanwhile.
std::string text_of(int descriptor) {
  std::string text;
  constexpr size_t kPart = 1 << 20;
  for (ssize_t got = 1; got > 0;) {
    const size_t size = text.size();
    text.resize(size + kPart);
    got = ::pread(descriptor, text.data() + size, kPart, static_cast<off_t>(size));
    text.resize(size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  }
  return text;
}

void empty(int descriptor) {
  if (::ftruncate(descriptor, 0) != 0)
    throw std::system_error(errno, std::generic_category(), "memory of checkpoints");
}

}  // namespace

MemoryFiles::MemoryFiles(int ranks) {
  const int count = 2 * (2 * ranks + 1);
  for (int i = 0; i < count; ++i) {
    descriptors_.push_back(::memfd_create(kName, MFD_CLOEXEC));
    if (descriptors_.back() >= 0) continue;
    const int code = errno;
    descriptors_.pop_back();
    for (const int fd : descriptors_) ::close(fd);
    throw std::system_error(code, std::generic_category(), "memory of checkpoints");
  }
}

MemoryFiles::~MemoryFiles() {
  for (const int fd : descriptors_) ::close(fd);
}

MemoryCheckpoints::MemoryCheckpoints(const std::vector<int>& descriptors, WriterPlace place)
    : place_(std::move(place)) {
  const size_t each = descriptors.size() / 2;
  for (size_t i = 0; i < descriptors.size(); ++i) {
    Files& files = files_[i / each];
    const int number = static_cast<int>(i % each);
    const int rank = (number - 1) / 2;
    files[number == 0       ? kMeta
          : number % 2 == 1 ? model_file_name(rank)
                            : optimizer_file_name(rank)] = descriptors[i];
  }
}

// The complete checkpoint in these files, or nothing.
std::optional<Checkpoint> MemoryCheckpoints::complete(const Files& files) {
  if (files.empty()) return std::nullopt;
  std::map<std::string, std::string> places;
  for (const auto& [name, fd] : files) places[name] = message("/proc/self/fd/", fd);
  try {
    CheckpointMeta meta = parse_meta(text_of(files.at(kMeta)), "memory");
    const std::string name = name_of(meta.state.iteration);
    return Checkpoint::open(name, std::move(meta), std::move(places));
  } catch (const indexed::FormatError&) {
    return std::nullopt;
  }
}

std::vector<int64_t> MemoryCheckpoints::iterations() const {
  std::vector<int64_t> out;
  for (const Files& files : files_)
    if (const auto found = complete(files)) out.push_back(found->meta().state.iteration);
  std::sort(out.rbegin(), out.rend());
  return out;
}

Checkpoint MemoryCheckpoints::open(int64_t iteration) const {
  for (const Files& files : files_)
    if (auto found = complete(files); found && found->meta().state.iteration == iteration)
      return std::move(*found);
  throw indexed::FormatError(name_of(iteration) + ": no complete checkpoint there");
}

void MemoryCheckpoints::forget_after(int64_t iteration) const {
  for (const Files& files : files_)
    if (const auto found = complete(files); found && found->meta().state.iteration > iteration)
      empty(files.at(kMeta));
}

// Where the next save goes. All ranks choose the same: they read it from the files, of which rank 0
// completes none before all have chosen.
const MemoryCheckpoints::Files& MemoryCheckpoints::target() const {
  const auto iteration = [](const Files& files) {
    const auto found = complete(files);
    return found ? found->meta().state.iteration : -1;
  };
  return files_[iteration(files_[0]) > iteration(files_[1]) ? 1 : 0];
}

int64_t MemoryCheckpoints::more_bytes(const std::vector<ShardSource>& shards) const {
  int64_t bytes = 0;
  for (const ShardSource& shard : shards) bytes += shard.size_bytes();
  const Files& files = target();
  for (const std::string& name : {model_file_name(place_.rank), optimizer_file_name(place_.rank)}) {
    struct stat about {};
    if (::fstat(files.at(name), &about) == 0) bytes -= int64_t{about.st_blocks} * 512;
  }
  return std::max<int64_t>(bytes, 0);
}

void MemoryCheckpoints::write(const Files& files, CheckpointMeta& meta,
                              const std::vector<ShardSource>& shards,
                              const std::function<bool()>& given_up) const {
  const std::string name = name_of(meta.state.iteration);
  write_shard_files(meta, place_.rank,
                    {.shards = shards,
                     .open =
                         [&](const std::string& file, std::vector<TensorEntry> tensors) {
                           return std::make_unique<SafetensorsWriter>(
                               indexed::UnnamedFile{files.at(file), message(name, "/", file)},
                               std::move(tensors), kShardMetadata);
                         },
                     .given_up = given_up,
                     .threads = place_.world > 1 ? 1 : place_.threads});
}

void MemoryCheckpoints::save(CheckpointMeta meta, const std::vector<ShardSource>& shards,
                             const std::string& failure) {
  const bool many = place_.world > 1;
  meta.files.clear();
  meta.tensors.clear();
  Meeting meeting(++saves_, place_);
  const Files* files = nullptr;
  std::string why = failure;
  try {
    files = &target();
    empty(files->at(kMeta));
    if (!failure.empty()) throw std::runtime_error(failure);
    write(*files, meta, shards, [&] { return many && meeting.given_up(); });
  } catch (const std::exception& error) {
    if (!many) throw;
    why = place_.describe ? place_.describe(error) : error.what();
  }
  if (place_.rank > 0) return meeting.report_and_wait(meta, why);
  if (many) meeting.gather(meta, why);
  try {
    indexed::OutputFile record(
        indexed::UnnamedFile{files->at(kMeta), message(name_of(meta.state.iteration), "/", kMeta)});
    record.write(format_meta(meta));
    record.commit();
  } catch (const std::exception& error) {
    if (!many) throw;
    meeting.drop(
        message(meeting.name(0), ": ", place_.describe ? place_.describe(error) : error.what()));
  }
  if (many) meeting.tell("");
}

}  // namespace trainer
