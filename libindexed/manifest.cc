// SPDX-License-Identifier: MIT
// Manifest to JSON and back. The checksums of a segment are one string of hexadecimal words: 600 KB
// for a terabyte.
#include "libindexed/manifest.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <system_error>

#include "libindexed/crc32c.h"
#include "libindexed/format.h"
#include "libindexed/json.h"
#include "libindexed/mapped_file.h"
#include "libindexed/message.h"

namespace indexed {
namespace {

constexpr std::string_view kFormat = "gristmill dataset manifest";

Json segments_to_json(std::span<const Segment> segments) {
  Json::Array list;
  for (const Segment& segment : segments) {
    std::string words;
    for (const uint32_t crc : segment.block_crc32c) {
      char hex[8];
      for (int i = 0; i < 8; ++i) hex[i] = "0123456789abcdef"[crc >> (28 - 4 * i) & 15];
      if (!words.empty()) words += ' ';
      words.append(hex, 8);
    }
    list.push_back(Json::Object{{"bytes", segment.bytes}, {"crc32c", std::move(words)}});
  }
  return list;
}

Json sources_to_json(std::span<const SourceRun> sources) {
  Json::Array list;
  for (const SourceRun& run : sources) {
    list.push_back(Json::Object{{"path", run.path},
                                {"first_document", run.first_document},
                                {"documents", run.num_documents},
                                {"first_line", run.first_line}});
  }
  return list;
}

// Reads members of one object; errors name the missing one.
class Members {
 public:
  Members(const Json& object, const std::string& path) : object_(object), path_(path) {}

  [[noreturn]] void fail(std::string_view key, std::string_view why) const {
    throw FormatError(message(path_, ": \"", key, "\" ", why));
  }

  const Json& any(std::string_view key) const {
    const Json* value = object_.find(key);
    if (value == nullptr) fail(key, "is missing");
    return *value;
  }

  int64_t count(std::string_view key) const {
    const int64_t* value = any(key).integer();
    if (value == nullptr || *value < 0) fail(key, "is not a count");
    return *value;
  }

  int64_t integer_or(std::string_view key, int64_t otherwise) const {
    const Json* value = object_.find(key);
    return value != nullptr && value->integer() != nullptr ? *value->integer() : otherwise;
  }

  std::string text_or_empty(std::string_view key) const {
    const Json* value = object_.find(key);
    return value != nullptr && value->string() != nullptr ? *value->string() : std::string();
  }

  Json::Array list_or_empty(std::string_view key) const {
    const Json* value = object_.find(key);
    return value != nullptr && value->array() != nullptr ? *value->array() : Json::Array();
  }

  std::vector<Segment> segments(std::string_view key, int64_t total_bytes) const {
    std::vector<Segment> list;
    int64_t sum = 0;
    for (const Json& item : list_or_empty(key)) {
      const Members fields(item, path_);
      Segment segment{.bytes = fields.count("bytes"), .block_crc32c = {}};
      const std::string words = fields.text_or_empty("crc32c");
      for (size_t at = 0; at < words.size(); at += 9) {
        uint32_t crc = 0;
        const char* begin = words.data() + at;
        const char* end = begin + std::min<size_t>(8, words.size() - at);
        if (const auto read = std::from_chars(begin, end, crc, 16); read.ptr != begin + 8)
          fail(key, "has a bad checksum");
        segment.block_crc32c.push_back(crc);
      }
      const int64_t blocks = segment.bytes / kBlockBytes + (segment.bytes % kBlockBytes != 0);
      if (segment.bytes > total_bytes - sum ||
          blocks != static_cast<int64_t>(segment.block_crc32c.size())) {
        fail(key, "does not fit the sizes");
      }
      sum += segment.bytes;
      list.push_back(std::move(segment));
    }
    if (!list.empty() && sum != total_bytes) fail(key, "does not fit the sizes");
    return list;
  }

