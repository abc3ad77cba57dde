// SPDX-License-Identifier: MIT
// torch_dist.h: the metadata's tables, checks that chunks fill their tensors, reading by rows.
#include "convert/torch_dist.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "libindexed/format.h"

namespace convert {
namespace {

using indexed::FormatError;
using Dimensions = std::vector<int64_t>;
namespace fs = std::filesystem;

constexpr int64_t kMaxDimensions = 64;

// Budget for an entry of the tables, besides its names.
constexpr int64_t kEntryBytes = 512;

/// The place of a chunk's bytes.
struct Place {
  std::shared_ptr<const indexed::MappedFile> file;
  std::shared_ptr<std::atomic<bool>> intact;  ///< its checksums were compared
  std::string name;  ///< "__0_0.distcp: decoder.final_layernorm.weight", for messages
  size_t begin = 0;
  size_t size = 0;
};

/// A box of a tensor. If it is stacked, the stored chunk has one more dimension in front, and this
/// is its entry `layer`.
struct Chunk {
  Place place;
  Dimensions offsets, sizes;
  bool stacked = false;
  int64_t layer = 0;

  /// Cannot overflow: Metadata::check_box has checked the sizes.
  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return count;
  }
  bool overlaps(const Chunk& other) const {
    for (size_t d = 0; d < sizes.size(); ++d)
      if (offsets[d] + sizes[d] <= other.offsets[d] ||
          other.offsets[d] + other.sizes[d] <= offsets[d])
        return false;
    return true;
  }
};

/// The chunks of one tensor, read as one. The last chunk read stays open, since writers request a
/// tensor's rows piece by piece.
class Chunks {
 public:
  Chunks(std::vector<Chunk> chunks, std::string dtype, Dimensions shape,
         TorchFile::Checksums checksums)
      : chunks_(std::move(chunks)),
        dtype_(std::move(dtype)),
        shape_(std::move(shape)),
        checksums_(checksums) {}

