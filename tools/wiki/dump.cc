// SPDX-License-Identifier: MIT
// Pages of a MediaWiki export: encodings, and cutting the stream.

#include "tools/wiki/dump.h"

#include <algorithm>

#include "tools/wiki/entities.h"

namespace wiki {
namespace {

constexpr std::string_view kPageBegin = "<page>";
constexpr std::string_view kPageEnd = "</page>";
constexpr std::string_view kDumpEnd = "</mediawiki>";
constexpr int64_t kLongestHead = 1 << 20;

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
  if (encoding_ == Encoding::unknown && !kept_.empty()) throw DumpError("byte 0: not XML");
  if (!kept_.empty() || high_surrogate_ != 0) {
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
  skip_space();
  if (taken_ == buffer_.size()) return false;
  throw DumpError(at() + ": content follows </mediawiki>");
}

void PageSplitter::skip_space() {
  consume(std::min(buffer_.find_first_not_of(" \t\r\n", taken_), buffer_.size()) - taken_);
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

/// There is a <page> at offset_.
bool PageSplitter::begin_page() {
  page_begin_ = offset_;
  state_ = offset_ < end_ ? State::page : State::done;
  return true;
}

bool PageSplitter::between() {
  skip_space();
  const std::string_view next = std::string_view(buffer_).substr(taken_);
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

}  // namespace wiki
