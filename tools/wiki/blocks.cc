// SPDX-License-Identifier: MIT
// First pass of wikitext.h: comments, extension tags, templates, parameters, tables. One scan with
// a stack of openings; when an element closes, the output is cut back to where it opened, so
// nesting costs nothing.

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "tools/wiki/common_templates.h"
#include "tools/wiki/gaps.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

constexpr std::array<std::string_view, 27> kDroppedElements = {
    "ref",      "references",   "gallery",        "timeline",       "score",     "graph",
    "imagemap", "mapframe",     "maplink",        "templatestyles", "indicator", "hiero",
    "inputbox", "categorytree", "includeonly",    "templatedata",   "pre",       "source",
    "table",    "select",       "option",         "textarea",       "form",      "img",
    "section",  "noscript",     "syntaxhighlight"};
// The content of these is never prose, even if the end is missing.
constexpr std::array<std::string_view, 8> kMediaElements = {
    "gallery", "timeline", "score", "graph", "imagemap", "mapframe", "hiero", "templatedata"};
// Without content these show nothing in MediaWiki either: digits around them are one number. (But
// apostrophes on both sides are two marks of emphasis, as with <nowiki/>.)
constexpr std::array<std::string_view, 2> kMarkers = {"section", "templatestyles"};
constexpr std::array<std::string_view, 3> kFormulaElements = {"math", "chem", "ce"};

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr ByteSet kMarks("<{}|");

// Where the tag that closes the element `name` begins, from `from` on; npos if it never comes.
size_t closing_tag(std::string_view text, std::string_view name, size_t from) {
  while ((from = text.find("</", from)) != std::string_view::npos) {
    const Tag closing = parse_tag(text, from);
    // </ref name="x"> does not close a reference.
    const size_t bare = std::string_view("</>").size() + name.size();
    if (closing.name == name && trim(text.substr(from + bare - 1, closing.length - bare)).empty())
      break;
    from += 2;
  }
  return from;
}

class BlockStripper {
 public:
  BlockStripper(std::string_view page, const CleanOptions& options)
      : page_(page), options_(options) {
    out_.reserve(page.size());
  }

  std::string run() {
    while (at_ < page_.size()) {
      const size_t next = find_in<kMarks>(page_, at_);
      out_.append(page_, at_, next - at_);
      at_ = next;
      if (at_ == page_.size()) break;
      switch (page_[at_]) {
        case '<':
          tag();
          break;
        case '{':
          open();
          break;
        case '}':
          close();
          break;
        default:
          bar();
          break;
      }
    }
    drop_unclosed();
    return std::move(out_);
  }

 private:
  enum class Kind { template_call, parameter, table };
  struct Opening {
    Kind kind;
    size_t out_begin;
    Missing missing = Missing::nothing;
    bool gap = false;  // at the end of an argument
  };

  void literal(size_t length) {
    out_.append(page_, at_, length);
    at_ += length;
  }

  bool at_line_start() const {
    size_t i = out_.size();
    while (i > 0 && (out_[i - 1] == ' ' || out_[i - 1] == '\t' || out_[i - 1] == ':')) --i;
    return i == 0 || out_[i - 1] == '\n';
  }

  size_t run_length(char c) const {
    const size_t end = page_.find_first_not_of(c, at_);
    return std::min(end, page_.size()) - at_;
  }

  void push(Kind kind, size_t length) {
    openings_.push_back({.kind = kind, .out_begin = out_.size()});
    counts_[static_cast<size_t>(kind)]++;
    literal(length);
  }

  // The element that opened at `index` ends before `end`, in page_.
  void pop_to(size_t index, size_t end) {
    constexpr size_t kLongestName = 32;
    const size_t begin = openings_[index].out_begin;
    std::string shown;
    const bool call = openings_[index].kind == Kind::template_call;
    Missing missing = Missing::nothing;
    for (size_t i = index; i < openings_.size(); ++i)
      missing = std::max(missing, openings_[i].missing);
    // At the end of an argument: behind what is shown.
    const bool gap = take_gap(out_) || openings_[index].gap;
    if (call) shown = common_template_text(std::string_view(out_).substr(begin + 2), missing);
    dropped_ = shown.empty();
    const std::string name = call && dropped_ ? out_.substr(begin + 2, kLongestName) : "";
    out_.resize(begin);
    const bool gap_before = dropped_ && take_gap(out_);
    if (call && dropped_) drop_cut_number(name, page_.substr(end), out_);
    if (index > 0) {
      Missing& outer = openings_[index - 1].missing;
      if (dropped_)
        outer = std::max(outer, missing_between(name, out_, page_.substr(end)));
      else if (missing != Missing::nothing)
        outer = std::max(outer, Missing::text);
    }
    if (!dropped_) {  // MediaWiki has tags around it
      mark_seam(out_, shown);
      out_ += shown;
      mark_seam(out_, page_.substr(end));
    }
    if (gap_before || (gap && !dropped_)) out_.push_back(kGap);
    while (openings_.size() > index) {
      counts_[static_cast<size_t>(openings_.back().kind)]--;
      openings_.pop_back();
    }
  }

