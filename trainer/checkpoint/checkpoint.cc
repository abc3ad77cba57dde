// See checkpoint.h: reading.
//
// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <system_error>

#include <sys/stat.h>

#include "libindexed/crc32c.h"
#include "libindexed/format.h"
#include "libindexed/mapped_file.h"
#include "libindexed/message.h"
#include "trainer/checkpoint/safetensors.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using indexed::FormatError;
using indexed::message;

constexpr const char* kTracker = "latest_checkpointed_iteration.txt";
constexpr std::string_view kFolderHead = "iter_";

// The text of a small file, read through a mapping, which refuses a FIFO or a folder.
std::string read_text(const std::string& path) {
  const indexed::MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// The number in "iter_0001000", or nothing.
std::optional<int64_t> folder_iteration(std::string_view name) {
  if (!name.starts_with(kFolderHead)) return std::nullopt;
  name.remove_prefix(kFolderHead.size());
  int64_t value = 0;
  const std::from_chars_result end = std::from_chars(name.data(), name.data() + name.size(), value);
  if (end.ec != std::errc() || end.ptr != name.data() + name.size() || value < 0)
    return std::nullopt;
  return value;
}

}  // namespace

// A mapped shard file, and which of its blocks have been verified: by key, by block.
struct Checkpoint::OpenFile {
  enum class Block : uint8_t { unknown, being_checked, good };
  SafetensorsFile tensors;
  std::map<std::string, std::vector<Block>, std::less<>> blocks;
};

struct Checkpoint::Shared {
  std::mutex mutex;
  std::condition_variable ended;  ///< a block's check
};

Checkpoint::Checkpoint() : shared_(std::make_unique<Shared>()) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const std::string& path) {
  const std::string meta_path = path + "/meta.json";
  return open(path, parse_meta(read_text(meta_path), meta_path), {});
}

Checkpoint Checkpoint::open(const std::string& name, CheckpointMeta meta,
                            std::map<std::string, std::string> files) {
  Checkpoint checkpoint;
  checkpoint.path_ = name;
  checkpoint.places_ = std::move(files);
  checkpoint.meta_ = std::move(meta);
  for (const auto& [file, bytes] : checkpoint.meta_.files) {
    const int64_t actual = static_cast<int64_t>(fs::file_size(checkpoint.place(file)));
    if (actual != bytes) {
      throw FormatError(
          message(name, "/", file, ": ", actual, " bytes, expected ", bytes, ": damaged"));
    }
  }
  return checkpoint;
}

std::string Checkpoint::place(const std::string& file) const {
  if (places_.empty()) return path_ + "/" + file;
  const auto found = places_.find(file);
  if (found == places_.end()) throw FormatError(message(path_, ": has no file ", file));
  return found->second;
}

Checkpoint::OpenFile& Checkpoint::file(const std::string& name) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  std::unique_ptr<OpenFile>& slot = open_[name];
  if (!slot) {
    slot = std::make_unique<OpenFile>(OpenFile{SafetensorsFile::open(place(name)), {}});
  }
  return *slot;
}

// Whether the caller has to check a block; false when it is good, after another thread's check if
// one is under way.
bool Checkpoint::take_block(OpenFile& open, const ShardRecord& shard, int64_t block) {
  using Block = OpenFile::Block;
  std::unique_lock<std::mutex> lock(shared_->mutex);
  std::vector<Block>& all = open.blocks[shard.key];
  all.resize(shard.crc32c.size());
  Block& state = all[static_cast<size_t>(block)];
  shared_->ended.wait(lock, [&] { return state != Block::being_checked; });
  if (state == Block::good) return false;
  state = Block::being_checked;
  return true;
}

void Checkpoint::end_block(OpenFile& open, const ShardRecord& shard, int64_t block, bool good) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  open.blocks[shard.key][static_cast<size_t>(block)] =
      good ? OpenFile::Block::good : OpenFile::Block::unknown;
  shared_->ended.notify_all();
}

