// SPDX-License-Identifier: MIT
// Room: tools/stream. Cutting at record ends. The search for the end starts at the back of what was
// read, so each byte is looked at once, and a record that spans many reads costs no more.
#include "tools/stream/chunks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace stream {

void Chunk::reserve(size_t bytes) {
  if (bytes <= capacity_) return;
  std::unique_ptr<char[]> larger = std::make_unique_for_overwrite<char[]>(bytes + kPaddingBytes);
  if (size_ > 0) std::memcpy(larger.get(), bytes_.get(), size_);
  bytes_ = std::move(larger);
  capacity_ = bytes;
}

ChunkReader::ChunkReader(std::vector<std::string> paths, ChunkOptions options)
    : paths_(std::move(paths)), options_(options) {
  options_.max_record_bytes = std::max(options_.max_record_bytes, options_.chunk_bytes);
  bool all_files = true;
  for (const std::string& path : paths_) {
    names_.push_back(path == "-" ? "standard input" : path);
    struct stat info {};
    const bool known =
        path == "-" ? fstat(STDIN_FILENO, &info) == 0 : stat(path.c_str(), &info) == 0;
    if (!known || (path != "-" && access(path.c_str(), R_OK) != 0)) {
      throw std::system_error(errno, std::generic_category(), names_.back());
    }
    if (S_ISDIR(info.st_mode)) throw std::system_error(EISDIR, std::generic_category(), path);
    if (S_ISREG(info.st_mode)) total_bytes_ += info.st_size;
    all_files = all_files && S_ISREG(info.st_mode);
  }
  if (!all_files) total_bytes_ = 0;
}

int64_t ChunkReader::packed_bytes() const {
  return finished_bytes_ + (input_ ? input_->packed_bytes() : 0);
}

bool ChunkReader::open_next() {
  if (input_) finished_bytes_ += input_->packed_bytes();
  input_.reset();
  if (++source_ >= static_cast<int64_t>(paths_.size())) return false;
  input_ = std::make_unique<Input>(paths_[static_cast<size_t>(source_)], options_.unpack);
  offset_ = 0;
  first_ = true;
  input_ended_ = false;
  return true;
}

/// Reads until `chunk` holds `wanted` bytes or the input ends.
void ChunkReader::fill(Chunk& chunk, size_t wanted) {
  chunk.reserve(wanted);
  while (chunk.size_ < wanted && !input_ended_) {
    const size_t got = input_->read({chunk.bytes_.get() + chunk.size_, wanted - chunk.size_});
    chunk.size_ += got;
    input_ended_ = got == 0;
  }
}

/// Where the last whole record of `text` ends, looking no further back than `from`; npos where none
/// does.
size_t ChunkReader::end_of_records(std::string_view text, size_t from) const {
  if (options_.framing == Framing::file) return std::string_view::npos;
  const char mark = options_.framing == Framing::nul ? '\0' : '\n';
  const void* found = memrchr(text.data() + from, mark, text.size() - from);
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data()) + 1;
}

/// Keeps the first `size` bytes in the chunk; the others open the next one.
void ChunkReader::take(Chunk& chunk, size_t size) {
  rest_.assign(chunk.bytes_.get() + size, chunk.size_ - size);
  chunk.size_ = size;
  std::memset(chunk.bytes_.get() + size, 0, kPaddingBytes);
  chunk.source = source_;
  chunk.offset = offset_;
  chunk.first = first_;
  first_ = false;
  offset_ += static_cast<int64_t>(size);
}

bool ChunkReader::next(Chunk& chunk) {
  chunk.size_ = 0;
  while (!input_ || (input_ended_ && rest_.empty())) {
    in_long_record_ = false;
    if (!open_next()) return false;
  }
  const size_t cap = static_cast<size_t>(options_.max_record_bytes);
  size_t wanted = static_cast<size_t>(options_.chunk_bytes);
  if (chunk.capacity_ > 8 * wanted) {  // memory of a long record is not kept for short ones
    chunk.bytes_.reset();
    chunk.capacity_ = 0;
  }
  chunk.reserve(std::max(wanted, rest_.size()));
  std::memcpy(chunk.bytes_.get(), rest_.data(), rest_.size());
  chunk.size_ = rest_.size();
  rest_.clear();
  chunk.over_cap = in_long_record_;
  chunk.record_ends = true;
  if (in_long_record_) {  // pieces until the record's end
    fill(chunk, std::max(wanted, chunk.size_));
    const char mark = options_.framing == Framing::nul ? '\0' : '\n';
    const size_t end =
        options_.framing == Framing::file ? std::string_view::npos : chunk.text().find(mark);
    in_long_record_ = end == std::string_view::npos && !(input_ended_);
    chunk.record_ends = !in_long_record_;
    take(chunk, end == std::string_view::npos ? chunk.size_ : end + 1);
    return true;
  }
  size_t searched = 0;
  while (true) {
    fill(chunk, std::max(wanted, chunk.size_));
    const size_t end = input_ended_ ? chunk.size_ : end_of_records(chunk.text(), searched);
    if (end != std::string_view::npos) {
      if (end == 0) return next(chunk);  // an empty input
      take(chunk, end);
      return true;
    }
    searched = chunk.size_;
    if (chunk.size_ >= cap) {
      in_long_record_ = chunk.over_cap = true;
      chunk.record_ends = false;
      take(chunk, chunk.size_);
      return true;
    }
    wanted = std::min(cap, chunk.size_ * 2);
  }
}

}  // namespace stream