  void open() {
    const size_t run = run_length('{');
    if (run == 1) {
      const bool table = at_ + 1 < page_.size() && page_[at_ + 1] == '|' && at_line_start() &&
                         !(at_ + 2 < page_.size() && page_[at_ + 2] == '}');
      if (table) {
        push(Kind::table, 2);
      } else {
        literal(1);
      }
      return;
    }
    size_t left = run;
    if (left % 2 == 1) {
      push(Kind::parameter, 3);
      left -= 3;
    }
    for (; left > 0; left -= 2) push(Kind::template_call, 2);
  }

  // Index of the innermost opening of one of the two brace kinds.
  size_t innermost_braces() const {
    size_t i = openings_.size();
    while (i > 0 && openings_[i - 1].kind == Kind::table) --i;
    return i - 1;
  }

  void close() {
    size_t run = run_length('}');
    const size_t end = at_ + run;
    bool dropped = false;
    while (run >= 2 && counts_[0] + counts_[1] > 0) {
      const size_t index = innermost_braces();
      run -= openings_[index].kind == Kind::parameter ? std::min<size_t>(run, 3) : 2;
      pop_to(index, end - run);
      dropped = dropped || dropped_;
    }
    if (run != 1 && dropped) mark_gap(out_, page_.substr(end));
    at_ = end;
    if (run == 1) out_.push_back('}');  // longer runs that close nothing are dropped
  }

  // |} ends a table at the start of a line, and at the end of one where a table is open; elsewhere
  // it is a remnant of one.
  void bar() {
    const std::string_view rest = page_.substr(at_);
    const bool braces = counts_[0] + counts_[1] > 0;
    const bool table = counts_[static_cast<size_t>(Kind::table)] > 0;
    if (braces && take_gap(out_)) openings_[innermost_braces()].gap = true;
    if (!rest.starts_with("|}")) return literal(1);
    if (rest.starts_with("|}}") && (braces || !table)) return braces ? literal(1) : void(++at_);
    const size_t next = rest.find_first_not_of(" \t", 2);
    const bool line_ends = next == std::string_view::npos || rest[next] == '\n';
    if (!at_line_start() && (table ? !line_ends : braces)) return literal(1);
    at_ += 2;
    if (!table) return;
    size_t i = openings_.size();
    while (openings_[i - 1].kind != Kind::table) --i;
    pop_to(i - 1, at_);
  }

  // End of the element's content: where its closing tag begins; npos if it never comes.
  size_t find_closing(const std::string& name, size_t from) {
    const auto known = never_closes_.find(name);
    if (known != never_closes_.end() && from >= known->second) return std::string_view::npos;
    const size_t closing = closing_tag(page_, name, from);
    if (closing != std::string_view::npos) return closing;
    never_closes_[name] = from;
    return std::string_view::npos;
  }

  // Where the content of an element without an end tag ends: after its paragraph, and after
  // following ones that begin as it does ("File:").
  size_t media_end(size_t from) const {
    constexpr size_t kLongestPrefix = 32;
    const size_t first = std::min(page_.find_first_not_of(" \t\n", from), page_.size());
    const std::string_view line = page_.substr(first, kLongestPrefix);
    const size_t mark = line.find_first_of(":\n");
    const bool named = mark != line.npos && line[mark] == ':';
    const std::string_view prefix = line.substr(0, named ? mark + 1 : 0);
    size_t end = paragraph_end(from);
    while (named && end < page_.size() && page_[end + 1] == '\n') {
      const size_t next = std::min(page_.find_first_not_of('\n', end), page_.size());
      if (!page_.substr(next).starts_with(prefix)) break;
      end = paragraph_end(next);
    }
    return end;
  }

  // Where a blank line or a heading begins, or the page ends: at the line end before it.
  size_t paragraph_end(size_t from) const {
    size_t end = page_.find('\n', page_.find_first_not_of('\n', from));
    while (end != std::string_view::npos && end + 1 < page_.size() && page_[end + 1] != '\n' &&
           page_[end + 1] != '=')
      end = page_.find('\n', end + 1);
    return end == std::string_view::npos || end + 1 >= page_.size() ? page_.size() : end;
  }

  void comment() {
    const size_t end = page_.find("-->", at_ + 4);
    at_ = end == std::string_view::npos ? page_.size() : end + 3;
    // A comment alone on its line is removed with the line.
    if ((out_.empty() || out_.back() == '\n') && at_ < page_.size() && page_[at_] == '\n') ++at_;
  }

