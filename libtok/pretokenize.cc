// The scanners of pretokenize.h. Each follows its pattern alternative by alternative; kPatterns
// holds the patterns themselves. Notation in comments: L N M letters, numbers, marks; S white
// space; NL a carriage return or line feed.
// SPDX-License-Identifier: MIT
#include "libtok/pretokenize.h"

#include <climits>
#include <cstdint>

#include "libtok/unicode.h"

namespace tok {
namespace {

/// One character of the segment. Past the end it is class 0, which is in no set.
struct Char {
  char32_t value;
  size_t end;
  ClassSet bits;

  bool in(ClassSet set) const noexcept { return (bits & set) != 0; }
  /// Inside the segment and in none of the classes of `set`.
  bool not_in(ClassSet set) const noexcept { return bits != 0 && (bits & set) == 0; }
};

constexpr ClassSet kSpaceLetterNumber = kSpace | kLetter | kNumber;
/// The two halves of an o200k word: the characters allowed before its lower part, and those of the
/// lower part.
constexpr ClassSet kWordUpper = kUpper | kTitle | kModifier | kOtherLetter | kMark;
constexpr ClassSet kWordLower = kLower | kModifier | kOtherLetter | kMark;

Char char_at(std::string_view text, size_t at) noexcept {
  if (at >= text.size()) return {0, at, 0};
  CodePoint c = decode(text, at);
  return {c.value, at + c.length, class_of(c.value)};
}

bool is_newline(char32_t c) noexcept { return c == '\r' || c == '\n'; }

/// End of the longest run of characters in `set` from `at`.
size_t run_end(std::string_view text, size_t at, ClassSet set) noexcept {
  for (Char c = char_at(text, at); c.in(set); c = char_at(text, at)) at = c.end;
  return at;
}

/// End of the longest run of characters of the segment in none of `set`.
size_t run_end_outside(std::string_view text, size_t at, ClassSet set) noexcept {
  for (Char c = char_at(text, at); c.not_in(set); c = char_at(text, at)) at = c.end;
  return at;
}

size_t newlines_end(std::string_view text, size_t at, bool or_slash = false) noexcept {
  while (at < text.size() && (is_newline(text[at]) || (or_slash && text[at] == '/'))) ++at;
  return at;
}

/// End of N{1,most} at a number character.
size_t numbers_end(std::string_view text, size_t at, int most) noexcept {
  for (Char c = char_at(text, at); most > 0 && c.in(kNumber); c = char_at(text, at), --most) {
    at = c.end;
  }
  return at;
}

/// Lower case of an ASCII letter, and 's' for U+017F LONG S, which all three engines fold to it.
char32_t fold(char32_t c) noexcept {
  if (c == 0x17F) return 's';
  return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}

/// End of 's 't 're 've 'm 'll 'd at `at`; `at` itself when there is none.
size_t contraction_end(std::string_view text, size_t at, bool any_case) noexcept {
  if (at >= text.size() || text[at] != '\'') return at;
  Char first = char_at(text, at + 1);
  char32_t a = any_case ? fold(first.value) : first.value;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return first.end;
  Char second = char_at(text, first.end);
  char32_t b = any_case ? fold(second.value) : second.value;
  bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
  return two ? second.end : at;
}

/// S+(?!\S) | S+ at a white-space character: the run, less its last character when that is not its
/// only one and something follows.
size_t spaces_end(std::string_view text, size_t begin) noexcept {
  size_t last = begin;
  size_t end = begin;
  for (Char c = char_at(text, end); c.in(kSpace); c = char_at(text, end)) {
    last = end;
    end = c.end;
  }
  return end == text.size() || last == begin ? end : last;
}

/// S*NL+ | S+(?!\S) | S+ at a white-space character: up to the run's last newline if it has one.
size_t lines_end(std::string_view text, size_t begin) noexcept {
  size_t after_newline = 0;
  size_t end = begin;
  for (Char c = char_at(text, end); c.in(kSpace); c = char_at(text, end)) {
    end = c.end;
    if (is_newline(c.value)) after_newline = end;
  }
  return after_newline != 0 ? after_newline : spaces_end(text, begin);
}

// 's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^SLN]+|S+(?!\S)|S+
size_t gpt2_end(std::string_view text, size_t begin) noexcept {
  size_t contraction = contraction_end(text, begin, false);
  if (contraction != begin) return contraction;
  size_t at = begin;
  Char c = char_at(text, at);
  if (c.value == ' ' && char_at(text, c.end).not_in(kSpace)) {
    at = c.end;
    c = char_at(text, at);
  }
  if (c.in(kLetter)) return run_end(text, at, kLetter);
  if (c.in(kNumber)) return run_end(text, at, kNumber);
  if (c.not_in(kSpace)) return run_end_outside(text, at, kSpaceLetterNumber);
  return spaces_end(text, begin);
}

/// What differs between the patterns that follow cl100k's form.
struct LineFamily {
  int most_digits;
  ClassSet word;            ///< letters of a word
  bool whole_tail = false;  ///< S+ at the end of the text comes first
  bool contractions = true;
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^NL L N]?W+|N{1,k}| ?[^S W N]+NL*|S*NL+|S+(?!\S)|S+
size_t line_family_end(std::string_view text, size_t begin, LineFamily family) noexcept {
  size_t contraction = family.contractions ? contraction_end(text, begin, true) : begin;
  if (contraction != begin) return contraction;
  Char c = char_at(text, begin);
  if (c.in(family.word)) return run_end(text, begin, family.word);
  if (c.not_in(kLetter | kNumber) && !is_newline(c.value) && char_at(text, c.end).in(family.word)) {
    return run_end(text, c.end, family.word);
  }
  if (c.in(kNumber)) return numbers_end(text, begin, family.most_digits);
  ClassSet outside = kSpace | kNumber | family.word;
  size_t at = c.value == ' ' ? c.end : begin;
  if (char_at(text, at).not_in(outside)) {
    return newlines_end(text, run_end_outside(text, at, outside));
  }
  if (family.whole_tail && run_end(text, begin, kSpace) == text.size()) return text.size();
  return lines_end(text, begin);
}

/// End of U*W+ or U+W* at `at` (the pattern's order: the first wherever it can match); 0 for none.
size_t cased_word_end(std::string_view text, size_t at, bool lower_needed) noexcept {
  size_t upper = at;
  size_t after_last_both = 0;  // a shorter U* leaves its last character that is also in W to W+
  for (Char c = char_at(text, upper); c.in(kWordUpper); c = char_at(text, upper)) {
    upper = c.end;
    if (c.in(kWordLower)) after_last_both = upper;
  }
  size_t lower = run_end(text, upper, kWordLower);
  if (lower_needed) return lower != upper ? lower : after_last_both;
  return upper != at ? lower : 0;
}

/// End of an o200k word at `begin`, without its contraction; 0 for none.
size_t o200k_word_end(std::string_view text, size_t begin) noexcept {
  Char c = char_at(text, begin);
  bool prefix = c.not_in(kLetter | kNumber) && !is_newline(c.value);
  for (bool lower_needed : {true, false}) {
    if (prefix) {
      size_t end = cased_word_end(text, c.end, lower_needed);
      if (end != 0) return end;
    }
    size_t end = cased_word_end(text, begin, lower_needed);
    if (end != 0) return end;
  }
  return 0;
}

// word with contraction|N{1,k}| ?[^SLN]+[NL/]*|S*NL+|S+(?!\S)|S+
size_t o200k_end(std::string_view text, size_t begin, int most_digits, bool contractions) noexcept {
  size_t word = o200k_word_end(text, begin);
  if (word != 0) return contractions ? contraction_end(text, word, true) : word;
  Char c = char_at(text, begin);
  if (c.in(kNumber)) return numbers_end(text, begin, most_digits);
  size_t at = c.value == ' ' ? c.end : begin;
  if (char_at(text, at).not_in(kSpaceLetterNumber)) {
    return newlines_end(text, run_end_outside(text, at, kSpaceLetterNumber), true);
  }
  return lines_end(text, begin);
}

bool is_ascii_letter(char32_t c) noexcept { return fold(c) >= 'a' && fold(c) <= 'z' && c != 0x17F; }

bool is_ascii_punctuation(char32_t c) noexcept {
  return c > 0x20 && c < 0x7F && !is_ascii_letter(c) && !(c >= '0' && c <= '9');
}

/// End of a match at `begin` of
/// A[A-Za-z]+|[^NL L P Sym]?[L M]+| ?[P Sym]+NL*|S*NL+|S+(?!\S)|S+ with A ASCII punctuation; 0:
/// none.
size_t deepseek3_match(std::string_view text, size_t begin) noexcept {
  Char c = char_at(text, begin);
  if (is_ascii_punctuation(c.value) && is_ascii_letter(char_at(text, c.end).value)) {
    size_t at = c.end;
    while (at < text.size() && is_ascii_letter(static_cast<uint8_t>(text[at]))) ++at;
    return at;
  }
  constexpr ClassSet kWord = kLetter | kMark;
  constexpr ClassSet kSign = kPunctuation | kSymbol;
  if (c.not_in(kLetter | kSign) && !is_newline(c.value) && char_at(text, c.end).in(kWord)) {
    return run_end(text, c.end, kWord);
  }
  if (c.in(kWord)) return run_end(text, begin, kWord);
  size_t at = c.value == ' ' ? c.end : begin;
  if (char_at(text, at).in(kSign)) return newlines_end(text, run_end(text, at, kSign));
  return c.in(kSpace) ? lines_end(text, begin) : 0;
}

size_t cjk_match(std::string_view text, size_t begin) noexcept {
  size_t at = begin;
  for (Char c = char_at(text, at);
       (c.value >= 0x4E00 && c.value <= 0x9FA5) || (c.value >= 0x3040 && c.value <= 0x30FF);
       c = char_at(text, at)) {
    at = c.end;
  }
  return at == begin ? 0 : at;
}

/// End of a run of at most `most` characters that Rust's char::is_numeric takes for numbers.
size_t rust_digits_match(std::string_view text, size_t begin, size_t most) noexcept {
  size_t at = begin;
  for (Char c = char_at(text, at); most > 0 && (c.bits != 0 && is_rust_number(c.value));
       c = char_at(text, at), --most) {
    at = c.end;
  }
  return at == begin ? 0 : at;
}

/// End of a match of a pattern that does not cover every text; 0 for none at `begin`.
size_t match(Family family, std::string_view text, size_t begin) noexcept {
  switch (family) {
    case Family::deepseek3:
      return deepseek3_match(text, begin);
    case Family::cjk_runs:
      return cjk_match(text, begin);
    case Family::digits:
    case Family::digit_runs:
      return rust_digits_match(text, begin, family == Family::digits ? 1 : SIZE_MAX);
    default: {
      size_t end = numbers_end(text, begin, family == Family::numbers ? 1 : 3);
      return end == begin ? 0 : end;
    }
  }
}

/// The match at `begin`, or the gap up to the next match.
size_t match_or_gap(Family family, std::string_view text, size_t begin) noexcept {
  size_t end = match(family, text, begin);
  if (end != 0) return end;
  size_t at = begin;
  do {
    at = char_at(text, at).end;
  } while (at < text.size() && match(family, text, at) == 0);
  return at;
}

struct Pattern {
  Family family;
  std::string_view text;
};

constexpr Pattern kPatterns[] = {
    {Family::gpt2,
     R"~('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)~"},
    {Family::gpt2,
     R"~('s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)~"},
    {Family::gpt2, R"~('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)~"},
    {Family::gpt2,
     R"~('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\)~"
     R"~(s)~"},
    {Family::cl100k,
     R"~('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}])~"
     R"~(++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)~"},
    {Family::llama3,
     R"~((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p)~"
     R"~({N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)~"},
    {Family::llama3,
     R"~('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\)~"
     R"~(r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)~"},
    {Family::qwen2,
     R"~((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)~"
     R"~([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)~"},
    {Family::qwen35,
     R"~((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L})~"
     R"~(\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)~"},
    {Family::o200k,
     R"~([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?)~"
     R"~(i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)~"
     R"~([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L})~"
     R"~(\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)~"},
    {Family::tekken,
     R"~([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[)~"
     R"~(^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p)~"
     R"~({N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)~"},
    {Family::deepseek3,
     R"~([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\)~"
     R"~(p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)~"},
    {Family::deepseek3, R"~([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)~"
                        "\r\n"
                        R"~(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)~"
                        "\r\n"
                        R"~(]*|\s*[)~"
                        "\r\n"
                        R"~(]+|\s+(?!\S)|\s+)~"},
    {Family::nemotron,
     R"~([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)~"},
    {Family::numbers, R"~(\p{N})~"},
    {Family::digit_triples, R"~(\p{N}{1,3})~"},
    {Family::cjk_runs, "[一-龥぀-ゟ゠-ヿ]+"},
};

}  // namespace

std::string_view family_name(Family family) noexcept {
  constexpr std::string_view kNames[] = {
      "whole",  "gpt2",       "cl100k",        "cl100k_runs", "llama3",      "qwen2",
      "qwen35", "o200k",      "tekken",        "nemotron",    "deepseek3",   "numbers",
      "digits", "digit_runs", "digit_triples", "cjk_runs",    "blank_words",
  };
  return kNames[static_cast<size_t>(family)];
}

std::optional<Family> family_of_pattern(std::string_view pattern, PatternEngine engine) noexcept {
  for (const Pattern& known : kPatterns) {
    if (known.text != pattern) continue;
    // The only pattern with an interval that is possessive for one engine.
    const bool runs = known.family == Family::cl100k && engine == PatternEngine::oniguruma;
    return runs ? Family::cl100k_runs : known.family;
  }
  return std::nullopt;
}

size_t next_piece(Family family, std::string_view segment, size_t begin) noexcept {
  switch (family) {
    case Family::whole:
      return segment.size();
    case Family::gpt2:
      return gpt2_end(segment, begin);
    case Family::cl100k:
      return line_family_end(segment, begin, {3, kLetter, true});
    case Family::cl100k_runs:
      return line_family_end(segment, begin, {INT_MAX, kLetter, true});
    case Family::llama3:
      return line_family_end(segment, begin, {3, kLetter});
    case Family::qwen2:
      return line_family_end(segment, begin, {1, kLetter});
    case Family::qwen35:
      return line_family_end(segment, begin, {1, kLetter | kMark});
    case Family::o200k:
      return o200k_end(segment, begin, 3, true);
    case Family::tekken:
      return o200k_end(segment, begin, 1, false);
    case Family::nemotron:
      return line_family_end(segment, begin,
                             {.most_digits = 1, .word = kLetter, .contractions = false});
    case Family::blank_words:
      return std::min(segment.find(' ', begin + 1), segment.size());
    default:
      return match_or_gap(family, segment, begin);
  }
}

std::string_view PieceCutter::next() noexcept {
  if (position_ == segment_.size()) return {};
  if (pretokenizer_.num_stages == 0) {
    position_ = segment_.size();
    return segment_;
  }
  size_t begin = position_;
  size_t limit = segment_.size();
  for (size_t i = 0; i < pretokenizer_.num_stages; ++i) {
    if (ends_[i] <= begin) {
      ends_[i] = next_piece(pretokenizer_.stages[i], segment_.substr(0, limit), begin);
    }
    limit = ends_[i];
  }
  position_ = limit;
  return segment_.substr(begin, limit - begin);
}

}  // namespace tok
