// SPDX-License-Identifier: MIT
// Room: tools/cli. The configuration file: the part of TOML that a flag table needs, read and
// written.
#include <algorithm>
#include <charconv>

#include "tools/cli/fields.h"
#include "tools/cli/parse.h"
#include "tools/cli/text.h"

namespace cli {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// A cursor over the file's text that knows its line.
class Reader {
 public:
  Reader(std::string_view text, std::string_view path) : text_(text), path_(path) {}

  [[noreturn]] void fail(std::string_view why) const {
    throw UsageError(concat(path_, ":", line_, ": ", why));
  }

  bool done() const { return at_ == text_.size(); }
  char peek() const { return done() ? '\n' : text_[at_]; }

  char next() {
    const char c = peek();
    if (!done()) ++at_;
    if (c == '\n') ++line_;
    return c;
  }

  /// Skips blanks and comments; line ends too if `lines`.
  void skip(bool lines) {
    while (!done()) {
      if (peek() == '#') {
        while (!done() && peek() != '\n') ++at_;
      } else if (is_space(peek()) && (lines || peek() != '\n')) {
        next();
      } else {
        return;
      }
    }
  }

  std::string bare(std::string_view stops) {
    const size_t begin = at_;
    while (!done() && !is_space(peek()) && stops.find(peek()) == std::string_view::npos) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted() {
    const char mark = next();
    std::string out;
    while (true) {
      if (done() || peek() == '\n') fail("the text in quotes does not end on its line");
      char c = next();
      if (c == mark) return out;
      if (c == '\\' && mark == '"') {
        c = next();
        constexpr std::string_view kNames = "nt\"\\";
        const size_t at = kNames.find(c);
        if (at == std::string_view::npos) fail(concat("unknown escape \\", c));
        c = "\n\t\"\\"[at];
      }
      out += c;
    }
  }

  std::string value(std::string_view stops) {
    if (peek() == '"' || peek() == '\'') return quoted();
    std::string word = bare(stops);
    if (word.empty()) fail("expected a value");
    return word;
  }

  Values values() {
    if (peek() != '[') return {value("#")};
    next();
    Values list;
    for (skip(true); peek() != ']'; skip(true)) {
      if (done()) fail("the list does not end");
      list.push_back(value(",]#"));
      skip(true);
      if (peek() == ',')
        next();
      else if (peek() != ']')
        fail(done() ? "the list does not end" : "expected , or ] in the list");
    }
    next();
    return list;
  }

 private:
  std::string_view text_;
  std::string_view path_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

bool is_plain(std::string_view value) {
  if (value == "true" || value == "false") return true;
  double number = 0;
  const std::from_chars_result result =
      std::from_chars(value.data(), value.data() + value.size(), number);
  return result.ec == std::errc() && result.ptr == value.data() + value.size() &&
         value.find_first_of("in") == std::string_view::npos;  // inf and nan are words
}

std::string written(std::string_view value) {
  if (is_plain(value)) return std::string(value);
  std::string out = "\"";
  for (const char c : value) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '"' || c == '\\')
      out += {'\\', c};
    else
      out += c;
  }
  return out + '"';
}

}  // namespace

void read_config(std::span<const Row> rows, std::string_view text, std::string_view path,
                 Parsed& parsed) {
  Reader in(text, path);
  for (in.skip(true); !in.done(); in.skip(true)) {
    if (in.peek() == '[') {  // a heading
      while (!in.done() && in.peek() != '\n') in.next();
      continue;
    }
    std::string name = in.bare("=#");
    std::ranges::replace(name, '_', '-');
    in.skip(false);
    if (in.peek() != '=') in.fail(concat("expected name = value, found ", quote(name)));
    in.next();
    in.skip(false);
    const Row* row = find_row(rows, name);
    if (row == nullptr) {
      const std::string near = nearest_name(rows, name);
      in.fail(concat("unknown name ", name, near.empty() ? "" : ": did you mean ", near));
    }
    const Values values = in.values();
    if (row->arity != Arity::many && values.size() != 1) {
      in.fail(concat(name, " takes one value, not a list"));
    }
    try {
      row->set(values);
    } catch (const UsageError& error) {
      in.fail(concat(name, " = ", join(values, " "), ": ", error.what()));
    }
    parsed.given.insert(std::string(row->name));
    if (row->arity != Arity::none || parse_bool(values.front()))
      parsed.given.insert(row->sets.begin(), row->sets.end());
    parsed.in_files[std::string(row->name)] = values;
    in.skip(false);
    if (!in.done() && in.peek() != '\n') in.fail(concat("more after the value of ", name));
  }
}

std::string show_config(std::span<const Row> rows) {
  std::string out;
  std::string_view group;
  for (const Row& row : rows) {
    if (!row.show) continue;
    const Values values = row.show();
    if (values.empty()) continue;
    if (row.group != group) {
      group = row.group;
      out += concat(out.empty() ? "" : "\n", "[", group, "]\n");
    }
    out += concat(row.name, " = ");
    if (row.arity == Arity::many) {
      std::vector<std::string> items;
      for (const std::string& value : values) items.push_back(written(value));
      out += concat("[", join(items, ", "), "]\n");
    } else {
      out += concat(written(values[0]), "\n");
    }
  }
  return out;
}

}  // namespace cli
