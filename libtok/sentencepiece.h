// SPDX-License-Identifier: MIT
// What SentencePiece does to a text before it merges: replacements of characters (its precompiled
// map), blanks at both ends and in rows, the blank before the first word.
// Here the blank stands for U+2581 too, in texts and in tokens: SentencePiece makes the one of the
// other before it merges, so that no text has both, and one byte instead of three lets more words
// into the tables. Not here: the .model file (load_sentencepiece.cc), merging (merge.h).
// Includes: C++ library only. Source: sentencepiece 0.2, normalizer.cc; darts-clone's units.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tok {

/// U+2581, which SentencePiece writes for a blank.
inline constexpr std::string_view kBlankMark = "\xE2\x96\x81";

/// A copy in which each U+2581 is a blank.
std::string marks_to_blanks(std::string_view text);

/// Whether a text holds U+2581.
inline bool has_blank_mark(std::string_view text) noexcept {
  return text.find(kBlankMark) != std::string_view::npos;
}

/// Replacements of strings, the longest that a text begins with first: a double-array trie.
/// Immutable; any number of threads may ask.
class Charsmap {
 public:
  /// Replaces nothing.
  Charsmap() = default;

  /// The `precompiled_charsmap` of a model. Errors: ParseError for sizes that contradict each
  /// other; offsets are checked when they are followed.
  explicit Charsmap(std::string_view blob);

  bool empty() const noexcept { return units_.empty(); }

  /// All that it was made of, for a digest.
  std::string bytes() const;

  struct Replacement {
    size_t size;            ///< bytes of the text that are replaced; 0: nothing is
    std::string_view text;  ///< what takes their place
  };

  /// The longest replacement at text[at].
  Replacement find(std::string_view text, size_t at) const noexcept;

  /// Whether a byte of ASCII is never replaced where another one or the end follows.
  bool keeps(char byte) const noexcept { return keeps_[static_cast<uint8_t>(byte)]; }

 private:
  size_t child(size_t node, uint8_t byte) const noexcept;

  std::vector<uint32_t> units_;
  std::string texts_;  ///< each ends with a zero byte
  std::array<bool, 256> keeps_{};
};

/// Strings that a model never changes nor splits.
class UserDefined {
 public:
  void add(std::string text) {
    begins_[static_cast<uint8_t>(text[0])] = true;
    texts_.push_back(std::move(text));
  }
  const std::vector<std::string>& texts() const noexcept { return texts_; }

  /// Whether one may begin with a byte.
  bool may_begin(char byte) const noexcept { return begins_[static_cast<uint8_t>(byte)]; }

  /// Bytes of the longest that stands at text[at]; 0: none does.
  size_t size_at(std::string_view text, size_t at) const noexcept;

 private:
  std::vector<std::string> texts_;
  std::array<bool, 256> begins_{};
};

/// A model's rules.
struct SentencePieceRules {
  Charsmap charsmap;
  bool add_dummy_prefix = true;          ///< a blank before the text
  bool remove_extra_whitespaces = true;  ///< none at its ends, one where there are more
  UserDefined user_defined;

  /// Writes the text as the model merges it, with a blank for each U+2581.
  void normalize(std::string_view text, std::string& out) const;

 private:
  Charsmap::Replacement next(std::string_view text, size_t at) const noexcept;
  bool is_kept(std::string_view text, size_t at) const noexcept;
};

}  // namespace tok
