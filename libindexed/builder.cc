// SPDX-License-Identifier: MIT
// IndexedDatasetBuilder. The lengths are at a fixed place of the .idx (byte 34), so they are
// written there at once; what follows them is written when their number is known.
#include "libindexed/builder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "libindexed/message.h"

namespace indexed {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
/// The size of a second-level cache; for smaller files copying in the kernel does not pay.
constexpr int64_t kCachedBytes = int64_t{256} << 10;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// One pass: converts everything, and finds the largest token as an unsigned number (a negative one
// is huge).
template <class File, class Token>
std::make_unsigned_t<Token> convert(std::span<const Token> tokens, std::byte* out) {
  auto* to = reinterpret_cast<Le<File>*>(out);
  std::make_unsigned_t<Token> worst = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    worst = std::max(worst, static_cast<std::make_unsigned_t<Token>>(tokens[i]));
    to[i] = static_cast<File>(tokens[i]);
  }
  return worst;
}

template <class Token>
void encode(std::span<const Token> tokens, DType dtype, int64_t vocab_size,
            std::vector<std::byte>& out) {
  const size_t before = out.size();
  out.resize(before + tokens.size() * static_cast<size_t>(dtype_size(dtype)));
  std::byte* to = out.data() + before;
  std::make_unsigned_t<Token> worst = 0;
  switch (dtype) {
    case DType::uint8:
      worst = convert<uint8_t>(tokens, to);
      break;
    case DType::int8:
      worst = convert<int8_t>(tokens, to);
      break;
    case DType::int16:
      worst = convert<int16_t>(tokens, to);
      break;
    case DType::uint16:
      worst = convert<uint16_t>(tokens, to);
      break;
    case DType::int32:
      worst = convert<int32_t>(tokens, to);
      break;
    case DType::int64:
      worst = convert<int64_t>(tokens, to);
      break;
    case DType::float32:
      worst = convert<float>(tokens, to);
      break;
    case DType::float64:
      worst = convert<double>(tokens, to);
      break;
  }
  int64_t highest = token_range(dtype).highest;
  if (vocab_size > 0) highest = std::min(highest, vocab_size - 1);
  if (static_cast<uint64_t>(worst) <= static_cast<uint64_t>(highest)) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<int64_t>(tokens[i]);
    if (token < 0 || token > highest) {
      throw FormatError(message(
          "token ", i, " is ", token, ", expected 0 to ", highest,
          vocab_size > 0 && highest == vocab_size - 1 ? " (vocabulary)" : " ",
          vocab_size > 0 && highest == vocab_size - 1 ? std::string_view() : dtype_name(dtype)));
    }
  }
}

}  // namespace

void encode_tokens(std::span<const int32_t> tokens, DType dtype, int64_t vocab_size,
                   std::vector<std::byte>& out) {
  encode(tokens, dtype, vocab_size, out);
}

void encode_tokens(std::span<const uint32_t> tokens, DType dtype, int64_t vocab_size,
                   std::vector<std::byte>& out) {
  encode(tokens, dtype, vocab_size, out);
}

