// SPDX-License-Identifier: MIT
// Room: tools/extract, the parts of json-extract. Cleaning of one text, in a fixed order: mojibake,
// control characters, normal form, white space. Text in, text out; valid UTF-8 stays valid. May
// include ICU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace extract {

/// Unicode normal form of the result.
enum class Normalize { none, nfc, nfkc };
/// What becomes of control characters other than tab and line ends.
enum class ControlCharacters { keep, remove, space };
/// What becomes of white space; see --whitespace.
enum class Whitespace { keep, trim, collapse };

/// The cleaning that was asked for; the defaults change nothing.
struct CleanOptions {
  bool repair_mojibake = false;
  ControlCharacters control = ControlCharacters::keep;
  Normalize normalize = Normalize::none;
  Whitespace whitespace = Whitespace::keep;
};

/// Whether these options ever change a text.
constexpr bool changes(const CleanOptions& options) {
  return options.repair_mojibake || options.control != ControlCharacters::keep ||
         options.normalize != Normalize::none || options.whitespace != Whitespace::keep;
}

/// Cleans `text` in place; `scratch` is memory to use again. Returns whether mojibake was repaired.
/// Errors: std::runtime_error when ICU has no normalisation data.
bool clean(const CleanOptions& options, std::string& text, std::string& scratch);

/// Puts back what UTF-8 read as Latin-1 or Windows-1252 has become, up to three times over:
/// "cafÃ©" is "café". A run of such characters is read again as a whole where its bytes are UTF-8,
/// else character by character; a reading with control characters of U+0080 to U+009F is never
/// taken. Returns whether anything changed.
bool repair_mojibake(std::string& text, std::string& scratch);

/// Removes, or makes spaces of, the control characters (category Cc) other than tab, line feed and
/// carriage return.
void clean_control(ControlCharacters control, std::string& text);

/// trim: no white space (Unicode's White_Space) at either end. collapse: also \r\n and \r become
/// \n, a run of spaces and tabs one space, none stands at the end or the start of a line, and at
/// most one empty line stands between others.
void clean_whitespace(Whitespace whitespace, std::string& text, std::string& scratch);

/// Number of code points.
int64_t count_characters(std::string_view text);

}  // namespace extract
