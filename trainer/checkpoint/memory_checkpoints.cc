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
#include <functional>
#include <stdexcept>
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

std::vector<int> MemoryHosts::held() const {
  std::vector<int> out;
  for (const int host : {own, before()}) {
    if (host == own && !out.empty()) break;
    for (int rank = 0; rank < ranks; ++rank) out.push_back(host * ranks + rank);
  }
  return out;
}

MemoryCheckpoints::MemoryCheckpoints(const std::vector<int>& descriptors, WriterPlace place,
                                     MemoryHosts hosts)
    : place_(std::move(place)), hosts_(std::move(hosts)) {
  const size_t each = descriptors.size() / 2;
  if (hosts_.count == 1) hosts_.ranks = std::max(1, static_cast<int>(each / 2));
  const std::vector<int> ranks = hosts_.held();
  for (size_t i = 0; i < descriptors.size(); ++i) {
    const size_t number = i % each;
    const std::string name = number == 0       ? kMeta
                             : number % 2 == 1 ? model_file_name(ranks.at((number - 1) / 2))
                                               : optimizer_file_name(ranks.at((number - 1) / 2));
    files_[i / each][name] = descriptors[i];
  }
}

// The complete checkpoint in these files, or this host's part of it, or nothing.
std::optional<Checkpoint> MemoryCheckpoints::complete(const Files& files) const {
  if (files.empty()) return std::nullopt;
  std::map<std::string, std::string> places;
  for (const auto& [name, fd] : files) places[name] = message("/proc/self/fd/", fd);
  try {
    const std::string record = text_of(files.at(kMeta));
    CheckpointMeta meta = parse_meta(record, "memory");
    if (hosts_.count > 1)
      std::erase_if(meta.files, [&](const auto& file) { return !files.contains(file.first); });
    const std::string name = name_of(meta.state.iteration);
    Checkpoint found = Checkpoint::open(name, std::move(meta), std::move(places));
    // A rank empties the record before it writes a file: the files that were just looked at are
    // the record's only if it still stands.
    if (text_of(files.at(kMeta)) != record) return std::nullopt;
    return found;
  } catch (const indexed::FormatError&) {
    return std::nullopt;
  }
}

std::vector<MemoryCheckpoints::Kept> MemoryCheckpoints::kept() const {
  std::vector<Kept> out;
  for (int slot = 0; slot < 2; ++slot) {
    const Files& files = files_[static_cast<size_t>(slot)];
    if (const auto found = complete(files))
      out.push_back({slot, found->meta().state.iteration, text_of(files.at(kMeta))});
  }
  std::ranges::stable_sort(out, std::greater(), &Kept::iteration);
  return out;
}

std::vector<int64_t> MemoryCheckpoints::iterations() const {
  std::vector<int64_t> out;
  for (const Kept& one : kept()) out.push_back(one.iteration);
  return out;
}

Checkpoint MemoryCheckpoints::open(int64_t iteration) const {
  for (const Files& files : files_)
    if (auto found = complete(files); found && found->meta().state.iteration == iteration)
      return std::move(*found);
  throw indexed::FormatError(name_of(iteration) + ": no complete checkpoint there");
}

Checkpoint MemoryCheckpoints::open(int slot, const std::string& record,
                                   std::map<std::string, std::string> others) const {
  for (const auto& [name, fd] : files_.at(static_cast<size_t>(slot)))
    others[name] = message("/proc/self/fd/", fd);
  CheckpointMeta meta = parse_meta(record, "memory");
  const std::string name = name_of(meta.state.iteration);
  return Checkpoint::open(name, std::move(meta), std::move(others));
}

int MemoryCheckpoints::free_slot() const {
  const std::vector<Kept> all = kept();
  return all.empty() ? 0 : 1 - all.front().slot;
}

std::array<int, 2> MemoryCheckpoints::files(int slot, int rank) const {
  const Files& files = files_.at(static_cast<size_t>(slot));
  return {files.at(model_file_name(rank)), files.at(optimizer_file_name(rank))};
}

void MemoryCheckpoints::write_record(int slot, const std::string& record) const {
  const int fd = files_.at(static_cast<size_t>(slot)).at(kMeta);
  if (record.empty()) return empty(fd);
  indexed::OutputFile file(indexed::UnnamedFile{fd, message("memory:/", kMeta)});
  file.write(record);
  file.commit();
}

