// SPDX-License-Identifier: MIT
// Room: tools/dedup. Words of a text, and hashes of its n-grams of words ("shingles"), by which
// near duplicates are found. A word is a run of letters, digits, marks and underscores, in lower
// case; in scripts without spaces between words (Han, kana, Thai, Lao, Khmer, Myanmar) each
// character is a word. Punctuation, case and white space do not count; format characters, such as
// the soft hyphen and joiners, are not seen at all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace dedup {

/// For each character its role in words and its lower case, looked up once in ICU.
class CharacterTable;

/// Splits texts into shingles. One thread at a time; copies share the table. Memory: some hundred
/// KiB, however long a document is.
class Shingler {
 public:
  /// Receives the next shingles of the document, in order: a 64-bit hash of each n-gram.
  using Sink = std::function<void(std::span<const uint64_t>)>;

  /// `ngram` words make a shingle; at least 1.
  explicit Shingler(int64_t ngram);

  /// Adds the words of `text`, which is UTF-8, to the document; a word never continues from the
  /// previous text. Gives `sink` the shingles of each some thousand words.
  void add(std::string_view text, const Sink& sink);

  /// Ends the document: gives `sink` its last shingles. A document of too few words has none.
  void finish(const Sink& sink);

 private:
  void end_word(const Sink& sink);
  void give(const Sink& sink);

  std::shared_ptr<const CharacterTable> table_;
  int64_t ngram_;
  uint64_t word_ = 0;  // hash of the current word
  bool in_word_ = false;
  std::vector<uint64_t> words_;  // hashes of those whose shingles have not been given
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
