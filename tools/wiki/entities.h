// SPDX-License-Identifier: MIT
// Character references of HTML (&amp; &#233; &#xE9; &nbsp;) as wikitext uses them.
// Not here: XML's own five, which expat has decoded before wikitext is seen.
// Source: HTML 4.01, section 24 (the named references).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace wiki {

/// A named reference without '&' and ';', and its code point.
struct Entity {
  std::string_view name;
  uint32_t code_point;
};

extern const std::array<Entity, 253> kEntities;

/// Appends the UTF-8 of `code_point` to `out`; surrogates and values past U+10FFFF become U+FFFD.
void append_utf8(uint32_t code_point, std::string& out);

/// Length in bytes of the reference that begins at text[at] ('&'), 0 if there is none; if there is
/// one, its UTF-8 is appended to `out`.
size_t decode_entity(std::string_view text, size_t at, std::string& out);

/// `text` with every reference decoded once.
std::string decode_entities(std::string_view text);

}  // namespace wiki