  void read_rows(int64_t first, int64_t count, std::byte* out, int64_t element) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < chunks_.size(); ++i) {
      const Chunk& chunk = chunks_[i];
      const int64_t at = chunk.offsets.empty() ? 0 : chunk.offsets[0];
      const int64_t size = chunk.sizes.empty() ? 1 : chunk.sizes[0];
      const int64_t begin = std::max(first, at), end = std::min(first + count, at + size);
      if (begin >= end) continue;
      const PickledTensor tensor = open(i);
      const int64_t rows = end - begin, row = chunk.elements() / std::max<int64_t>(size, 1);
      if (row == 0) continue;
      std::vector<std::byte> part(static_cast<size_t>(rows * row * element));
      file_->read_rows(tensor, begin - at, rows, part.data());
      *chunk.place.intact = true;
      const std::byte* source = part.data();
      put(source, chunk, begin - first, rows, element, out);
      if (end == at + size) {
        file_->release(tensor);
        file_.reset();
        open_ = chunks_.size();
      }
    }
  }

 private:
  /// The tensor in chunk `i`, checked against the metadata.
  PickledTensor open(size_t i) {
    const Chunk& chunk = chunks_[i];
    const Place& place = chunk.place;
    if (open_ != i) {
      // Each layer of a stack opens the chunk itself; the first compares the checksums.
      const bool compare = !*place.intact && checksums_ == TorchFile::Checksums::require;
      file_ = std::make_unique<TorchFile>(
          place.file, place.begin, place.size, place.name,
          compare ? TorchFile::Checksums::require : TorchFile::Checksums::ignore);
      open_ = i;
    }
    const Value root = file_->root();
    if (!root.is(Kind::tensor)) throw FormatError(place.name + ": a chunk that is no tensor");
    PickledTensor tensor = root.tensor();
    if (chunk.stacked && !tensor.shape.empty() && chunk.layer < tensor.shape[0]) {
      tensor.offset += chunk.layer * tensor.stride[0];
      tensor.shape.erase(tensor.shape.begin());
      tensor.stride.erase(tensor.stride.begin());
    }
    if (tensor.shape != chunk.sizes || tensor.dtype != dtype_)
      throw FormatError(place.name + ": a chunk of another shape or type than .metadata says");
    return tensor;
  }

  /// Copies rows of a chunk to their place among the rows from `row` on.
  void put(const std::byte*& source, const Chunk& chunk, int64_t row, int64_t rows, int64_t element,
           std::byte* out) const {
    if (shape_.empty()) {
      std::memcpy(out, source, static_cast<size_t>(element));
      return;
    }
    int64_t row_bytes = element;
    for (size_t d = 1; d < shape_.size(); ++d) row_bytes *= shape_[d];
    for (int64_t i = row; i < row + rows; ++i)
      put_box(source, chunk, 1, row_bytes, out + i * row_bytes);
  }

  /// Copies the box of dimensions `d` and up of a chunk into the same dimensions of the whole, of
  /// `bytes` bytes.
  void put_box(const std::byte*& source, const Chunk& chunk, size_t d, int64_t bytes,
               std::byte* out) const {
    bool whole = true;
    for (size_t i = d; i < shape_.size(); ++i) whole = whole && chunk.sizes[i] == shape_[i];
    if (whole) {
      std::memcpy(out, source, static_cast<size_t>(bytes));
      source += bytes;
      return;
    }
    const int64_t inner = bytes / shape_[d];
    if (d + 1 == shape_.size()) {
      const int64_t run = chunk.sizes[d] * inner;
      std::memcpy(out + chunk.offsets[d] * inner, source, static_cast<size_t>(run));
      source += run;
      return;
    }
    for (int64_t i = 0; i < chunk.sizes[d]; ++i)
      put_box(source, chunk, d + 1, inner, out + (chunk.offsets[d] + i) * inner);
  }

  std::vector<Chunk> chunks_;
  std::string dtype_;
  Dimensions shape_;
  TorchFile::Checksums checksums_;
  std::mutex mutex_;
  std::unique_ptr<TorchFile> file_;
  size_t open_ = SIZE_MAX;
};

/// `.metadata`, whose objects are found by name.
class Metadata {
 public:
  explicit Metadata(const std::string& folder)
      : folder_(folder), path_(folder + "/.metadata"), file_(path_), pickle_(file_.bytes(), path_) {
    read_storage();
  }

  Value tensors() const {
    const Value table = pickle_.root().attribute("state_dict_metadata");
    if (!table.is(Kind::dict)) fail("no state_dict_metadata: not a distributed checkpoint");
    return table;
  }

  [[noreturn]] void fail(const std::string& why) const { throw FormatError(path_ + ": " + why); }

  /// The budget for all tables made from the metadata.
  Budget& budget() const { return pickle_.budget(); }

  /// Sizes, offsets: a tuple of numbers from 0 up.
  Dimensions numbers(Value tuple, const std::string& key) const {
    Dimensions out;
    if (!tuple.is(Kind::tuple) && !tuple.is(Kind::list)) fail(key + ": a size is no tuple");
    if (tuple.size() > kMaxDimensions) fail(key + ": more than 64 dimensions");
    budget().spend(tuple.size() * static_cast<int64_t>(sizeof(int64_t)));
    for (int64_t i = 0; i < tuple.size(); ++i) {
      const std::optional<int64_t> number = tuple.item(i).integer();
      if (!number || *number < 0 || *number > int64_t{1} << 48) fail(key + ": an impossible size");
      out.push_back(*number);
    }
    return out;
  }

  /// The place of the chunk of `key` at `offsets`; an object has no offsets.
  const Place& place(const std::string& key, const Dimensions& offsets) const {
    const auto found = places_.find({key, offsets});
    if (found == places_.end()) fail(key + ": a chunk lies nowhere");
    return found->second;
  }

