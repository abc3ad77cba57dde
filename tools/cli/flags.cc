// SPDX-License-Identifier: MIT
// Room: tools/cli. Text to numbers and back, every error names the permitted range; what must be
// given.
// Not here: which flag the text belongs to; parse.cc puts its name before the reason.
#include "tools/cli/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tools/cli/text.h"

namespace cli {
namespace {

std::string range_text(std::string_view kind, int64_t lowest, int64_t highest) {
  if (highest == kMaxInteger) return concat("expected ", kind, " of at least ", lowest);
  return concat("expected ", kind, " from ", lowest, " to ", highest);
}

// 9_765_625 is 9765625, as Python reads numbers: underscores may stand between two digits. With one
// anywhere else the text is returned unchanged, and is not a number.
std::string without_underscores(std::string_view text) {
  const auto digit = [&](size_t at) {
    return at < text.size() && text[at] >= '0' && text[at] <= '9';
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') out += text[i];
    if (text[i] == '_' && (i == 0 || !digit(i - 1) || !digit(i + 1))) return std::string(text);
  }
  return out;
}

}  // namespace

int64_t parse_integer(std::string_view text, int64_t lowest, int64_t highest) {
  int64_t value = 0;
  const std::string digits = without_underscores(text);
  const char* begin = digits.data() + (digits.starts_with('+') ? 1 : 0);
  const char* end = digits.data() + digits.size();
  const std::from_chars_result result = std::from_chars(begin, end, value);
  if (result.ec != std::errc() || result.ptr != end || value < lowest || value > highest) {
    throw UsageError(range_text("a whole number", lowest, highest));
  }
  return value;
}

int64_t parse_size(std::string_view text, int64_t lowest, int64_t highest) {
  constexpr std::string_view kUnits = "KMGT";
  std::string_view digits = text;
  int shift = 0;
  if (!digits.empty()) {
    const char unit = static_cast<char>(digits.back() & ~0x20);  // upper case
    const size_t at = kUnits.find(unit);
    if (at != std::string_view::npos) {
      shift = 10 * (static_cast<int>(at) + 1);
      digits.remove_suffix(1);
    }
  }
  int64_t count = 0;
  const std::from_chars_result result =
      std::from_chars(digits.data(), digits.data() + digits.size(), count);
  const std::string expected = concat(range_text("a size in bytes", lowest, highest),
                                      ", with K, M, G or T for powers of 1024");
  if (result.ec == std::errc::result_out_of_range || count > (kMaxInteger >> shift)) {
    throw UsageError(concat("does not fit in 63 bits: ", expected));
  }
  if (result.ec != std::errc() || result.ptr != digits.data() + digits.size() || count < 0) {
    throw UsageError(expected);
  }
  const int64_t bytes = count << shift;
  if (bytes < lowest || bytes > highest) throw UsageError(expected);
  return bytes;
}

double parse_real(std::string_view text, double lowest, double highest) {
  double value = 0;
  const std::string digits = without_underscores(text);
  const char* begin = digits.data() + (digits.starts_with('+') ? 1 : 0);
  const char* end = digits.data() + digits.size();
  const std::from_chars_result result = std::from_chars(begin, end, value);
  if (result.ec == std::errc() && result.ptr == end && std::isfinite(value) && value >= lowest &&
      value <= highest) {
    return value;
  }
  constexpr double kMax = std::numeric_limits<double>::max();
  std::string expected = "expected a number";
  if (lowest > -kMax && highest < kMax) {
    expected += concat(" from ", show_real(lowest), " to ", show_real(highest));
  } else if (lowest > -kMax) {
    expected += concat(" of at least ", show_real(lowest));
  } else if (highest < kMax) {
    expected += concat(" of at most ", show_real(highest));
  }
  throw UsageError(expected);
}

bool parse_bool(std::string_view text) {
  for (const std::string_view yes : {"true", "yes", "on", "1", "True"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "no", "off", "0", "False"}) {
    if (text == no) return false;
  }
  throw UsageError("expected true or false");
}

const std::string& parse_choice(const std::string& text, const std::vector<std::string>& choices) {
  for (const std::string& choice : choices) {
    if (text == choice) return text;
  }
  throw UsageError(
      concat(choices.size() == 1 ? "expected " : "expected one of ", join(choices, ", ")));
}

void check_idle_choice(const std::string& text, const std::vector<std::string>& choices,
                       const std::string& reason) {
  for (const std::string& choice : choices)
    if (text == choice) return;
  throw UsageError(concat("permitted is ", join(choices, " or "), ": ", reason));
}

std::vector<std::string_view> split_names(std::string_view names) {
  std::vector<std::string_view> words;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    words.push_back(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return words;
}

void require_all(std::span<const Needed> needed) {
  std::vector<std::string> absent;
  for (const Needed& one : needed)
    if (!one.there) absent.emplace_back(one.flag);
  if (absent.empty()) return;
  const std::string last = absent.back();
  absent.pop_back();
  if (absent.empty()) throw UsageError(last + " is missing");
  throw UsageError(concat(join(absent, ", "), " and ", last, " are missing"));
}

std::string show_real(double value) {
  char buffer[32];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, result.ptr);
}

std::string show_size(int64_t bytes) {
  std::string_view unit;
  for (const std::string_view larger : {"K", "M", "G", "T"}) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    unit = larger;
  }
  return concat(bytes, unit);
}

}  // namespace cli
