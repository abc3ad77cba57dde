// SPDX-License-Identifier: MIT
// {{#titleparts:}}: titles in the normal form that MediaWiki gives them, and the choice of their
// parts. Prefixes of other wikis are not known: they are parts of a title.
// Source: ParserFunctions::titleparts and MediaWikiTitleCodec::splitTitleString of MediaWiki; PHP's
// array_slice.

#include <unicode/utf8.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "tools/wiki/entities.h"
#include "tools/wiki/templates.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

bool is_space(UChar32 c) {
  return c == ' ' || c == '_' || c == 0xA0 || c == 0x1680 || c == 0x180E ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_direction(UChar32 c) { return c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E); }

// `text` with one space for each run of spaces and underscores, and none at its beginning, without
// marks of direction; nothing if it is not UTF-8: a gap or protected text is in no title.
std::optional<std::string> spaced(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const auto length = static_cast<int32_t>(text.size());
  std::string out;
  for (int32_t at = 0; at < length;) {
    const int32_t begin = at;
    UChar32 c = 0;
    U8_NEXT(bytes, at, length, c);
    if (c < 0 || c == 0xFFFD) return std::nullopt;
    if (is_direction(c)) continue;
    if (!is_space(c))
      out += text.substr(static_cast<size_t>(begin), static_cast<size_t>(at - begin));
    else if (!out.empty() && out.back() != ' ')
      out.push_back(' ');
  }
  return out;
}

std::string_view without_spaces(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

bool is_hexadecimal(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Whether a reference to a character is at text[at] ('&'), of whatever name.
bool is_reference(std::string_view text, size_t at) {
  size_t i = at + 1;
  while (i < text.size() &&
         ((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'z') ||
          (text[i] >= 'A' && text[i] <= 'Z') || (text[i] & 0x80) != 0))
    ++i;
  return i > at + 1 && i < text.size() && text[i] == ';';
}

// Whether a title may be so, behind its namespace.
bool is_title(std::string_view text, int64_t name_space) {
  constexpr int64_t kSpecial = -1;
  if (text.size() > (name_space == kSpecial ? 512U : 255U)) return false;
  if (text.empty() ? name_space != 0 : text[0] == ':') return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 0 && c < ' ') || c == 0x7F || std::string_view("<>[]{|}").find(c) != text.npos)
      return false;
    const bool escaped = c == '%' && i + 2 < text.size() && is_hexadecimal(text[i + 1]) &&
                         is_hexadecimal(text[i + 2]);
    if (escaped || (c == '&' && is_reference(text, i))) return false;
  }
  const bool path = text == "." || text == ".." || text.starts_with("./") ||
                    text.starts_with("../") || text.find("/./") != text.npos ||
                    text.find("/../") != text.npos || text.ends_with("/.") || text.ends_with("/..");
  return !path && text.find("~~~") == text.npos;
}

struct Prefix {
  const Site::Namespace* name_space = nullptr;  // null: no known prefix
  std::string_view rest;
};

Prefix split_prefix(std::string_view title, const Site& site) {
  const size_t colon = title.find(':', 1);
  if (colon == std::string_view::npos) return {.rest = title};
  const std::string name = fold_case(without_spaces(title.substr(0, colon)));
  const auto found = std::find_if(site.namespaces.begin(), site.namespaces.end(),
                                  [&](const Site::Namespace& n) { return n.name == name; });
  if (found == site.namespaces.end()) return {.rest = title};
  return {&*found, without_spaces(title.substr(colon + 1))};
}

// The name of a namespace as the site writes it: that of several with one number which comes first.
std::string_view shown_name(int64_t number, const Site& site) {
  const auto found = std::find_if(site.namespaces.begin(), site.namespaces.end(),
                                  [&](const Site::Namespace& n) { return n.number == number; });
  return found == site.namespaces.end() ? std::string_view() : found->shown;
}

std::optional<std::string> normal_title(std::string_view written, const Site& site) {
  constexpr int64_t kTalk = 1;
  const std::optional<std::string> text = spaced(decode_entities(written));
  if (!text) return std::nullopt;
  std::string_view title = *text;
  if (title.starts_with(':')) title = without_spaces(title.substr(1));
  if (title.empty()) return std::nullopt;
  const Prefix prefix = split_prefix(title, site);
  const int64_t number = prefix.name_space == nullptr ? 0 : prefix.name_space->number;
  title = prefix.rest;
  if (number == kTalk && split_prefix(title, site).name_space != nullptr) return std::nullopt;
  title = without_spaces(title.substr(0, title.find('#')));
  if (!is_title(title, number)) return std::nullopt;
  std::string out;
  if (number != 0) out.append(shown_name(number, site)).push_back(':');
  return out += site.first_letter_upper ? upper_first(title) : std::string(title);
}

// The number that a text begins with, as PHP's (int) reads it; 0 if there is none. Within ±1000,
// which is more than a title has parts.
int64_t leading_number(std::string_view text) {
  constexpr double kMost = 1000;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || (text[0] != '.' && (text[0] < '0' || text[0] > '9'))) return 0;
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  const auto whole = static_cast<int64_t>(std::min(value, kMost));
  return negative ? -whole : whole;
}

}  // namespace

std::string title_parts(std::string_view title, std::string_view count, std::string_view first,
                        const Site& site) {
  constexpr size_t kMostParts = 25;
  const std::optional<std::string> normal = normal_title(title, site);
  if (!normal) return std::string(title);
  std::vector<size_t> begins = {0};
  for (size_t slash = normal->find('/'); slash != std::string::npos && begins.size() < kMostParts;
       slash = normal->find('/', slash + 1))
    begins.push_back(slash + 1);
  const auto size = static_cast<int64_t>(begins.size());
  const int64_t offset = leading_number(first);
  const int64_t from = offset < 0 ? std::max<int64_t>(size + offset, 0)
                                  : std::min(offset - (offset > 0 ? 1 : 0), size);
  const int64_t most = leading_number(count);
  const int64_t to = most > 0 ? std::min(from + most, size) : size + most;
  if (from >= to) return {};
  const size_t begin = begins[static_cast<size_t>(from)];
  const size_t end = to == size ? normal->size() : begins[static_cast<size_t>(to)] - 1;
  return normal->substr(begin, end - begin);
}

}  // namespace wiki
