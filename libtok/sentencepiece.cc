// Replacements and blanks of sentencepiece.h.
// SPDX-License-Identifier: MIT
#include "libtok/sentencepiece.h"

#include <algorithm>
#include <cstring>

#include "libtok/unicode.h"
#include "libtok/vocab.h"

namespace tok {
namespace {

/// A unit of a double array: what darts-clone calls has_leaf, value, label, offset.
struct Unit {
  uint32_t bits;
  bool has_leaf() const noexcept { return (bits >> 8 & 1) != 0; }
  uint32_t value() const noexcept { return bits & 0x7FFFFFFF; }
  uint32_t label() const noexcept { return bits & 0x800000FF; }
  uint32_t offset() const noexcept { return bits >> 10 << ((bits & 0x200) >> 6); }
};

constexpr size_t kNoNode = SIZE_MAX;

bool is_ascii(char c) noexcept { return static_cast<uint8_t>(c) < 0x80; }

/// Appends `text` with each U+2581 replaced by a blank.
void append_mapped(std::string_view text, std::string& out) {
  for (size_t at = 0; at < text.size();) {
    const size_t mark = std::min(text.find(kBlankMark, at), text.size());
    out.append(text, at, mark - at);
    if (mark < text.size()) out += ' ';
    at = mark + kBlankMark.size();
  }
}

}  // namespace

std::string marks_to_blanks(std::string_view text) {
  std::string out;
  append_mapped(text, out);
  return out;
}

void blanks_to_marks(std::string_view text, std::string& out) {
  out.clear();
  for (const char c : text) {
    c == ' ' ? out.append(kBlankMark) : out.append(1, c);
  }
}

size_t UserDefined::size_at(std::string_view text, size_t at) const noexcept {
  size_t size = 0;
  for (const std::string& one : texts_) {
    if (one.size() > size && text.substr(at).starts_with(one)) size = one.size();
  }
  return size;
}

Charsmap::Charsmap(std::string_view blob) {
  uint32_t size = 0;
  if (blob.size() > sizeof size) std::memcpy(&size, blob.data(), sizeof size);
  blob.remove_prefix(std::min(blob.size(), sizeof size));
  if (size == 0 || size % sizeof(uint32_t) != 0 || size >= blob.size() || blob.back() != '\0') {
    throw ParseError("normalizer_spec.precompiled_charsmap: its sizes contradict each other");
  }
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), blob.data(), size);
  texts_ = blob.substr(size);
  for (uint8_t byte = 0; byte < 0x80; ++byte) {
    const size_t node = child(Unit{units_[0]}.offset(), byte);
    bool keeps = node == kNoNode || !Unit{units_[node]}.has_leaf();
    for (uint8_t next = 0; keeps && node != kNoNode && next < 0x80; ++next) {
      keeps = child(node ^ Unit{units_[node]}.offset(), next) == kNoNode;
    }
    keeps_[byte] = keeps;
  }
}

std::string Charsmap::bytes() const {
  return std::string(reinterpret_cast<const char*>(units_.data()),
                     units_.size() * sizeof(uint32_t)) +
         texts_;
}

/// The child node for a byte, of a node whose children begin at `base`; kNoNode if there is none.
size_t Charsmap::child(size_t base, uint8_t byte) const noexcept {
  const size_t node = base ^ byte;
  return node < units_.size() && Unit{units_[node]}.label() == byte ? node : kNoNode;
}

Charsmap::Replacement Charsmap::find(std::string_view text, size_t at) const noexcept {
  if (empty()) return {};
  size_t longest = 0;
  size_t value = 0;
  size_t base = Unit{units_[0]}.offset();
  for (size_t i = at; i < text.size(); ++i) {
    const size_t node = child(base, static_cast<uint8_t>(text[i]));
    if (node == kNoNode) break;
    base = node ^ Unit { units_[node] }.offset();
    if (!Unit{units_[node]}.has_leaf() || base >= units_.size()) continue;
    longest = i + 1 - at;
    value = Unit{units_[base]}.value();
  }
  if (value >= texts_.size()) return {};
  return {longest, std::string_view(texts_.data() + value)};  // texts_ ends with a zero byte
}

/// Whether an ASCII byte is unchanged and is not a blank.
bool SentencePieceRules::is_kept(std::string_view text, size_t at) const noexcept {
  const char c = text[at];
  if (!is_ascii(c) || c == ' ' || user_defined.may_begin(c)) return false;
  if (charsmap.empty()) return true;
  return charsmap.keeps(c) && (at + 1 == text.size() || is_ascii(text[at + 1]));
}

/// The replacement of the text's next characters.
Charsmap::Replacement SentencePieceRules::next(std::string_view text, size_t at) const noexcept {
  if (user_defined.may_begin(text[at])) {
    if (const size_t size = user_defined.size_at(text, at)) return {size, text.substr(at, size)};
  }
  if (const Charsmap::Replacement found = charsmap.find(text, at); found.size > 0) return found;
  const CodePoint character = decode(text, at);
  const bool valid = character.value != kInvalidByte;
  return {character.length, valid ? text.substr(at, character.length) : "\xEF\xBF\xBD"};
}

void SentencePieceRules::normalize(std::string_view text, std::string& out) const {
  out.clear();
  size_t at = 0;
  while (remove_extra_whitespaces && at < text.size()) {
    const Charsmap::Replacement first = next(text, at);
    if (first.text != " ") break;
    at += first.size;
  }
  if (at == text.size()) return;
  out.reserve(text.size() - at + 1);
  if (add_dummy_prefix) out += ' ';
  bool after_blank = remove_extra_whitespaces;
  while (at < text.size()) {
    size_t end = at;
    while (end < text.size() && is_kept(text, end)) ++end;
    if (end > at) {
      out.append(text, at, end - at);
      at = end;
      after_blank = false;
      continue;
    }
    auto [size, piece] = next(text, at);
    at += size;
    while (after_blank && piece.starts_with(' ')) piece.remove_prefix(1);
    if (piece.empty()) continue;
    append_mapped(piece, out);
    after_blank = remove_extra_whitespaces && piece.ends_with(' ');
  }
  while (remove_extra_whitespaces && out.ends_with(' ')) out.pop_back();
}

}  // namespace tok
