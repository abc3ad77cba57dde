// SPDX-License-Identifier: MIT
// Digits on both sides of dropped text are two numbers, not one. Whether digits stand there is
// known only when all markup between them is gone, so the passes leave a gap where they drop
// something, and strip_inline, whose result has no markup but emphasis, makes it a space or
// nothing. A gap is a byte that UTF-8 never contains. No I/O, no state: any thread.
#pragma once

#include <string>
#include <string_view>

namespace wiki {

/// The byte of a gap; shield() never makes it.
constexpr char kGap = static_cast<char>(0xFF);

/// Something was dropped between `before` and `after`, wikitext both: appends a gap to `before` if
/// there are or may be, behind markup, digits on both sides. Digits are those of every script.
void mark_gap(std::string& before, std::string_view after);

/// Removes the gap at the end of `text`; false if there is none.
bool take_gap(std::string& text);

/// `text` without gaps.
std::string without_gaps(std::string_view text);

/// Makes each gap between digits a space and removes the others. Marks of emphasis are passed over;
/// other markup is text.
void close_gaps(std::string& text);

}  // namespace wiki
