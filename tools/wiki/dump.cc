// SPDX-License-Identifier: MIT
// Pages of a MediaWiki export: cutting the stream, expat for what stands inside a page or the head.

#include "tools/wiki/dump.h"

#include <expat.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include "tools/wiki/entities.h"

namespace wiki {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kPageBegin = "<page>";
constexpr std::string_view kPageEnd = "</page>";
constexpr std::string_view kDumpEnd = "</mediawiki>";
constexpr int64_t kLongestHead = 1 << 20;

int64_t to_integer(std::string_view text) {
  int64_t value = 0;
  text = trim(text);
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

struct ParserDeleter {
  void operator()(XML_Parser parser) const { XML_ParserFree(parser); }
};
using Parser = std::unique_ptr<std::remove_pointer_t<XML_Parser>, ParserDeleter>;

// Collects what both kinds of document need: the path of open elements and the text of the
// innermost.
struct Collector {
  XML_Parser parser = nullptr;
  std::vector<std::string> path;
  std::string text;
  bool declares_entities = false;

  virtual ~Collector() = default;
  virtual void opened(std::string_view name, const char** attributes) = 0;
  virtual void closed(std::string_view name) = 0;

  bool inside(std::string_view parent) const {
    return path.size() >= 2 && path[path.size() - 2] == parent;
  }

  static void start(void* self, const char* name, const char** attributes) {
    auto* c = static_cast<Collector*>(self);
    c->path.emplace_back(name);
    c->text.clear();
    c->opened(name, attributes);
  }
  static void end(void* self, const char* name) {
    auto* c = static_cast<Collector*>(self);
    c->closed(name);
    c->path.pop_back();
    c->text.clear();
  }
  static void characters(void* self, const char* data, int length) {
    static_cast<Collector*>(self)->text.append(data, static_cast<size_t>(length));
  }
  static void doctype(void* self, const char*, const char*, const char*, int) {
    auto* c = static_cast<Collector*>(self);
    c->declares_entities = true;
    XML_StopParser(c->parser, XML_FALSE);
  }

  // `offset` is where `xml` begins in the dump.
  void parse(std::string_view xml, int64_t offset, bool whole) {
    const Parser owner(XML_ParserCreate("UTF-8"));
    if (!owner) throw std::bad_alloc();
    parser = owner.get();
    XML_SetUserData(parser, this);
    XML_SetElementHandler(parser, start, end);
    XML_SetCharacterDataHandler(parser, characters);
    XML_SetStartDoctypeDeclHandler(parser, doctype);
    constexpr size_t kPortion = 1 << 20;  // expat counts in int
    for (size_t i = 0; i < xml.size() || i == 0; i += kPortion) {
      const std::string_view portion = xml.substr(i, kPortion);
      const bool last = whole && i + portion.size() == xml.size();
      if (XML_Parse(parser, portion.data(), static_cast<int>(portion.size()), last) ==
          XML_STATUS_ERROR)
        fail(offset);
    }
  }

  [[noreturn]] void fail(int64_t offset) const {
    const std::string place =
        "byte " + std::to_string(offset + XML_GetCurrentByteIndex(parser)) + ": ";
    if (declares_entities) throw DumpError(place + "document type declarations are not accepted");
    throw DumpError(place + XML_ErrorString(XML_GetErrorCode(parser)));
  }
};

struct PageCollector final : Collector {
  Page page;
  bool has_title = false;
  bool has_text = false;

  void opened(std::string_view name, const char** attributes) override {
    if (name != "redirect" || !inside("page")) return;
    page.redirect = true;
    for (size_t i = 0; attributes[i] != nullptr; i += 2) {
      if (std::string_view(attributes[i]) == "title") page.redirect_target = attributes[i + 1];
    }
  }
  void closed(std::string_view name) override {
    if (inside("page")) {
      if (name == "title") page.title = text, has_title = true;
      if (name == "ns") page.name_space = to_integer(text);
      if (name == "id") page.id = to_integer(text);
    } else if (inside("revision")) {
      if (name == "id") page.revision_id = to_integer(text);
      if (name == "text") page.text = std::move(text), has_text = true;
    }
  }
};

struct SiteCollector final : Collector {
  Site site;
  std::string key;

  void opened(std::string_view name, const char** attributes) override {
    if (name != "namespace") return;
    for (size_t i = 0; attributes[i] != nullptr; i += 2) {
      if (std::string_view(attributes[i]) == "key") key = attributes[i + 1];
    }
  }
  void closed(std::string_view name) override {
    if (name == "base") site.base = text.substr(0, text.rfind('/') + 1);
    if (name == "sitename") site.name = text;
    if (name != "namespace" || text.empty()) return;
    if (key == "10") site.template_namespace = text;
    site.namespaces.push_back({fold_case(text), to_integer(key)});
    if (key == "-2" || key == "6" || key == "14") site.media_names.push_back(fold_case(text));
  }
};

// What a JSON string must escape beside control characters.
constexpr ByteSet kEscaped("\"\\");

void append_json_string(std::string_view text, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t plain = find_in<true>(text, i, kEscaped);
    out.append(text, i, plain - i);
    i = plain;
    if (i == text.size()) break;
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20) {
      out += "\\u00";
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

}  // namespace

void Transcoder::unit(uint32_t unit, std::string& out) {
  ++units_;
  const bool high = unit >= 0xD800 && unit <= 0xDBFF;
  const bool low = unit >= 0xDC00 && unit <= 0xDFFF;
  if (low != (high_surrogate_ != 0)) {
    throw DumpError("byte " + std::to_string(units_ * 2) + " of UTF-16: half a surrogate pair");
  }
  if (high) {
    high_surrogate_ = unit;
    return;
  }
  append_utf8(low ? 0x10000 + ((high_surrogate_ - 0xD800) << 10) + (unit - 0xDC00) : unit, out);
  high_surrogate_ = 0;
}

void Transcoder::feed(std::string_view bytes, std::string& out) {
  if (encoding_ == Encoding::utf8) {
    out.append(bytes);
    return;
  }
  kept_.append(bytes);
  if (encoding_ == Encoding::unknown) {
    if (kept_.size() < 3) return;
    const bool little = kept_.starts_with("\xFF\xFE");
    const bool big = kept_.starts_with("\xFE\xFF");
    encoding_ = little ? Encoding::utf16_little : big ? Encoding::utf16_big : Encoding::utf8;
    const size_t mark = little || big ? 2 : kept_.starts_with("\xEF\xBB\xBF") ? 3 : 0;
    kept_.erase(0, mark);
    if (encoding_ == Encoding::utf8) {
      out += kept_;
      kept_.clear();
      return;
    }
  }
  const size_t first = encoding_ == Encoding::utf16_little ? 0 : 1;
  for (size_t i = 0; i + 1 < kept_.size(); i += 2) {
    unit(static_cast<uint32_t>(static_cast<uint8_t>(kept_[i + first])) |
             static_cast<uint32_t>(static_cast<uint8_t>(kept_[i + 1 - first])) << 8,
         out);
  }
  kept_.erase(0, kept_.size() & ~size_t{1});
}

void Transcoder::finish() const {
  if (encoding_ != Encoding::unknown && (!kept_.empty() || high_surrogate_ != 0)) {
    throw DumpError("byte " + std::to_string(units_ * 2) +
                    " of UTF-16: the last character is cut off");
  }
}

void PageSplitter::consume(size_t length) {
  taken_ += length;
  offset_ += static_cast<int64_t>(length);
  searched_ = 0;
}

void PageSplitter::feed(std::string_view bytes, std::vector<PageXml>& pages) {
  buffer_.erase(0, taken_);
  taken_ = 0;
  buffer_.append(bytes);
  while (step(pages)) {
  }
}

bool PageSplitter::step(std::vector<PageXml>& pages) {
  switch (state_) {
    case State::head:
      return in_head();
    case State::seek:
      return seek();
    case State::done:
      buffer_.clear();
      taken_ = 0;
      return false;
    case State::between:
      return between();
    case State::page:
      return in_page(pages);
    case State::after:
      break;
  }
  if (trim(std::string_view(buffer_).substr(taken_)).empty()) return false;
  throw DumpError(at() + ": content follows </mediawiki>");
}

bool PageSplitter::in_head() {
  const size_t page = buffer_.find(kPageBegin, searched_);
  const size_t end = std::min(page, buffer_.find(kDumpEnd, searched_));
  const std::string_view start = trim(std::string_view(buffer_).substr(0, 64));
  if (!start.empty() && start.front() != '<') {
    throw DumpError("byte 0: not XML");
  }
  if (end == std::string::npos) {
    if (static_cast<int64_t>(buffer_.size()) > kLongestHead) {
      throw DumpError("byte 0: no <page> in the first MiB: not a MediaWiki export");
    }
    searched_ = buffer_.size() - std::min(buffer_.size(), kDumpEnd.size());
    return false;
  }
  head_ = buffer_.substr(0, end);
  consume(end);
  state_ = State::between;
  return true;
}

void PageSplitter::start_inside(int64_t offset) {
  offset_ = offset;
  state_ = State::seek;
}

bool PageSplitter::seek() {
  const size_t page = buffer_.find(kPageBegin, taken_);
  if (page == std::string::npos) {
    const size_t rest = buffer_.size() - taken_;
    consume(rest - std::min(rest, kPageBegin.size() - 1));
    return false;
  }
  consume(page - taken_);
  return begin_page();
}

/// <page> stands at offset_.
bool PageSplitter::begin_page() {
  page_begin_ = offset_;
  state_ = offset_ < end_ ? State::page : State::done;
  return true;
}

bool PageSplitter::between() {
  const std::string_view rest = std::string_view(buffer_).substr(taken_);
  const size_t space = std::min(rest.find_first_not_of(" \t\r\n"), rest.size());
  consume(space);
  const std::string_view next = rest.substr(space);
  if (next.starts_with(kPageBegin)) return begin_page();
  if (next.starts_with(kDumpEnd)) {
    consume(kDumpEnd.size());
    state_ = State::after;
    return true;
  }
  if (kPageBegin.starts_with(next) || kDumpEnd.starts_with(next)) return false;
  throw DumpError(at() + ": expected <page> or </mediawiki>");
}

bool PageSplitter::in_page(std::vector<PageXml>& pages) {
  const std::string_view rest = std::string_view(buffer_).substr(taken_);
  const size_t from = std::max(searched_, skipping_ ? 0 : kPageBegin.size());
  const size_t end = rest.find(kPageEnd, from);
  const size_t other = rest.substr(0, end).find(kPageBegin, from);
  if (other != std::string_view::npos) {
    pages.push_back({{}, page_begin_, "no </page> before the next <page>"});
    consume(other);
    skipping_ = false;
    return begin_page();
  }
  if (end == std::string_view::npos) {
    skipping_ = skipping_ || static_cast<int64_t>(rest.size()) > max_page_bytes_;
    if (skipping_) {
      consume(rest.size() - std::min(rest.size(), kPageEnd.size()));
    } else {
      searched_ = rest.size() - std::min(rest.size(), kPageEnd.size());
    }
    return false;
  }
  const size_t length = end + kPageEnd.size();
  if (skipping_ || static_cast<int64_t>(length) > max_page_bytes_) {
    pages.push_back({{}, page_begin_, "longer than " + std::to_string(max_page_bytes_) + " bytes"});
  } else {
    pages.push_back({std::string(rest.substr(0, length)), page_begin_, {}});
  }
  consume(length);
  skipping_ = false;
  state_ = State::between;
  return true;
}

void PageSplitter::finish(std::vector<PageXml>& pages) {
  if (state_ == State::page) pages.push_back({{}, page_begin_, "the dump ends inside this page"});
  if (state_ == State::after || state_ == State::seek || state_ == State::done) return;
  const int64_t end = offset_ + static_cast<int64_t>(buffer_.size() - taken_);
  if (end == 0) throw DumpError("byte 0: empty input");
  throw DumpError("byte " + std::to_string(end) + ": cut off: no </mediawiki> at the end");
}

namespace {

// XML forbids them, or changes them, but for tabs and line ends.
bool has_controls(std::string_view xml) {
  constexpr ByteSet kNone("");
  for (size_t at = 0; (at = find_in<true>(xml, at, kNone)) < xml.size(); ++at) {
    if (xml[at] != '\t' && xml[at] != '\n') return true;
  }
  return false;
}

// Content of an element that is characters and the five entities alone; false where expat must
// judge it.
bool unescape(std::string_view xml, std::string& out) {
  constexpr std::array<std::pair<std::string_view, char>, 5> kEntities = {
      {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&amp;", '&'}, {"&apos;", '\''}}};
  const bool odd = xml.find("]]>") != xml.npos || xml.find("\xEF\xBF") != xml.npos ||
                   has_controls(xml) || !simdjson::validate_utf8(xml.data(), xml.size());
  if (odd) return false;
  out.reserve(xml.size());
  for (size_t at = 0; at < xml.size();) {
    const size_t next = std::min(xml.find('&', at), xml.size());
    out.append(xml, at, next - at);
    if (next == xml.size()) return true;
    const auto entity = std::find_if(kEntities.begin(), kEntities.end(), [&](const auto& known) {
      return xml.substr(next, known.first.size()) == known.first;
    });
    if (entity == kEntities.end()) return false;
    out.push_back(entity->second);
    at = next + entity->first.size();
  }
  return true;
}

// Expat for all but the text, which is nearly all of a page. False: for expat as a whole.
bool read_quickly(const PageXml& page, PageCollector& collector) {
  constexpr std::string_view kTag = "<text", kEnd = "</text>";
  const std::string_view xml = page.xml;
  const size_t tag = xml.rfind(kTag);
  const size_t begin = std::min(xml.find('>', tag), xml.size() - 1) + 1;
  const size_t end = xml.find('<', begin);
  std::string text;
  if (tag == xml.npos || end == xml.npos || xml.substr(end, kEnd.size()) != kEnd ||
      xml[begin - 2] == '/' || !unescape(xml.substr(begin, end - begin), text))
    return false;
  try {
    collector.parse(std::string(xml.substr(0, begin)).append(xml.substr(end)), page.offset, true);
  } catch (const DumpError&) {
    return false;  // to be told with its place
  }
  collector.page.text = std::move(text);
  return collector.has_text;
}

}  // namespace

Page read_page(const PageXml& page) {
  PageCollector collector;
  if (!read_quickly(page, collector)) {
    collector = {};
    collector.parse(page.xml, page.offset, true);
  }
  if (!collector.has_title || trim(collector.page.title).empty()) {
    throw DumpError("byte " + std::to_string(page.offset) + ": page without a title");
  }
  if (!collector.has_text)
    throw DumpError("byte " + std::to_string(page.offset) + ": page without a text");
  Page& read = collector.page;
  if (!read.name_space && ascii_lower(trim(read.text).substr(0, 9)) == "#redirect")
    read.redirect = true;  // a dump of before 2012
  return std::move(read);
}

int64_t namespace_of(const Page& page, const Site& site) {
  if (page.name_space) return *page.name_space;
  const size_t colon = page.title.find(':');
  if (colon == std::string::npos) return 0;
  return site.number_of(fold_case(std::string_view(page.title).substr(0, colon))).value_or(0);
}

Site read_site(std::string_view head) {
  SiteCollector collector;
  // The root element stays open: pages follow.
  collector.parse(head, 0, false);
  Site site = std::move(collector.site);
  // English names are good on every wiki.
  for (const auto& [name, number] :
       {std::pair{"file", 6}, {"image", 6}, {"media", -2}, {"category", 14}, {"template", 10}}) {
    if (number != 10) site.media_names.emplace_back(name);
    site.namespaces.push_back({name, number});
  }
  return site;
}

std::string json_line(const Page& page, const Site& site, std::string_view text) {
  std::string line = "{\"id\": \"" + std::to_string(page.id) + "\", \"revid\": \"" +
                     std::to_string(page.revision_id) + "\", \"url\": ";
  const std::string base =
      site.base.substr(0, site.base.size() - std::min<size_t>(site.base.size(), 1));
  append_json_string(base + "?curid=" + std::to_string(page.id), line);
  line += ", \"title\": ";
  append_json_string(page.title, line);
  line += ", \"text\": ";
  append_json_string(text, line);
  line += "}\n";
  return line;
}

}  // namespace wiki
