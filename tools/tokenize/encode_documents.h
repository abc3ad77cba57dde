// SPDX-License-Identifier: MIT
// Room: tools/tokenize. From the documents of a chunk to the bytes of a dataset, on any thread. Not
// here: datasets (dataset_writer.h).
// Source of the rules: Megatron-LM tools/preprocess_data.py (one line) and preprocess_data_fast.py
// (empty documents).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libindexed/format.h"
#include "libtok/token_buffer.h"
#include "libtok/tokenizer.h"
#include "tools/stream/reading.h"
#include "tools/tokenize/sentences.h"
#include "tools/tokenize/tokenizer_files.h"

namespace tokenize {

/// What a document without tokens becomes.
enum class EmptyDocument {
  no_sequence,   ///< only a repeated document index: preprocess_data.py since June 2023
  one_sequence,  ///< a sequence of length 0, or of the eod token alone: preprocess_data_fast.py
  skip,          ///< nothing at all: preprocess_data.py before June 2023, BigScience
};

/// How a document becomes sequences of token ids.
struct EncodeRules {
  bool append_eod = false;
  bool split_sentences = false;
  bool keep_newlines = false;
  std::string language = "english";
  EmptyDocument empty = EmptyDocument::no_sequence;
  indexed::DType dtype = indexed::DType::int32;
};

/// One key of a chunk, encoded.
struct EncodedKey {
  tok::TokenBuffer ids;  ///< in the dataset's dtype
  std::vector<int32_t> lengths;
  std::vector<int32_t> sequences;  ///< of each document
  uint32_t crc32c = 0;             ///< of the bytes of `ids`, once finished
  int64_t empty_documents = 0;
};

/// A chunk, encoded. Its memory is reused; nothing is allocated once it is large enough.
struct EncodedChunk {
  std::vector<EncodedKey> keys;
  struct Run {
    int64_t line;  ///< in the chunk
    int64_t documents;
  };
  std::vector<Run> runs;  ///< consecutive lines with a good document each
  int64_t text_bytes = 0;
  int64_t special_tokens = 0;  ///< that occur literally in the texts
  /// If set, receives the bytes of a key as they are made, before the lengths are known; then `ids`
  /// keeps only the last of them.
  std::function<void(size_t key, std::span<const std::byte>)> ahead;

  /// Empties it for `num_keys` keys, whose ids will have this width.
  void clear(size_t num_keys, tok::IdWidth width);
};

/// Bytes of an id in a dataset of these rules.
constexpr tok::IdWidth id_width(const EncodeRules& rules) {
  return rules.dtype == indexed::DType::uint16 ? tok::IdWidth::two : tok::IdWidth::four;
}

/// One worker. Short texts are deferred, so that they are encoded together.
class Encoder {
 public:
  /// Range: rules.dtype is uint16 or int32, and can hold every id of the tokenizer.
  Encoder(const LoadedTokenizer& tokenizer, const EncodeRules& rules);

  /// Appends a document to `out`, perhaps not before a later call.
  void add(const stream::Document& document, EncodedChunk& out);

  /// Appends the deferred texts, and computes the checksums.
  void finish(EncodedChunk& out);

 private:
  bool refuses(const stream::Document& document) const;
  bool waits(const std::vector<std::string_view>& texts, size_t key, EncodedChunk& out);
  void flush(size_t key, EncodedChunk& out);
  void add_key(const std::vector<std::string_view>& texts, size_t key_index, EncodedChunk& out);
  void add_sequence(std::string_view text, EncodedKey& key, EncodedChunk& out);
  void end_document(size_t first_length, EncodedKey& key) const;

  const LoadedTokenizer& tokenizer_;
  const EncodeRules& rules_;
  tok::Scratch scratch_;
  std::optional<SentenceSplitter> sentences_;
  std::vector<tok::TextBatch> batches_;  ///< one for each key
  bool encodes_all_;                     ///< whether it can encode every text
  bool may_wait_;                        ///< whether texts are ever deferred
};

}  // namespace tokenize
