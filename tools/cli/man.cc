// SPDX-License-Identifier: MIT
// Room: tools/cli. The pages of docs/ as roff for man(7). A small subset of Markdown is enough,
// since all pages are ours; anything beyond what help.h lists comes out as plain text.
#include <algorithm>
#include <vector>

#include "tools/cli/help.h"
#include "tools/cli/text.h"

namespace cli {
namespace {

/// What roff would show as another character: dashes and typographic quotes, which a shell does not
/// take when an example is copied. Source: groff_char(7).
std::string_view escape_of(char c) {
  switch (c) {
    case '\\':
      return "\\e";
    case '-':
      return "\\-";
    case '\'':
      return "\\(aq";
    case '`':
      return "\\(ga";
    case '^':
      return "\\(ha";
    case '~':
      return "\\(ti";
    default:
      return {};
  }
}

/// Escapes text for roff, a dot that would begin a request too.
std::string escaped(std::string_view text) {
  std::string out = text.starts_with('.') ? "\\&" : "";
  for (const char c : text) {
    const std::string_view escape = escape_of(c);
    if (escape.empty())
      out += c;
    else
      out += escape;
  }
  return out;
}

/// Bold, italic and code of one paragraph; inside code no other mark is interpreted.
std::string inlined(std::string_view text) {
  std::string out;
  std::string plain;
  const auto flush = [&] {
    if (!plain.empty()) out += out.empty() ? escaped(plain) : escaped(concat(" ", plain)).substr(1);
    plain.clear();
  };
  for (size_t at = 0; at < text.size();) {
    std::string_view mark = text.substr(at).starts_with("**") ? "**" : text.substr(at, 1);
    const bool marks = mark == "**" || mark == "*" || mark == "`";
    const size_t end = marks ? text.find(mark, at + mark.size()) : std::string_view::npos;
    if (end == std::string_view::npos || end == at + mark.size() ||
        (mark != "`" && text[at + mark.size()] == ' ')) {
      plain += text[at++];
      continue;
    }
    flush();
    const std::string_view inside = text.substr(at + mark.size(), end - at - mark.size());
    out += concat(mark == "*" ? "\\fI" : "\\fB", escaped(inside), "\\fR");
    at = end + mark.size();
  }
  flush();
  return out;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

class Page {
 public:
  Page(std::string_view options, std::string_view version) : options_(options), version_(version) {}

  std::string run(std::string_view source) {
    const std::vector<std::string_view> lines = lines_of(source);
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string_view line = lines[i];
      const bool term = i + 1 < lines.size() && lines[i + 1].starts_with(": ");
      if (in_code_)
        code(line);
      else if (line.starts_with("<!--"))
        continue;
      else if (line == "{{OPTIONS}}")
        options();
      else if (line.starts_with("```"))
        open_code();
      else if (line.starts_with("### "))
        heading(".SS ", line.substr(4));
      else if (line.starts_with("## "))
        heading(".SH ", line.substr(3));
      else if (line.starts_with("# "))
        title(line.substr(2));
      else if (line.starts_with("|"))
        row(line);
      else if (line.starts_with("- "))
        item(line.substr(2));
      else if (line.starts_with(": "))
        paragraph_ += concat(line.substr(2), " ");
      else if (term)
        flush(), out_ += concat(".TP\n", inlined(line), "\n"), in_item_ = true;
      else if (line.empty())
        flush(), in_item_ = false;
      else
        paragraph_ += concat(line.substr(line.find_first_not_of(' ')), " ");
    }
    flush();
    return out_;
  }

 private:
  void flush() {
    if (paragraph_.empty()) return;
    paragraph_.pop_back();
    if (!in_item_) out_ += ".PP\n";
    out_ += inlined(paragraph_) + "\n";
    paragraph_.clear();
  }

  void title(std::string_view text) {
    const size_t open = text.find('(');
    const std::string_view section =
        open == std::string_view::npos ? "7" : text.substr(open + 1, 1);
    std::string name(text.substr(0, open));
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    });
    out_ += concat(".TH ", escaped(name), " ", section, " \"\" \"gristmill ", version_,
                   "\"\n.nh\n.if n .ad l\n");
  }

  void heading(std::string_view request, std::string_view text) {
    flush();
    in_item_ = false;
    out_ += concat(request, inlined(text), "\n");
  }

  void item(std::string_view text) {
    flush();
    out_ += ".IP \\(bu 2\n";
    in_item_ = true;
    paragraph_ = concat(text, " ");
  }

  /// A table row is a paragraph with its cells three spaces apart; the line under the head is
  /// dropped.
  void row(std::string_view line) {
    flush();
    if (line.find_first_not_of("|-: ") == std::string_view::npos) return;
    std::string cells;
    line.remove_prefix(1);
    while (!line.empty()) {
      const size_t end = std::min(line.find('|'), line.size());
      std::string_view cell = line.substr(0, end);
      while (cell.starts_with(' ')) cell.remove_prefix(1);
      while (cell.ends_with(' ')) cell.remove_suffix(1);
      if (!cell.empty()) cells += concat(cells.empty() ? "" : "   ", inlined(cell));
      line.remove_prefix(std::min(end + 1, line.size()));
    }
    out_ += concat(".br\n", cells, "\n");
  }

  void open_code() {
    flush();
    out_ += ".PP\n.RS 4\n.nf\n";
    in_code_ = true;
  }

  void code(std::string_view line) {
    if (line.starts_with("```")) {
      out_ += ".fi\n.RE\n";
      in_code_ = false;
    } else {
      out_ += escaped(line) + "\n";
    }
  }

  void options() {
    flush();
    Page inner("", version_);
    out_ += inner.run(options_);
  }

  std::string_view options_;
  std::string_view version_;
  std::string out_;
  std::string paragraph_;
  bool in_code_ = false;
  bool in_item_ = false;
};

}  // namespace

std::string man_page(std::string_view source, std::string_view options, std::string_view version) {
  return Page(options, version).run(source);
}

}  // namespace cli