namespace {

// Whether a file is a complete index of a .bin of `bin_bytes` bytes, as the builder writes one.
bool describes(const std::string& index, size_t bin_bytes) {
  const auto bytes_described = [](const IndexArrays& arrays) {
    if (arrays.sequence_lengths.empty()) return int64_t{0};
    return arrays.sequence_pointers.back() +
           arrays.sequence_lengths.back() * dtype_size(arrays.dtype);
  };
  for (const bool multimodal : {false, true}) {
    try {
      const MappedFile file(index);
      const IndexArrays arrays = parse_index(file.bytes(), multimodal, index);
      return bytes_described(arrays) == static_cast<int64_t>(bin_bytes);
    } catch (const std::exception&) {  // unfinished, or with modes
    }
  }
  return false;
}

// Whether PREFIX.bin is what a kill between the renames of finish() leaves: a .bin without an .idx,
// and the temporary file of the .idx, which is complete and describes it. Any other .bin is not
// ours, or belongs to an .idx that was lost or that another process is about to name.
bool is_left_bin(const std::string& prefix) {
  struct stat bin {};
  if (::access((prefix + ".idx").c_str(), F_OK) == 0 ||
      ::lstat((prefix + ".bin").c_str(), &bin) != 0 || !S_ISREG(bin.st_mode) ||
      left_unfinished(prefix + ".bin"))
    return false;
  return std::ranges::any_of(left_temporaries(prefix + ".idx"), [&](const std::string& index) {
    return describes(index, static_cast<size_t>(bin.st_size));
  });
}

// The same command may replace such a .bin.
Existing existing_bin(const std::string& prefix, Existing existing) {
  return existing == Existing::refuse && is_left_bin(prefix) ? Existing::replace : existing;
}

// It is removed before the OutputFile of the .idx removes what shows that it is ours: if this run
// is killed too, nothing is left that the next one would take for another's.
Existing without_left_bin(const std::string& prefix, Existing existing) {
  if (existing == Existing::refuse && is_left_bin(prefix)) ::unlink((prefix + ".bin").c_str());
  return existing;
}

// A manifest of ours without its pair describes nothing, so another may replace it. A file of
// another kind is not ours, and what a link leads to may be another dataset's.
Existing existing_manifest(const std::string& prefix, Existing existing) {
  return has_manifest(prefix) ? Existing::replace : existing;
}

}  // namespace

void refuse_bad_targets(const std::string& prefix, Existing existing) {
  refuse_bad_target(prefix + ".bin", existing_bin(prefix, existing));
  refuse_bad_target(prefix + ".idx", existing);
  refuse_bad_target(manifest_path(prefix), existing_manifest(prefix, existing));
}

IndexedDatasetBuilder::IndexedDatasetBuilder(std::string prefix, const BuilderOptions& options)
    : prefix_(std::move(prefix)),
      options_(options),
      bin_(prefix_ + ".bin", without_left_bin(prefix_, options.existing)),
      idx_(prefix_ + ".idx", options.existing),
      document_runs_(prefix_ + ".idx"),
      bin_segments_(1),
      idx_segments_(options.multimodal ? 5 : 4) {
  // Without `replace` the one that is late finds the files of the other.
  if (options_.existing == Existing::replace) {
    bin_.refuse_second_writer();
    idx_.refuse_second_writer();
  }
  const std::string path = manifest_path(prefix_);
  const Existing earlier = existing_manifest(prefix_, options_.existing);
  if (options_.manifest)
    manifest_ = std::make_unique<OutputFile>(path, earlier);
  else
    refuse_bad_target(path, earlier);
  removes_manifest_ = earlier == Existing::replace;
  if (options_.multimodal) modes_ = std::make_unique<ScratchFile>(prefix_ + ".idx");
  idx_.write(bytes_of(IndexHeader{}));
}

void IndexedDatasetBuilder::write_bin(std::span<const std::byte> bytes) {
  if (options_.manifest) bin_segments_.back().add(bytes);
  bin_.write(bytes);
}

void IndexedDatasetBuilder::write_idx(std::span<const std::byte> bytes, Segment& segment) {
  if (options_.manifest) segment.add(bytes);
  idx_.write(bytes);
}

void IndexedDatasetBuilder::add_sequences(std::span<const int32_t> lengths,
                                          std::span<const int8_t> modes) {
  if (modes.size() != (options_.multimodal ? lengths.size() : 0)) {
    throw FormatError(
        message(prefix_, ".idx: ", modes.size(), " modes for ", lengths.size(), " sequences"));
  }
  std::array<Le<int32_t>, 1024> piece;
  for (size_t at = 0; at < lengths.size(); at += piece.size()) {
    const size_t n = std::min(piece.size(), lengths.size() - at);
    for (size_t i = 0; i < n; ++i) {
      const int32_t length = lengths[at + i];
      if (length < 0)
        throw FormatError(message(prefix_, ".idx: a sequence of ", length, " tokens"));
      piece[i] = length;
      num_tokens_ += length;
    }
    write_idx(std::as_bytes(std::span(piece).first(n)), idx_segments_[1]);
  }
  num_sequences_ += static_cast<int64_t>(lengths.size());
  if (modes_ != nullptr) modes_->write(std::as_bytes(modes));
}