std::string MemoryCheckpoints::damage(int slot, const std::string& record, int rank) const {
  const auto of_rank = [&](const std::string& file) {
    return file == model_file_name(rank) || file == optimizer_file_name(rank);
  };
  std::map<std::string, std::string> places;
  for (const auto& [name, fd] : files_.at(static_cast<size_t>(slot)))
    places[name] = message("/proc/self/fd/", fd);
  try {
    CheckpointMeta meta = parse_meta(record, "memory");
    std::erase_if(meta.files, [&](const auto& file) { return !of_rank(file.first); });
    const std::string name = name_of(meta.state.iteration);
    Checkpoint::open(name, std::move(meta), std::move(places)).verify(of_rank);
  } catch (const indexed::FormatError& error) {
    return error.what();
  }
  return "";
}

void MemoryCheckpoints::forget_after(int64_t iteration) const {
  for (const Files& files : files_)
    if (const auto found = complete(files); found && found->meta().state.iteration > iteration)
      empty(files.at(kMeta));
}

// Where the next save goes. All ranks of a host choose the same: on one host they read it from the
// files, of which rank 0 completes none before all have chosen.
size_t MemoryCheckpoints::target() const {
  if (next_) return *next_;
  const auto iteration = [this](const Files& files) {
    const auto found = complete(files);
    return found ? found->meta().state.iteration : -1;
  };
  return iteration(files_[0]) > iteration(files_[1]) ? 1 : 0;
}

int64_t MemoryCheckpoints::more_bytes(const std::vector<ShardSource>& shards) const {
  int64_t bytes = 0;
  for (const ShardSource& shard : shards) bytes += shard.size_bytes();
  const Files& files = files_[target()];
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

// This rank's files go to its partner, and those of the rank whose partner it is come here.
void MemoryCheckpoints::copy_to_partner(size_t slot, const CheckpointMeta& meta,
                                        const std::function<bool()>& given_up) const {
  if (hosts_.count == 1) return;
  const Files& files = files_[slot];
  const int partner = hosts_.before() * hosts_.ranks + place_.rank % hosts_.ranks;
  std::vector<int> out;
  for (const std::string& name : {model_file_name(place_.rank), optimizer_file_name(place_.rank)})
    out.push_back(meta.files.contains(name) ? files.at(name) : -1);
  const std::array<int, 2> in = this->files(static_cast<int>(slot), partner);
  if (!hosts_.exchange(saves_, out, {in.begin(), in.end()}, given_up)) throw GivenUp();
}

void MemoryCheckpoints::write_shards(size_t slot, CheckpointMeta& meta,
                                     const std::vector<ShardSource>& shards,
                                     Meeting& meeting) const {
  const std::function<bool()> given_up = [&] { return place_.world > 1 && meeting.given_up(); };
  empty(files_[slot].at(kMeta));
  write(files_[slot], meta, shards, given_up);
  copy_to_partner(slot, meta, given_up);
}

void MemoryCheckpoints::save(CheckpointMeta meta, const std::vector<ShardSource>& shards,
                             const std::string& failure) {
  const bool many = place_.world > 1;
  meta.files.clear();
  meta.tensors.clear();
  Meeting meeting(++saves_, place_);
  const size_t slot = target();
  const auto describe = [this](const std::exception& error) -> std::string {
    return place_.describe ? place_.describe(error) : error.what();
  };
  if (hosts_.count > 1) next_ = slot;
  std::string why = failure;
  try {
    if (!failure.empty()) throw std::runtime_error(failure);
    write_shards(slot, meta, shards, meeting);
  } catch (const std::exception& error) {
    if (!many) throw;
    why = describe(error);
  }
  const auto complete = [&](const std::string& record) {
    write_record(static_cast<int>(slot), record);
  };
  if (place_.rank > 0) {
    meeting.report_and_wait(meta, why, complete);
  } else {
    if (many) meeting.gather(meta, why);
    std::string record;
    try {
      complete(record = format_meta(meta));
    } catch (const std::exception& error) {
      if (!many) throw;
      meeting.drop(message(meeting.name(0), ": ", describe(error)));
    }
    std::vector<int> others;
    for (int host = 1; host < hosts_.count; ++host) others.push_back(host * hosts_.ranks);
    if (!others.empty()) meeting.hand_out(record, others);
    if (many) meeting.tell("");
  }
  if (hosts_.count > 1) next_ = 1 - slot;
}

}  // namespace trainer
