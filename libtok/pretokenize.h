// The reference implementation of pre-tokenization: where the regular expressions of the published
// vocabularies cut a text, as plain scanners. boundaries.h makes the same cuts with bit masks and
// is tested against this file. Not here: added tokens, prefix spaces and normalisation, which split
// or change a text into segments first (tokenizer.h). Includes: unicode.h. Positions are bytes in a
// segment; no function allocates.
// Source: the patterns in pretokenize.cc, as tiktoken 0.14 (Rust) and Hugging Face tokenizers 0.23
// (Oniguruma) match them, with Unicode 16.0 classes.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tok {

/// One way to cut. A piece is a match of the family's pattern; text that no alternative matches is
/// a piece of its own, up to the next match ("Isolated" in Hugging Face's words).
enum class Family : uint8_t {
  whole,          ///< no cut: the segment is one piece
  gpt2,           ///< GPT-2, r50k, p50k, GPT-NeoX, OPT; ByteLevel(use_regex=true)
  cl100k,         ///< tiktoken's cl100k: llama3, but white space up to the text's end is one piece
  cl100k_runs,    ///< the same pattern as Oniguruma reads it: runs of numbers, of any length
  llama3,         ///< Llama-3, GLM-4, and Hugging Face's form of cl100k
  qwen2,          ///< Qwen2, Qwen2.5, Qwen3: single digits
  qwen35,         ///< Qwen3.5: qwen2 with marks counted as letters
  o200k,          ///< o200k, Llama-4
  tekken,         ///< Mistral's Tekken: o200k without contractions, single digits
  nemotron,       ///< Megatron's TikTokenizer, pattern v1: qwen2 without contractions
  deepseek3,      ///< the third stage of DeepSeek-V3
  numbers,        ///< Split \p{N}, Isolated: each number character by itself
  digits,         ///< Digits(individual_digits=true): the same with the numbers of Unicode 17.0
  digit_runs,     ///< Digits(individual_digits=false): runs of number characters
  digit_triples,  ///< Split \p{N}{1,3}, Isolated
  cjk_runs,       ///< Split [一-龥぀-ゟ゠-ヿ]+, Isolated (the second stage of DeepSeek-V3)
  blank_words,    ///< Hugging Face's Metaspace that splits: each blank begins a piece
};

/// Name of a family, as in this file.
std::string_view family_name(Family family) noexcept;

/// Who matches a pattern. They disagree about some syntax: `N{1,3}+` is possessive for tiktoken's
/// engine, and `(N{1,3})+` for Oniguruma.
enum class PatternEngine : uint8_t {
  tiktoken,   ///< Rust's fancy-regex: tiktoken and tekken.json
  oniguruma,  ///< with Ruby's syntax: Split of a tokenizer.json
};

/// Family whose Split pattern (Isolated, not inverted) is written `pattern` for `engine`. Patterns
/// are recognised by identity, nothing is translated. None for a pattern that is not supported.
std::optional<Family> family_of_pattern(std::string_view pattern, PatternEngine engine) noexcept;

/// End of the piece that begins at `begin`, where `begin` is 0 or the end of the piece before.
/// Look-ahead treats the segment's end as the end of the text. Invalid bytes are characters
/// of class kOther, one each. Range: begin < segment.size(); the result is in
/// begin+1..segment.size().
size_t next_piece(Family family, std::string_view segment, size_t begin) noexcept;

/// A sequence of cuts as data: each stage cuts the pieces of the one before, as
/// Hugging Face's Sequence does. No stage at all is `whole`.
struct PreTokenizer {
  static constexpr size_t kMaxStages = 4;
  std::array<Family, kMaxStages> stages{};
  size_t num_stages = 0;

  bool operator==(const PreTokenizer&) const = default;
};

/// Makes a PreTokenizer of at most kMaxStages stages.
template <typename... Stage>
constexpr PreTokenizer make_pretokenizer(Stage... stages) noexcept {
  static_assert(sizeof...(Stage) <= PreTokenizer::kMaxStages);
  return {.stages = {stages...}, .num_stages = sizeof...(Stage)};
}

/// Walks the pieces of one segment. A value type without allocation; the segment must outlive it.
class PieceCutter {
 public:
  PieceCutter(const PreTokenizer& pretokenizer, std::string_view segment) noexcept
      : pretokenizer_(pretokenizer), segment_(segment) {}

  /// The next piece; an empty view when the segment is used up.
  std::string_view next() noexcept;

  /// Begins another segment.
  void begin(std::string_view segment) noexcept {
    segment_ = segment;
    position_ = 0;
    ends_ = {};
  }

  /// Bytes already handed out.
  size_t position() const noexcept { return position_; }

 private:
  PreTokenizer pretokenizer_;
  std::string_view segment_;
  size_t position_ = 0;
  /// ends_[i]: end of the current piece of stage i, in segment_.
  std::array<size_t, PreTokenizer::kMaxStages> ends_{};
};

}  // namespace tok
