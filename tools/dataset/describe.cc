// SPDX-License-Identifier: MIT
// Room: tools/dataset. Checks and summaries. Not here: the loader's own checks
// (libindexed/dataset), the repair (repair.cc), the command line (tools/inspect-dataset.cc).
#include "tools/dataset/describe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>
#include <system_error>
#include <utility>

#include "libindexed/mapped_file.h"
#include "libindexed/numpy_random.h"
#include "tools/cli/text.h"
#include "tools/dataset/lengths.h"

namespace dataset {
namespace {

using cli::concat;
using cli::with_commas;
using indexed::FormatError;
using indexed::IndexedDataset;

bool is_old_format(std::span<const std::byte> file) {
  return file.size() >= indexed::kOldIndexMagic.size() &&
         std::memcmp(file.data(), indexed::kOldIndexMagic.data(), indexed::kOldIndexMagic.size()) ==
             0;
}

void check_manifest_sizes(const std::string& prefix, const Sizes& sizes) {
  const std::optional<indexed::Manifest> manifest = indexed::read_manifest(prefix);
  if (!manifest) return;
  const auto same = [&](std::string_view what, int64_t said, int64_t is) {
    if (said != is) {
      throw FormatError(concat(prefix, ".manifest: ", what, " ", with_commas(said),
                               ", but the dataset has ", with_commas(is),
                               ": damaged, or another dataset's"));
    }
  };
  same("sequences", manifest->num_sequences, sizes.num_sequences);
  same("documents", manifest->num_documents, sizes.num_documents);
  same("bin_bytes", manifest->bin_bytes, sizes.bin_bytes);
  same("idx_bytes", manifest->idx_bytes, sizes.idx_bytes);
}

void check_segments(const std::string& path, const indexed::MappedFile& file,
                    const std::vector<indexed::Segment>& segments,
                    const std::function<void(int64_t)>& on_checked = {}) {
  if (const auto damage = indexed::find_damage(file, segments, on_checked)) {
    throw FormatError(concat(path, ":", damage->offset, ": the ", with_commas(damage->bytes),
                             " bytes from here differ from the manifest's checksum: damaged"));
  }
}

// Largest token and the first place where a token is outside 0..limit-1.
void check_tokens(const IndexedDataset& data, int64_t vocab_size,
                  const std::function<void(int64_t)>& on_checked) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < data.num_sequences(); ++i) {
    const indexed::TokenView view = data.sequence(i);
    for (int64_t j = 0; j < view.size(); ++j) {
      if (view[j] < 0 || view[j] >= vocab_size) {
        throw FormatError(concat(data.prefix(), ".bin: sequence ", i, ", token ", j, " is ",
                                 view[j], ", expected 0 to ", vocab_size - 1));
      }
    }
    tokens += view.size();
    if (i % 4096 == 0) {
      data.bin().release();
      data.idx().release();
      on_checked(tokens * indexed::dtype_size(data.dtype()));
    }
  }
}

void check_ends(const IndexedDataset& data, int64_t eod_token) {
  const auto documents = data.document_indices();
  for (size_t k = 0; k + 1 < documents.size(); ++k) {
    if (documents[k] == documents[k + 1]) continue;
    const indexed::TokenView last = data.sequence(documents[k + 1] - 1);
    if (last.size() == 0 || last[last.size() - 1] != eod_token) {
      throw FormatError(concat(data.prefix(), ".bin: document ", k,
                               " does not end with the end-of-document token ", eod_token));
    }
    if (k % 65536 == 0) {
      data.bin().release();
      data.idx().release();
    }
  }
}

}  // namespace

Sizes quick_check(const std::string& prefix, bool multimodal) {
  const indexed::MappedFile idx(prefix + ".idx");
  Sizes sizes;
  sizes.idx_bytes = static_cast<int64_t>(idx.bytes().size());
  if (is_old_format(idx.bytes())) {
    const IndexedDataset data = IndexedDataset::open(prefix, {.tokens = false});
    sizes.dtype = concat(indexed::dtype_name(data.dtype()), ", TNTIDX");
    sizes.num_sequences = data.num_sequences();
    sizes.num_documents = data.num_documents();
    sizes.num_tokens = data.num_tokens();
    sizes.bin_bytes = data.bin_bytes();
    return sizes;
  }
  const indexed::IndexArrays arrays =
      indexed::parse_index(idx.bytes(), multimodal, prefix + ".idx");
  const indexed::MappedFile bin(prefix + ".bin");
  const int64_t element = indexed::dtype_size(arrays.dtype);
  sizes.dtype = indexed::dtype_name(arrays.dtype);
  sizes.bin_bytes = static_cast<int64_t>(bin.bytes().size());
  sizes.num_sequences = static_cast<int64_t>(arrays.sequence_lengths.size());
  sizes.num_documents = static_cast<int64_t>(arrays.document_indices.size()) - 1;
  sizes.num_tokens = sizes.bin_bytes / element;
  if (arrays.document_indices.empty() || arrays.document_indices.front() != 0 ||
      arrays.document_indices.back() != sizes.num_sequences) {
    throw FormatError(concat(prefix, ".idx: the document indices do not run from 0 to ",
                             sizes.num_sequences, ": damaged"));
  }
  const int64_t end = sizes.num_sequences == 0 ? 0
                                               : arrays.sequence_pointers.back() +
                                                     arrays.sequence_lengths.back() * element;
  if (end != sizes.bin_bytes) {
    throw FormatError(concat(prefix, ".bin: ", with_commas(sizes.bin_bytes),
                             " bytes, but the last sequence of the index ends at ",
                             with_commas(end),
                             ": unfinished, damaged, or an index-only shuffle; verify says more"));
  }
  check_manifest_sizes(prefix, sizes);
  return sizes;
}

