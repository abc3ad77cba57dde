// SPDX-License-Identifier: MIT
// How SentencePiece normalises a text before it merges: replacement of characters (its precompiled
// map), removal of blanks at both ends and of repeated blanks, the blank before the first word.
// This library writes a blank for U+2581, in texts and in tokens. SentencePiece replaces each blank
// by U+2581 before it merges, so no text has both; and with one byte instead of three more words
// fit into the tables. Not here: the .model file (load_sentencepiece.cc), merging (merge.h).
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

/// U+2581, which SentencePiece writes in place of a blank.
inline constexpr std::string_view kBlankMark = "\xE2\x96\x81";

/// A copy in which each U+2581 is replaced by a blank.
std::string marks_to_blanks(std::string_view text);

/// Writes a copy in which each blank is replaced by U+2581.
void blanks_to_marks(std::string_view text, std::string& out);

/// Whether a text contains U+2581.
inline bool has_blank_mark(std::string_view text) noexcept {
  return text.find(kBlankMark) != std::string_view::npos;
}

/// Replacements of strings, of which the longest match counts: a double-array trie. Immutable; any
/// number of threads may use it.
class Charsmap {
 public:
  /// Replaces nothing.
  Charsmap() = default;

  /// Reads the `precompiled_charsmap` of a model. Errors: ParseError for sizes that contradict each
  /// other; offsets are checked when they are used.
  explicit Charsmap(std::string_view blob);

  bool empty() const noexcept { return units_.empty(); }

  /// Its whole content, for a digest.
  std::string bytes() const;

  struct Replacement {
    size_t size;            ///< bytes of the text that are replaced; 0: none
    std::string_view text;  ///< the replacement
  };

  /// The longest replacement at text[at].
  Replacement find(std::string_view text, size_t at) const noexcept;

  /// Whether an ASCII byte is never replaced if another one or the end follows.
  bool keeps(char byte) const noexcept { return keeps_[static_cast<uint8_t>(byte)]; }

 private:
  size_t child(size_t node, uint8_t byte) const noexcept;

  std::vector<uint32_t> units_;
  std::string texts_;  ///< each ends with a zero byte
  std::array<bool, 256> keeps_{};
};

/// Strings that a model never changes or splits.
class UserDefined {
 public:
  void add(std::string text) {
    begins_[static_cast<uint8_t>(text[0])] = true;
    texts_.push_back(std::move(text));
  }
  const std::vector<std::string>& texts() const noexcept { return texts_; }

  /// Whether any of them begins with this byte.
  bool may_begin(char byte) const noexcept { return begins_[static_cast<uint8_t>(byte)]; }

  /// The size of the longest one at text[at]; 0: there is none.
  size_t size_at(std::string_view text, size_t at) const noexcept;

 private:
  std::vector<std::string> texts_;
  std::array<bool, 256> begins_{};
};

/// A model's rules.
struct SentencePieceRules {
  Charsmap charsmap;
  bool add_dummy_prefix = true;          ///< adds a blank before the text
  bool remove_extra_whitespaces = true;  ///< removes blanks at both ends and repeated ones
  UserDefined user_defined;

  /// Writes the normalised text that the model merges, with a blank for each U+2581.
  void normalize(std::string_view text, std::string& out) const;

 private:
  Charsmap::Replacement next(std::string_view text, size_t at) const noexcept;
  bool is_kept(std::string_view text, size_t at) const noexcept;
};

}  // namespace tok
