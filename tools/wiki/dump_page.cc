// SPDX-License-Identifier: MIT
// Parsing of a page and of the header of an export. Expat is the reference; pages as plain as
// MediaWiki writes them are read by a scanner of a few dozen lines that must agree with it.

#include <expat.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <memory>
#include <optional>
#include <system_error>

#include "tools/wiki/dump.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace wiki {
namespace {

// expat 2.9 deprecates the call whose type is a long.
int64_t byte_index(XML_Parser parser) {
#if XML_MAJOR_VERSION > 2 || XML_MINOR_VERSION >= 9
  return XML_GetCurrentByteIndex64(parser);
#else
  return XML_GetCurrentByteIndex(parser);
#endif
}

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  text = trim(text);
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return at == end && error == std::errc() ? std::optional(value) : std::nullopt;
}

struct ParserDeleter {
  void operator()(XML_Parser parser) const { XML_ParserFree(parser); }
};
using Parser = std::unique_ptr<std::remove_pointer_t<XML_Parser>, ParserDeleter>;

// Collects what both parsers need: the path of open elements and the text of the innermost.
constexpr size_t kDeepest = 64;  // of nested elements; an export has six levels
struct Collector {
  XML_Parser parser = nullptr;
  std::vector<std::string> path;
  std::string text;
  std::string_view refusal;  // why well-formed XML is refused

  virtual ~Collector() = default;
  virtual void opened(std::string_view name, const char** attributes) = 0;
  virtual void closed(std::string_view name) = 0;

  bool inside(std::string_view parent) const {
    return path.size() >= 2 && path[path.size() - 2] == parent;
  }
  void refuse(std::string_view reason) {
    refusal = reason;
    XML_StopParser(parser, XML_FALSE);
  }

  static void start(void* self, const char* name, const char** attributes) {
    auto* c = static_cast<Collector*>(self);
    c->path.emplace_back(name);
    c->text.clear();
    c->opened(name, attributes);
    if (c->path.size() > kDeepest) c->refuse("elements stand more than 64 deep");
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
    static_cast<Collector*>(self)->refuse("document type declarations are not accepted");
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
    const std::string place = "byte " + std::to_string(offset + byte_index(parser)) + ": ";
    if (!refusal.empty()) throw DumpError(place + std::string(refusal));
    throw DumpError(place + XML_ErrorString(XML_GetErrorCode(parser)));
  }
};

struct PageCollector final : Collector {
  Page page;
  bool has_title = false;
  bool has_text = false;
  std::string no_number;  // what has to be one

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
      if (name == "ns") page.name_space = number("ns");
      if (name == "id") page.id = number("id");
    } else if (inside("revision")) {
      if (name == "id") page.revision_id = number("revision's id");
      if (name == "text") page.text = std::move(text), has_text = true;
    }
  }
  int64_t number(std::string_view what) {
    constexpr size_t kShown = 40;
    const std::optional<int64_t> value = to_integer(text);
    if (!value) no_number = std::string(what) + " is \"" + text.substr(0, kShown) + "\"";
    return value.value_or(0);
  }
};

struct SiteCollector final : Collector {
  Site site;
  std::string key;

  void opened(std::string_view name, const char** attributes) override {
    if (name == "page") return refuse("a page that does not begin with <page>");
    if (name != "namespace") return;
    for (size_t i = 0; attributes[i] != nullptr; i += 2) {
      if (std::string_view(attributes[i]) == "key") key = attributes[i + 1];
    }
  }
  void closed(std::string_view name) override {
    if (name == "base") site.base = text.substr(0, text.rfind('/') + 1);
    if (name == "sitename") site.name = text;
    if (name == "case") site.first_letter_upper = text != "case-sensitive";
    if (name != "namespace" || text.empty()) return;
    if (key == "10") site.template_namespace = text;
    site.namespaces.push_back({fold_case(text), to_integer(key).value_or(0), text});
    if (key == "-2" || key == "6" || key == "14") site.media_names.push_back(fold_case(text));
  }
};

// The characters that a JSON string must escape besides control characters.
constexpr ByteSet kEscaped("\"\\");