 private:
  const Json& object_;
  const std::string& path_;
};

Provenance read_provenance(const Members& members, const std::string& path) {
  Provenance provenance;
  provenance.tool = members.text_or_empty("tool");
  for (const Json& word : members.list_or_empty("command")) {
    if (word.string() != nullptr) provenance.command.push_back(*word.string());
  }
  provenance.tokenizer = members.text_or_empty("tokenizer");
  provenance.tokenizer_hash = members.text_or_empty("tokenizer_hash");
  provenance.vocab_size = members.integer_or("vocab_size", 0);
  provenance.configuration_hash = members.text_or_empty("configuration_hash");
  provenance.eod_token = members.integer_or("eod_token", -1);
  provenance.shuffle_unit = members.text_or_empty("shuffle_unit");
  provenance.shuffle_seed = members.integer_or("shuffle_seed", 0);
  for (const Json& item : members.list_or_empty("sources")) {
    const Members fields(item, path);
    provenance.sources.push_back({.path = fields.text_or_empty("path"),
                                  .first_document = fields.count("first_document"),
                                  .num_documents = fields.count("documents"),
                                  .first_line = fields.count("first_line")});
  }
  return provenance;
}

}  // namespace

void Segment::add(std::span<const std::byte> more) {
  while (!more.empty()) {
    const int64_t filled = bytes % kBlockBytes;
    if (filled == 0) block_crc32c.push_back(0);
    const size_t n = std::min(more.size(), static_cast<size_t>(kBlockBytes - filled));
    block_crc32c.back() = crc32c(block_crc32c.back(), more.first(n));
    bytes += static_cast<int64_t>(n);
    more = more.subspan(n);
  }
}

void Segment::add(std::span<const std::byte> more, uint32_t crc32c) {
  const int64_t filled = bytes % kBlockBytes;
  const auto size = static_cast<int64_t>(more.size());
  if (filled == 0 || filled + size > kBlockBytes) return add(more);
  block_crc32c.back() = crc32c_joined(block_crc32c.back(), crc32c, size);
  bytes += size;
}

std::string manifest_path(const std::string& prefix) { return prefix + ".manifest"; }

std::string write_manifest(const Manifest& manifest) {
  const Provenance& from = manifest.provenance;
  Json::Array command;
  for (const std::string& word : from.command) command.emplace_back(word);
  Json json;
  json.set("format", kFormat);
  json.set("version", 1);
  json.set("dtype", manifest.dtype);
  json.set("sequences", manifest.num_sequences);
  json.set("documents", manifest.num_documents);
  json.set("tokens", manifest.num_tokens);
  json.set("multimodal", manifest.multimodal);
  json.set("bin_bytes", manifest.bin_bytes);
  json.set("idx_bytes", manifest.idx_bytes);
  json.set("block_bytes", kBlockBytes);
  json.set("bin", segments_to_json(manifest.bin));
  json.set("idx", segments_to_json(manifest.idx));
  json.set("tool", from.tool);
  json.set("command", std::move(command));
  json.set("tokenizer", from.tokenizer);
  json.set("tokenizer_hash", from.tokenizer_hash);
  json.set("vocab_size", from.vocab_size);
  json.set("eod_token", from.eod_token);
  json.set("configuration_hash", from.configuration_hash);
  json.set("shuffle_unit", from.shuffle_unit);
  json.set("shuffle_seed", from.shuffle_seed);
  json.set("sources", sources_to_json(from.sources));
  return json.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const Json json = Json::parse(text, path);
  const Members members(json, path);
  if (members.text_or_empty("format") != kFormat)
    throw FormatError(message(path, ": not a dataset manifest"));
  if (members.count("version") != 1) {
    throw FormatError(message(path, ": version ", members.count("version"), ", expected 1"));
  }
  if (members.count("block_bytes") != kBlockBytes) members.fail("block_bytes", "is not 16777216");
  Manifest manifest;
  manifest.dtype = members.text_or_empty("dtype");
  manifest.num_sequences = members.count("sequences");
  manifest.num_documents = members.count("documents");
  manifest.num_tokens = members.count("tokens");
  const std::string multimodal = members.any("multimodal").dump(0);
  manifest.multimodal = multimodal == "true";
  manifest.bin_bytes = members.count("bin_bytes");
  manifest.idx_bytes = members.count("idx_bytes");
  manifest.bin = members.segments("bin", manifest.bin_bytes);
  manifest.idx = members.segments("idx", manifest.idx_bytes);
  manifest.provenance = read_provenance(members, path);
  return manifest;
}

std::optional<Manifest> read_manifest(const std::string& prefix) {
  const std::string path = manifest_path(prefix);
  MappedFile file;
  try {
    file = MappedFile(path, MappedFile::Access::sequential);
  } catch (const std::system_error& error) {
    // A dataset may have a name that has no room for the ending of a manifest.
    if (error.code() == std::errc::no_such_file_or_directory ||
        error.code() == std::errc::filename_too_long)
      return std::nullopt;
    throw;
  }
  const std::span<const std::byte> bytes = file.bytes();
  return parse_manifest(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                        path);
}

bool is_of(const Manifest& manifest, const IndexedDataset& data) noexcept {
  return manifest.bin_bytes == data.bin_bytes() && manifest.num_sequences == data.num_sequences() &&
         manifest.num_documents == data.num_documents();
}

static bool is_known(const std::string& identity) {
  return !identity.empty() && identity != "NullTokenizer";
}

std::string KnownTokenizer::other(const Provenance& from) const {
  if (!is_known(identity) || !is_known(from.tokenizer_hash) || from.tokenizer_hash == identity)
    return {};
  return message("its tokenizer (", from.tokenizer, ") differs from ", name,
                 ": the same ids may mean other tokens");
}

void KnownTokenizer::learn(const std::string& prefix, const Provenance& from) {
  if (is_known(identity) || !is_known(from.tokenizer_hash)) return;
  identity = from.tokenizer_hash;
  name = message("that of ", prefix, " (", from.tokenizer, ")");
}

bool has_manifest(const std::string& prefix) {
  struct stat info {};
  if (::lstat(manifest_path(prefix).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  try {
    return read_manifest(prefix).has_value();
  } catch (const std::exception&) {
    return false;
  }
}

namespace {

// Calls done(begin, size) after each correct block.
template <class Done>
std::optional<Damage> find_damage_in(std::span<const std::byte> file,
                                     std::span<const Segment> segments, Done done) {
  size_t at = 0;
  for (const Segment& segment : segments) {
    int64_t left = segment.bytes;
    for (const uint32_t expected : segment.block_crc32c) {
      const auto n = static_cast<size_t>(std::min(left, kBlockBytes));
      const bool whole = n <= file.size() - at;
      if (!whole || crc32c(0, file.subspan(at, n)) != expected) {
        return Damage{static_cast<int64_t>(at), static_cast<int64_t>(n)};
      }
      done(at, n);
      at += n;
      left -= static_cast<int64_t>(n);
    }
  }
  if (!segments.empty() && at < file.size()) {
    return Damage{static_cast<int64_t>(at), static_cast<int64_t>(file.size() - at)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Damage> find_damage(std::span<const std::byte> file,
                                  std::span<const Segment> segments) {
  return find_damage_in(file, segments, [](size_t, size_t) {});
}

std::optional<Damage> find_damage(const MappedFile& file, std::span<const Segment> segments,
                                  const std::function<void(int64_t)>& on_checked) {
  return find_damage_in(file.bytes(), segments, [&](size_t at, size_t size) {
    file.release(at, size);
    if (on_checked) on_checked(static_cast<int64_t>(at + size));
  });
}

void append_sources(std::vector<SourceRun>& into, std::span<const SourceRun> more,
                    int64_t documents_before) {
  for (SourceRun run : more) {
    run.first_document += documents_before;
    into.push_back(std::move(run));
  }
}

std::optional<SourceLine> source_of(std::span<const SourceRun> sources, int64_t k) {
  for (const SourceRun& run : sources) {
    if (k >= run.first_document && k - run.first_document < run.num_documents) {
      const int64_t document = k - run.first_document;
      return SourceLine{run.path, run.first_line > 0 ? run.first_line + document : 0, document,
                        run.num_documents};
    }
  }
  return std::nullopt;
}

}  // namespace indexed
