// SPDX-License-Identifier: MIT
// Room: tools/cli. The only file that includes cxxopts. Words are first rewritten to the one form
// `--name=value`, with aliases resolved and one word for each item of a list; cxxopts then parses
// these. Its typed values are not used, since the rows have their own.
#define CXXOPTS_NO_REGEX true
#include <cxxopts.hpp>

#include <algorithm>
#include <map>

#include "tools/cli/parse.h"
#include "tools/cli/text.h"

namespace cli {
namespace {

const Row* find_letter(std::span<const Row> rows, char letter) {
  for (const Row& row : rows) {
    if (row.letter == letter && letter != 0) return &row;
  }
  return nullptr;
}

/// Edits (insert, delete, change, swap of neighbours) that turn a into b.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                             cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

[[noreturn]] void throw_unknown(std::span<const Row> rows, std::string_view word) {
  const std::string near = word.starts_with("--") ? nearest_name(rows, word.substr(2)) : "";
  throw UsageError(near.empty() ? concat("unknown option ", word)
                                : concat("unknown option ", word, ": did you mean --", near));
}

/// Whether `word` ends a list: it is a flag, not a value such as `-`, `-1` or `-0.5`.
bool looks_like_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  return !(word[1] >= '0' && word[1] <= '9') && word[1] != '.';
}

/// Rewrites argv into `--name=value` words; operands go to `operands`.
class Words {
 public:
  Words(std::span<const Row> rows, std::span<const std::string> arguments)
      : rows_(rows), arguments_(arguments) {}

  void run(std::vector<std::string>& operands) {
    while (at_ < arguments_.size()) {
      const std::string& word = arguments_[at_++];
      if (word == "--") {
        operands.insert(operands.end(), arguments_.begin() + static_cast<std::ptrdiff_t>(at_),
                        arguments_.end());
        return;
      }
      if (word.starts_with("--")) {
        take_long(word);
      } else if (looks_like_flag(word) || is_letter(word)) {
        take_letters(word);
      } else {
        operands.push_back(word);
      }
    }
  }

  std::vector<std::string> words;

 private:
  bool is_letter(const std::string& word) const {
    return word.size() >= 2 && word[0] == '-' && find_letter(rows_, word[1]) != nullptr;
  }

  bool is_flag(const std::string& word) const { return looks_like_flag(word) || is_letter(word); }

  void take_long(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string_view name = std::string_view(word).substr(2, equals - 2);
    const Row* row = find_row(rows_, name);
    if (row == nullptr) throw_unknown(rows_, std::string_view(word).substr(0, equals));
    if (equals == std::string::npos) {
      take_values(*row, std::string_view(word));
    } else if (row->arity == Arity::none) {
      throw UsageError(concat(word.substr(0, equals), " takes no value"));
    } else {
      if (row->last_counts) forget(*row);
      add(*row, word.substr(equals + 1));
    }
  }

  void take_letters(const std::string& word) {
    for (size_t i = 1; i < word.size(); ++i) {
      const Row* row = find_letter(rows_, word[i]);
      if (row == nullptr) throw_unknown(rows_, concat("-", word[i]));
      if (row->arity != Arity::none && i + 1 < word.size()) {  // -w8
        add(*row, word.substr(i + 1));
        return;
      }
      take_values(*row, concat("-", word[i]));
    }
  }

  void take_values(const Row& row, std::string_view spelled) {
    if (row.arity == Arity::none) {
      words.push_back(concat("--", row.name));
      return;
    }
    if (at_ == arguments_.size() || is_flag(arguments_[at_])) {
      throw UsageError(concat(spelled, " needs a value: ", row.value));
    }
    if (row.last_counts) forget(row);
    add(row, arguments_[at_++]);
    while (row.arity == Arity::many && at_ < arguments_.size() && !is_flag(arguments_[at_])) {
      add(row, arguments_[at_++]);
    }
  }

  void forget(const Row& row) {
    std::erase_if(words, [start = concat("--", row.name, "=")](const std::string& word) {
      return word.starts_with(start);
    });
  }

  void add(const Row& row, const std::string& value) {
    words.push_back(concat("--", row.name, "=", value));
  }

