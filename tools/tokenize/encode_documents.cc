// SPDX-License-Identifier: MIT
// Room: tools/tokenize. The rules of one document.
// Not here: parsing of lines (tools/stream), datasets (dataset_writer.h).
#include "tools/tokenize/encode_documents.h"

#include <algorithm>
#include <bit>

#include "libindexed/crc32c.h"

namespace tokenize {
namespace {

/// Buffers beyond this are freed instead of kept for the next chunk.
constexpr size_t kKeptIds = size_t{1} << 20;

/// With `ahead`, at most this many ids are held.
constexpr size_t kIdsAhead = size_t{1} << 18;

// Ids are written as they are in memory.
static_assert(std::endian::native == std::endian::little);

}  // namespace

void EncodedChunk::clear(size_t num_keys, tok::IdWidth width) {
  keys.resize(num_keys);
  for (EncodedKey& key : keys) {
    if (key.ids.size() > kKeptIds || key.ids.width() != width) key.ids = tok::TokenBuffer(width);
    key.ids.clear();
    key.ids.set_drain(0, nullptr);
    key.lengths.clear();
    key.sequences.clear();
    key.empty_documents = 0;
  }
  runs.clear();
  ahead = nullptr;
  text_bytes = 0;
  special_tokens = 0;
}

Encoder::Encoder(const LoadedTokenizer& tokenizer, const EncodeRules& rules)
    : tokenizer_(tokenizer),
      rules_(rules),
      encodes_all_(tokenizer.tokenizer() != nullptr),
      // A deferred text is a document of one sequence, which certainly has ids.
      may_wait_(encodes_all_ && tokenizer.tokenizer()->vocab().missing_bytes() == 0 &&
                !rules.split_sentences) {
  if (rules.split_sentences) sentences_.emplace(rules.language);
}

/// Encodes the deferred texts of a key.
void Encoder::flush(size_t key, EncodedChunk& out) {
  if (key >= batches_.size() || batches_[key].empty()) return;
  EncodedKey& to = out.keys[key];
  std::span<const int32_t> counts;
  out.special_tokens += tokenizer_.encode(batches_[key], scratch_, to.ids, counts,
                                          rules_.append_eod ? *tokenizer_.eod() : tok::kNoId);
  to.lengths.insert(to.lengths.end(), counts.begin(), counts.end());
  to.sequences.insert(to.sequences.end(), counts.size(), 1);
  batches_[key].clear();
}

/// Defers a document of one short text. Returns false for any other document; then no text is
/// deferred any more.
inline bool Encoder::waits(const std::vector<std::string_view>& texts, size_t key,
                           EncodedChunk& out) {
  if (!may_wait_ || out.ahead) return false;  // draining would take the deferred texts
  if (key >= batches_.size()) batches_.resize(key + 1);
  tok::TextBatch& batch = batches_[key];
  if (texts.size() != 1 || !batch.has_room_for(texts[0])) {
    flush(key, out);
    if (texts.size() != 1 || !batch.has_room_for(texts[0])) return false;
  }
  batch.add(texts[0]);
  out.text_bytes += static_cast<int64_t>(texts[0].size());
  return true;
}

void Encoder::add_sequence(std::string_view text, EncodedKey& key, EncodedChunk& out) {
  const size_t before = key.ids.total();
  out.special_tokens += tokenizer_.encode(text, scratch_, key.ids);
  const size_t tokens = key.ids.total() - before;
  if (tokens > 0) key.lengths.push_back(static_cast<int32_t>(tokens));
}

/// The eod belongs to the document's last sequence; a document without tokens gets none.
void Encoder::end_document(size_t first_length, EncodedKey& key) const {
  const bool empty = key.lengths.size() == first_length;
  key.empty_documents += empty;
  if (empty && rules_.empty == EmptyDocument::skip) return;
  if (empty && rules_.empty == EmptyDocument::one_sequence) key.lengths.push_back(0);
  if (rules_.append_eod && key.lengths.size() > first_length) {
    key.ids.push_back(*tokenizer_.eod());
    ++key.lengths.back();
  }
  key.sequences.push_back(static_cast<int32_t>(key.lengths.size() - first_length));
}

void Encoder::add_key(const std::vector<std::string_view>& texts, size_t key_index,
                      EncodedChunk& out) {
  EncodedKey& key = out.keys[key_index];
  if (out.ahead) {
    key.ids.set_drain(kIdsAhead, [&out, key_index](std::span<const std::byte> bytes) {
      out.ahead(key_index, bytes);
    });
  }
  const size_t first_length = key.lengths.size();
  for (const std::string_view text : texts) {
    out.text_bytes += static_cast<int64_t>(text.size());
    if (!sentences_) {
      add_sequence(text, key, out);
      continue;
    }
    sentences_->split(text, rules_.keep_newlines,
                      [&](std::string_view sentence) { add_sequence(sentence, key, out); });
  }
  end_document(first_length, key);
}

/// Refuses a document with a text that the tokenizer cannot encode.
bool Encoder::refuses(const stream::Document& document) const {
  for (const std::vector<std::string_view>& texts : document.texts) {
    for (const std::string_view text : texts) {
      std::string complaint = tokenizer_.complaint(text);
      if (complaint.empty()) continue;
      document.refuse(stream::Reason::unencodable, std::move(complaint));
      return true;
    }
  }
  return false;
}

void Encoder::add(const stream::Document& document, EncodedChunk& out) {
  if (!encodes_all_ && refuses(document)) return;
  for (size_t i = 0; i < document.texts.size(); ++i) {
    if (!waits(document.texts[i], i, out)) add_key(document.texts[i], i, out);
  }
  if (!out.runs.empty() && out.runs.back().line + out.runs.back().documents == document.line) {
    ++out.runs.back().documents;
  } else {
    out.runs.push_back({document.line, 1});
  }
}

void Encoder::finish(EncodedChunk& out) {
  for (size_t i = 0; i < out.keys.size(); ++i) {
    flush(i, out);
    // Computed here and not in the writer: in parallel, and by the thread whose cache has the
    // bytes.
    out.keys[i].crc32c = indexed::crc32c(0, out.keys[i].ids.bytes());
  }
}

}  // namespace tokenize