/// Ends a document of the sequences from document_end_ to `end`.
void IndexedDatasetBuilder::end_document(int64_t end) {
  const int64_t sequences = end - document_end_;
  if (sequences != run_.sequences) end_run();
  run_.sequences = sequences;
  ++run_.documents;
  ++num_documents_;
  document_end_ = end;
}

void IndexedDatasetBuilder::end_run() {
  if (run_.documents > 0) document_runs_->write(bytes_of(run_));
  run_.documents = 0;
}

template <class Token>
void IndexedDatasetBuilder::add_tokens(std::span<const Token> tokens,
                                       std::span<const int32_t> sequence_lengths,
                                       std::span<const int8_t> modes) {
  int64_t sum = 0;
  for (const int32_t length : sequence_lengths) sum += length;
  if (sum != static_cast<int64_t>(tokens.size())) {
    throw FormatError(message(prefix_, ".bin: document ", num_documents_, ": ", tokens.size(),
                              " tokens in sequences of ", sum, " together"));
  }
  encoded_.clear();
  try {
    encode(tokens, options_.dtype, options_.vocab_size, encoded_);
  } catch (const FormatError& error) {
    throw FormatError(message(prefix_, ".bin: document ", num_documents_, ": ", error.what()));
  }
  write_bin(encoded_);
  if (encoded_.capacity() > 64 * kPieceBytes) std::vector<std::byte>().swap(encoded_);
  add_sequences(sequence_lengths, modes);
  end_document(num_sequences_);
}

void IndexedDatasetBuilder::add_document(std::span<const int32_t> tokens,
                                         std::span<const int32_t> sequence_lengths,
                                         std::span<const int8_t> modes) {
  add_tokens(tokens, sequence_lengths, modes);
}

void IndexedDatasetBuilder::add_document(std::span<const uint32_t> tokens,
                                         std::span<const int32_t> sequence_lengths,
                                         std::span<const int8_t> modes) {
  add_tokens(tokens, sequence_lengths, modes);
}

namespace {

int32_t single_length(size_t tokens, const std::string& prefix, int64_t document) {
  if (tokens > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw FormatError(message(prefix, ".idx: document ", document, ": ", tokens,
                              " tokens in one sequence, at most 2147483647 fit"));
  }
  return static_cast<int32_t>(tokens);
}

}  // namespace

void IndexedDatasetBuilder::add_document(std::span<const int32_t> tokens) {
  const int32_t length = single_length(tokens.size(), prefix_, num_documents_);
  add_tokens(tokens, std::span(&length, tokens.empty() ? 0 : 1), {});
}

void IndexedDatasetBuilder::add_document(std::span<const uint32_t> tokens) {
  const int32_t length = single_length(tokens.size(), prefix_, num_documents_);
  add_tokens(tokens, std::span(&length, tokens.empty() ? 0 : 1), {});
}

void IndexedDatasetBuilder::check_encoded(std::span<const std::byte> tokens,
                                          std::span<const int32_t> sequence_lengths,
                                          std::span<const int32_t> sequences_per_document) {
  int64_t sum = 0;
  for (const int32_t length : sequence_lengths) sum += length;
  int64_t sequences = 0;
  for (const int32_t count : sequences_per_document) sequences += std::max(count, -1);
  const int64_t bytes = static_cast<int64_t>(tokens.size()) + std::exchange(bytes_ahead_, 0);
  if (sum * dtype_size(options_.dtype) != bytes ||
      sequences != static_cast<int64_t>(sequence_lengths.size())) {
    throw FormatError(message(prefix_, ".bin: from document ", num_documents_, " on: ", bytes,
                              " bytes, ", sum, " tokens, ", sequence_lengths.size(),
                              " sequences and ", sequences, " of documents do not fit"));
  }
}

