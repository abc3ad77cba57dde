// SPDX-License-Identifier: MIT
// Third pass of wikitext.h: emphasis, headings, lists, empty sections, remnants of removed
// templates (empty brackets, doubled spaces); and clean() itself.

#include <unicode/locid.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tools/wiki/gaps.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

constexpr char kShield = static_cast<char>(0xFE);  // never occurs in UTF-8
constexpr ByteSet kMarkup("&<>[]{}|'=*#:;_-\n!~");

struct Heading {
  size_t level = 0;
  std::string_view title;
};

// == Title ==, with the same number of '=' on both sides (the shorter side counts).
Heading parse_heading(std::string_view line) {
  line = trim(line);
  size_t left = std::min<size_t>(line.find_first_not_of('='), 7);
  if (left == 0 || left > 6 || line.size() < 2 * left + 1) return {};
  size_t right = 0;
  while (right < left && line[line.size() - 1 - right] == '=') ++right;
  left = std::min(left, right);
  if (left == 0) return {};
  return {left, trim(line.substr(left, line.size() - 2 * left))};
}

// A run of apostrophes that marks emphasis.
struct Run {
  size_t begin, length;
  bool italic, bold;
};

// If both kinds of marks are odd in number, one mark of three apostrophes is read as an apostrophe
// and an italic mark: the first after a word of one letter, else after a longer word, else after a
// space.
void balance(std::string_view line, std::vector<Run>& runs) {
  const auto odd = [&](bool Run::*kind) {
    return std::count_if(runs.begin(), runs.end(), [&](const Run& r) { return r.*kind; }) % 2 == 1;
  };
  if (!odd(&Run::italic) || !odd(&Run::bold)) return;
  constexpr int kBehindSpace = 1, kBehindWord = 2, kBehindLetter = 3;
  int best = 0;
  Run* chosen = nullptr;
  for (Run& run : runs) {
    if (run.length != 3) continue;
    const auto before = [&](size_t n) { return run.begin >= n ? line[run.begin - n] : ' '; };
    const int rank = before(1) == ' '   ? kBehindSpace
                     : before(2) == ' ' ? kBehindLetter
                                        : kBehindWord;
    if (rank <= best) continue;
    best = rank;
    chosen = &run;
  }
  if (chosen != nullptr) *chosen = {chosen->begin + 1, 2, true, false};
}

// `line` without seams, which have parted the `runs`; these move with it.
std::string without_seams(std::string_view line, std::vector<Run>& runs) {
  std::string out;
  size_t from = 0, removed = 0, moved = 0;
  while (from < line.size()) {
    const size_t seam = std::min(line.find(kSeam, from), line.size());
    for (; moved < runs.size() && runs[moved].begin < seam; ++moved) runs[moved].begin -= removed;
    out.append(line, from, seam - from);
    from = seam + kSeam.size();
    removed += kSeam.size();
  }
  return out;
}

// ''italic'' becomes "italic", '''bold''' and '''''both''''' lose their marks. Runs pair within a
// line. The result is the line itself or a view of `out`.
std::string_view strip_emphasis(std::string_view line, std::string& out) {
  std::vector<Run> runs;
  bool seams = false;
  for (size_t i = 0; i < line.size();) {
    i = line.find("''", i);
    if (i == std::string_view::npos) break;
    const size_t length = std::min(line.find_first_not_of('\'', i), line.size()) - i;
    const size_t kept = length == 4 ? 1 : length > 5 ? length - 5 : 0;
    const size_t mark = length - kept;
    runs.push_back({i + kept, mark, mark == 2 || mark == 5, mark >= 3});
    seams = seams || line.substr(0, i).ends_with(kSeam);
    i += length;
    seams = seams || line.substr(i).starts_with(kSeam);
  }
  if (runs.empty()) return line;
  std::string joined;
  if (seams) line = joined = without_seams(line, runs);
  balance(line, runs);
  // Which italic marks become quotes: those that open and close alone, not as part of a run of
  // five.
  std::vector<std::string_view> shown(runs.size());
  size_t open = runs.size();
  for (size_t r = 0; r < runs.size(); ++r) {
    if (!runs[r].italic) continue;
    if (open == runs.size()) {
      open = r;
      continue;
    }
    const size_t begin = runs[open].begin + runs[open].length;
    const std::string_view inner = line.substr(begin, runs[r].begin - begin);
    const size_t end = runs[r].begin + runs[r].length;
    const bool quoted_inside = !inner.empty() && (inner.front() == '"' || inner.back() == '"');
    const bool quoted_outside = (runs[open].begin > 0 && line[runs[open].begin - 1] == '"') &&
                                (end < line.size() && line[end] == '"');
    const bool plain = runs[open].bold || runs[r].bold || quoted_inside || quoted_outside;
    if (!plain && !trim(inner).empty()) shown[open] = shown[r] = "\"";
    open = runs.size();
  }
  out.clear();
  size_t from = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    out.append(line, from, runs[r].begin - from);
    out += shown[r];
    from = runs[r].begin + runs[r].length;
  }
  return out += line.substr(from);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

