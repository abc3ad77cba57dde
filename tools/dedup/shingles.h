// SPDX-License-Identifier: MIT
// Room: tools/dedup. Words of a text, and hashes of its n-grams of words ("shingles"), which are
// what two near duplicates have in common. A word is a run of letters, digits, marks and
// underscores, in lower case; where a script has no spaces between words (Han, kana, Thai, Lao,
// Khmer, Myanmar), each character is a word. Nothing else of the text counts: no punctuation, case,
// or white space.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace dedup {

/// What a character is to words, and its lower case; by ICU, looked up once.
class CharacterTable;

/// Cuts texts. One thread at a time; copies share the table.
class Shingler {
 public:
  /// `ngram` words make a shingle; at least 1.
  explicit Shingler(int64_t ngram);

  /// Starts the next document.
  void clear();

  /// Adds the words of `text`, which is UTF-8, to the document; no word goes on from the text
  /// before.
  void add(std::string_view text);

  /// A 64-bit hash of each n-gram of the document, in order; empty where it has fewer words. Valid
  /// until the next call.
  const std::vector<uint64_t>& shingles();

 private:
  void end_word();

  std::shared_ptr<const CharacterTable> table_;
  int64_t ngram_;
  uint64_t word_ = 0;  // hash of the open word
  bool in_word_ = false;
  std::vector<uint64_t> words_;  // hashes
  std::vector<uint64_t> shingles_;
};

/// Both halves of a product, folded: every bit of the result hangs on every bit of both.
inline uint64_t fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace dedup
