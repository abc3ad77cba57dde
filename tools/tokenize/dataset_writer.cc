// SPDX-License-Identifier: MIT
// Room: tools/tokenize. The ordered stage: fills builders, begins and ends shards, renames files.
#include "tools/tokenize/dataset_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "libindexed/message.h"
#include "libindexed/output_file.h"

namespace tokenize {
namespace {

namespace fs = std::filesystem;

/// A manifest lists at most this many runs of lines; after these only the files.
constexpr size_t kMaxRuns = 65536;

constexpr std::array kEndings = {".manifest", ".bin", ".idx"};

/// Also for a name that is too long for one of its files.
bool is_there(const std::string& path) {
  std::error_code none;
  return fs::exists(path, none);
}

bool has_index(const std::string& prefix) { return is_there(prefix + ".idx"); }

/// Bytes of the ids from `first` on, `count` of them.
std::span<const std::byte> part_of(const EncodedKey& key, int64_t first, int64_t count) {
  const std::span<const std::byte> bytes = key.ids.bytes();
  const int64_t width = key.ids.width() == tok::IdWidth::two ? 2 : 4;
  return bytes.subspan(static_cast<size_t>(first * width), static_cast<size_t>(count * width));
}

}  // namespace

void Totals::add(const EncodedChunk& chunk) {
  for (const EncodedKey& key : chunk.keys) {
    tokens += static_cast<int64_t>(key.ids.total());
    empty += key.empty_documents;
  }
  for (const EncodedChunk::Run& run : chunk.runs) documents += run.documents;
  text_bytes += chunk.text_bytes;
  special_tokens += chunk.special_tokens;
}

std::string DatasetNames::prefix(size_t key, int64_t shard) const {
  if (shard_tokens == 0) return output_prefix + endings[key];
  char number[32];
  std::snprintf(number, sizeof number, "_%05lld", static_cast<long long>(shard));
  return output_prefix + number + endings[key];
}

DatasetWriter::DatasetWriter(DatasetNames names, const indexed::BuilderOptions& options,
                             indexed::Provenance provenance, bool trace)
    : names_(std::move(names)),
      options_(options),
      provenance_(std::move(provenance)),
      trace_(trace),
      keys_(names_.endings.size()) {
  killed_ = was_killed();
  if (names_.shard_tokens > 0 && !killed_ && options_.existing == indexed::Existing::refuse)
    refuse_old_shards();
  refuse_other_form();
  for (size_t key = 0; key < keys_.size(); ++key) open_shard(key);
}

/// Whether an earlier run was killed while renaming: some datasets are complete, others still have
/// temporary files. The same command makes them all again and leaves the complete ones unchanged.
bool DatasetWriter::was_killed() const {
  for (size_t key = 0; key < names_.endings.size(); ++key) {
    for (int64_t shard = 0; shard < kMostShards; ++shard) {
      const std::string prefix = names_.prefix(key, shard);
      if (!has_index(prefix)) {
        if (indexed::left_unfinished(prefix + ".idx")) return true;
        break;
      }
      if (names_.shard_tokens == 0) break;
    }
  }
  return false;
}

/// Called before anything is read: otherwise an existing later shard would end the run only when it
/// is reached.
void DatasetWriter::refuse_old_shards() const {
  for (size_t key = 0; key < names_.endings.size(); ++key) {
    for (int64_t shard = 0; shard < kMostShards; ++shard) {
      const std::string index = names_.prefix(key, shard) + ".idx";
      if (is_there(index))
        throw std::system_error(EEXIST, std::generic_category(),
                                index + ": not replaced without --force");
    }
  }
}

/// Readers of the folder would read every document twice. Nothing is removed, also with --force: a
/// dataset of such a name may be another run's whole one.
void DatasetWriter::refuse_other_form() const {
  const DatasetNames other = names_.other_form();
  for (size_t key = 0; key < other.endings.size(); ++key) {
    const std::string index = other.prefix(key, 0) + ".idx";
    if (is_there(index))
      throw std::system_error(
          EEXIST, std::generic_category(),
          indexed::message(index, ": looks like the same dataset with",
                           other.shard_tokens == 0 ? "out shards" : " shards",
                           ", which would be read twice: remove it, or give another "
                           "--output-prefix"));
  }
}

/// Prefixes of surplus shards of an earlier run that this one replaces: readers would use them too.
/// Those that a killed run has left without their .idx are among them.
std::vector<std::string> DatasetWriter::surplus_shards() const {
  std::vector<std::string> found;
  if (names_.shard_tokens == 0 || options_.existing != indexed::Existing::replace) return found;
  for (size_t key = 0; key < keys_.size(); ++key) {
    for (int64_t shard = static_cast<int64_t>(keys_[key].shards.size()); shard < kMostShards;
         ++shard) {
      const std::string prefix = names_.prefix(key, shard);
      const auto exists = [&](const char* ending) { return is_there(prefix + ending); };
      if (std::ranges::none_of(kEndings, exists)) break;
      found.push_back(prefix);
    }
  }
  return found;
}

void DatasetWriter::open_shard(size_t key) {
  Key& to = keys_[key];
  if (num_shards_ == kMostShards) {
    throw indexed::FormatError(indexed::message(names_.output_prefix, ": more than ", kMostShards,
                                                " shards of ", names_.shard_tokens,
                                                " tokens: --shard-tokens is too small"));
  }
  ++num_shards_;
  const std::string prefix = names_.prefix(key, static_cast<int64_t>(to.shards.size()));
  indexed::BuilderOptions own = options_;
  if (killed_ && has_index(prefix) && own.existing == indexed::Existing::refuse)
    own.existing = indexed::Existing::same;
  to.shards.push_back(std::make_unique<indexed::IndexedDatasetBuilder>(prefix, own));
  to.first_document = to.documents;
}

/// The last shard of a key is complete.
void DatasetWriter::close_shard(size_t key) {
  Key& from = keys_[key];
  indexed::Provenance provenance = provenance_;
  provenance.sources =
      names_.shard_tokens == 0 ? sources_ : sources_of(from.first_document, from.documents);
  from.shards.back()->end_writing(provenance);
}

/// The source lines of documents `first` to `end` - 1.
std::vector<indexed::SourceRun> DatasetWriter::sources_of(int64_t first, int64_t end) const {
  std::vector<indexed::SourceRun> out;
  for (const indexed::SourceRun& run : sources_) {
    const int64_t begin = std::max(first, run.first_document);
    const int64_t last = std::min(end, run.first_document + run.num_documents);
    if (begin >= last) continue;
    const int64_t line = run.first_line == 0 ? 0 : run.first_line + begin - run.first_document;
    out.push_back({run.path, begin - first, last - begin, line});
  }
  return out;
}

/// Extends the last run if the chunk's first one continues it, else adds new ones.
void DatasetWriter::add_runs(const EncodedChunk& chunk, const std::string& input,
                             int64_t first_line) {
  int64_t document = totals_.documents;
  for (const EncodedChunk::Run& run : chunk.runs) {
    const int64_t line = first_line == 0 ? 0 : first_line + run.line;
    indexed::SourceRun* last = sources_.empty() ? nullptr : &sources_.back();
    const bool same_file = last != nullptr && last->path == input;
    const bool follows = same_file && (line == 0 ? last->first_line == 0
                                                 : last->first_line + last->num_documents == line);
    if (follows || (same_file && sources_.size() >= kMaxRuns)) {
      if (!follows) last->first_line = 0;
      last->num_documents += run.documents;
    } else {
      sources_.push_back({input, document, run.documents, line});
    }
    document += run.documents;
  }
}

void DatasetWriter::add_to_shards(size_t key, const EncodedKey& encoded) {
  Key& to = keys_[key];
  const std::span<const int32_t> lengths(encoded.lengths), sequences(encoded.sequences);
  int64_t tokens = 0, first_token = 0;
  size_t document = 0, sequence = 0, first_document = 0, first_sequence = 0;
  const auto flush = [&] {
    to.shards.back()->add_encoded(part_of(encoded, first_token, tokens - first_token),
                                  lengths.subspan(first_sequence, sequence - first_sequence),
                                  sequences.subspan(first_document, document - first_document));
    to.documents += static_cast<int64_t>(document - first_document);
    first_token = tokens;
    first_sequence = sequence;
    first_document = document;
  };
  for (; document < sequences.size(); ++document) {
    const auto count = static_cast<size_t>(sequences[document]);
    const std::span<const int32_t> own = lengths.subspan(sequence, count);
    const int64_t size = std::accumulate(own.begin(), own.end(), int64_t{0});
    const int64_t before = to.shards.back()->num_tokens() + tokens - first_token;
    if (before > 0 && before + size > names_.shard_tokens) {
      flush();
      close_shard(key);
      open_shard(key);
    }
    tokens += size;
    sequence += count;
  }
  flush();
}

void DatasetWriter::take(const EncodedChunk& chunk, const std::string& input, int64_t first_line) {
  if (trace_) add_runs(chunk, input, first_line);
  for (size_t i = 0; i < chunk.keys.size() && i < keys_.size(); ++i) {
    const EncodedKey& key = chunk.keys[i];
    if (names_.shard_tokens > 0)
      add_to_shards(i, key);
    else
      keys_[i].shards.back()->add_encoded(key.ids.bytes(), key.crc32c, key.lengths, key.sequences);
  }
  totals_.add(chunk);
}

void DatasetWriter::prepare() {
  for (size_t key = 0; key < keys_.size(); ++key) close_shard(key);
  for (const Key& key : keys_)
    for (const auto& shard : key.shards) shard->prepare();
}

void DatasetWriter::give_names() {
  const indexed::NamingSection section;
  std::vector<indexed::IndexedDatasetBuilder*> all;
  for (const Key& key : keys_)
    for (const auto& shard : key.shards) all.push_back(shard.get());
  const std::vector<std::string> surplus = surplus_shards();
  std::vector<std::string> indices;
  for (const std::string& prefix : surplus) indices.push_back(prefix + ".idx");
  indexed::IndexedDatasetBuilder::give_names(all, indices);
  // From the last on: after a kill surplus_shards() finds those that are left.
  for (size_t i = surplus.size(); i > 0; --i)
    for (const char* ending : kEndings) fs::remove(surplus[i - 1] + ending);
}

std::vector<DatasetWriter::Written> DatasetWriter::written() const {
  std::vector<Written> out;
  for (size_t key = 0; key < keys_.size(); ++key)
    for (size_t shard = 0; shard < keys_[key].shards.size(); ++shard)
      out.push_back({names_.prefix(key, static_cast<int64_t>(shard)),
                     keys_[key].shards[shard]->num_tokens()});
  return out;
}

}  // namespace tokenize
