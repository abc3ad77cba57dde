// SPDX-License-Identifier: MIT
// A MediaWiki export as a stream of pages. PageSplitter (one thread, in order) cuts the XML between
// pages and keeps an incomplete page for the next call; read_page (any thread) parses one page;
// read_site parses the header. Escaping guarantees that "<page>" inside an article never looks like
// the tag. Not here: decompression (tools/stream), wikitext (wikitext.h).
// Source: MediaWiki export-0.10 and 0.11 schemas.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tools/wiki/wikitext.h"

namespace wiki {

/// The bytes are not an export, or not a complete one. The text says where (byte of the
/// uncompressed XML) and why.
struct DumpError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Converts an export with a UTF-16 byte order mark (some tools write such) to UTF-8; passes others
/// through, without their UTF-8 mark. One thread; feed in order. Offsets in messages are those of
/// the UTF-8.
class Transcoder {
 public:
  /// Appends to `out`. Errors: DumpError for half a surrogate pair.
  void feed(std::string_view bytes, std::string& out);
  /// Errors: DumpError if the last character is incomplete, or the input is too short to be XML.
  void finish() const;
  /// Whether bytes pass unchanged from here on, so that feed need not be called.
  bool passes() const { return encoding_ == Encoding::utf8; }
  /// The fed bytes will begin inside a UTF-8 export; no byte order mark is expected.
  void start_inside() { encoding_ = Encoding::utf8; }

 private:
  enum class Encoding { unknown, utf8, utf16_little, utf16_big };
  void unit(uint32_t unit, std::string& out);

  Encoding encoding_ = Encoding::unknown;
  std::string kept_;  // bytes of an incomplete code unit or byte order mark
  uint32_t high_surrogate_ = 0;
  int64_t units_ = 0;
};

/// XML of one page, from <page> to </page>, or why there is none.
struct PageXml {
  std::string xml;
  int64_t offset = 0;  ///< of <page> in the uncompressed XML
  std::string defect;  ///< if not empty: why the page cannot be used
};

/// One page of the dump. Of several revisions it has the last one.
struct Page {
  std::string title;
  std::string text;
  std::optional<int64_t> name_space;  ///< none in dumps before 2012: the title's prefix gives it
  int64_t id = 0;
  int64_t revision_id = 0;
  bool redirect = false;
  std::string redirect_target;
};

/// The title to which a page with this text redirects: a keyword of any of MediaWiki's languages
/// and a link ("#REDIRECT [[Title]]"). None if it is not a redirect.
std::optional<std::string> redirect_target(std::string_view text);

/// Cuts the XML stream into pages, in order. One thread. Memory: one page, at most
/// `max_page_bytes`, and the fed bytes.
class PageSplitter {
 public:
  explicit PageSplitter(int64_t max_page_bytes) : max_page_bytes_(max_page_bytes) {}

  /// The fed bytes will begin at `offset`, inside an export: bytes before the first <page> are
  /// skipped, since they belong to the previous part. Call before feed.
  void start_inside(int64_t offset);

  /// Pages that begin at `offset` or later are not wanted; done() is true once one was seen.
  void end_at(int64_t offset) { end_ = offset; }
  /// The same, from the next fed byte on.
  void end_here() { end_ = offset_ + static_cast<int64_t>(buffer_.size() - taken_); }
  bool done() const { return state_ == State::done; }

  /// Takes the next bytes; appends the pages that they complete. A page over the limit, or one that
  /// does not end before the next begins, is appended with its defect. Errors: DumpError for
  /// anything but space between pages.
  void feed(std::string_view bytes, std::vector<PageXml>& pages);

  /// No more bytes follow. Errors: DumpError when </mediawiki> is missing: the dump is cut off.
  void finish(std::vector<PageXml>& pages);

  /// The XML before the first page; complete once a page was appended, or after finish.
  const std::string& head() const { return head_; }

 private:
  enum class State { head, seek, between, page, after, done };
  bool step(std::vector<PageXml>& pages);
  bool in_head();
  bool seek();
  bool begin_page();
  bool between();
  bool in_page(std::vector<PageXml>& pages);
  void consume(size_t length);
  void skip_space();
  std::string at() const { return "byte " + std::to_string(offset_); }

  int64_t max_page_bytes_;
  State state_ = State::head;
  std::string buffer_;   // from offset_ on
  size_t taken_ = 0;     // processed bytes of buffer_
  size_t searched_ = 0;  // bytes after taken_ that do not contain the wanted tag
  int64_t offset_ = 0;   // of buffer_[taken_] in the stream
  int64_t page_begin_ = 0;
  int64_t end_ = std::numeric_limits<int64_t>::max();
  bool skipping_ = false;  // inside a page over the limit
  std::string head_;
};

/// Parses one page. Errors: DumpError with place and reason, also for entity declarations and pages
/// without a title.
Page read_page(const PageXml& page);

/// The same, by expat alone: the reference for read_page.
Page read_page_with_expat(const PageXml& page);

/// Number of the page's namespace.
int64_t namespace_of(const Page& page, const Site& site);

/// Parses the header (<siteinfo>): base address and namespaces. Without siteinfo it gives English
/// names. Errors: DumpError; a document type declaration is refused, since it could define entities
/// that expand without bound.
Site read_site(std::string_view head);

/// One line of loose JSON, with its '\n': id, revid, url, title, text, WikiExtractor's keys. `text`
/// is UTF-8; only control characters, quotes and backslashes are escaped.
std::string json_line(const Page& page, const Site& site, std::string_view text);

}  // namespace wiki
