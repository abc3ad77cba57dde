// SPDX-License-Identifier: MIT
// What the two readers of SentencePiece's .model files share: the messages of a file as they are,
// for sentencepiece's own ids (load_sentencepiece.cc) and for those of the tokenizer that
// transformers makes of the file (convert_sentencepiece.cc). Not for users of the library.
// Source: sentencepiece 0.2, sentencepiece_model.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libtok/load_json.h"
#include "libtok/sentencepiece.h"

namespace tok {

/// What a piece is for; the numbers are the format's.
enum class PieceType : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

/// One piece of a model; its id is its place among them.
struct Piece {
  std::string_view text;
  float score = 0;
  uint64_t type = 1;

  bool is(PieceType wanted) const { return type == static_cast<uint64_t>(wanted); }
};

/// The messages of a file, with the defaults of the format. Views into the file's bytes.
struct SentencePieceModel {
  std::vector<Piece> pieces;
  uint64_t type = 1;
  bool byte_fallback = false;
  bool blank_behind = false;
  std::string_view unk_surface = " \xE2\x81\x87 ";
  std::string_view unk = "<unk>", bos = "<s>", eos = "</s>", pad = "<pad>";
  int32_t bos_id = 1, eos_id = 2;  ///< as trained; negative: without one
  SentencePieceRules rules;
  bool escapes_blanks = true;
  bool denormalizes = false;
};

/// Reads a file of any type. Errors: ParseError with the field.
SentencePieceModel read_sentencepiece_model(std::string_view bytes);

/// Refuses types other than BPE, and pieces that cannot be followed. Errors: ParseError.
void check_sentencepiece_bpe(const SentencePieceModel& model);

/// Which of transformers' conversions of a model.
enum class ModelConversion : uint8_t {
  llama,    ///< LlamaTokenizer, as in 4.46
  gemma,    ///< GemmaTokenizer, as in 5
  backend,  ///< TokenizersBackend of 5, for folders of the class PreTrainedTokenizerFast
};

/// What a folder's configuration says about the conversion.
struct ConversionOptions {
  ModelConversion kind = ModelConversion::llama;
  bool legacy = true;            ///< llama: the blank before each segment, whatever it begins with
  bool add_prefix_space = true;  ///< llama: no such blank without it
};

/// The tokenizer that transformers makes of a checked model: vocabulary, merges by list, and the
/// added tokens that the model has. The model's own normalisation counts as little as there.
/// Errors: ParseError for what a conversion would follow and this library cannot.
LoadingTokenizer convert_sentencepiece(const SentencePieceModel& model,
                                       const ConversionOptions& options);

/// Whether the scores of the normal pieces descend with their ids, as trainers write them; if they
/// do not, 4.46 and 5 rank merges differently.
bool scores_follow_ids(const SentencePieceModel& model);

}  // namespace tok
