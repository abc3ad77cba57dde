// The table of quiet code points; only text that may change is passed to ICU.
// SPDX-License-Identifier: MIT
#include "libtok/normalize.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "libtok/unicode.h"

namespace tok {
namespace {

/// Last version of Unicode in the reference's tables.
constexpr uint8_t kReferenceVersion = 9;

constexpr size_t kNumBlocks = 0x110000 / 64;

const icu::Normalizer2* icu_normalizer(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = nullptr;
  switch (form) {
    case NormalForm::nfc:
      normalizer = icu::Normalizer2::getNFCInstance(status);
      break;
    case NormalForm::nfd:
      normalizer = icu::Normalizer2::getNFDInstance(status);
      break;
    case NormalForm::nfkc:
      normalizer = icu::Normalizer2::getNFKCInstance(status);
      break;
    case NormalForm::nfkd:
      normalizer = icu::Normalizer2::getNFKDInstance(status);
      break;
  }
  if (U_FAILURE(status)) {
    throw std::runtime_error(std::string("ICU normalisation: ") + u_errorName(status));
  }
  return normalizer;
}

/// Whether the reference knows a code point; an unknown one is never decomposed, composed or
/// reordered.
bool known_to_reference(char32_t code_point) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(code_point), age);
  return age[0] != 0 && age[0] <= kReferenceVersion;
}

/// A code point is quiet if it never changes, whatever is around it, and nothing moves or composes
/// across its left edge.
class QuietTable {
 public:
  explicit QuietTable(NormalForm form) : normalizer_(icu_normalizer(form)) {
    for (size_t c = 0; c < kNumBlocks * 64; ++c) {
      const uint64_t quiet = find_quiet(static_cast<char32_t>(c));
      quiet_[c / 64] |= quiet << c % 64;
    }
  }

  bool quiet(char32_t code_point) const {
    return (quiet_[code_point >> 6] >> (code_point & 63) & 1) != 0;
  }
  const icu::Normalizer2& normalizer() const { return *normalizer_; }

 private:
  bool find_quiet(char32_t code_point) const {
    if (!known_to_reference(code_point)) return true;
    const UChar32 c = static_cast<UChar32>(code_point);
    if (normalizer_->getCombiningClass(c) != 0 || !normalizer_->hasBoundaryBefore(c)) return false;
    UErrorCode status = U_ZERO_ERROR;
    return normalizer_->quickCheck(icu::UnicodeString(c), status) == UNORM_YES;
  }

  const icu::Normalizer2* normalizer_;
  std::array<uint64_t, kNumBlocks> quiet_{};  ///< one bit for each code point
};

const QuietTable& quiet_table(NormalForm form) {
  switch (form) {
    case NormalForm::nfc: {
      static const QuietTable kNfc(NormalForm::nfc);
      return kNfc;
    }
    case NormalForm::nfd: {
      static const QuietTable kNfd(NormalForm::nfd);
      return kNfd;
    }
    case NormalForm::nfkc: {
      static const QuietTable kNfkc(NormalForm::nfkc);
      return kNfkc;
    }
    case NormalForm::nfkd:
      break;
  }
  static const QuietTable kNfkd(NormalForm::nfkd);
  return kNfkd;
}

/// Bytes of ASCII from `at` on. ASCII is quiet in every form.
size_t skip_ascii(std::string_view text, size_t at) noexcept {
  while (at + 8 <= text.size()) {
    uint64_t word;
    __builtin_memcpy(&word, text.data() + at, 8);
    word &= 0x8080808080808080u;
    if (word != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

/// First position from `at` on whose code point is not quiet; `quiet_start` becomes the beginning
/// of the character just before it (or stays when there is none).
size_t find_loud(std::string_view text, size_t at, const QuietTable& table, size_t& quiet_start) {
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      at = skip_ascii(text, at);
      quiet_start = at - 1;
      continue;
    }
    const CodePoint c = decode(text, at);
    if (c.value != kInvalidByte && !table.quiet(c.value)) return at;
    quiet_start = at;
    at += c.length;
  }
  return text.size();
}

/// Spans of fewer bytes are passed to ICU as they are.
constexpr size_t kLongSpan = 256;

/// `span` with each run of marks in canonical order, which leaves its normal forms as they are. ICU
/// takes the square of a run's length to order it.
std::string with_ordered_marks(std::string_view span, const icu::Normalizer2& normalizer) {
  struct Mark {
    char32_t value;
    uint8_t combining_class;
  };
  std::string out;
  std::vector<Mark> run;
  const auto end_run = [&] {
    std::ranges::stable_sort(run, {}, &Mark::combining_class);
    for (const Mark& mark : run) append_utf8(out, mark.value);
    run.clear();
  };
  const auto add = [&](char32_t c) {
    const uint8_t combining_class = normalizer.getCombiningClass(static_cast<UChar32>(c));
    if (combining_class != 0) return run.push_back({c, combining_class});
    end_run();
    append_utf8(out, c);
  };
  icu::UnicodeString parts;
  for (size_t at = 0; at < span.size();) {
    const CodePoint c = decode(span, at);
    at += c.length;
    // A few characters that are no marks become some, as U+0F73 and, in NFKC, U+FF9E.
    const UChar32 value = static_cast<UChar32>(c.value);
    if (normalizer.getCombiningClass(value) == 0 && normalizer.getDecomposition(value, parts) &&
        normalizer.getCombiningClass(parts.char32At(0)) != 0) {
      for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1)) {
        add(static_cast<char32_t>(parts.char32At(i)));
      }
    } else {
      add(c.value);
    }
  }
  end_run();
  return out;
}

void append_normalized(std::string_view span, const QuietTable& table, std::string& out) {
  std::string ordered;
  if (span.size() >= kLongSpan) span = ordered = with_ordered_marks(span, table.normalizer());
  UErrorCode status = U_ZERO_ERROR;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(span.size()));
  table.normalizer().normalizeUTF8(
      0, icu::StringPiece(span.data(), static_cast<int32_t>(span.size())), sink, nullptr, status);
  if (U_FAILURE(status)) {
    throw std::runtime_error(std::string("ICU normalisation: ") + u_errorName(status));
  }
}

}  // namespace

bool is_quickly_normal(std::string_view text, NormalForm form) noexcept {
  if (skip_ascii(text, 0) == text.size()) return true;
  size_t quiet_start = 0;
  return find_loud(text, 0, quiet_table(form), quiet_start) == text.size();
}

void normalize(std::string_view text, NormalForm form, std::string& out) {
  const QuietTable& table = quiet_table(form);
  out.clear();
  size_t copied = 0;
  while (copied < text.size()) {
    // A span extends from the quiet character before a loud one to the next quiet character.
    size_t begin = copied;
    const size_t loud = find_loud(text, copied, table, begin);
    if (loud == text.size()) break;
    if (begin < loud) {
      const CodePoint before = decode(text, begin);
      if (before.value == kInvalidByte || !known_to_reference(before.value)) begin = loud;
    }
    out.append(text, copied, begin - copied);
    size_t end = loud;
    while (end < text.size()) {
      const CodePoint c = decode(text, end);
      if (c.value == kInvalidByte || table.quiet(c.value)) break;
      end += c.length;
    }
    append_normalized(text.substr(begin, end - begin), table, out);
    copied = end;
  }
  out.append(text, copied);
}

}  // namespace tok