std::string verify(const std::string& prefix, const VerifyOptions& options) {
  const IndexedDataset data = IndexedDataset::open(
      prefix, {.multimodal = options.multimodal, .permuted = options.permuted});
  const std::optional<indexed::Manifest> manifest = indexed::read_manifest(prefix);
  std::string checked = concat(cli::counted(data.num_sequences(), "pointer"));
  int64_t vocab_size = options.vocab_size;
  if (vocab_size == 0 && manifest) vocab_size = manifest->provenance.vocab_size;
  const int64_t passes = (manifest && !manifest->bin.empty() ? 1 : 0) + (vocab_size > 0 ? 1 : 0);
  int64_t before = 0;  // bytes of the finished passes
  const auto on_checked = [&](int64_t bytes) {
    if (options.on_progress) options.on_progress(before + bytes, passes * data.bin_bytes());
  };
  std::optional<int64_t> eod_token = options.eod_token;
  if (manifest) {
    const Sizes sizes{
        .dtype = {},
        .num_sequences = data.num_sequences(),
        .num_documents = data.num_documents(),
        .num_tokens = data.num_tokens(),
        .bin_bytes = data.bin_bytes(),
        .idx_bytes = static_cast<int64_t>(std::filesystem::file_size(prefix + ".idx"))};
    check_manifest_sizes(prefix, sizes);
    const indexed::MappedFile idx(prefix + ".idx");
    check_segments(prefix + ".idx", idx, manifest->idx);
    check_segments(prefix + ".bin", data.bin(), manifest->bin, on_checked);
    if (!manifest->bin.empty()) before = data.bin_bytes();
    checked += manifest->bin.empty() && data.bin_bytes() > 0 ? ", checksums of the index"
                                                             : ", all checksums";
    if (!eod_token && manifest->provenance.eod_token >= 0)
      eod_token = manifest->provenance.eod_token;
  }
  if (vocab_size > 0) {
    check_tokens(data, vocab_size, on_checked);
    checked +=
        concat(", ", cli::counted(data.num_tokens(), "token"), " below ", with_commas(vocab_size));
  }
  if (eod_token) {
    check_ends(data, *eod_token);
    checked += concat(", every document's end (", *eod_token, ")");
  }
  return checked;
}

std::string statistics(const IndexedDataset& data, int64_t columns) {
  LengthCounts counts;
  int64_t empty = 0;
  for (size_t k = 0; k < static_cast<size_t>(data.num_documents()); ++k) {
    const int64_t length = document_length(data, static_cast<int64_t>(k));
    if (data.document_indices()[k] == data.document_indices()[k + 1]) ++empty;
    counts.add(length);
    if (k % 65536 == 0) data.idx().release();
  }
  const double mean = data.num_documents() == 0 ? 0
                                                : static_cast<double>(data.num_tokens()) /
                                                      static_cast<double>(data.num_documents());
  char mean_text[40];
  std::snprintf(mean_text, sizeof mean_text, "%.1f", mean);
  std::string out = concat(
      "dtype              ", indexed::dtype_name(data.dtype()),
      data.old_format() ? " (TNTIDX)" : "", "\ntoken bytes        ", with_commas(data.bin_bytes()),
      "\ndocuments          ", with_commas(data.num_documents()), "\nempty documents    ",
      with_commas(empty), "\nsequences          ", with_commas(data.num_sequences()),
      "\ntokens             ", with_commas(data.num_tokens()), "\n");
  if (data.num_documents() == 0) return out;
  out += concat("tokens a document  mean ", mean_text, ", least ", with_commas(counts.least()),
                ", median ", with_commas(counts.percentile(0.5)), ", 90% ",
                with_commas(counts.percentile(0.9)), ", 99% ", with_commas(counts.percentile(0.99)),
                ", most ", with_commas(counts.most()), "\n\n");
  return out + "       tokens a document     documents\n" + counts.histogram(columns);
}

