// SPDX-License-Identifier: MIT
// Second pass of wikitext.h: internal and external links, HTML tags, emphasis, behaviour switches,
// language variants, character references. Links are cut back to their label when they close.

#include <algorithm>
#include <array>

#include "tools/wiki/entities.h"
#include "tools/wiki/gaps.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

constexpr size_t kDeepestLink = 64;
constexpr size_t kLongestTarget = 1024;  // MediaWiki's limit: 255 bytes and a section
constexpr std::array<std::string_view, 9> kSchemes = {
    "http://", "https://", "ftp://", "//", "mailto:", "news:", "irc://", "gopher://", "sftp://"};

// Tags around a part of a line, or of a word: digits on both sides of one are one number. Any other
// tag is a border (of a block, a cell), or MediaWiki shows it as text.
constexpr std::array<std::string_view, 36> kInsideWords = {
    "abbr",      "b",      "bdi",         "bdo",  "big", "cite", "code", "data",  "dfn",
    "em",        "font",   "i",           "ins",  "kbd", "link", "mark", "meta",  "nobr",
    "noinclude", "nowiki", "onlyinclude", "q",    "rb",  "ruby", "samp", "small", "span",
    "strong",    "sub",    "sup",         "time", "tt",  "tvar", "u",    "var",   "wbr"};

// Tags that MediaWiki removes with the comments, before it reads emphasis.
constexpr std::array<std::string_view, 5> kGoneEarly = {"includeonly", "noinclude", "onlyinclude",
                                                        "translate", "tvar"};

bool begins_with_scheme(std::string_view text) {
  return std::any_of(kSchemes.begin(), kSchemes.end(), [&](std::string_view scheme) {
    return ascii_lower(text.substr(0, scheme.size())) == scheme;
  });
}

// [[fr:Titre]]: a link to the same article elsewhere, shown in the margin, not in the text.
bool is_language_prefix(std::string_view prefix) {
  if (prefix == "simple" || prefix == "be-x-old" || prefix == "nds-nl") return true;
  const size_t dash = std::min(prefix.find('-'), prefix.size());
  const bool shape = dash >= 2 && dash <= 3 && prefix.size() <= 12 && prefix.size() != dash + 1;
  return shape && std::all_of(prefix.begin(), prefix.end(),
                              [](char c) { return (c >= 'a' && c <= 'z') || c == '-'; });
}

std::string percent_encoded(std::string_view title) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : title) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-_.~/:()").find(c) != std::string_view::npos;
    if (plain) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  return out;
}

constexpr ByteSet kMarks("[]|<&\n_-");

class InlineStripper {
 public:
  InlineStripper(std::string_view text, const Site& site, const CleanOptions& options)
      : text_(text), site_(site), options_(options) {
    out_.reserve(text.size());
  }

  /// The text, in which gaps are still open.
  std::string run() {
    while (at_ < text_.size()) {
      const size_t next = find_in<kMarks>(text_, at_);
      out_.append(text_, at_, next - at_);
      at_ = next;
      if (at_ == text_.size()) break;
      step();
    }
    end_scripts();
    return std::move(out_);
  }

 private:
  static constexpr size_t kNowhere = std::string::npos;
  // An open <sup> or <sub>.
  struct Script {
    bool above;
    size_t begin;     // of its content, in out_
    size_t openings;  // number of links around it, or kNowhere
  };
  struct Opening {
    bool internal;
    size_t begin;       // in out_, where the target (internal) or the label (external) begins
    size_t first_pipe;  // in out_; npos: none yet
    size_t last_pipe;
    std::string address;  // external only
  };

  bool sees(std::string_view what) const { return text_.substr(at_, what.size()) == what; }

  void literal(size_t length) {
    out_.append(text_, at_, length);
    at_ += length;
  }

  void step() {
    switch (text_[at_]) {
      case '[':
        return open();
      case ']':
        return close();
      case '|':
        return bar();
      case '<':
        return tag();
      case '&':
        return reference();
      case '\n':
        return newline();
      case '_':
        return behaviour_switch();
      default:
        return variant();
    }
  }

