// SPDX-License-Identifier: MIT
// Parcels and batches. Empty parcels provide backpressure: each item of oneTBB's pipeline gives one
// item, so if one block has many batches, the parcels after it stay empty until it is done.

#include "tools/wiki/dump_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace wiki {
namespace {

constexpr size_t kReadBytes = 1 << 20;
constexpr size_t kBatchBytes = 4 << 20;
constexpr size_t kMostBehind = 8 << 20;

// Blocks that unpack to more than this, which few normal dumps have, are unpacked one at a time.
constexpr size_t kLargeBlock = 2 << 20;

}  // namespace

void unpack(Parcel& parcel, stream::Bzip2Decoder& decoder) {
  if (!parcel.block) return;
  parcel.decoded = stream::decode_block(std::move(*parcel.block), kLargeBlock, decoder);
  parcel.block.reset();
}

std::vector<PageXml> PageCutter::cut(Parcel parcel) {
  if (parcel.decoded) blocks_.push_back(std::move(*parcel.decoded));
  if (parcel.text.size > 0) texts_.push_back(std::move(parcel.text));
  std::vector<PageXml> batch;
  size_t size = 0;
  while (size < kBatchBytes) {
    if (pages_.empty() && !feed_more()) break;
    while (!pages_.empty() && size < kBatchBytes) {
      size += pages_.front().xml.size() + page_bytes_more_;
      batch.push_back(std::move(pages_.front()));
      pages_.pop_front();
    }
  }
  const bool all_given =
      pages_.empty() && blocks_.empty() && texts_.empty() && fed_ == fed_from().size();
  if (all_given && parcel.last && !finished_) {
    joiner_.finish();
    transcoder_.finish();
    splitter_.finish(batch);
    finished_ = true;
  }
  if (!site_known_ && (!batch.empty() || finished_)) {
    site_ = read_site(splitter_.head());
    site_known_ = true;
  }
  count_behind();
  return batch;
}

/// Feeds the splitter a portion, so that it holds a page and not everything that a hostile block
/// unpacks to. False if there is nothing to feed.
bool PageCutter::feed_more() {
  if (splitter_.done()) {
    finished_ = true;
    return false;
  }
  if (fed_ == fed_from().size() && !next_piece()) return false;
  const std::string_view portion = fed_from().substr(fed_, kReadBytes);
  fed_ += portion.size();
  if (transcoder_.passes()) {
    splitter_.feed(portion, found_);
  } else {
    std::string text;
    transcoder_.feed(portion, text);
    splitter_.feed(text, found_);
  }
  std::move(found_.begin(), found_.end(), std::back_inserter(pages_));
  found_.clear();
  return true;
}

bool PageCutter::next_piece() {
  block_bytes_ = {};
  text_ = {};
  fed_ = 0;
  if (!texts_.empty()) {
    text_ = std::move(texts_.front());
    texts_.pop_front();
    return true;
  }
  if (blocks_.empty()) return false;
  stream::DecodedBlock decoded = std::move(blocks_.front());
  blocks_.pop_front();
  if (!range_ended_ && range_end_ >= 0 && decoded.block.byte_offset >= range_end_) {
    splitter_.end_here();
    range_ended_ = true;
  }
  if (decoded.over_limit) decoded = stream::decode_block(std::move(decoded.block));
  joiner_.add(std::move(decoded), block_bytes_);
  return true;
}

void PageCutter::count_behind() {
  size_t size = fed_from().size() - fed_;
  for (const stream::DecodedBlock& block : blocks_) {
    size += block.bytes.size() + block.block.bits.size();
  }
  for (const ReadBytes& text : texts_) size += text.size;
  for (const PageXml& page : pages_) size += page.xml.size() + page_bytes_more_;
  behind_ = size;
}