std::string provenance_lines(const std::optional<indexed::Manifest>& manifest) {
  if (!manifest) return "manifest           none\n";
  const indexed::Provenance& from = manifest->provenance;
  std::string out;
  const auto line = [&out](std::string_view name, const std::string& value) {
    if (!value.empty())
      out += concat(name, std::string(19 - name.size(), ' '), cli::one_line(value), "\n");
  };
  line("made by", from.tool);
  for (const std::string& command : from.command) line("command", command);
  line("tokenizer", from.tokenizer);
  line("tokenizer hash", from.tokenizer_hash);
  if (from.vocab_size > 0) line("vocabulary", with_commas(from.vocab_size));
  if (from.eod_token >= 0) line("end of document", std::to_string(from.eod_token));
  if (!from.shuffle_unit.empty())
    line("shuffled", concat("by ", from.shuffle_unit, ", seed ", from.shuffle_seed));
  constexpr size_t kMostRuns = 10;
  for (size_t i = 0; i < std::min(from.sources.size(), kMostRuns); ++i) {
    line("source", concat(from.sources[i].path, ", ",
                          cli::counted(from.sources[i].num_documents, "document")));
  }
  if (from.sources.size() > kMostRuns)
    line("source", concat("and ", from.sources.size() - kMostRuns, " more runs"));
  return out;
}

SourceFinder::SourceFinder(const IndexedDataset& data) : prefix_(data.prefix()) {
  record_of(prefix_, data.num_documents());
}

const SourceFinder::Record& SourceFinder::record_of(const std::string& prefix,
                                                    int64_t num_documents) {
  const auto known = records_.find(prefix);
  if (known != records_.end()) return known->second;
  Record record = {.manifest = {}, .fits = false, .order = {}};
  try {
    record.manifest = indexed::read_manifest(prefix);
  } catch (const std::exception&) {
    if (prefix == prefix_) throw;
  }
  record.fits = record.manifest && record.manifest->num_documents == num_documents;
  if (record.fits && !record.manifest->provenance.shuffle_unit.empty()) {
    record.order.resize(static_cast<size_t>(num_documents));
    std::iota(record.order.begin(), record.order.end(), int64_t{0});
    indexed::RandomState(static_cast<uint32_t>(record.manifest->provenance.shuffle_seed))
        .shuffle(std::span(record.order));
  }
  return records_.emplace(prefix, std::move(record)).first->second;
}

namespace {

// Whether the bytes of a merge, as far as their checksums are known, may have those of `part`: a
// merge keeps the segments of its inputs. A shuffle has none of its input's.
bool may_contain(const indexed::Manifest& merge, const indexed::Manifest& part) {
  if (!merge.provenance.shuffle_unit.empty() || merge.bin.empty() || part.bin.empty()) return true;
  const auto same = [](const indexed::Segment& a, const indexed::Segment& b) {
    return a.bytes == b.bytes && a.block_crc32c == b.block_crc32c;
  };
  return !std::ranges::search(merge.bin, part.bin, same).empty();
}

}  // namespace

std::string SourceFinder::where(int64_t k) {
  const Record* record = &records_.at(prefix_);
  if (!record->manifest) return "unknown: the dataset has no manifest";
  if (!record->fits) return "unknown: the manifest is another dataset's";
  std::set<std::string> seen = {prefix_};
  for (;;) {
    const indexed::Manifest& manifest = *record->manifest;
    const int64_t original = record->order.empty() ? k : record->order[static_cast<size_t>(k)];
    const std::optional<indexed::SourceLine> source =
        indexed::source_of(manifest.provenance.sources, original);
    if (!source) return "unknown: the manifest names no source for it";
    const std::string path = cli::one_line(source->path);
    if (source->line > 0) return concat(path, ":", source->line);
    std::error_code none;
    if (std::filesystem::is_regular_file(source->path, none)) return path;
    // The documents of a dataset.
    k = source->document;
    const auto ends = [&](std::string_view why) {
      return concat(path, " document ", k, ": the record ends here: ", why);
    };
    record = &record_of(source->path, source->num_documents);
    if (!record->manifest && !std::filesystem::exists(source->path + ".idx", none))
      return concat(path, ": the record ends here: no file and no dataset has this name now");
    if (!record->manifest) return ends("this dataset has no manifest that can be read");
    if (!seen.insert(source->path).second || !record->fits ||
        record->manifest->num_documents != source->num_documents ||
        !may_contain(manifest, *record->manifest))
      return ends("this dataset was replaced since");
    if (record->manifest->provenance.sources.empty()) return ends("its manifest names no source");
  }
}

int64_t document_of(const IndexedDataset& data, int64_t i) {
  const auto documents = data.document_indices();
  const auto after = std::upper_bound(
      documents.begin(), documents.end(), i,
      [](int64_t value, const indexed::Le<int64_t>& index) { return value < index; });
  return after - documents.begin() - 1;
}

}  // namespace dataset
