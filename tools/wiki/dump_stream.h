// SPDX-License-Identifier: MIT
// The serial ends of wiki-extract's pipeline before pages are cleaned. DumpReader reads the file
// into parcels (text, or a packed bzip2 block), unpack() is for any thread, PageCutter makes pages
// of parcels in order and gives them out in batches of bounded size.
// Not here: the pipeline itself (extraction.h), XML (dump.h), bzip2 (tools/stream).
// Memory: a parcel is at most a few MB but for what cannot be less: a page, or a block of bzip2
// that unpacks to 45 MB, of which one at a time is held.
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

/// Bytes read from a file. Not a std::string: those are written before they can be read into.
struct ReadBytes {
  std::unique_ptr<char[]> memory;
  size_t size = 0;
  std::string_view view() const { return {memory.get(), size}; }
};

/// What is read from the dump in one go.
struct Parcel {
  std::optional<stream::Bzip2Block> block;
  std::optional<stream::DecodedBlock> decoded;
  ReadBytes text;
  bool last = false;    ///< nothing follows; may come several times
  int64_t read_to = 0;  ///< packed bytes read so far, for the progress line
};

/// Decodes the block of a parcel, if it has one. Any thread.
void unpack(Parcel& parcel, stream::Bzip2Decoder& decoder);

/// Cuts what parcels hold into pages. One thread, in order; behind() and finished() may be asked by
/// another.
class PageCutter {
 public:
  /// `page_bytes_more`: added to each page's length where batches are measured, for what a page
  /// may grow to.
  PageCutter(int64_t max_page_bytes, size_t page_bytes_more)
      : splitter_(max_page_bytes), page_bytes_more_(page_bytes_more) {}

  /// Takes a parcel and gives the next batch of pages: some 4 MB, none where none is whole.
  /// Errors: DumpError, stream::Bzip2Error.
  std::vector<PageXml> cut(Parcel parcel);

  /// Known once a batch with pages, or the last, was given.
  const Site& site() const { return site_; }

  /// Bytes taken that are not given out: more parcels can wait.
  size_t behind() const { return behind_; }
  /// All that is wanted is given out.
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
  int64_t range_end_ = -1;    // in the packed file; -1: all is wanted
  bool range_ended_ = false;  // blocks of the next part are being read, for the last page
  std::deque<stream::DecodedBlock> blocks_;
  std::deque<ReadBytes> texts_;
  std::string block_bytes_;  // of the block that is being fed
  ReadBytes text_;           // or the text
  size_t fed_ = 0;           // of either
  std::deque<PageXml> pages_;
  std::vector<PageXml> found_;
  std::atomic<size_t> behind_ = 0;
  std::atomic<bool> finished_ = false;
};

/// Reads the file in parcels. One thread.
class DumpReader {
 public:
  DumpReader(const std::string& path, const stream::Range& range, PageCutter& cutter);

  /// The next parcel, empty while the cutter is behind or when all is read; false: nothing more is
  /// wanted. Errors: those of Input; stream::Bzip2Error, DumpError.
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
