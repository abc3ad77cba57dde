// Finding added tokens in a text: an Aho-Corasick automaton with leftmost-longest matches, and the
// rules of single_word, lstrip and rstrip on top of it.
// Not here: the order of the two searches and normalisation (tokenizer.cc).
// Includes: loaders.h. Positions are bytes.
// Source: Hugging Face tokenizers 0.23, added_vocabulary.rs; Aho and Corasick 1975.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "libtok/loaders.h"

namespace tok {

/// A range of text that an added token takes. Ranges are ascending in `begin`, but one that took
/// white space to its right may end past the next one's beginning, as in Hugging Face.
struct AddedMatch {
  size_t begin;
  size_t end;
  int32_t id;
};

/// A set of strings to be found. Immutable; any number of threads may search.
class AddedTokenFinder {
 public:
  struct Pattern {
    std::string_view content;  ///< the text to find; may be the normalised form
    AddedToken token;
  };

  AddedTokenFinder() = default;

  /// Among equal contents the first pattern wins. Empty contents are never found.
  explicit AddedTokenFinder(const std::vector<Pattern>& patterns);

  /// Whether there is nothing to find.
  bool empty() const noexcept { return tokens_.empty(); }

  /// False if nothing in `text` can begin a match, so that find() would find nothing. Cost: less
  /// than find().
  bool may_find(std::string_view text) const noexcept {
    return !empty() && next_candidate(text, 0) < text.size();
  }

  /// Appends the matches in `text`. Special tokens are matched, so that they consume their text,
  /// but reported only if `report_special`. Cost: linear in the text.
  /// Returns how many special tokens were found, reported or not.
  int64_t find(std::string_view text, bool report_special, std::vector<AddedMatch>& matches) const;

 private:
  struct State {
    int32_t fail;             ///< kDead when no later match may begin
    int32_t pattern;          ///< pattern that ends here, or -1
    uint32_t pattern_length;  ///< its bytes
    uint32_t first_edge;      ///< in edges_, ascending by byte
    uint32_t num_edges;
  };
  struct Edge {
    uint8_t byte;
    int32_t target;
  };
  static constexpr int32_t kDead = -1;
  static constexpr int32_t kStart = 0;

  int32_t child(int32_t state, uint8_t byte) const noexcept;
  int32_t step(int32_t state, uint8_t byte) const noexcept;
  size_t next_candidate(std::string_view text, size_t at) const noexcept;
  bool next_match(std::string_view text, size_t& at, size_t& begin,
                  int32_t& pattern) const noexcept;
  void set_failures(std::vector<int32_t>& breadth_first);

  std::vector<AddedToken> tokens_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  int32_t start_[256] = {};  ///< children of the start
  /// The pair of bytes with which all patterns begin, if there is one: searched 16 bytes at a time.
  int first_pair_ = -1;
};

/// Whether a code point is matched by \w of Rust's regex crate, Unicode 16.0: letters, marks,
/// decimal and letter numbers, connectors, joiners, and circled letters.
bool is_word_character(char32_t code_point) noexcept;

}  // namespace tok
