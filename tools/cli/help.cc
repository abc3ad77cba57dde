// SPDX-License-Identifier: MIT
// Room: tools/cli. -h, --help and the completion, from rows.
#include "tools/cli/help.h"

#include <algorithm>

#include "tools/cli/text.h"

namespace cli {
namespace {

/// "  -w, --workers N", with "..." where several values follow.
std::string head_of(const Row& row) {
  std::string out =
      row.letter != 0 ? concat("  -", row.letter, ", --", row.name) : concat("      --", row.name);
  if (row.arity != Arity::none) out += concat(" ", row.value);
  if (row.arity == Arity::many) out += "...";
  return out;
}

std::string first_sentence(std::string_view help) {
  for (size_t at = help.find('.'); at != std::string_view::npos; at = help.find('.', at + 1)) {
    if (at + 1 == help.size()) return std::string(help.substr(0, at));
    if (help[at + 1] == ' ' && at + 2 < help.size() && help[at + 2] >= 'A' && help[at + 2] <= 'Z') {
      return std::string(help.substr(0, at));
    }
  }
  return std::string(help);
}

/// `text` broken at spaces into lines of `width` columns, each indented by `indent` spaces.
std::string wrap(std::string_view text, size_t indent, size_t width) {
  std::string out;
  std::string line(indent, ' ');
  bool empty = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!empty && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line.assign(indent, ' ');
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + line + "\n";
}

bool idle(const Row& row) { return !row.no_effect.empty() || !row.refused.empty(); }

/// How many rows from `rows[0]` on are printed as one: flags that have no effect for the same
/// reason.
size_t rows_alike(std::span<const Row> rows) {
  size_t count = 1;
  const Row& first = rows[0];
  while (idle(first) && count < rows.size() && rows[count].group == first.group &&
         rows[count].no_effect == first.no_effect && rows[count].refused == first.refused &&
         rows[count].choices == first.choices && rows[count].help == first.help)
    ++count;
  return count;
}

/// The help with choices, default, aliases and the reason of a flag without effect.
std::string whole_help(const Row& row, bool code_marks) {
  const std::string_view mark = code_marks ? "`" : "";
  std::string out(row.help);
  if (!row.no_effect.empty()) {
    out += concat(out.empty() ? "" : " ", "Accepted, no effect here: ", row.no_effect, ".");
  }
  if (!row.refused.empty()) {
    out += concat(out.empty() ? "" : " ", "Refused: ", row.refused, ".");
  }
  if (!row.choices.empty()) {
    out += concat(row.choices.size() == 1 ? " Only " : " One of ", mark,
                  join(row.choices, concat(mark, ", ", mark)), mark, ".");
  }
  if (row.required) out += " Required.";
  const Values shown = row.show && row.arity != Arity::none ? row.show() : Values{};
  if (!shown.empty()) out += concat(" Default: ", mark, join(shown, " "), mark, ".");
  if (!row.aliases.empty()) {
    out += " Also";
    for (const std::string_view alias : row.aliases) {
      out += concat(alias == row.aliases.front() ? " " : ", ", mark, "--", alias, mark);
    }
    out += ".";
  }
  return out;
}

std::string usage(const Program& program) {
  return concat("usage: ", program.name, " [OPTION...]", program.operands.empty() ? "" : " ",
                program.operands, "\n");
}

}  // namespace

std::string short_help(const Program& program, std::span<const Row> rows) {
  constexpr size_t kColumn = 34;
  std::string out = concat(usage(program), program.summary, "\n");
  std::string_view group;
  for (const Row& row : rows) {
    if (idle(row)) continue;
    if (row.group != group) out += concat("\n", group = row.group, ":\n");
    std::string head = head_of(row);
    if (head.size() + 2 > kColumn) {
      out += concat(head, "\n");
      head.clear();
    }
    head.resize(kColumn, ' ');
    const std::string help = wrap(first_sentence(row.help), kColumn, 100);
    out += head + help.substr(kColumn);
  }
  return concat(out, "\n", program.name, " --help shows everything.\n");
}

std::string full_help(const Program& program, std::span<const Row> rows) {
  std::string out = concat(usage(program), program.summary, "\n");
  std::string_view group;
  for (size_t i = 0, alike = 1; i < rows.size(); i += alike) {
    const Row& row = rows[i];
    alike = rows_alike(rows.subspan(i));
    if (row.group != group) out += concat("\n", group = row.group, ":\n");
    std::string names;
    for (const Row& one : rows.subspan(i, alike))
      names += concat(names.empty() ? "--" : ", --", one.name);
    out += alike == 1 ? concat(head_of(row), "\n") : wrap(names, 6, 80);
    out += wrap(whole_help(row, false), 10, 80);
  }
  return out;
}

std::string man_options(std::span<const Row> rows) {
  std::string out;
  std::string_view group;
  for (size_t i = 0, alike = 1; i < rows.size(); i += alike) {
    alike = rows_alike(rows.subspan(i));
    if (rows[i].group != group) out += concat("### ", group = rows[i].group, "\n\n");
    for (const Row& row : rows.subspan(i, alike)) {
      if (&row != &rows[i]) out += ", ";
      if (row.letter != 0) out += concat("**-", row.letter, "**, ");
      out += concat("**--", row.name, "**");
      if (row.arity != Arity::none) out += concat(" *", row.value, "*");
      if (row.arity == Arity::many) out += "...";
    }
    out += concat("\n: ", whole_help(rows[i], true), "\n\n");
  }
  return out;
}

namespace {

/// What completes a value or an operand of that name: datasets where it is a PREFIX or a DATASET,
/// with the files of metrics where it may be a RUN too; nothing where it is a number; else files.
std::string completed(std::string_view value, std::string_view function) {
  const bool run = value.find("RUN") != value.npos;
  if (value.find("PREFIX") != value.npos || value.find("DATASET") != value.npos)
    return concat(
        "_", function, "_prefixes",
        run ? "; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -X '!*.jsonl' -- "
              "\"$word\")"
            : "");
  if (value == "N") return ":";
  return "mapfile -t COMPREPLY < <(compgen -f -- \"$word\")";
}

/// A dataset's prefix is its .idx without the end; folders lead to more.
std::string prefixes_function(std::string_view function) {
  return concat(
      "_", function,
      "_prefixes() {\n  local path\n  mapfile -t COMPREPLY < <(compgen -d -- \"$word\")\n",
      "  while IFS= read -r path; do COMPREPLY+=(\"${path%.idx}\"); done < "
      "<(compgen -f -X '!*.idx' -- \"$word\")\n}\n");
}

/// Sub-commands, the lower-case words of `[quick|verify] PREFIX...`, come first on the line.
std::string first_words(std::string_view operands) {
  const size_t end = operands.find(']');
  if (!operands.starts_with('[') || end == operands.npos || operands[1] < 'a') return "";
  std::string words(operands.substr(1, end - 1));
  std::ranges::replace(words, '|', ' ');
  return concat("    ((COMP_CWORD > 1)) || COMPREPLY+=($(compgen -W '", words,
                "' -- \"$word\"))\n");
}

/// A list goes on to the next flag: which one the word belongs to is found by looking back.
std::string list_cases(const std::string& cases) {
  if (cases.empty()) return "";
  return concat(
      "    while ((i > 0)) && [[ ${COMP_WORDS[i]} != -* ]]; do ((--i)); done\n"
      "    case ${COMP_WORDS[i]} in\n",
      cases, "    esac\n");
}

}  // namespace

std::string bash_completion(const Program& program, std::span<const Row> rows) {
  std::string function(program.name);
  std::ranges::replace(function, '-', '_');
  std::string names;
  std::string cases, lists;  // what completes a flag's value, and a list's values after the first
  for (const Row& row : rows) {
    if (!row.refused.empty()) continue;
    std::vector<std::string> spellings = {concat("--", row.name)};
    for (const std::string_view alias : row.aliases) spellings.push_back(concat("--", alias));
    for (const std::string& spelling : spellings) {
      names += concat(names.empty() ? "" : " ", spelling);
    }
    if (row.letter != 0) spellings.push_back(concat("-", row.letter));
    const std::string pattern = join(spellings, "|");
    if (row.arity == Arity::none) continue;
    const std::string reply =
        row.choices.empty()
            ? completed(row.value, function)
            : concat("COMPREPLY=($(compgen -W '", join(row.choices, " "), "' -- \"$word\"))");
    cases += concat("    ", pattern, ") ", reply, "; return ;;\n");
    if (row.arity == Arity::many) lists += concat("      ", pattern, ") ", reply, "; return ;;\n");
  }
  return concat(
      "# bash completion for ", program.name, ", generated from its flag table\n_", function,
      "() {\n  local word=${COMP_WORDS[COMP_CWORD]} i=$((COMP_CWORD - 1))\n",
      "  if [[ $word == = ]]; then word=; fi  # bash makes --flag=value three words\n",
      "  if [[ ${COMP_WORDS[i]} == = ]]; then ((--i)); fi\n", "  case ${COMP_WORDS[i]} in\n", cases,
      "  esac\n", "  if [[ $word == -* ]]; then\n    COMPREPLY=($(compgen -W '", names,
      "' -- \"$word\"))\n  else\n", list_cases(lists), "    ",
      completed(program.operands, function), "\n", first_words(program.operands), "  fi\n}\n",
      prefixes_function(function), "complete -o filenames -F _", function, " ", program.name, "\n");
}

}  // namespace cli
