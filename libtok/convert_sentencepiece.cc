// The tokenizer that transformers makes of a SentencePiece model: each way to split a piece into
// two pieces is a merge, blanks are replaced as the class of the tokenizer does it, and not as the
// model says. Not here: sentencepiece's own ids (load_sentencepiece.cc), the folder's configuration
// (load_folder.cc).
// Source: transformers 4.46, convert_slow_tokenizer.py (LlamaConverter), and 5.23
// (tokenization_utils_tokenizers.py, GemmaTokenizer).
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdio>
#include <limits>
#include <tuple>

#include "libtok/load_sentencepiece.h"
#include "libtok/unicode.h"

namespace tok {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw ParseError("SentencePiece model: " + place + ": " + why);
}

/// A way to split a piece in two.
struct Split {
  std::string_view left, right;
  float score;              ///< of the whole piece
  int32_t id;               ///< of the whole piece
  int64_t left_size, size;  ///< in characters, of the left half and of the whole piece
};

/// The byte offsets of a text's characters, and its end.
std::vector<size_t> characters_of(std::string_view text) {
  std::vector<size_t> offsets;
  size_t at = 0;
  for (; at < text.size(); at += decode(text, at).length) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

void add_splits(std::string_view text, float score, int32_t id, FileVocab& vocab,
                std::vector<Split>& splits) {
  const std::vector<size_t> offsets = characters_of(text);
  const auto count = static_cast<int64_t>(offsets.size()) - 1;
  for (int64_t i = 1; i < count; ++i) {
    const size_t at = offsets[static_cast<size_t>(i)];
    const std::string_view left = text.substr(0, at), right = text.substr(at);
    if (vocab.find(left) == kNoId || vocab.find(right) == kNoId) continue;
    splits.push_back({left, right, score, id, i, count});
  }
}

/// generate_merges: 4.46 sorts by score, then the sizes of the halves, all descending; 5 by id and
/// sizes, ascending. Both sort a piece's splits by their halves' ids before, which changes nothing:
/// no two of them have a left half of the same size.
void add_merges(const SentencePieceModel& model, bool by_score, LoadingTokenizer& loading) {
  std::vector<Split> splits;
  int32_t id = 0;
  for (const Piece& piece : model.pieces) {
    // LlamaConverter gives the first three pieces this score.
    const float score = id < 3 ? 0 : piece.score;
    add_splits(piece.text, score, id++, loading.file.vocab, splits);
  }
  std::stable_sort(splits.begin(), splits.end(), [&](const Split& a, const Split& b) {
    if (by_score) {
      return std::tie(a.score, a.left_size, a.size) > std::tie(b.score, b.left_size, b.size);
    }
    return std::tie(a.id, a.left_size) < std::tie(b.id, b.left_size);
  });
  std::vector<std::pair<std::string, std::string>>& merges = loading.source.vocab.merges;
  merges.reserve(splits.size());
  for (const Split& split : splits) merges.emplace_back(split.left, split.right);
}

/// What replaces characters without a token.
void set_unknown(const SentencePieceModel& model, LoadingTokenizer& loading) {
  VocabSource& vocab = loading.source.vocab;
  vocab.fuse_unk = true;
  for (int byte = 0; model.byte_fallback && byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    const int32_t id = loading.file.vocab.find(name);
    if (id == kNoId) {
      refuse("trainer_spec.byte_fallback", "true, but " + std::string(name) + " is no piece");
    }
    vocab.byte_fallback.push_back(id);
  }
  if (model.byte_fallback) return;
  vocab.unk_id = loading.file.vocab.find(model.unk);
  if (vocab.unk_id == kNoId) {
    refuse("trainer_spec.unk_piece", "\"" + std::string(model.unk) + "\" is no piece");
  }
}

void set_blanks(const ConversionOptions& options, TokenizerSource& source) {
  const bool llama = options.kind == ModelConversion::llama;
  if (llama && !options.legacy) {
    source.metaspace = true;
    source.add_prefix_space = source.prefix_first_only = options.add_prefix_space;
  } else {
    source.replace_blanks = true;
    source.prepend_blank = llama && options.add_prefix_space;
  }
  if (llama && options.add_prefix_space) source.decode_rules.leading = LeadingBlank::strip_one;
}

}  // namespace

bool scores_follow_ids(const SentencePieceModel& model) {
  float last = std::numeric_limits<float>::infinity();
  for (const Piece& piece : model.pieces) {
    if (!piece.is(PieceType::normal)) continue;
    if (piece.score > last) return false;
    last = piece.score;
  }
  return true;
}

LoadingTokenizer convert_sentencepiece(const SentencePieceModel& model,
                                       const ConversionOptions& options) {
  if (options.kind == ModelConversion::backend && !model.rules.charsmap.empty()) {
    refuse("normalizer_spec.precompiled_charsmap",
           "not supported for the class PreTrainedTokenizerFast");
  }
  LoadingTokenizer loading;
  loading.file.vocab.reset(20 * model.pieces.size(), Alphabet::text);
  int32_t id = 0;
  for (const Piece& piece : model.pieces) loading.file.vocab.set(std::string(piece.text), id++);
  loading.source.vocab.by_characters = true;
  add_merges(model, options.kind == ModelConversion::llama, loading);
  set_unknown(model, loading);
  set_blanks(options, loading.source);
  for (const Piece& piece : model.pieces) {
    const bool control = piece.is(PieceType::control);
    if (!control && !piece.is(PieceType::user_defined)) continue;
    loading.add({.content = std::string(piece.text), .special = control});
  }
  return loading;
}

}  // namespace tok
