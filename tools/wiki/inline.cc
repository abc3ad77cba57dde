// SPDX-License-Identifier: MIT
// Second pass of wikitext.h: internal and external links, HTML tags, emphasis, behaviour switches,
// language variants, character references. Links are cut back to their label when they close.

#include <algorithm>
#include <array>

#include "tools/wiki/entities.h"
#include "tools/wiki/wikitext.h"

namespace wiki {
namespace {

constexpr size_t kDeepestLink = 64;
constexpr size_t kLongestTarget = 1024;  // of MediaWiki: 255 bytes and a section
constexpr std::array<std::string_view, 9> kSchemes = {
    "http://", "https://", "ftp://", "//", "mailto:", "news:", "irc://", "gopher://", "sftp://"};

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

  std::string run() {
    while (at_ < text_.size()) {
      const size_t next = find_in<kMarks>(text_, at_);
      out_.append(text_, at_, next - at_);
      at_ = next;
      if (at_ == text_.size()) break;
      step();
    }
    return std::move(out_);
  }

 private:
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
    at_ += opening.internal ? 2 : 1;
    if (opening.internal) {
      internal_link(opening);
    } else if (options_.links) {
      out_.insert(opening.begin, shield("<a href=\"" + opening.address + "\">"));
      out_ += shield("</a>");
    }
  }

  void bar() {
    if (!openings_.empty() && openings_.back().internal) {
      Opening& opening = openings_.back();
      if (opening.first_pipe == std::string::npos) opening.first_pipe = out_.size();
      opening.last_pipe = out_.size();
    }
    literal(1);
  }

  // A link to an article that shows its target or its label stays where it stands in out_. False:
  // another one.
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
      if (site_.is_media(prefix)) return;
      if (!piped && !article && is_language_prefix(prefix) && !site_.is_namespace(prefix)) return;
    }
    // The pipe trick ([[Help:Contents|]], [[Paris (Texas)|]]) shows the title without prefix and
    // brackets.
    if (piped && trim(label).empty()) {
      label = target.substr(colon == std::string::npos ? 0 : colon + 1);
      if (const size_t bracket = label.find(" ("); bracket != std::string::npos)
        label.resize(bracket);
    }
    // What is longer than a title can be is none; links in it would double with each level.
    if (options_.links && target.size() <= kLongestTarget) {
      out_ += shield("<a href=\"" + percent_encoded(target) + "\">") + label + shield("</a>");
    } else {
      out_ += label;
    }
  }

  void tag() {
    const Tag tag = parse_tag(text_, at_);
    if (tag.length == 0) return literal(1);
    at_ += tag.length;
    if (tag.name == "br" || tag.name == "hr" || tag.name == "p") out_.push_back(' ');
    if (tag.name == "li" && !tag.closing) out_ += options_.lists ? "\n* " : "\n*";
    constexpr std::array<std::string_view, 5> kBlocks = {"ul", "ol", "blockquote", "div", "center"};
    if (std::find(kBlocks.begin(), kBlocks.end(), tag.name) != kBlocks.end()) out_.push_back('\n');
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
    while (!openings_.empty() && !openings_.back().internal) openings_.pop_back();
    if (sees("\n\n") || sees("\n=")) unclosed(sees("\n="));
    literal(1);
  }

  // A link ends with its paragraph. Captions of files may hold several; they end with the section.
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

  // -{zh-hans:...; zh-hant:...}- shows one of its variants: the first.
  void variant() {
    constexpr size_t kLongestVariant = 512;
    if (!sees("-{")) return literal(1);
    const std::string_view rest = text_.substr(at_ + 2, kLongestVariant);
    const size_t end = rest.find("}-");
    if (end == std::string_view::npos) return literal(1);
    std::string_view inner = rest.substr(0, end);
    bool hidden = false;  // rules for the title or for the rest of the page
    if (const size_t flags = inner.find('|'); flags != std::string_view::npos) {
      hidden = inner.substr(0, flags).find_first_of("TH-") != std::string_view::npos;
      inner.remove_prefix(flags + 1);
    }
    const size_t semicolon = inner.find(';');
    const size_t colon = inner.find(':');
    if (colon != std::string_view::npos && is_language_prefix(inner.substr(0, colon))) {
      inner = inner.substr(0, semicolon).substr(colon + 1);
    }
    if (!hidden) out_ += trim(inner);
    at_ += end + 4;
  }

  std::string_view text_;
  const Site& site_;
  const CleanOptions& options_;
  std::string out_;
  size_t at_ = 0;
  std::vector<Opening> openings_;
};

}  // namespace

std::string strip_inline(std::string_view text, const Site& site, const CleanOptions& options) {
  return InlineStripper(text, site, options).run();
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