void IndexedDatasetBuilder::add_encoded(std::span<const std::byte> tokens,
                                        std::span<const int32_t> sequence_lengths,
                                        std::span<const int32_t> sequences_per_document,
                                        std::span<const int8_t> modes) {
  check_encoded(tokens, sequence_lengths, sequences_per_document);
  write_bin(tokens);
  add_sequences(sequence_lengths, modes);
  add_documents(sequences_per_document);
}

void IndexedDatasetBuilder::add_encoded(std::span<const std::byte> tokens, uint32_t tokens_crc32c,
                                        std::span<const int32_t> sequence_lengths,
                                        std::span<const int32_t> sequences_per_document) {
  check_encoded(tokens, sequence_lengths, sequences_per_document);
  if (options_.manifest) bin_segments_.back().add(tokens, tokens_crc32c);
  bin_.write(tokens);
  add_sequences(sequence_lengths, {});
  add_documents(sequences_per_document);
}

void IndexedDatasetBuilder::add_encoded_ahead(std::span<const std::byte> tokens) {
  write_bin(tokens);
  bytes_ahead_ += static_cast<int64_t>(tokens.size());
}

void IndexedDatasetBuilder::add_documents(std::span<const int32_t> sequences_per_document) {
  for (const int32_t sequences : sequences_per_document) end_document(document_end_ + sequences);
}

void IndexedDatasetBuilder::add_index(std::span<const int32_t> sequence_lengths,
                                      std::span<const int32_t> sequences_per_document) {
  add_sequences(sequence_lengths, {});
  add_documents(sequences_per_document);
}

void IndexedDatasetBuilder::place(int64_t offset, std::span<const std::byte> bytes) {
  bin_.write_at(offset, bytes);
}

void IndexedDatasetBuilder::read_back(int64_t offset, std::span<std::byte> bytes) {
  if (read_at(bin_.fd(), offset, bytes, bin_.path()) != bytes.size())
    errno = EIO, fail(bin_.path());
}

void IndexedDatasetBuilder::add_checksums(std::span<const std::byte> bytes) {
  if (options_.manifest) bin_segments_.back().add(bytes);
}

void IndexedDatasetBuilder::add_dataset(const IndexedDataset& dataset,
                                        std::span<const Segment> checksums, bool read_all) {
  if (dataset.dtype() != options_.dtype) {
    throw FormatError(message(dataset.prefix(), ".idx: dtype ", dtype_name(dataset.dtype()),
                              " differs from ", dtype_name(options_.dtype), " of ", prefix_,
                              ".idx"));
  }
  copy_bin(dataset, checksums, read_all);
  std::array<int32_t, 4096> lengths;
  const std::span<const Le<int32_t>> all = dataset.sequence_lengths();
  const int64_t before = num_sequences_;
  for (size_t at = 0; at < all.size(); at += lengths.size()) {
    const size_t n = std::min(lengths.size(), all.size() - at);
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(at), n, lengths.begin());
    add_sequences(std::span(lengths).first(n), options_.multimodal
                                                   ? dataset.sequence_modes().subspan(at, n)
                                                   : std::span<const int8_t>());
    if (at % (size_t{1} << 20) == 0) dataset.idx().release();
  }
  const std::span<const Le<int64_t>> documents = dataset.document_indices().subspan(1);
  for (size_t i = 0; i < documents.size(); ++i) {
    end_document(before + documents[i]);
    if (i % (size_t{1} << 20) == 0) dataset.idx().release();
  }
  document_end_ = num_sequences_;
}