// Bytes [begin, end) of a shard after their blocks have been checked; the span begins at `begin`.
std::span<const std::byte> Checkpoint::view(const TensorRecord& tensor, const ShardRecord& shard,
                                            int64_t begin, int64_t end) {
  OpenFile& open = file(shard.file);
  const TensorEntry& entry = open.tensors.at(shard.key);
  const std::span<const std::byte> bytes = open.tensors.bytes(entry);
  const int64_t blocks = (entry.bytes() + kChecksumBlock_bytes - 1) / kChecksumBlock_bytes;
  const auto fail = [&](const std::string& why) {
    throw FormatError(message(path_, "/", shard.file, ": ", shard.key, ": ", why));
  };
  if (entry.dtype != tensor.dtype || static_cast<int64_t>(shard.crc32c.size()) != blocks ||
      entry.bytes() != safetensors_bytes(tensor.dtype, std::vector<int64_t>{shard.piece.count})) {
    fail("is not what meta.json says");
  }
  for (int64_t block = begin / kChecksumBlock_bytes; block * kChecksumBlock_bytes < end; ++block) {
    if (!take_block(open, shard, block)) continue;
    const int64_t from = block * kChecksumBlock_bytes;
    const int64_t size = std::min(kChecksumBlock_bytes, entry.bytes() - from);
    const uint32_t crc =
        indexed::crc32c(0, bytes.subspan(static_cast<size_t>(from), static_cast<size_t>(size)));
    const bool good = crc == shard.crc32c[static_cast<size_t>(block)];
    end_block(open, shard, block, good);
    if (!good) fail(message("bytes ", from, " to ", from + size, ": checksum differs: damaged"));
  }
  return bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

void Checkpoint::release(const ShardRecord& shard, int64_t begin, int64_t end) {
  const SafetensorsFile& tensors = file(shard.file).tensors;
  tensors.release(tensors.at(shard.key), begin, end);
}

void Checkpoint::read(const TensorRecord& tensor, const Piece& piece, std::span<std::byte> out) {
  const int64_t item = safetensors_dtype_bits(tensor.dtype) / 8;
  if (item == 0 || static_cast<int64_t>(out.size()) != piece.count * item) {
    throw FormatError(message(path_, ": ", tensor.group, " ", tensor.name, ": ", out.size(),
                              " bytes wanted for ", piece.count, " elements of ", tensor.dtype));
  }
  int64_t covered = 0;
  for (const ShardRecord& shard : tensor.shards) {
    covered += for_each_common_run(piece, shard.piece, [&](int64_t to, int64_t from, int64_t n) {
      const std::span<const std::byte> bytes = view(tensor, shard, from * item, (from + n) * item);
      std::memcpy(out.data() + to * item, bytes.data(), bytes.size());
    });
  }
  if (covered != piece.count) {
    throw FormatError(message(path_, ": ", tensor.group, " ", tensor.name, ": shards hold ",
                              covered, " of ", piece.count, " elements"));
  }
}

std::vector<std::byte> Checkpoint::read(const TensorRecord& tensor) {
  const Piece piece = Piece::whole(tensor.shape);
  std::vector<std::byte> out(
      static_cast<size_t>(piece.count * safetensors_dtype_bits(tensor.dtype) / 8));
  read(tensor, piece, out);
  return out;
}

void Checkpoint::verify(const std::function<bool(const std::string& file)>& wanted) {
  for (const TensorRecord& tensor : meta_.tensors) {
    const int64_t item = safetensors_dtype_bits(tensor.dtype) / 8;
    for (const ShardRecord& shard : tensor.shards)
      if (!wanted || wanted(shard.file)) view(tensor, shard, 0, shard.piece.count * item);
  }
}

bool is_certainly_checkpoint(const std::string& folder) {
  const std::string path = folder + "/meta.json";
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return false;
  std::ifstream in(path, std::ios::binary);
  std::string text(64, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  return begins_as_meta(text);
}

bool is_checkpoint(const std::string& folder) {
  const std::string path = folder + "/meta.json";
  std::error_code none;
  if (!fs::exists(path, none)) return false;
  if (!fs::is_regular_file(path, none)) return true;  // whoever reads it says what it is
  // Not mapped: a save may replace it meanwhile. Of our own the first bytes are enough.
  if (is_certainly_checkpoint(folder)) return true;
  std::string text;
  try {
    std::ifstream in(path, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
  } catch (const std::exception&) {  // a disk that fails
    return true;
  }
  return !is_foreign_meta(text);
}

fs::path without_dots(const fs::path& path) {
  fs::path to_dots, rest;
  for (const fs::path& part : path) {
    rest /= part;
    if (part != "..") continue;
    to_dots /= rest;
    rest.clear();
  }
  std::error_code error;
  if (!to_dots.empty()) to_dots = fs::weakly_canonical(to_dots, error);
  return error ? path : (to_dots / rest).lexically_normal();
}

fs::path plain_path(const std::string& folder) {
  std::error_code none;
  return without_dots(fs::absolute(folder, none) / "").parent_path();
}

bool lies_in(const std::string& path, const std::string& folder) {
  return same_folder(plain_path(path).parent_path(), folder) || same_folder(path + "/..", folder);
}

bool same_folder(const std::string& a, const std::string& b) {
  constexpr int kMostLinks = 40;  // as the system's own bound
  const auto whole = [](const std::string& path) {
    std::error_code none;
    fs::path at = fs::absolute(path, none);
    if (!at.has_filename()) at = at.parent_path();
    // weakly_canonical does not follow a link to what is not there yet.
    for (int i = 0; i < kMostLinks && fs::is_symlink(at, none) && !fs::exists(at, none); ++i)
      at = at.parent_path() / fs::read_symlink(at, none);
    return (fs::weakly_canonical(at, none) / "").lexically_normal();
  };
  return !a.empty() && !b.empty() && (a == b || whole(a) == whole(b));
}

std::string iteration_folder(const std::string& root, int64_t iteration) {
  char name[32];
  std::snprintf(name, sizeof name, "iter_%07lld", static_cast<long long>(iteration));
  return (fs::path(root) / name).string();
}

std::vector<int64_t> stored_iterations(const std::string& root) {
  std::vector<int64_t> found;
  std::error_code error;
  fs::directory_iterator at(root, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::optional<int64_t> iteration = folder_iteration(at->path().filename().string());
    if (iteration && fs::exists(at->path() / "meta.json", error) && is_checkpoint(at->path()))
      found.push_back(*iteration);
    if (error) break;
  }
  // A folder that cannot be read must not be treated as missing.
  if (error && error != std::errc::no_such_file_or_directory) throw std::system_error(error, root);
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<int64_t> tracked_iteration(const std::string& root) {
  const std::string path = root + "/" + kTracker;
  const auto fail = [&](const std::string& why) {
    const std::vector<int64_t> stored = stored_iterations(root);
    throw FormatError(message(
        path, ": ", why, stored.empty() ? "" : message("; the newest stored is ", stored.back())));
  };
  if (!fs::exists(path)) {
    if (fs::is_symlink(path)) fail("a link that leads nowhere");
    return std::nullopt;
  }
  std::string text = read_text(path);
  const size_t end = text.find_last_not_of(" \t\r\n");
  text.resize(end == std::string::npos ? 0 : end + 1);
  const std::optional<int64_t> iteration = folder_iteration(std::string(kFolderHead) + text);
  if (!iteration) fail(message("\"", text, "\": expected the number of an iteration"));
  return iteration;
}

std::string tracker_state(const std::string& root) {
  struct stat about {};
  if (::stat((root + "/" + kTracker).c_str(), &about) != 0) return "";
  return message(about.st_ino, " ", about.st_size, " ", about.st_mtim.tv_sec, ".",
                 about.st_mtim.tv_nsec);
}

// One whose record cannot be read is refused by whoever opens it.
static void refuse_other_step(const std::string& folder, int64_t step) {
  int64_t own = step;
  try {
    const std::string path = folder + "/meta.json";
    own = parse_meta(read_text(path), path).state.iteration;
  } catch (const std::exception&) {
  }
  if (own != step)
    throw FormatError(message(folder, ": is the checkpoint of step ", own, ", not of step ", step,
                              ": name the folder that holds it"));
}

std::optional<std::string> find_checkpoint(const std::string& root, std::optional<int64_t> step) {
  if (is_checkpoint(root)) {
    if (step) refuse_other_step(root, *step);
    return root;
  }
  const std::optional<int64_t> tracked = step ? step : tracked_iteration(root);
  const std::vector<int64_t> stored = stored_iterations(root);
  if (!tracked) {
    if (stored.empty()) return std::nullopt;
    return iteration_folder(root, stored.back());
  }
  const std::string folder = iteration_folder(root, *tracked);
  if (std::find(stored.begin(), stored.end(), *tracked) == stored.end()) {
    throw FormatError(message(
        folder, ": no checkpoint there, though ", step ? "--ckpt-step" : kTracker, " names it",
        stored.empty() ? "" : message("; the newest stored is ", stored.back())));
  }
  return folder;
}

std::string offer_previous(const std::string& root, int64_t iteration,
                           const std::function<std::string(int64_t step)>& how) {
  std::vector<int64_t> stored;
  try {
    stored = stored_iterations(root);
  } catch (const std::system_error& error) {
    return error.what();
  }
  for (size_t i = stored.size(); i > 0; --i) {
    if (stored[i - 1] >= iteration) continue;
    try {
      Checkpoint::open(iteration_folder(root, stored[i - 1])).verify();
      return message("the previous whole checkpoint is of step ", stored[i - 1], ": ",
                     how(stored[i - 1]));
    } catch (const std::exception&) {
      continue;
    }
  }
  return "there is no whole checkpoint before it";
}

}  // namespace trainer
