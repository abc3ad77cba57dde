// SPDX-License-Identifier: MIT
// Room: tools/dedup. Words of a text, and hashes of its n-grams of words ("shingles"), by which
// near duplicates are found. A word is a run of letters, digits, marks and underscores, in lower
// case; in scripts without spaces between words (Han, kana, Thai, Lao, Khmer, Myanmar) each
// character is a word. Punctuation, case and white space do not count.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace dedup {

/// For each character its role in words and its lower case, looked up once in ICU.
class CharacterTable;

/// Splits texts into shingles. One thread at a time; copies share the table.
class Shingler {
 public:
  /// `ngram` words make a shingle; at least 1.
  explicit Shingler(int64_t ngram);

  /// Starts the next document.
  void clear();

  /// Adds the words of `text`, which is UTF-8, to the document; a word never continues from the
  /// previous text.
  void add(std::string_view text);

  /// A 64-bit hash of each n-gram of the document, in order; empty if it has too few words. Valid
  /// until the next call.
  const std::vector<uint64_t>& shingles();

 private:
  void end_word();

  std::shared_ptr<const CharacterTable> table_;
  int64_t ngram_;
  uint64_t word_ = 0;  // hash of the current word
  bool in_word_ = false;
  std::vector<uint64_t> words_;  // hashes
  std::vector<uint64_t> shingles_;
};

/// The two halves of the product, folded: every bit of the result depends on every bit of both
/// factors.
inline uint64_t fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace dedup
