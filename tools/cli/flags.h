// SPDX-License-Identifier: MIT
// Room: tools/cli. A row for each flag: everything about it that a user can see or set, as data. A
// program's options are a plain struct O; its table is a list of groups of rows. The parser, -h,
// --help, the OPTIONS of the man page, the completion, the configuration file and the printed
// configuration are all made from the same rows, so they cannot differ. Not here: reading argv
// (parse.h), printing (help.h), the start and end of a program (run.h). May include the C++ library
// only; only parse.cc includes cxxopts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cli {

/// The command line is wrong. Thrown before anything is opened; run() prints it and exits with 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// How many values follow a flag: none (a switch), one, or all up to the next flag (at least one).
enum class Arity { none, one, many };

/// The values of one flag as text. A switch has one: "true" or "false".
using Values = std::vector<std::string>;

/// The part of a row that knows the options struct: how values go in and come out.
template <class O>
struct Field {
  using Set = std::function<void(O&, const Values&)>;
  using Show = std::function<Values(const O&)>;

  // Constructors and not defaults of members: GCC 12 does not compile those in a table's braces.
  Field() = default;
  Field(Arity how_many, Set setter, Show shower)
      : arity(how_many), set(std::move(setter)), show(std::move(shower)) {}
  Field(Arity how_many, Set setter, Show shower, std::vector<std::string> words,
        std::string reason = std::string())
      : arity(how_many),
        set(std::move(setter)),
        show(std::move(shower)),
        choices(std::move(words)),
        no_effect(std::move(reason)) {}

  Arity arity = Arity::one;
  /// Stores the values (exactly one for Arity::one). Errors: UsageError saying what was expected,
  /// without the flag's name.
  Set set;
  /// The current values, in the form that `set` takes; empty if there are none. Empty function:
  /// never shown.
  Show show;
  /// Permitted words, for help and completion; empty if any text is permitted.
  std::vector<std::string> choices;
  /// Why the flag changes nothing here; empty for a flag that does something.
  std::string no_effect;
  /// Why the flag, known by name, is an error whenever it is used; empty for all others.
  std::string refused;
  /// For Arity::many: a further use of the flag replaces earlier values instead of adding to them.
  bool last_counts = false;
  /// Of a `one`: a further use of the flag adds its value, where it else replaces what stands.
  bool adds_up = false;
};

/// What a command cannot do without: whether it is there, and what a message calls it.
struct Needed {
  bool there = false;
  const char* flag = "";
};
/// Errors: UsageError that names all that are absent.
void require_all(std::span<const Needed> needed);

/// One row of a flag table.
template <class O>
struct Flag {
  std::string_view name;  ///< long name without dashes; the user's and Megatron's spelling
  char letter = 0;        ///< short name, 0 for none
  std::string_view aliases =
      {};  ///< other long names, separated by spaces, such as `vocab` for `vocab-file`
  std::string_view value = {};  ///< name of the value in help, such as `FILE`; empty for a switch
  std::string_view help = {};   ///< sentences; -h shows only the first
  Field<O> field;
  bool required = false;  ///< absent from command line and file: UsageError
  /// Other flags whose values this one sets, separated by spaces: they then count as given.
  std::string_view sets = {};
};

/// Rows under a heading. Tables of several source files are joined by putting their groups into one
/// Table.
template <class O>
struct Group {
  std::string_view title;
  std::vector<Flag<O>> flags;
};

template <class O>
using Table = std::vector<Group<O>>;

/// The rows of a part of the options as rows of the whole options:
/// `lift(policy_group(), &Options::policy)`. So several programs can share a group, and a large
/// table can be written in several files.
template <class O, class P>
Group<O> lift(const Group<P>& group, P O::*part) {
  Group<O> out{group.title, {}};
  for (const Flag<P>& flag : group.flags) {
    Field<O> field{flag.field.arity,
                   [set = flag.field.set, part](O& o, const Values& v) { set(o.*part, v); },
                   nullptr, flag.field.choices, flag.field.no_effect};
    field.refused = flag.field.refused;
    field.last_counts = flag.field.last_counts;
    field.adds_up = flag.field.adds_up;
    if (flag.field.show) {
      field.show = [show = flag.field.show, part](const O& o) { return show(o.*part); };
    }
    out.flags.push_back({flag.name, flag.letter, flag.aliases, flag.value, flag.help,
                         std::move(field), flag.required, flag.sets});
  }
  return out;
}

/// A row without its struct, for the parser and the printers.
struct Row {
  std::string_view name;
  char letter = 0;
  std::vector<std::string_view> aliases;  ///< long names
  std::string_view value;
  std::string_view help;
  std::string_view group;  ///< title of the group the row stands in
  Arity arity = Arity::one;
  bool required = false;
  std::vector<std::string> choices;
  std::string no_effect;
  std::function<void(const Values&)> set;
  std::function<Values()> show;  ///< empty: nothing to show
  std::string refused;
  bool last_counts = false;
  bool adds_up = false;
  std::vector<std::string_view> sets;  ///< long names
};

/// The words of `names`, which are separated by single spaces.
std::vector<std::string_view> split_names(std::string_view names);

/// The rows of `table` bound to one object, in table order. `options` and the table must outlive
/// the result.
template <class O>
std::vector<Row> bind_rows(const Table<O>& table, O& options) {
  std::vector<Row> rows;
  for (const Group<O>& group : table) {
    for (const Flag<O>& flag : group.flags) {
      Row row{flag.name,
              flag.letter,
              split_names(flag.aliases),
              flag.value,
              flag.help,
              group.title,
              flag.field.arity,
              flag.required,
              flag.field.choices,
              flag.field.no_effect,
              {},
              {},
              flag.field.refused,
              flag.field.last_counts,
              flag.field.adds_up,
              split_names(flag.sets)};
      row.set = [&flag, &options](const Values& values) { flag.field.set(options, values); };
      if (flag.field.show) row.show = [&flag, &options] { return flag.field.show(options); };
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace cli
