// SPDX-License-Identifier: MIT
// The serial stages of wiki-extract's pipeline before pages are cleaned. DumpReader reads the file
// into parcels (text, or a packed bzip2 block), unpack() runs on any thread, PageCutter cuts
// parcels into pages in order and returns them in batches of bounded size. Not here: the pipeline
// itself (extraction.h), XML (dump.h), bzip2 (tools/stream).
// Memory: a parcel is at most a few MB, except for a single page, or a bzip2 block that unpacks to
// 45 MB; only one such block is held at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/stream/bzip2_blocks.h"
#include "tools/stream/bzip2_decoder.h"
#include "tools/stream/input.h"
#include "tools/stream/range.h"
#include "tools/wiki/dump.h"

namespace wiki {

/// Bytes read from a file. Not a std::string, which would be zeroed before it can be read into.
struct ReadBytes {
  std::unique_ptr<char[]> memory;
  size_t size = 0;
  std::string_view view() const { return {memory.get(), size}; }
};

/// A part of the dump that is read at once.
struct Parcel {
  std::optional<stream::Bzip2Block> block;
  std::optional<stream::DecodedBlock> decoded;
  ReadBytes text;
  bool last = false;    ///< nothing follows; may be set on several parcels
  int64_t read_to = 0;  ///< packed bytes read so far, for the progress line
};

/// Decodes the block of a parcel, if it has one. Any thread.
void unpack(Parcel& parcel, stream::Bzip2Decoder& decoder);

/// Cuts the bytes of parcels into pages. One thread, in order; another thread may call behind() and
/// finished().
class PageCutter {
 public:
  /// `page_bytes_more` is added to each page's length when batches are measured, because a page may
  /// grow.
  PageCutter(int64_t max_page_bytes, size_t page_bytes_more)
      : splitter_(max_page_bytes), page_bytes_more_(page_bytes_more) {}

  /// Takes a parcel and returns the next batch of pages: some 4 MB, or none if no page is complete.
  /// Errors: DumpError, stream::Bzip2Error.
  std::vector<PageXml> cut(Parcel parcel);

  /// Valid once a batch with pages, or the last one, was returned.
  const Site& site() const { return site_; }

  /// Bytes taken but not yet returned: while there are many, no more parcels are needed.
  size_t behind() const { return behind_; }
  /// Everything wanted has been returned.
  bool finished() const { return finished_; }

  /// Reads only the pages that begin in `range` of the file `path` of `file_bytes`.
  /// `kept_packed`: parcels hold bzip2 blocks. Errors: DumpError.
  void start_range(const std::string& path, const stream::Range& range, int64_t file_bytes,
                   bool kept_packed);

 private:
  bool feed_more();
  void count_behind();
  std::string_view fed_from() const { return text_.size > 0 ? text_.view() : block_bytes_; }
  bool next_piece();
  bool read_head(const std::string& path);

  stream::Bzip2Joiner joiner_;
  Transcoder transcoder_;
  PageSplitter splitter_;
  Site site_;
  bool site_known_ = false;
  size_t page_bytes_more_;
  int64_t range_end_ = -1;    // in the packed file; -1: everything is wanted
  bool range_ended_ = false;  // blocks of the next part are being read, for the last page
  std::deque<stream::DecodedBlock> blocks_;
  std::deque<ReadBytes> texts_;
  std::string block_bytes_;  // of the current block
  ReadBytes text_;           // or the current text
  size_t fed_ = 0;           // bytes of either that were fed
  std::deque<PageXml> pages_;
  std::vector<PageXml> found_;
  std::atomic<size_t> behind_ = 0;
  std::atomic<bool> finished_ = false;
};

/// Reads the file in parcels. One thread.
class DumpReader {
 public:
  DumpReader(const std::string& path, const stream::Range& range, PageCutter& cutter);

  /// The next parcel; empty while the cutter is behind, or when everything is read. False if
  /// nothing more is wanted. Errors: those of Input; stream::Bzip2Error, DumpError.
  bool next(Parcel& parcel);

  const std::string& name() const { return input_.name(); }
  int64_t file_bytes() const { return input_.file_bytes(); }

 private:
  void fill_blocks();

  stream::Input input_;
  PageCutter& cutter_;
  stream::Bzip2Splitter splitter_;
  std::deque<stream::Bzip2Block> blocks_;
  bool ended_ = false;
};

}  // namespace wiki