/// The header is read for all parts, from the front.
void PageCutter::start_range(const std::string& path, const stream::Range& range,
                             int64_t file_bytes, bool kept_packed) {
  const int64_t begin = range.begin(file_bytes);
  const int64_t end = range.end(file_bytes);
  const bool marked = read_head(path);
  if (begin > 0) {
    transcoder_.start_inside();
    joiner_.start_inside();
  }
  if (kept_packed) {
    range_end_ = end;
    if (begin > 0) splitter_.start_inside(0);
    return;
  }
  constexpr int64_t kMarkBytes = 3;  // the splitter counts from after the byte order mark
  const int64_t shift = marked ? kMarkBytes : 0;
  if (begin > 0) splitter_.start_inside(begin - shift);
  if (end < file_bytes) splitter_.end_at(end - shift);
}

/// Reads the site from the front of the file. True if it begins with a UTF-8 byte order mark.
bool PageCutter::read_head(const std::string& path) {
  stream::Input input(path);
  PageSplitter splitter(static_cast<int64_t>(kReadBytes));
  Transcoder transcoder;
  std::vector<PageXml> pages;
  std::string portion, text, opening;
  while (pages.empty()) {
    portion.resize(kReadBytes);
    portion.resize(input.read(portion));
    if (opening.empty()) opening = portion.substr(0, 3);
    text.clear();
    transcoder.feed(portion, text);
    splitter.feed(text, pages);
    if (portion.empty() || !splitter.head().empty()) break;
  }
  if (opening.starts_with("\xFF\xFE") || opening.starts_with("\xFE\xFF")) {
    throw DumpError("UTF-16 can only be read from its front: no --range");
  }
  site_ = read_site(splitter.head());
  site_known_ = true;
  return opening == "\xEF\xBB\xBF";
}

DumpReader::DumpReader(const std::string& path, const stream::Range& range, PageCutter& cutter) try
    : input_(path, stream::UnpackLimit{}, stream::Packed::keep_bzip2), cutter_(cutter) {
  if (range.whole()) return;
  if (path == "-") throw DumpError("is read from its front: no --range");
  const bool packed = input_.kind() == stream::Kind::bzip2;
  const int64_t begin = range.begin(input_.file_bytes());
  input_.start_at(begin);
  cutter.start_range(path, range, input_.file_bytes(), packed);
  if (packed && begin > 0) splitter_.start_inside(begin);
} catch (const stream::Utf16Error& error) {
  throw stream::Utf16Error(error.what() +
                           std::string("; a dump in UTF-16 is read packed: gzip it"));
}

bool DumpReader::next(Parcel& parcel) {
  if (cutter_.finished()) {
    input_.check_unchanged();  // what follows the last page was not read
    return false;
  }
  parcel.read_to = input_.packed_bytes();
  if (cutter_.behind() > kMostBehind) return true;
  if (input_.kind() != stream::Kind::bzip2) {
    if (!ended_) {
      parcel.text.memory = std::make_unique_for_overwrite<char[]>(kReadBytes);
      parcel.text.size = input_.read({parcel.text.memory.get(), kReadBytes});
      ended_ = parcel.text.size == 0;
    }
    parcel.last = ended_;
  } else {
    fill_blocks();
    if (!blocks_.empty()) {
      parcel.block = std::move(blocks_.front());
      blocks_.pop_front();
      fill_blocks();
    }
    parcel.last = ended_ && blocks_.empty();
  }
  parcel.read_to = input_.packed_bytes();
  return true;
}

void DumpReader::fill_blocks() {
  std::vector<stream::Bzip2Block> found;
  std::string portion;
  while (blocks_.empty() && !ended_) {
    portion.resize(kReadBytes);
    portion.resize(input_.read(portion));
    ended_ = portion.empty();
    if (ended_) {
      splitter_.finish(found);
    } else {
      splitter_.feed(portion, found);
    }
    std::move(found.begin(), found.end(), std::back_inserter(blocks_));
    found.clear();
  }
}

}  // namespace wiki
