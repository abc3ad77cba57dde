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
/// What to do with control characters other than tab and line ends.
enum class ControlCharacters { keep, remove, space };
/// What to do with white space; see --whitespace.
enum class Whitespace { keep, trim, collapse };

/// The requested cleaning; the defaults change nothing.
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

/// Cleans `text` in place; `scratch` is reusable memory. Returns whether mojibake was repaired.
/// Errors: std::runtime_error when ICU has no normalisation data.
bool clean(const CleanOptions& options, std::string& text, std::string& scratch);

/// Repairs UTF-8 that was decoded as Latin-1 or Windows-1252, up to three times over: "cafÃ©"
/// becomes "café". A run of such characters is decoded again as a whole if its bytes are UTF-8,
/// else character by character; a result with control characters U+0080 to U+009F is never used.
/// Returns whether anything changed.
bool repair_mojibake(std::string& text, std::string& scratch);

/// Removes, or replaces by spaces, the control characters (category Cc) other than tab, line feed
/// and carriage return.
void clean_control(ControlCharacters control, std::string& text);

/// trim: no white space (Unicode's White_Space) at either end. collapse: in addition \r\n and \r
/// become \n, a run of spaces and tabs becomes one space, lines neither begin nor end with one, and
/// at most one empty line is left between others.
void clean_whitespace(Whitespace whitespace, std::string& text, std::string& scratch);

/// Number of code points.
int64_t count_characters(std::string_view text);

}  // namespace extract
