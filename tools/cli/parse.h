// SPDX-License-Identifier: MIT
// Room: tools/cli. From argv and configuration files to values in rows. `--opt value`,
// `--opt=value`, `-o value`,
// `-abc` for switches, `--` ends options; abbreviated names are not completed, and the error for an
// unknown name suggests the nearest. cxxopts parses the words; the rules for lists, aliases and
// names are in parse.cc.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/flags.h"

namespace cli {

/// What a command line gave besides the values that are now in the rows' struct.
struct Parsed {
  std::vector<std::string> operands;  ///< words that belong to no flag, in order
  std::set<std::string, std::less<>>
      given;  ///< long names of the flags used, also those of a configuration file
  std::set<std::string, std::less<>> on_line = {};  ///< those that the command line itself used
  /// What a configuration file gave for each flag that one names; the last one counts.
  std::map<std::string, Values, std::less<>> in_files = {};
  /// The last value of each flag that took several words of the line: it may have been meant as an
  /// operand.
  std::map<std::string, std::string> list_ends;
};

/// Sets every row that `arguments` (argv without the program's name) names.
/// Errors: UsageError with `--name value: why`, or the nearest name of an unknown one. Rows are set
/// in table order, after the whole line has been parsed, so a wrong line changes no option that it
/// does not name.
Parsed parse_arguments(std::span<const Row> rows, std::span<const std::string> arguments);

/// UsageError naming all required rows that are not in `given`.
void check_required(std::span<const Row> rows, const Parsed& parsed);

/// Reads `name = value` lines into rows: a small part of TOML. Values are numbers, true, false,
/// "text" with \" \\ \n \t escapes, 'text', bare words, and [lists]; `#` begins a comment;
/// [headings] are ignored. `_` in a name means `-`. Errors: UsageError with `path:line: why`. Names
/// that were set are added to `given`.
void read_config(std::span<const Row> rows, std::string_view text, std::string_view path,
                 Parsed& parsed);

/// All current values, one `name = value` per line under [group] headings, in a form that
/// read_config accepts.
std::string show_config(std::span<const Row> rows);

/// The row of that long name or alias; null if there is none.
const Row* find_row(std::span<const Row> rows, std::string_view name);

/// The known name most similar to `name`, or empty if none is similar.
std::string nearest_name(std::span<const Row> rows, std::string_view name);

/// The one of `words` that `name` may be a typing error of; empty if none is near.
std::string nearest_word(std::span<const std::string_view> words, std::string_view name);

}  // namespace cli