 private:
  void read_storage() {
    const Value storage = pickle_.root().attribute("storage_data");
    if (!storage.is(Kind::dict)) fail("no storage_data: not a distributed checkpoint");
    std::map<std::string, std::shared_ptr<const indexed::MappedFile>, std::less<>> files;
    for (int64_t i = 0; i < storage.size(); ++i) {
      const Value index = storage.key(i), info = storage.value(i);
      const std::string key(index.attribute("fqn").text());
      const std::string name(info.attribute("relative_path").text());
      const std::optional<int64_t> begin = info.attribute("offset").integer();
      const std::optional<int64_t> size = info.attribute("length").integer();
      if (key.empty() || !begin || !size || *begin < 0 || *size < 0)
        fail("an unreadable entry of storage_data");
      budget().spend(kEntryBytes + static_cast<int64_t>(4 * key.size() + 2 * name.size()));
      if (name.empty() || name.find('/') != std::string::npos || name == "..")
        fail(key + ": lies in \"" + name + "\", expected a file of this folder");
      const Value transforms = info.attribute("transform_descriptors");
      if (transforms && !transforms.is(Kind::null) && transforms.size() > 0)
        fail(key + ": is stored through a transform, which is not supported");
      std::shared_ptr<const indexed::MappedFile>& file = files[name];
      if (!file) file = std::make_shared<indexed::MappedFile>(folder_ + "/" + name);
      const int64_t all = static_cast<int64_t>(file->bytes().size());
      if (*begin > all || *size > all - *begin)
        throw FormatError(folder_ + "/" + name + ": " + std::to_string(all) + " bytes, but " + key +
                          " ends at byte " + std::to_string(*begin + *size) + ": unfinished file");
      const Value offset = index.attribute("offset");
      places_[{key, offset.is(Kind::tuple) ? numbers(offset, key) : Dimensions()}] = {
          file, std::make_shared<std::atomic<bool>>(false), folder_ + "/" + name + ": " + key,
          static_cast<size_t>(*begin), static_cast<size_t>(*size)};
    }
    refuse_overlaps();
  }

  // Chunks that share bytes would make a small folder a large model.
  void refuse_overlaps() const {
    std::vector<const Place*> by_place;
    for (const auto& [index, place] : places_) by_place.push_back(&place);
    std::sort(by_place.begin(), by_place.end(), [](const Place* a, const Place* b) {
      return a->file != b->file ? std::less<>()(a->file, b->file) : a->begin < b->begin;
    });
    for (size_t i = 1; i < by_place.size(); ++i) {
      const Place& before = *by_place[i - 1];
      if (before.file == by_place[i]->file && before.begin + before.size > by_place[i]->begin)
        throw FormatError(by_place[i]->name + ": lies over " + before.name);
    }
  }

  std::string folder_, path_;
  indexed::MappedFile file_;
  Pickle pickle_;
  std::map<std::pair<std::string, Dimensions>, Place> places_;
};

bool is_of_the_model(std::string_view key) {
  for (const std::string_view other : {"optimizer.", "chained_", "rng_state", "rerun_state_machine",
                                       "opt_param_scheduler", "common_state"})
    if (key.starts_with(other)) return false;
  return key.find("_extra_state") == std::string_view::npos;
}

/// Position after ".layers." of a key whose layers are stacked; npos if a number follows.
size_t stack_position(std::string_view key) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = key.find(kLayers);
  if (at == std::string_view::npos || (at > 0 && key[at - 1] != '.')) return std::string_view::npos;
  const size_t behind = at + kLayers.size();
  const bool number = behind < key.size() && std::isdigit(static_cast<unsigned char>(key[behind]));
  return number ? std::string_view::npos : behind;
}

