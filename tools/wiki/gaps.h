// SPDX-License-Identifier: MIT
// Digits on both sides of dropped text are two numbers, not one. Whether digits stand there is
// known only when all markup between them is gone, so the passes leave a gap where they drop
// something, and strip_inline, whose result has no markup but emphasis, makes it a space or
// nothing. A gap is a byte that UTF-8 never contains.
// In the same way apostrophes on both sides of what is gone when the page is shown, but not yet
// when MediaWiki reads emphasis, are two marks, not one: ''a''<ref>b</ref>''c'', ''a''<b>''c''</b>,
// ''a''<nowiki/>''c''. Where the passes remove such a thing, they leave a gap or a seam, which
// compact_lines removes. (MediaWiki removes comments before: they part nothing.)
// No I/O, no state: any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace wiki {

/// The byte of a gap; shield() never makes it.
constexpr char kGap = static_cast<char>(0xFF);

/// Something was dropped between `before` and `after`, wikitext both: appends a gap to `before` if
/// there are or may be, behind markup, digits on both sides. Digits are those of every script.
void mark_gap(std::string& before, std::string_view after);

/// The bytes of a seam: shielded (wikitext.h), but nothing. unshield removes those that stay.
constexpr std::string_view kSeam = "\xFE\x80";

/// Markup was removed between `before` and `after`: appends a seam to `before` if there are or may
/// be, behind further markup, apostrophes on both sides.
void mark_seam(std::string& before, std::string_view after);

/// Removes the gap at the end of `text`; false if there is none.
bool take_gap(std::string& text);

/// `text` without gaps and seams.
std::string without_gaps(std::string_view text);

/// `text` with `change` applied to each part between gaps and shielded bytes, which stay.
std::string change_between_marks(std::string_view text,
                                 const std::function<std::string(std::string_view)>& change);

/// Makes each gap between digits a space, each between apostrophes a seam, and removes the others.
/// Marks of emphasis are passed over; other markup is text.
void close_gaps(std::string& text);

}  // namespace wiki