void append_json_string(std::string_view text, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t plain = find_in<kEscaped, true>(text, i);
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

constexpr ByteSet kOdd("&<>\xEF");
constexpr ByteSet kSpaces("\t\n");

// Copies characters up to the first that may be special, and returns their number. XML forbids or
// changes control characters, except tabs and line ends. `to` has room for 16 more.
size_t copy_plain(const char* from, size_t size, char* to) {
  const auto plain = [&](char c) {
    return !kOdd.has(c) && (static_cast<unsigned char>(c) > 0x1F || kSpaces.has(c));
  };
  size_t at = 0;
#if defined(__SSE2__)
  constexpr size_t kWidth = 16;
  for (; at + kWidth <= size; at += kWidth) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at), bytes);
    const __m128i odd = _mm_or_si128(members<kOdd>(bytes),
                                     _mm_andnot_si128(members<kSpaces>(bytes), controls(bytes)));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(odd));
    if (mask != 0) return at + static_cast<size_t>(std::countr_zero(mask));
  }
#endif
  for (; at < size && plain(from[at]); ++at) to[at] = from[at];
  return at;
}

// The entity at the front of `text` and its length; 0 if it is not one of XML's own.
char entity(std::string_view text, size_t& length) {
  const auto is = [&](const char(&name)[3], char character) {
    length = 4;
    return text.size() > 3 && text[1] == name[0] && text[2] == name[1] && text[3] == ';' ? character
                                                                                         : '\0';
  };
  if (const char lt = is("lt", '<'); lt != 0) return lt;
  if (const char gt = is("gt", '>'); gt != 0) return gt;
  constexpr std::array<std::pair<std::string_view, char>, 3> kEntities = {
      {{"&quot;", '"'}, {"&amp;", '&'}, {"&apos;", '\''}}};
  for (const auto& [name, character] : kEntities) {
    if (text.size() < name.size() || text[1] != name[1] || !text.starts_with(name)) continue;
    length = name.size();
    return character;
  }
  return 0;
}

// Decodes an element's content of characters and the five entities; false if expat must parse it.
bool unescape(std::string_view xml, std::string& out) {
  constexpr size_t kRoom = 16;
  if (!simdjson::validate_utf8(xml.data(), xml.size())) return false;
  out.resize(xml.size() + kRoom);
  char* end = out.data();
  for (size_t at = 0; at < xml.size();) {
    const size_t plain = copy_plain(xml.data() + at, xml.size() - at, end);
    at += plain;
    end += plain;
    if (at == xml.size()) break;
    size_t length = 1;
    char shown = xml[at];
    if (shown == '&') {
      shown = entity(xml.substr(at), length);
      if (shown == 0) return false;
    } else if (shown == '>') {
      if (xml.substr(0, at).ends_with("]]")) return false;
    } else if (shown != '\xEF' || xml.substr(at, 2) == "\xEF\xBF") {
      return false;
    }
    *end++ = shown;
    at += length;
  }
  out.resize(static_cast<size_t>(end - out.data()));
  return true;
}

// Reads a plain page: one element with elements, attributes in double quotes, characters and the
// five entities. All exports are like this; expat reads anything else.
class PlainPage {
 public:
  PlainPage(std::string_view xml, PageCollector& collector) : xml_(xml), collector_(collector) {}

  /// False if expat must read it; then the collector must be cleared.
  bool read() {
    if (!sees("<")) return false;
    while (true) {
      if (!(sees("</") ? end_tag() : start_tag())) return false;
      if (collector_.path.empty()) return at_ == xml_.size();
      const size_t next = xml_.find('<', at_);
      if (next == xml_.npos || !unescape(xml_.substr(at_, next - at_), collector_.text))
        return false;
      at_ = next;
    }
  }