TensorSource make_source(const Metadata& metadata, const std::string& key,
                         std::vector<Chunk> chunks, const std::string& dtype,
                         const Dimensions& shape, TorchFile::Checksums checksums) {
  const int64_t count = static_cast<int64_t>(chunks.size());
  metadata.budget().spend(kEntryBytes + static_cast<int64_t>(4 * key.size()));
  for (int64_t i = 0; i < count; ++i) metadata.budget().spend(i);  // pairs are compared
  int64_t filled = 0, wanted = 1, most = 16;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(most, std::max<int64_t>(size, 1), &most))
      metadata.fail(key + ": an impossible size");
    wanted *= size;
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    for (size_t j = 0; j < i; ++j)
      if (chunks[i].overlaps(chunks[j])) metadata.fail(key + ": chunks overlap");
    if (__builtin_add_overflow(filled, chunks[i].elements(), &filled))
      metadata.fail(key + ": an impossible size");
  }
  if (filled != wanted)
    metadata.fail(key + ": its chunks hold " + std::to_string(filled) + " of " +
                  std::to_string(wanted) + " elements");
  const std::string name = chunks[0].place.name;
  TensorSource source{dtype, shape, {}, name};
  const auto whole = std::make_shared<Chunks>(std::move(chunks), dtype, shape, checksums);
  source.read_rows = [whole, element = source.element_bytes()](int64_t first, int64_t count,
                                                               std::byte* out) {
    whole->read_rows(first, count, out, element);
  };
  return source;
}

/// Checks that a chunk's box is inside its tensor, and its bytes inside its part of a file.
void check_box(const Metadata& metadata, const std::string& key, const Chunk& chunk,
               const Dimensions& shape, int64_t element_bytes) {
  bool inside = chunk.offsets.size() == shape.size() && chunk.sizes.size() == shape.size();
  int64_t bytes = element_bytes;
  for (size_t d = 0; inside && d < shape.size(); ++d) {
    inside = chunk.offsets[d] + chunk.sizes[d] <= shape[d];
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(chunk.sizes[d], 1), &bytes))
      metadata.fail(key + ": an impossible size");
  }
  if (!inside) metadata.fail(key + ": a chunk leaves its tensor");
  const bool empty = std::find(chunk.sizes.begin(), chunk.sizes.end(), 0) != chunk.sizes.end();
  if (!empty && bytes > static_cast<int64_t>(chunk.place.size))
    metadata.fail(key + ": a chunk of " + std::to_string(bytes) + " bytes lies in " +
                  std::to_string(chunk.place.size));
}

/// A tensor's chunks in the metadata, checked to be inside the tensor.
std::vector<Chunk> chunks_of(const Metadata& metadata, const std::string& key, Value tensor,
                             const Dimensions& shape, int64_t element_bytes) {
  std::vector<Chunk> chunks;
  const Value list = tensor.attribute("chunks");
  for (int64_t i = 0; i < list.size(); ++i) {
    metadata.budget().spend(kEntryBytes);
    Chunk chunk;
    chunk.offsets = metadata.numbers(list.item(i).attribute("offsets"), key);
    chunk.sizes = metadata.numbers(list.item(i).attribute("sizes"), key);
    chunk.place = metadata.place(key, chunk.offsets);
    check_box(metadata, key, chunk, shape, element_bytes);
    chunks.push_back(std::move(chunk));
  }
  if (chunks.empty()) metadata.fail(key + ": has no chunks");
  return chunks;
}

/// Entry `layer` of stacked chunks, without the first dimension.
std::vector<Chunk> layer_of(const Metadata& metadata, const std::vector<Chunk>& chunks,
                            int64_t layer) {
  std::vector<Chunk> out;
  metadata.budget().spend(static_cast<int64_t>(chunks.size()));
  for (const Chunk& chunk : chunks) {
    if (layer < chunk.offsets[0] || layer >= chunk.offsets[0] + chunk.sizes[0]) continue;
    metadata.budget().spend(kEntryBytes);
    Chunk one = chunk;
    one.stacked = true;
    one.layer = layer - chunk.offsets[0];
    one.offsets.erase(one.offsets.begin());
    one.sizes.erase(one.sizes.begin());
    out.push_back(std::move(one));
  }
  return out;
}

