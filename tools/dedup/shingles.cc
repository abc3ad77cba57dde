// SPDX-License-Identifier: MIT
// Room: tools/dedup. Characters, words, n-grams.
#include "tools/dedup/shingles.h"

#include <array>

#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/utf8.h>

namespace dedup {
namespace {

constexpr uint64_t kWordSeed = 0x9E3779B97F4A7C15u;
constexpr uint64_t kCharacterStep = 0xC2B2AE3D27D4EB4Fu;
constexpr size_t kWordsAtOnce = 8192;
constexpr uint64_t kGramSeed = 0xD6E8FEB86659FD93u;

bool stands_alone(UChar32 c) {
  return u_hasBinaryProperty(c, UCHAR_IDEOGRAPHIC) ||
         u_getIntPropertyValue(c, UCHAR_LINE_BREAK) == U_LB_COMPLEX_CONTEXT ||
         u_getIntPropertyValue(c, UCHAR_SCRIPT) == USCRIPT_HIRAGANA ||
         u_getIntPropertyValue(c, UCHAR_SCRIPT) == USCRIPT_KATAKANA;
}

}  // namespace

class CharacterTable {
 public:
  /// What a character is: not in a word, a part of a word, a word of its own, or nothing that is
  /// seen.
  enum class Kind : uint8_t { none, part, alone, unseen };
  struct Entry {
    UChar32 lower;
    Kind kind;
  };

  CharacterTable() {
    for (UChar32 c = 0; c < kEntries; ++c) entries_[static_cast<size_t>(c)] = look_up(c);
  }

  Entry of(UChar32 c) const { return c < kEntries ? entries_[static_cast<size_t>(c)] : look_up(c); }

 private:
  static constexpr UChar32 kEntries = 0x10000;

  /// The final form of the Greek sigma depends on what follows: both are one letter here, so that
  /// a text equals its capitals, as with Python's str.lower.
  static UChar32 lower_of(UChar32 c) {
    constexpr UChar32 kFinalSigma = 0x3C2, kSigma = 0x3C3;
    return c == kFinalSigma ? kSigma : u_tolower(c);
  }

  static Entry look_up(UChar32 c) {
    constexpr uint32_t kWordMask = U_GC_L_MASK | U_GC_N_MASK | U_GC_M_MASK;
    constexpr UChar32 kZeroWidthSpace = 0x200B;
    if (u_charType(c) == U_FORMAT_CHAR && c != kZeroWidthSpace) return {c, Kind::unseen};
    const bool in_word = (U_GET_GC_MASK(c) & kWordMask) != 0 || c == '_';
    return {lower_of(c), !in_word ? Kind::none : stands_alone(c) ? Kind::alone : Kind::part};
  }

  std::array<Entry, kEntries> entries_;
};

Shingler::Shingler(int64_t ngram)
    : table_(std::make_shared<const CharacterTable>()), ngram_(ngram) {}

void Shingler::end_word(const Sink& sink) {
  if (!in_word_) return;
  words_.push_back(fold(word_, kWordSeed));
  in_word_ = false;
  if (words_.size() >= kWordsAtOnce + static_cast<size_t>(ngram_)) give(sink);
}

void Shingler::add(std::string_view text, const Sink& sink) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const CharacterTable& table = *table_;
  for (size_t at = 0; at < text.size();) {
    UChar32 character = bytes[at];
    if (character < 0x80) {
      ++at;
    } else {
      U8_NEXT_UNSAFE(bytes, at, character);  // texts were checked when they were read
    }
    const CharacterTable::Entry entry = table.of(character);
    if (entry.kind == CharacterTable::Kind::unseen) continue;
    if (entry.kind != CharacterTable::Kind::part) end_word(sink);
    if (entry.kind == CharacterTable::Kind::none) continue;
    word_ = in_word_ ? word_ : kWordSeed;
    in_word_ = true;
    word_ = (word_ ^ static_cast<uint64_t>(entry.lower)) * kCharacterStep;
    word_ ^= word_ >> 29;
    if (entry.kind == CharacterTable::Kind::alone) end_word(sink);
  }
  end_word(sink);
}

// The last n - 1 words stay: they begin the next shingles.
void Shingler::give(const Sink& sink) {
  const auto n = static_cast<size_t>(ngram_);
  if (words_.size() < n) return;
  shingles_.clear();
  for (size_t i = 0; i + n <= words_.size(); ++i) {
    uint64_t hash = kGramSeed;
    for (size_t k = 0; k < n; ++k) hash = fold(hash ^ words_[i + k], kCharacterStep);
    shingles_.push_back(hash);
  }
  words_.erase(words_.begin(), words_.end() - static_cast<int64_t>(n - 1));
  sink(shingles_);
}

void Shingler::finish(const Sink& sink) {
  give(sink);
  words_.clear();
}

}  // namespace dedup
