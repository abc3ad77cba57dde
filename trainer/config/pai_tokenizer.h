// How many rows Pai-Megatron-Patch gives the vocabulary, by --patch-tokenizer-type. Not here: the
// tokenizer itself, which the usual flags name (trainer/session/vocabulary.h). May include: nothing
// of this project.
// Source: megatron_patch/tokenizer/__init__.py of Pai-Megatron-Patch.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainer {

struct TrainConfig;

/// What Pai counts of a tokenizer.
enum class PaiCount {
  base,        ///< the tokens of the vocabulary, without added ones; transformers' vocab_size.
  whole,       ///< all tokens.
  whole_less,  ///< all tokens less two.
  fixed,       ///< nothing: the type has its number.
};

/// One --patch-tokenizer-type.
struct PaiTokenizer {
  std::string_view name;
  PaiCount count;
  bool padded = false;  ///< to --make-vocab-size-divisible-by times the tensor parallel size.
  bool extra = false;   ///< --extra-vocab-size is added.
  int64_t rows = 0;     ///< where `count` is fixed.

  /// Tokens before --extra-vocab-size of a tokenizer with `base` tokens, `all` with added ones.
  int64_t tokens(int64_t base, int64_t all) const noexcept;
};

/// The one that `config` names; null if it names none. Errors: cli::UsageError for a type that Pai
/// does not have, as there.
const PaiTokenizer* find_pai_tokenizer(const TrainConfig& config);

}  // namespace trainer