  void tag() {
    if (page_.substr(at_, 4) == "<!--") return comment();
    const Tag tag = parse_tag(page_, at_);
    const ElementKind kind = tag.length == 0 ? ElementKind::other : element_kind(tag.name);
    if (kind == ElementKind::other) return literal(1);
    const size_t content = at_ + tag.length;
    at_ = content;
    const bool alone = tag.closing || tag.self_closing;
    const bool marker = kind == ElementKind::nowiki || (alone && contains(kMarkers, tag.name));
    const size_t end = alone ? std::string_view::npos : find_closing(tag.name, content);
    if (end == std::string_view::npos) {  // only the tag is removed, except for content that is
                                          // never prose
      if (!alone && contains(kMediaElements, tag.name)) at_ = media_end(content);
      return marker ? mark_seam(out_, page_.substr(at_)) : mark_gap(out_, page_.substr(at_));
    }
    at_ = end + parse_tag(page_, end).length;
    const std::string_view inner = page_.substr(content, end - content);
    if (kind == ElementKind::nowiki) {
      out_ += shield(inner);
      mark_seam(out_, page_.substr(at_));
    } else if (kind == ElementKind::formula) {
      formula(inner);
    } else if (tag.name != "includeonly") {  // on the page itself as good as a comment
      mark_gap(out_, page_.substr(at_));
    }
  }

  void formula(std::string_view source) {
    if (options_.math == Math::source) out_ += shield(trim(source));
    // Equal formulas have the number of the first, as in WikiExtractor.
    const int number = formulas_.try_emplace(std::string(source), ++formula_count_).first->second;
    if (options_.math == Math::placeholder)
      out_ += "formula" + shield("_") + std::to_string(number);
    if (options_.math != Math::source)
      mark_gap(out_, page_.substr(at_));  // a digit behind it is no part of it
  }

  // An opening that never closes removes the rest of its paragraph, innermost first. The text that
  // stays is collected at the end of out_, so that every byte moves once.
  void drop_unclosed() {
    size_t end = out_.size();   // the text before it is not yet examined
    size_t kept = out_.size();  // from here on: empty, or text that begins with a blank line
    for (size_t i = openings_.size(); i > 0; --i) {
      const size_t begin = openings_[i - 1].out_begin;
      const std::string_view part = std::string_view(out_).substr(begin, end - begin);
      const bool joins = kept < out_.size() && part.ends_with('\n');
      const size_t blank = std::min(part.find("\n\n"), part.size() - (joins ? 1 : 0));
      const size_t stays = part.size() - blank;
      kept -= stays;
      std::memmove(out_.data() + kept, part.data() + blank, stays);
      end = begin;
    }
    out_.erase(end, kept - end);
  }

  std::string_view page_;
  const CleanOptions& options_;
  std::string out_;
  size_t at_ = 0;
  std::vector<Opening> openings_;
  std::array<size_t, 3> counts_ = {};
  std::map<std::string, size_t> never_closes_;
  std::map<std::string, int> formulas_;
  int formula_count_ = 0;
  bool dropped_ = false;  // the template that closed last showed nothing
};

}  // namespace

ElementKind element_kind(std::string_view name) {
  if (name == "nowiki") return ElementKind::nowiki;
  if (contains(kFormulaElements, name)) return ElementKind::formula;
  return contains(kDroppedElements, name) ? ElementKind::dropped : ElementKind::other;
}

size_t element_end(std::string_view text, size_t at) {
  const Tag tag = parse_tag(text, at);
  if (tag.length == 0 || element_kind(tag.name) == ElementKind::other) return at;
  const size_t content = at + tag.length;
  if (tag.closing || tag.self_closing) return content;
  const size_t closing = closing_tag(text, tag.name, content);
  return closing == std::string_view::npos ? closing : closing + parse_tag(text, closing).length;
}

std::string strip_blocks(std::string_view page, const CleanOptions& options) {
  return BlockStripper(page, options).run();
}

Tag parse_tag(std::string_view text, size_t at) {
  constexpr size_t kLongestTag =
      4096;  // attributes of <ref> can be long; a lone '<' must stay cheap
  Tag tag;
  size_t i = at + 1;
  if (i < text.size() && text[i] == '/') {
    tag.closing = true;
    ++i;
  }
  const size_t name_begin = i;
  const auto letter = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (i > name_begin && c >= '0' && c <= '9');
  };
  while (i < text.size() && letter(text[i])) ++i;
  if (i == name_begin) return tag;
  const std::string_view name = text.substr(name_begin, i - name_begin);
  const std::string_view rest = text.substr(i, kLongestTag);
  char quote = 0;
  for (size_t k = 0; k < rest.size(); ++k) {
    const char c = rest[k];
    if (k == 0 && c != ' ' && c != '>' && c != '/' && c != '\t' && c != '\n') return tag;
    if (quote != 0) {
      if (c == quote || c == '\n') quote = 0;
    } else if ((c == '"' || c == '\'') && k > 0 && rest[k - 1] == '=') {
      quote = c;
    } else if (c == '<') {
      return tag;
    } else if (c == '>') {
      tag.name = ascii_lower(name);
      tag.self_closing = k > 0 && rest[k - 1] == '/';
      tag.length = i + k + 1 - at;
      return tag;
    }
  }
  return tag;
}

}  // namespace wiki