 private:
  bool sees(std::string_view what) const { return xml_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!sees(what)) return false;
    at_ += what.size();
    return true;
  }

  bool take_name(std::string& name) {
    const auto letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    const auto other = [](char c) {
      return (c >= '0' && c <= '9') || c == ':' || c == '-' || c == '.';
    };
    const size_t begin = at_;
    while (at_ < xml_.size() && (letter(xml_[at_]) || (at_ > begin && other(xml_[at_])))) ++at_;
    name.assign(xml_, begin, at_ - begin);
    return !name.empty();
  }

  bool take_space() {
    const size_t begin = at_;
    while (at_ < xml_.size() && std::string_view(" \t\n").find(xml_[at_]) != xml_.npos) ++at_;
    return at_ > begin;
  }

  // Reads name and value into attributes_. White space other than spaces becomes a space in a
  // value.
  bool take_attribute() {
    std::string name, value;
    if (!take_name(name) || !take("=\"")) return false;
    const size_t end = xml_.find('"', at_);
    if (end == xml_.npos) return false;
    const std::string_view raw = xml_.substr(at_, end - at_);
    if (raw.find_first_of("\t\n") != raw.npos || !unescape(raw, value)) return false;
    if (attributes_.size() == 2 * kMostAttributes) return false;
    for (size_t i = 0; i < attributes_.size(); i += 2) {
      if (attributes_[i] == name) return false;
    }
    at_ = end + 1;
    attributes_.push_back(std::move(name));
    attributes_.push_back(std::move(value));
    return true;
  }

  bool start_tag() {
    std::string name;
    if (collector_.path.size() == kDeepest || !take("<") || !take_name(name)) return false;
    attributes_.clear();
    bool space = take_space();
    while (!sees(">") && !sees("/>")) {
      if (!space || !take_attribute()) return false;
      space = take_space();
    }
    std::vector<const char*> pointers;
    for (const std::string& word : attributes_) pointers.push_back(word.c_str());
    pointers.push_back(nullptr);
    Collector* const collector = &collector_;
    Collector::start(collector, name.c_str(), pointers.data());
    if (take("/>")) {
      Collector::end(collector, name.c_str());
      return true;
    }
    return take(">");
  }

  bool end_tag() {
    std::string name;
    if (!take("</") || !take_name(name) || !take(">") || collector_.path.empty() ||
        name != collector_.path.back())
      return false;
    Collector::end(static_cast<Collector*>(&collector_), name.c_str());
    return true;
  }

  static constexpr size_t kMostAttributes = 16;  // each is compared with all earlier ones

  std::string_view xml_;
  PageCollector& collector_;
  size_t at_ = 0;
  std::vector<std::string> attributes_;  // names and values in turn
};

Page checked(PageCollector collector, const PageXml& page) {
  if (!collector.has_title || trim(collector.page.title).empty()) {
    throw DumpError("byte " + std::to_string(page.offset) + ": page without a title");
  }
  if (!collector.has_text)
    throw DumpError("byte " + std::to_string(page.offset) + ": page without a text");
  if (!collector.no_number.empty())
    throw DumpError("byte " + std::to_string(page.offset) + ": page whose " + collector.no_number +
                    ", expected a whole number of 64 bits");
  Page& read = collector.page;
  if (!read.redirect) {
    const std::optional<std::string> target = redirect_target(read.text);
    if (target) read.redirect_target = *target;
    read.redirect = target.has_value();
  }
  return std::move(read);
}

}  // namespace

Page read_page_with_expat(const PageXml& page) {
  PageCollector collector;
  collector.parse(page.xml, page.offset, true);
  return checked(std::move(collector), page);
}

Page read_page(const PageXml& page) {
  PageCollector collector;
  if (!PlainPage(page.xml, collector).read()) return read_page_with_expat(page);
  return checked(std::move(collector), page);
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
  // English names are valid on every wiki.
  for (const auto& [name, number] :
       {std::pair{"File", 6}, {"Image", 6}, {"Media", -2}, {"Category", 14}, {"Template", 10}}) {
    const std::string folded = fold_case(name);
    if (number != 10) site.media_names.push_back(folded);
    site.namespaces.push_back({folded, number, name});
  }
  return site;
}

std::string json_line(const Page& page, const Site& site, std::string_view text) {
  constexpr size_t kKeys = 256;  // approximate size of the keys, with the address
  std::string line;
  line.reserve(text.size() + text.size() / 32 + page.title.size() + kKeys);
  line.append("{\"id\": \"").append(std::to_string(page.id)).append("\", \"revid\": \"");
  line.append(std::to_string(page.revision_id)).append("\", \"url\": ");
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