#if defined(__SSE2__)
constexpr size_t kWidth = 16;

// Whether tidy() would not change the sixteen bytes at `at`, which follow `last`: no space after
// another or after an opening bracket, no mark after either of these or another mark.
bool stays(const char* at, char last) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const auto where = [&](char c) {
    return static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(c))));
  };
  const bool last_mark = last == ',' || last == '.' || last == ')' || last == ';' || last == 0;
  const bool last_open = last == ' ' || last == '(' || last == 0;
  const uint32_t space = where(' ');
  const uint32_t open = (space | where('(')) << 1 | (last_open ? 1 : 0);
  const uint32_t mark = where(',') | where('.') | where(')') | where(';');
  return (where('\t') | where('\r') | (space & open) |
          (mark & (open | mark << 1 | (last_mark ? 1 : 0)))) == 0;
}
#endif

// Whether `rest` shows that the point before it does not end a sentence: .45, .NET, an ellipsis.
bool begins_something(std::string_view rest) {
  if (rest.empty()) return false;
  const char c = rest.front();
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
         rest.substr(0, 2) == " .";
}

// Removes remnants of removed markup: runs of spaces, empty brackets, space before a comma. The
// result is a view of `out`, which only grows.
std::string_view tidy(std::string_view line, std::string& out) {
  if (out.size() < line.size()) out.resize(line.size());
  char* const begin = out.data();
  char* end = begin;
  const auto last = [&](size_t n) {
    return end - begin >= static_cast<std::ptrdiff_t>(n) ? end[-static_cast<std::ptrdiff_t>(n)]
                                                         : '\0';
  };
  static constexpr ByteSet kTouched(" \t\r,.);");
  for (size_t i = 0; i < line.size(); ++i) {
#if defined(__SSE2__)
    while (i % kWidth == 0 && i + kWidth < line.size() && stays(line.data() + i, last(1))) {
      std::memcpy(end, line.data() + i, kWidth);
      end += kWidth;
      i += kWidth;
    }
#endif
    const char c = line[i];
    if (!kTouched.has(c)) {
      *end++ = c;
      continue;
    }
    if (is_space(c)) {
      if (end != begin && last(1) != ' ' && last(1) != '(') *end++ = ' ';
      continue;
    }
    if (c == ')') {
      while (last(1) == ' ' || last(1) == ',' || last(1) == ';') --end;
      if (last(1) == '(') {
        --end;
        const bool parts = is_digit(last(1)) && i + 1 < line.size() && is_digit(line[i + 1]);
        if (parts) *end++ = ' ';
        continue;
      }
    } else if (last(1) == ' ' && last(2) != '.' && last(2) != '\0' &&
               !(c == '.' && begins_something(line.substr(i + 1)))) {
      --end;
    }
    if ((c == ',' || c == ';') && (end == begin || last(1) == '(' || last(1) == c)) continue;
    if (c == '.' && last(1) == ',') --end;
    *end++ = c;
  }
  while (last(1) == ' ') --end;
  return {begin, static_cast<size_t>(end - begin)};
}

bool is_debris(std::string_view line) {
  if (line.front() == '|' || line.front() == '!' || line.substr(0, 2) == "{|") return true;
  if (line.front() == '(' && line.back() == ')' && line.find(')') == line.size() - 1) return true;
  return std::all_of(line.begin(), line.end(), [](char c) {
    return static_cast<signed char>(c) > 0 && !is_digit(c) && !(c >= 'a' && c <= 'z') &&
           !(c >= 'A' && c <= 'Z');
  });
}