void IndexedDatasetBuilder::copy_bin(const IndexedDataset& dataset,
                                     std::span<const Segment> checksums, bool read_all) {
  bool contiguous = true;
  int64_t next = 0;
  for (int64_t i = 0; i < dataset.num_sequences() && contiguous; ++i) {
    contiguous = dataset.sequence_pointers()[static_cast<size_t>(i)] == next;
    next += dataset.sequence_lengths()[static_cast<size_t>(i)] * dtype_size(dataset.dtype());
    if (i % (int64_t{1} << 20) == 0) dataset.idx().release();
  }
  if (!contiguous) {
    for (int64_t i = 0; i < dataset.num_sequences(); ++i) write_bin(dataset.sequence(i).bytes());
    return;
  }
  copy_file(dataset.prefix() + ".bin", next, read_all);
  if (next == 0 || read_all) return;
  bin_segments_.insert(bin_segments_.end(), checksums.begin(), checksums.end());
  bin_segments_.emplace_back();
  checksums_known_ = checksums_known_ && !checksums.empty();
}

// Copies in the kernel where possible. Otherwise, and if the bytes are needed here, copies in
// pieces that fit in a second-level cache (bench/data.md, "Datasets"). Pieces are small in both
// cases, so that writing to the disk begins early.
void IndexedDatasetBuilder::copy_file(const std::string& path, int64_t bytes, bool checksum) {
  struct Descriptor {
    int fd;
    ~Descriptor() { ::close(fd); }
  };
  const Descriptor from{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (from.fd < 0) fail(path);
  ::posix_fadvise(from.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  bool in_kernel = !checksum && bytes >= kCachedBytes;
  for (int64_t at = 0; at < bytes;) {
    if (in_kernel) {
      const int64_t copied =
          bin_.append_from(from.fd, at, std::min<int64_t>(bytes - at, kPieceBytes));
      in_kernel = copied > 0;
      at += copied;
      if (options_.on_copied) options_.on_copied(bin_.size());
      continue;
    }
    encoded_.resize(kCachedBytes);
    const auto piece =
        std::span(encoded_).first(static_cast<size_t>(std::min<int64_t>(bytes - at, kCachedBytes)));
    if (read_at(from.fd, at, piece, path) != piece.size())
      throw FormatError(message(path, ": cut short while it was being read"));
    at += static_cast<int64_t>(piece.size());
    if (checksum) {
      write_bin(piece);
    } else {
      bin_.write(piece);
    }
    if (options_.on_copied) options_.on_copied(bin_.size());
  }
}

void IndexedDatasetBuilder::write_index() {
  idx_.flush();
  std::vector<std::byte> piece(kPieceBytes);
  std::vector<Le<int64_t>> pointers(kPieceBytes / 4);
  const int64_t element = dtype_size(options_.dtype);
  const int64_t end = static_cast<int64_t>(sizeof(IndexHeader)) + 4 * num_sequences_;
  int64_t pointer = 0;
  for (int64_t at = sizeof(IndexHeader); at < end;) {
    const auto want = static_cast<size_t>(std::min<int64_t>(end - at, kPieceBytes));
    if (read_at(idx_.fd(), at, std::span(piece).first(want), idx_.path()) != want)
      errno = EIO, fail(idx_.path());
    const auto* lengths = reinterpret_cast<const Le<int32_t>*>(piece.data());
    for (size_t i = 0; i < want / 4; ++i) {
      pointers[i] = pointer;
      pointer += lengths[i] * element;
    }
    write_idx(std::as_bytes(std::span(pointers).first(want / 4)), idx_segments_[2]);
    at += static_cast<int64_t>(want);
  }
  write_document_indices();
  if (modes_ != nullptr) {
    modes_->read_all([&](std::span<const std::byte> bytes) { write_idx(bytes, idx_segments_[4]); });
  }
  IndexHeader header;
  header.dtype_code = static_cast<uint8_t>(options_.dtype);
  header.num_sequences = static_cast<uint64_t>(num_sequences_);
  header.num_document_indices = static_cast<uint64_t>(num_documents_) + 1;
  idx_.flush();
  idx_.write_at(0, bytes_of(header));
  if (options_.manifest) idx_segments_[0].add(bytes_of(header));
}

void IndexedDatasetBuilder::write_document_indices() {
  std::vector<Le<int64_t>> piece(kPieceBytes / 8);
  int64_t index = 0;
  piece[0] = index;
  size_t size = 1;
  const auto write_piece = [&] {
    write_idx(std::as_bytes(std::span(piece).first(size)), idx_segments_[3]);
    size = 0;
  };
  end_run();
  document_runs_->read_all([&](std::span<const std::byte> bytes) {
    const std::span runs(reinterpret_cast<const DocumentRun*>(bytes.data()),
                         bytes.size() / sizeof(DocumentRun));
    for (const DocumentRun& run : runs) {
      for (int64_t left = run.documents; left > 0;) {
        if (size == piece.size()) write_piece();
        const auto n = std::min(left, static_cast<int64_t>(piece.size() - size));
        Le<int64_t>* to = piece.data() + size;
        for (int64_t i = 0; i < n; ++i) to[i] = index + (i + 1) * run.sequences;
        index += n * run.sequences;
        size += static_cast<size_t>(n);
        left -= n;
      }
    }
  });
  write_piece();
}

Manifest IndexedDatasetBuilder::make_manifest(const Provenance& provenance) {
  Manifest manifest;
  manifest.dtype = dtype_name(options_.dtype);
  manifest.num_sequences = num_sequences_;
  manifest.num_documents = num_documents_;
  manifest.num_tokens = num_tokens_;
  manifest.multimodal = options_.multimodal;
  manifest.bin_bytes = bin_.size();
  manifest.idx_bytes = idx_.size();
  const auto move_non_empty = [](std::vector<Segment>& from, std::vector<Segment>& to) {
    for (Segment& segment : from) {
      if (segment.bytes > 0) to.push_back(std::move(segment));
    }
  };
  if (checksums_known_) move_non_empty(bin_segments_, manifest.bin);
  move_non_empty(idx_segments_, manifest.idx);
  manifest.provenance = provenance;
  return manifest;
}

void IndexedDatasetBuilder::end_writing(const Provenance& provenance) {
  if (std::exchange(ended_, true)) return;
  if (bin_.size() != num_tokens_ * dtype_size(options_.dtype)) {
    throw FormatError(message(prefix_, ".bin: ", bin_.size(), " bytes were written for ",
                              num_tokens_, " tokens"));
  }
  write_index();
  document_runs_.reset();
  if (manifest_ != nullptr) {
    manifest_->write(write_manifest(make_manifest(provenance)));
    manifest_->end_writing();
  }
  bin_.end_writing();
  idx_.end_writing();
}

void IndexedDatasetBuilder::prepare(const Provenance& provenance) {
  end_writing(provenance);
  OutputFile* const files[] = {&bin_, &idx_, manifest_.get()};
  sync_all(std::span(files).first(manifest_ == nullptr ? 2 : 3));
}

void IndexedDatasetBuilder::give_names(std::span<IndexedDatasetBuilder* const> datasets,
                                       std::span<const std::string> surplus) {
  const NamingSection section;
  std::vector<OutputFile*> files;
  for (IndexedDatasetBuilder* one : datasets) {
    // The manifest of an earlier dataset of this name would describe bytes that no longer exist.
    if (one->manifest_ == nullptr && one->removes_manifest_) {
      // By now it may be another process's.
      refuse_bad_target(one->prefix_ + ".idx", one->options_.existing);
      ::unlink(manifest_path(one->prefix_).c_str());
    }
    if (one->manifest_ != nullptr) files.push_back(one->manifest_.get());
    files.push_back(&one->bin_);
  }
  for (IndexedDatasetBuilder* one : datasets) files.push_back(&one->idx_);
  commit_set(files, datasets.size(), surplus);
}

void IndexedDatasetBuilder::finish(const Provenance& provenance) {
  prepare(provenance);
  IndexedDatasetBuilder* const self = this;
  give_names(std::span(&self, 1));
}

}  // namespace indexed