/// The type of a tensor's elements: the first of its properties, whose state is a tuple.
std::string dtype_of(const Metadata& metadata, const std::string& key, Value tensor) {
  const Value state = tensor.attribute("properties").state();
  if (!state.is(Kind::tuple) || state.size() == 0 || !state.item(0).is(Kind::dtype))
    metadata.fail(key + ": has no type of its elements");
  return std::string(state.item(0).text());
}

void check_format(const std::string& folder) {
  const std::string path = folder + "/metadata.json";
  if (!fs::exists(path)) return;  // torch's own distributed checkpoints have none
  const indexed::MappedFile file(path);
  const auto* text = reinterpret_cast<const char*>(file.bytes().data());
  const nlohmann::json said =
      nlohmann::json::parse(text, text + file.bytes().size(), nullptr, false);
  if (said.is_discarded()) throw FormatError(path + ": not JSON");
  const auto found = said.is_object() ? said.find("sharded_backend") : said.end();
  if (found == said.end() || !found->is_string())
    throw FormatError(path + ": no sharded_backend: not of a distributed checkpoint");
  const std::string backend = *found;
  if (backend != "torch_dist")
    throw FormatError(path + ": sharded_backend \"" + backend +
                      "\" is not supported, expected torch_dist");
}

/// The first dict of an object: a shard holds a list of one.
Value first_dict(Value root) {
  if (root.is(Kind::list) && root.size() > 0) root = root.item(0);
  return root.is(Kind::dict) ? root : Value();
}

}  // namespace

bool TorchDist::is_at(const std::string& folder) {
  if (fs::exists(folder + "/.metadata")) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".distcp") return true;
  return false;
}

TorchDist::TorchDist(const std::string& folder, TorchFile::Checksums checksums) {
  check_format(folder);
  if (!fs::exists(folder + "/.metadata"))
    throw FormatError(folder + "/.metadata: is missing: unfinished checkpoint");
  const Metadata metadata(folder);
  const Value table = metadata.tensors();
  for (int64_t i = 0; i < table.size(); ++i) {
    const std::string key(table.key(i).text());
    const Value tensor = table.value(i);
    if (key.starts_with("common_state/") && !common_file_) {
      const Place& place = metadata.place(key, {});
      common_file_ =
          std::make_unique<TorchFile>(place.file, place.begin, place.size, place.name, checksums);
    }
    if (!tensor.attribute("chunks")) continue;
    has_optimizer_ |= key.starts_with("optimizer.") || key.starts_with("chained_");
    if (!is_of_the_model(key)) continue;
    const std::string dtype = dtype_of(metadata, key, tensor);
    const Dimensions shape = metadata.numbers(tensor.attribute("size"), key);
    std::vector<Chunk> chunks =
        chunks_of(metadata, key, tensor, shape, element_bytes({.dtype = dtype}));
    const size_t at = stack_position(key);
    if (at == std::string::npos) {
      tensors_[key] = make_source(metadata, key, std::move(chunks), dtype, shape, checksums);
      continue;
    }
    if (shape.empty()) metadata.fail(key + ": layers without a dimension to be stacked on");
    for (int64_t layer = 0; layer < shape[0]; ++layer) {
      metadata.budget().spend(static_cast<int64_t>(4 * key.size()) + kEntryBytes);
      const std::string name = key.substr(0, at) + std::to_string(layer) + "." + key.substr(at);
      std::vector<Chunk> own = layer_of(metadata, chunks, layer);
      if (own.empty()) metadata.fail(name + ": has no chunks");
      tensors_[name] = make_source(metadata, name, std::move(own), dtype,
                                   Dimensions(shape.begin() + 1, shape.end()), checksums);
    }
  }
  const std::string common = folder + "/common.pt";
  if (!common_file_ && fs::exists(common))
    common_file_ = std::make_unique<TorchFile>(common, checksums);
  if (common_file_) common_ = first_dict(common_file_->root());
}

}  // namespace convert