  void open() {
    if (sees("[[")) {
      at_ += 2;
      if (openings_.size() < kDeepestLink) {
        openings_.push_back({true, out_.size(), std::string::npos, std::string::npos, {}});
      }
      return;
    }
    if (openings_.size() >= kDeepestLink || !begins_with_scheme(text_.substr(at_ + 1, 12)))
      return literal(1);
    const size_t end = std::min(text_.find_first_of(" \t\n]<", at_ + 1), text_.size());
    std::string address(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end;
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    mark_seam();
    openings_.push_back(
        {false, out_.size(), std::string::npos, std::string::npos, std::move(address)});
  }

  void close() {
    if (openings_.empty()) {
      if (sees("]]")) {
        at_ += 2;
      } else {
        literal(1);
      }
      return;
    }
    Opening opening = std::move(openings_.back());
    if (opening.internal && !sees("]]")) {
      openings_.back() = std::move(opening);
      return literal(1);
    }
    openings_.pop_back();
    // Scripts that are still open began in it: their beginnings will have moved.
    for (size_t i = scripts_.size(); i > 0 && scripts_[i - 1].openings > openings_.size(); --i)
      scripts_[i - 1].openings = kNowhere;
    at_ += opening.internal ? 2 : 1;
    if (opening.internal) {
      internal_link(opening);
      part_quotes(opening.begin);
    } else if (options_.links) {
      out_.insert(opening.begin, shield("<a href=\"" + opening.address + "\">"));
      out_ += shield("</a>");
    } else if (out_.size() == opening.begin) {
      mark_gap();  // MediaWiki shows [1]
    }
    mark_seam();
  }

  // MediaWiki reads the emphasis of a label, which begins at `begin` in out_, on its own.
  void part_quotes(size_t begin) {
    if (begin > 0 && begin < out_.size() && out_[begin - 1] == '\'' && out_[begin] == '\'')
      out_.insert(begin, kSeam);
  }

  void bar() {
    if (!openings_.empty() && openings_.back().internal) {
      Opening& opening = openings_.back();
      if (opening.first_pipe == std::string::npos) opening.first_pipe = out_.size();
      opening.last_pipe = out_.size();
    }
    literal(1);
  }

  // A link to an article that shows its target or its label: its text is already in place in out_.
  // False for other links.
  bool plain_link(const Opening& opening) {
    const std::string_view content = std::string_view(out_).substr(opening.begin);
    const bool piped = opening.first_pipe != std::string::npos;
    const std::string_view target =
        trim(piped ? content.substr(0, opening.first_pipe - opening.begin) : content);
    if (options_.links || target.empty() || target.find(':') != std::string_view::npos)
      return false;
    if (!piped) {
      const auto space = static_cast<size_t>(target.data() - content.data());
      out_.resize(opening.begin + space + target.size());
      out_.erase(opening.begin, space);
      return true;
    }
    const size_t length = opening.last_pipe + 1 - opening.begin;
    if (trim(content.substr(length)).empty()) return false;
    out_.erase(opening.begin, length);
    return true;
  }

  void internal_link(const Opening& opening) {
    if (plain_link(opening)) return;
    const bool piped = opening.first_pipe != std::string::npos;
    const size_t target_end = piped ? opening.first_pipe : out_.size();
    std::string target(
        trim(std::string_view(out_).substr(opening.begin, target_end - opening.begin)));
    std::string label = piped ? out_.substr(opening.last_pipe + 1) : target;
    out_.resize(opening.begin);
    const bool escaped = !target.empty() && target[0] == ':';
    if (escaped) target.erase(0, 1);
    if (escaped && !piped) label = target;
    const size_t colon = target.find(':');
    if (colon != std::string::npos && !escaped) {
      const std::string prefix = fold_case(trim(std::string_view(target).substr(0, colon)));
      const bool article = colon + 1 < target.size() && target[colon + 1] == ' ';
      if (site_.is_media(prefix)) return mark_gap();
      if (!piped && !article && is_language_prefix(prefix) && !site_.is_namespace(prefix))
        return mark_gap();
    }
    // The pipe trick ([[Help:Contents|]], [[Paris (Texas)|]]) shows the title without prefix and
    // brackets.
    if (piped && trim(label).empty()) {
      label = target.substr(colon == std::string::npos ? 0 : colon + 1);
      if (const size_t bracket = label.find(" ("); bracket != std::string::npos)
        label.resize(bracket);
    }
    // A target longer than a title can be is not a title; links in it would double the text with
    // each level.
    if (options_.links && target.size() <= kLongestTarget) {
      out_ += shield("<a href=\"" + percent_encoded(without_gaps(target)) + "\">") + label +
              shield("</a>");
    } else {
      out_ += label;
    }
  }

  void tag() {
    const Tag tag = parse_tag(text_, at_);
    if (tag.length == 0) return literal(1);
    at_ += tag.length;
    if (tag.name == "br" || tag.name == "hr" || tag.name == "p") out_.push_back(' ');
    if (std::find(kInsideWords.begin(), kInsideWords.end(), tag.name) == kInsideWords.end())
      mark_gap();
    if (!tag.closing) mark_seam(tag.name);
    if (tag.name == "sup" || tag.name == "sub") script(tag);
    if (tag.closing) mark_seam(tag.name);
    if (tag.name == "span" && !tag.closing) fraction(text_.substr(at_ - tag.length, tag.length));
    if (tag.name == "li" && !tag.closing) out_ += options_.lists ? "\n* " : "\n*";
    constexpr std::array<std::string_view, 5> kBlocks = {"ul", "ol", "blockquote", "div", "center"};
    if (std::find(kBlocks.begin(), kBlocks.end(), tag.name) != kBlocks.end()) out_.push_back('\n');
  }

  // Something between out_ and the rest of the text is not shown. What is around a variant is not
  // seen from inside.
  void mark_gap() {
    const bool at_edge = out_.empty() || at_ == text_.size();
    if (at_edge && depth_ > 0)
      out_.push_back(kGap);
    else
      wiki::mark_gap(out_, text_.substr(at_));
  }

  // Markup between out_ and the rest of the text is removed: a tag of this name, or a link.
  void mark_seam(std::string_view tag = {}) {
    if (!out_.ends_with('\'')) return;
    const bool parts = std::find(kGoneEarly.begin(), kGoneEarly.end(), tag) == kGoneEarly.end();
    if (parts) wiki::mark_seam(out_, text_.substr(at_));
  }

  void script(const Tag& tag) {
    constexpr size_t kDeepestScript = 16;
    if (!tag.closing && !tag.self_closing && scripts_.size() < kDeepestScript) {
      scripts_.push_back({tag.name == "sup", out_.size(), openings_.size()});
    } else if (tag.closing && !scripts_.empty()) {
      end_script(out_.size());
    }
  }

  // The mark of an emphasis that ends in a script but began before it, or the other way round.
  static std::string unpaired_mark(std::string_view content) {
    size_t runs = 0, last = 0;
    for (size_t i = content.find("''"); i != std::string_view::npos;
         i = content.find("''", i + last)) {
      last = std::min(content.find_first_not_of('\'', i), content.size()) - i;
      ++runs;
    }
    return std::string(runs % 2 == 1 ? last : 0, '\'');
  }

  // The innermost script ends; text after `end` is not part of it. One that begins in a link and
  // ends in another, or the other way round, is not changed.
  void end_script(size_t end) {
    constexpr size_t kSeen = 16;
    const Script script = scripts_.back();
    scripts_.pop_back();
    const bool same_link = script.openings == openings_.size() && script.begin <= end &&
                           (openings_.empty() || openings_.back().last_pipe == std::string::npos ||
                            openings_.back().last_pipe < script.begin);
    if (!same_link) return;
    const std::string rest = out_.substr(end);
    const std::string_view out = std::string_view(out_).substr(0, end);
    const size_t seen = std::min(script.begin, kSeen);
    std::string_view before = out.substr(script.begin - seen, seen);
    std::string_view after = rest.empty() ? text_.substr(at_, kSeen) : std::string_view(rest);
    std::string content(out.substr(script.begin));
    if (before.ends_with(kGap)) before.remove_suffix(1);
    if (after.starts_with(kGap)) after.remove_prefix(1);
    close_gaps(content);
    const std::string shown = script.above ? shown_superscript(before, content, after)
                                           : shown_subscript(before, content, after);
    const std::string mark = unpaired_mark(content);
    out_.resize(script.begin);
    out_.append(shown).append(mark).append(rest);
  }

  // A script without an end tag applies to one word.
  void end_scripts() {
    while (!scripts_.empty()) {
      // A link that closed after it began may have removed the text that it began in.
      const size_t begin = std::min(scripts_.back().begin, out_.size());
      end_script(std::max(begin, std::min(out_.find(' ', begin), out_.size())));
    }
  }

  // {{frac|1|2}}, expanded, is a span of class "frac": 5 1/2.
  void fraction(std::string_view span) {
    if (span.find("class=\"frac") == std::string_view::npos) return;
    take_gap(out_);
    if (!out_.empty() && out_.back() >= '0' && out_.back() <= '9') out_.push_back(' ');
  }

  void reference() {
    std::string decoded;
    const size_t length = decode_entity(text_, at_, decoded);
    if (length == 0) return literal(1);
    // &lt;nowiki&gt; and &#91;&#91; are text that shows markup: it must stay text.
    out_ += shield(decoded);
    at_ += length;
  }

  void newline() {
    if (!scripts_.empty()) end_scripts();
    while (!openings_.empty() && !openings_.back().internal) openings_.pop_back();
    if (sees("\n\n") || sees("\n=")) unclosed(sees("\n="));
    literal(1);
  }

  // An unclosed link ends with its paragraph. Captions of files may have several paragraphs; they
  // end with the section.
  void unclosed(bool section_ends) {
    while (!openings_.empty()) {
      const std::string_view content = std::string_view(out_).substr(openings_.back().begin);
      const std::string prefix =
          fold_case(trim(content.substr(0, std::min(content.find(':'), content.size()))));
      const bool media = site_.is_media(prefix);
      if (media && !section_ends) return;
      if (media) out_.erase(openings_.back().begin, content.find('\n'));
      openings_.pop_back();
    }
  }

  void behaviour_switch() {
    constexpr size_t kLongestSwitch = 64;
    if (sees("__")) {
      const std::string_view rest = text_.substr(at_ + 2, kLongestSwitch);
      const size_t end = rest.find("__");
      const auto name_byte = [](char c) {
        return (c >= 'A' && c <= 'Z') || static_cast<signed char>(c) < 0;
      };
      if (end != std::string_view::npos && end >= 3 &&
          std::all_of(rest.begin(), rest.begin() + static_cast<long>(end), name_byte)) {
        at_ += end + 4;
        return;
      }
    }
    literal(1);
  }

  // -{zh-hans:...; zh-hant:...}- shows one of its variants: the first. The shown text may contain
  // links and further variants.
  void variant() {
    if (!sees("-{")) return literal(1);
    if (!paired_) pair_variants();
    while (next_pair_ < variants_.size() && variants_[next_pair_].first < at_) ++next_pair_;
    if (next_pair_ == variants_.size() || variants_[next_pair_].first != at_) return literal(1);
    const size_t end = variants_[next_pair_].second;
    std::string_view inner = text_.substr(at_ + 2, end - at_ - 2);
    bool hidden = depth_ >= kDeepestVariant;
    if (const size_t bar = inner.find('|'); bar != inner.npos && are_flags(inner.substr(0, bar))) {
      const std::string_view flags = inner.substr(0, bar);
      hidden = hidden || flags.find_first_of("TH") != flags.npos || trim(flags) == "-";
      inner.remove_prefix(bar + 1);
    }
    at_ = end + 2;
    if (hidden) return mark_gap();
    InlineStripper shown(first_variant(inner), site_, options_);
    shown.depth_ = depth_ + 1;
    const std::string run = shown.run();
    wiki::mark_seam(out_, trim(run));
    out_ += trim(run);
    mark_seam();
  }

  // What may be before the bar of -{A|...}-: letters of rules (T and H show nothing, nor does a
  // single -), or languages.
  static bool are_flags(std::string_view text) {
    while (!text.empty()) {
      const std::string_view flag = trim(text.substr(0, text.find(';')));
      const bool letter = flag.size() == 1 &&
                          std::string_view("ASRDNHTLEWX+-").find(flag[0]) != std::string_view::npos;
      if (!letter && !flag.empty() && !is_language_prefix(flag)) return false;
      text.remove_prefix(std::min(text.find(';'), text.size() - 1) + 1);
    }
    return true;
  }

  static std::string_view first_variant(std::string_view inner) {
    const size_t colon = inner.find(':');
    if (colon == inner.npos || !is_language_prefix(trim(inner.substr(0, colon)))) return inner;
    inner.remove_prefix(colon + 1);
    int open = 0;
    for (size_t i = 0; i < inner.size(); ++i) {
      if (inner.substr(i, 2) == "-{") ++open;
      if (inner.substr(i, 2) == "}-") --open;
      if (inner[i] == ';' && open == 0) return inner.substr(0, i);
    }
    return inner;
  }

  // Where variants begin and end, found in one pass over the text; outermost and inner ones.
  void pair_variants() {
    std::vector<size_t> open;
    for (size_t i = text_.find_first_of("-}", at_); i != text_.npos;
         i = text_.find_first_of("-}", i + 1)) {
      const std::string_view two = text_.substr(i, 2);
      if (two == "-{") {
        open.push_back(variants_.size());
        variants_.emplace_back(i, text_.npos);
      }
      if (two != "}-" || open.empty()) continue;
      variants_[open.back()].second = i++;
      open.pop_back();
    }
    std::erase_if(variants_, [](const auto& pair) { return pair.second == std::string::npos; });
    paired_ = true;
  }

  static constexpr int kDeepestVariant = 8;  // each is read again inside the enclosing one

  std::string_view text_;
  const Site& site_;
  const CleanOptions& options_;
  std::string out_;
  size_t at_ = 0;
  std::vector<Opening> openings_;
  std::vector<Script> scripts_;
  std::vector<std::pair<size_t, size_t>> variants_;  // sorted by their beginnings
  size_t next_pair_ = 0;
  bool paired_ = false;
  int depth_ = 0;  // of variants around this text
};

}  // namespace

// ~~~, ~~~~ and ~~~~~ are signatures, which a saved page contains only by mistake.
static std::string without_signatures(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t found = std::min(text.find("~~~", i), text.size());
    out.append(text, i, found - i);
    i = std::min(text.find_first_not_of('~', found), text.size());
    if (i - found > 5) out.append(text, found, i - found);
    if (i > found && i - found <= 5) mark_gap(out, text.substr(i));
  }
  return out;
}

std::string strip_inline(std::string_view text, const Site& site, const CleanOptions& options) {
  std::string shown = text.find("~~~") == text.npos
                          ? InlineStripper(text, site, options).run()
                          : InlineStripper(without_signatures(text), site, options).run();
  close_gaps(shown);
  return shown;
}

bool Site::is_media(std::string_view prefix) const {
  return std::find(media_names.begin(), media_names.end(), prefix) != media_names.end();
}

std::optional<int64_t> Site::number_of(std::string_view prefix) const {
  const auto found = std::find_if(namespaces.begin(), namespaces.end(),
                                  [&](const Namespace& n) { return n.name == prefix; });
  if (found == namespaces.end()) return std::nullopt;
  return found->number;
}

}  // namespace wiki