class Compactor {
 public:
  Compactor(const CleanOptions& options, size_t size) : options_(options) { out_.reserve(size); }

  void line(std::string_view raw) {
    const Heading heading = parse_heading(raw);
    if (heading.level > 0) {
      pending_.resize(std::min(pending_.size(), heading.level - 1));
      pending_.resize(heading.level - 1);
      std::string title(tidy(strip_emphasis(heading.title, unmarked_), tidied_));
      if (!title.empty() && std::string_view(".!?").find(title.back()) == std::string_view::npos)
        title += '.';
      pending_.push_back(std::move(title));
      return;
    }
    std::string_view body = raw;
    bool item = false;
    while (!body.empty() && std::string_view("*#;:").find(body.front()) != std::string_view::npos) {
      item = item || body.front() != ':';
      body.remove_prefix(1);
    }
    if (item && !options_.lists) return;
    body = trim(body);
    if (body.empty() || (!item && is_debris(body))) return;
    const std::string_view text = tidy(strip_emphasis(body, unmarked_), tidied_);
    if (text.empty() || is_debris(text)) return;
    for (const std::string& title : pending_) {
      if (options_.sections && !title.empty()) append(title);
    }
    pending_.clear();
    if (item) out_ += out_.empty() ? "- " : "\n- ";
    item ? out_ += text : append(text);
  }

  std::string take() { return std::move(out_); }

 private:
  std::string& append(std::string_view text) {
    if (!out_.empty()) out_.push_back('\n');
    return out_ += text;
  }

  const CleanOptions& options_;
  std::string out_;
  std::string unmarked_, tidied_;     // of the current line
  std::vector<std::string> pending_;  // titles without text yet, by level
};

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out.push_back(c);
  }
  return out;
}

}  // namespace

std::string compact_lines(std::string_view text, const CleanOptions& options) {
  Compactor compactor(options, text.size());
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) compactor.line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return compactor.take();
}

std::string clean(std::string_view page, const Site& site, const CleanOptions& options) {
  std::string compact =
      compact_lines(strip_inline(strip_blocks(page, options), site, options), options);
  if (!options.html_safe)
    return compact.find(kShield) == std::string::npos ? std::move(compact) : unshield(compact);
  // Tags that --links made are shielded too, so escaping before unshielding does not change them.
  return options.links ? unshield(escape_html(compact)) : escape_html(unshield(compact));
}

std::string shield(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (!kMarkup.has(c)) {
      out.push_back(c);
    } else {
      out.push_back(kShield);
      out.push_back(static_cast<char>(c | 0x80));
    }
  }
  return out;
}

std::string unshield(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t plain = std::min(text.find(kShield, i), text.size());
    out.append(text, i, plain - i);
    i = plain;
    if (i == text.size()) break;
    if (text[i] == kShield && i + 1 < text.size()) {
      const char c = static_cast<char>(text[++i] & 0x7F);
      if (c != 0) out.push_back(c == '\n' ? ' ' : c);  // 0: a seam
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

namespace {

icu::UnicodeString to_utf16(std::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

// Bytes of the first character.
size_t first_length(std::string_view text) {
  size_t length = std::min<size_t>(1, text.size());
  while (length < text.size() && (text[length] & 0xC0) == 0x80) ++length;
  return length;
}

}  // namespace

std::string fold_case(std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<signed char>(c) >= 0; });
  if (ascii) return ascii_lower(text);
  std::string out;
  return to_utf16(text).foldCase().toUTF8String(out);
}

std::string upper_case(std::string_view text) {
  return change_between_marks(text, [](std::string_view part) {
    std::string out;
    return to_utf16(part).toUpper(icu::Locale::getRoot()).toUTF8String(out);
  });
}

std::string lower_case(std::string_view text) {
  return change_between_marks(text, [](std::string_view part) {
    std::string out;
    return to_utf16(part).toLower(icu::Locale::getRoot()).toUTF8String(out);
  });
}

std::string upper_first(std::string_view text) {
  const size_t length = first_length(text);
  return upper_case(text.substr(0, length)).append(text.substr(length));
}

std::string lower_first(std::string_view text) {
  const size_t length = first_length(text);
  return lower_case(text.substr(0, length)).append(text.substr(length));
}

std::string_view trim(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace wiki