  std::span<const Row> rows_;
  std::span<const std::string> arguments_;
  size_t at_ = 0;
};

/// Parses the words with cxxopts: (long name, value) in the order of the line.
std::vector<std::pair<std::string, std::string>> parse_words(
    std::span<const Row> rows, const std::vector<std::string>& words) {
  cxxopts::Options options("");
  for (const Row& row : rows) {
    if (row.arity == Arity::none) {
      options.add_options()(std::string(row.name), "");
    } else {
      options.add_options()(std::string(row.name), "", cxxopts::value<std::string>());
    }
  }
  std::vector<const char*> argv = {""};
  for (const std::string& word : words) argv.push_back(word.c_str());
  // cxxopts 2 (Ubuntu 22.04) takes both as references.
  int count = static_cast<int>(argv.size());
  const char** begin = argv.data();
  const cxxopts::ParseResult result = options.parse(count, begin);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const cxxopts::KeyValue& pair : result.arguments()) {
    pairs.emplace_back(pair.key(), pair.value());
  }
  return pairs;
}

std::string spelled(const Row& row, const Values& values) {
  if (row.arity == Arity::none) return concat("--", row.name);
  std::string text = concat("--", row.name);
  for (const std::string& value : values) {
    const bool plain = !value.empty() && value.find_first_of(" \t\n\"'\\") == std::string::npos;
    text += concat(" ", plain && value.size() <= 60 ? value : quote(value));
  }
  return text;
}

/// Errors: UsageError where a row of the line and one that it sets, which the line has too, give
/// different values.
void refuse_contradictions(std::span<const Row> rows, const std::map<std::string, Values>& line) {
  for (const Row& row : rows) {
    const auto given = line.find(std::string(row.name));
    if (given == line.end()) continue;
    for (const std::string_view name : row.sets) {
      const auto other = line.find(std::string(name));
      if (other == line.end()) continue;
      const Row& same = *find_row(rows, name);
      same.set(other->second);
      const Values before = same.show();
      row.set(given->second);
      if (same.show() != before)
        throw UsageError(concat(spelled(row, given->second), " and ", spelled(same, other->second),
                                " contradict each other"));
    }
  }
}

}  // namespace

const Row* find_row(std::span<const Row> rows, std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name || std::ranges::find(row.aliases, name) != row.aliases.end()) return &row;
  }
  return nullptr;
}

std::string nearest_word(std::span<const std::string_view> words, std::string_view name) {
  std::string best;
  size_t best_cost = std::max<size_t>(2, name.size() / 3) + 1;
  const auto offer = [&](std::string_view known) {
    size_t cost = edit_distance(name, known);
    if (name.size() >= 3 && known.starts_with(name)) cost = std::min<size_t>(cost, 1);
    if (cost < best_cost) {
      best_cost = cost;
      best = known;
    }
  };
  for (const std::string_view known : words) offer(known);
  return best;
}

std::string nearest_name(std::span<const Row> rows, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Row& row : rows) {
    if (!row.refused.empty()) continue;
    names.push_back(row.name);
    names.insert(names.end(), row.aliases.begin(), row.aliases.end());
  }
  return nearest_word(names, name);
}

Parsed parse_arguments(std::span<const Row> rows, std::span<const std::string> arguments) {
  Parsed parsed;
  Words words(rows, arguments);
  words.run(parsed.operands);
  std::map<std::string, Values> values;
  for (auto& [name, value] : parse_words(rows, words.words)) {
    const Row& row = *find_row(rows, name);
    Values& list = values[name];
    if (row.arity != Arity::many && !row.adds_up) list.clear();  // the last one counts
    list.push_back(row.arity == Arity::none ? "true" : value);
  }
  for (const Row& row : rows) {
    const auto found = values.find(std::string(row.name));
    if (found == values.end()) continue;
    try {
      row.set(found->second);
    } catch (const UsageError& error) {
      throw UsageError(concat(spelled(row, found->second), ": ", error.what()));
    }
    parsed.given.insert(found->first);
    parsed.given.insert(row.sets.begin(), row.sets.end());
    const Values& list = found->second;
    if (row.arity == Arity::many && list.size() > 1) parsed.list_ends[found->first] = list.back();
  }
  refuse_contradictions(rows, values);
  return parsed;
}

void check_required(std::span<const Row> rows, const Parsed& parsed) {
  std::vector<std::string> absent;
  for (const Row& row : rows) {
    if (row.required && !parsed.given.contains(row.name))
      absent.push_back(concat("--", row.name, " ", row.value));
  }
  std::vector<Needed> needed;
  for (const std::string& flag : absent) needed.push_back({.flag = flag.c_str()});
  require_all(needed);
}

}  // namespace cli
