// SPDX-License-Identifier: MIT
// Room: tools/stream. Cutting at record ends. The search for the end starts at the back of what was
// read, so each byte is examined once, and a record that spans many reads costs no more.
#include "tools/stream/chunks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/text.h"

namespace stream {
namespace {

constexpr size_t kSkipBytes = size_t{1} << 17;

/// The end of a chunk is searched for in blocks of this many bytes, from its back.
constexpr size_t kTailBytes = size_t{1} << 13;

/// The kernel is asked to read this far ahead.
constexpr int64_t kReadAheadBytes = int64_t{8} << 20;

/// A long record is read at most this much at a time, so that little is read past its end.
constexpr size_t kGrowthBytes = size_t{4} << 20;

char mark_of(Framing framing) { return framing == Framing::nul ? '\0' : '\n'; }

/// Where the first record of `text` ends whose mark is at `from` or later; npos if none does. Lines
/// end as records.h reads them. What is behind a \r decides whether the line ends there, so one at
/// the end of `text` ends no line unless the input has ended.
size_t end_of_record(std::string_view text, size_t from, Framing framing, bool input_ended) {
  if (framing == Framing::file) return std::string_view::npos;
  const size_t mark = text.find(mark_of(framing), from);
  if (framing == Framing::lines) {
    const size_t carriage = text.substr(0, mark).find('\r', from);
    const size_t behind = carriage + 1;
    if (carriage != std::string_view::npos && behind != mark) {
      if (behind == text.size() && !input_ended) return std::string_view::npos;
      return behind;
    }
  }
  return mark == std::string_view::npos ? mark : mark + 1;
}

/// Fills `out` from byte `at` of a file on.
void read_at(int fd, int64_t at, std::span<char> out, const std::string& name) {
  while (!out.empty()) {
    const ssize_t got = pread(fd, out.data(), out.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::system_error(errno, std::generic_category(), name);
    if (got == 0) {
      throw InputError(cli::concat(name, ":byte ", at + 1, ": was cut short while it was read"));
    }
    at += got;
    out = out.subspan(static_cast<size_t>(got));
  }
}

}  // namespace

Chunk::Unread& Chunk::Unread::operator=(Unread&& from) noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = std::exchange(from.fd_, -1);
  stamp_ = from.stamp_;
  return *this;
}

Chunk::Unread::~Unread() {
  if (fd_ >= 0) close(fd_);
}

int64_t count_ends(const std::string& path, int64_t bytes, Framing framing) {
  Input input(path);
  std::string portion(kSkipBytes, '\0');
  int64_t ends = 0;
  bool carriage = false;  // the byte before was a \r: a line end unless \n follows
  while (bytes > 0) {
    portion.resize(static_cast<size_t>(std::min<int64_t>(bytes, kSkipBytes)));
    portion.resize(input.read(portion));
    if (portion.empty()) break;
    bytes -= static_cast<int64_t>(portion.size());
    for (const char byte : portion) {
      ends += byte == mark_of(framing) || (carriage && framing == Framing::lines);
      carriage = byte == '\r';
    }
  }
  char next = '\0';
  if (!carriage || framing != Framing::lines) return ends;
  return ends + (input.read({&next, 1}) == 0 || next != '\n');
}

void Chunk::reserve(size_t bytes) {
  if (bytes <= capacity_) return;
  // For large blocks realloc moves the pages, not the bytes.
  void* larger = std::realloc(bytes_.get(), bytes + kPaddingBytes);
  if (larger == nullptr) throw std::bad_alloc();
  (void)bytes_.release();
  bytes_.reset(static_cast<char*>(larger));
  capacity_ = bytes;
}

ChunkReader::ChunkReader(std::vector<std::string> paths, ChunkOptions options)
    : paths_(std::move(paths)), options_(options) {
  options_.max_record_bytes = std::max(options_.max_record_bytes, options_.chunk_bytes);
  measure();
  range_end_ = std::numeric_limits<int64_t>::max();
  if (options_.range.whole()) return;
  check_range();
  range_begin_ = options_.range.begin(total_bytes_);
  range_end_ = options_.range.end(total_bytes_);
  total_bytes_ = range_end_ - range_begin_;
}

/// The names and sizes of the inputs.
void ChunkReader::measure() {
  bool all_files = true;
  for (const std::string& path : paths_) {
    names_.push_back(path == "-" ? "standard input" : path);
    struct stat info {};
    const bool known =
        path == "-" ? fstat(STDIN_FILENO, &info) == 0 : stat(path.c_str(), &info) == 0;
    if (!known || (path != "-" && access(path.c_str(), R_OK) != 0)) {
      throw std::system_error(errno, std::generic_category(), names_.back());
    }
    if (S_ISDIR(info.st_mode))
      throw InputError(names_.back() + ": a folder, expected the files in it");
    sizes_.push_back(S_ISREG(info.st_mode) ? info.st_size : 0);
    total_bytes_ += sizes_.back();
    all_files = all_files && S_ISREG(info.st_mode);
  }
  if (!all_files) total_bytes_ = 0;
}

void ChunkReader::check_range() const {
  for (size_t i = 0; i < paths_.size(); ++i) {
    if (paths_[i] == "-") throw InputError("standard input: is read from its front: no --range");
    Input(paths_[i], options_.unpack).start_at(0);
  }
}

int64_t ChunkReader::packed_bytes() const {
  return finished_bytes_ + (input_ ? input_->packed_bytes() : 0);
}

bool ChunkReader::open_next() {
  if (input_) {
    finished_bytes_ += input_->packed_bytes();
    input_->check_unchanged();  // the end of a range may lie before that of the file
  }
  input_.reset();
  first_ = true;
  input_ended_ = false;
  position_ = offset_ = source_begin_ = 0;
  last_begin_ = std::numeric_limits<int64_t>::max();
  while (++source_ < static_cast<int64_t>(paths_.size())) {
    const size_t source = static_cast<size_t>(source_);
    int64_t begin = 0;
    if (!options_.range.whole()) {  // the range in this file, limited to its begin and end
      begin = std::max<int64_t>(range_begin_, 0);
      const int64_t end = std::min(range_end_, sizes_[source]);
      const bool here = begin < end || has_empty_file(sizes_[source]);
      range_begin_ -= sizes_[source];
      range_end_ -= sizes_[source];
      if (!here) continue;
      if (end < sizes_[source]) last_begin_ = end;
    }
    input_ = std::make_unique<Input>(paths_[source], options_.unpack);
    if (options_.array) array_.emplace(names_[source]);
    if (begin > 0) start_inside(begin);
    return true;
  }
  return false;
}

/// Whether an empty file, the next one, is a record of the range: of the one in which the next byte
/// lies, or behind all bytes of the last.
bool ChunkReader::has_empty_file(int64_t size) const {
  if (size > 0 || options_.framing != Framing::file) return false;
  const bool last = options_.range.part == options_.range.parts;
  return range_end_ > 0 ? range_begin_ <= 0 : range_end_ == 0 && last;
}

/// Skips the record that began before `byte`; bytes read after it are in rest_.
void ChunkReader::start_inside(int64_t byte) {
  input_->start_at(byte - 1);
  position_ = byte - 1;
  size_t end = std::string::npos;
  do {
    const size_t kept = rest_.ends_with('\r') ? 1 : 0;  // until the byte behind it is known
    rest_.erase(0, rest_.size() - kept);
    rest_.resize(kept + kSkipBytes);
    const size_t got = input_->read(std::span(rest_).subspan(kept));
    rest_.resize(kept + got);
    position_ += static_cast<int64_t>(got);
    input_ended_ = got == 0;
    end = end_of_record(rest_, 0, options_.framing, input_ended_);
  } while (end == std::string::npos && !input_ended_);
  rest_.erase(0, end);
  source_begin_ = offset_ = position_ - static_cast<int64_t>(rest_.size());
  size_t size = rest_.size();
  if (offset_ >= last_begin_) {
    size = 0;
    input_ended_ = true;
  } else {
    end_at_range(rest_, 0, size);
  }
  rest_.resize(size);
}

/// `text` ends at position_; its bytes before `from` were examined. Cuts off records that belong to
/// the next range, if `text` reaches that far.
void ChunkReader::end_at_range(std::string_view text, size_t from, size_t& size) {
  if (position_ < last_begin_) return;
  const int64_t before = position_ - static_cast<int64_t>(text.size());
  const int64_t last_byte = std::max<int64_t>(0, last_begin_ - 1 - before);
  // A \r at the end of the examined bytes waited for the byte behind it.
  const size_t unseen = from > 0 && text[from - 1] == '\r' ? from - 1 : from;
  const size_t end = end_of_record(text, std::max(unseen, static_cast<size_t>(last_byte)),
                                   options_.framing, input_ended_);
  if (end == std::string_view::npos) return;
  size = end;
  input_ended_ = true;
}

/// Reads until `chunk` holds `wanted` bytes or the input ends.
void ChunkReader::fill(Chunk& chunk, size_t wanted) {
  chunk.reserve(wanted);
  while (chunk.size_ < wanted && !input_ended_) {
    const std::span<char> room(chunk.bytes_.get() + chunk.size_, wanted - chunk.size_);
    const size_t got = input_->read(room);
    if (array_) got == 0 ? array_->end() : array_->rewrite(room.first(got));
    chunk.size_ += got;
    position_ += static_cast<int64_t>(got);
    input_ended_ = got == 0;
    end_at_range(chunk.text(), chunk.size_ - got, chunk.size_);
  }
}

/// Where the last whole record of `text` ends, searching back to `from`; npos if there is none.
size_t ChunkReader::end_of_records(std::string_view text, size_t from) const {
  if (options_.framing == Framing::file) return std::string_view::npos;
  const void* found = memrchr(text.data() + from, mark_of(options_.framing), text.size() - from);
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data()) + 1;
}

/// The end of the last line that ends with a lone \r, in a text without \n; 0 if there is none.
size_t ChunkReader::end_of_cr_lines(std::string_view text) const {
  if (options_.framing != Framing::lines || options_.array) return 0;
  const size_t last = text.substr(0, text.size() - 1).rfind('\r');  // behind a last one may be \n.
  return last == std::string_view::npos ? 0 : last + 1;
}

/// Keeps the first `size` bytes in the chunk; the others begin the next one.
void ChunkReader::take(Chunk& chunk, size_t size) {
  rest_.assign(chunk.bytes_.get() + size, chunk.size_ - size);
  chunk.size_ = size;
  std::memset(chunk.bytes_.get() + size, 0, kPaddingBytes);
  describe(chunk);
}

/// A piece of a record over the cap, which ends at `end` or, with npos, in a later piece. A \r at
/// the end of all bytes read begins the next piece: it is not known whether it ends the record.
void ChunkReader::take_piece(Chunk& chunk, size_t end) {
  in_long_record_ = end == std::string_view::npos && !input_ended_;
  chunk.record_ends = !in_long_record_;
  const bool waits = in_long_record_ && options_.framing == Framing::lines && chunk.size_ > 1 &&
                     chunk.text().ends_with('\r');
  take(chunk, end != std::string_view::npos ? end : chunk.size_ - (waits ? 1 : 0));
}

/// Sets the place of a chunk whose size is known; the next one begins after it.
void ChunkReader::describe(Chunk& chunk) {
  chunk.source = source_;
  chunk.offset = offset_;
  chunk.begin = source_begin_;
  chunk.framing = options_.framing;
  chunk.array = options_.array;
  chunk.first = first_;
  first_ = false;
  offset_ += static_cast<int64_t>(chunk.size_);
}

/// Cuts a chunk by reading only its last bytes, at the same place as if all of it were read. False
/// if it has to be read: the input is not a plain file, it or the range may end in this chunk, or
/// no record does.
bool ChunkReader::cut_unread(Chunk& chunk) {
  const int fd = input_->plain_file();
  const int64_t end = offset_ + options_.chunk_bytes;
  if (!options_.defer || options_.array || fd < 0 || options_.framing == Framing::file ||
      in_long_record_ || end > input_->file_bytes() || end >= last_begin_) {
    return false;
  }
  const std::string& name = names_[static_cast<size_t>(source_)];
  size_t unseen = static_cast<size_t>(options_.chunk_bytes);
  size_t size = 0;
  while (size == 0 && unseen > 0) {
    tail_.resize(std::min(unseen, kTailBytes));
    unseen -= tail_.size();
    read_at(fd, offset_ + static_cast<int64_t>(unseen), tail_, name);
    const void* mark = memrchr(tail_.data(), mark_of(options_.framing), tail_.size());
    if (mark != nullptr) {
      size = unseen + static_cast<size_t>(static_cast<const char*>(mark) - tail_.data()) + 1;
    }
  }
  if (size == 0) return false;
  chunk.unread_ = Chunk::Unread(fcntl(fd, F_DUPFD_CLOEXEC, 0), input_->stamp());
  if (chunk.unread_.fd() < 0) throw std::system_error(errno, std::generic_category(), name);
  posix_fadvise(fd, end + kReadAheadBytes, options_.chunk_bytes, POSIX_FADV_WILLNEED);
  input_->skip(offset_ + static_cast<int64_t>(size) - position_);
  rest_.clear();
  input_ended_ = false;
  chunk.size_ = size;
  chunk.over_cap = false;
  chunk.record_ends = true;
  describe(chunk);
  position_ = offset_;
  return true;
}

void ChunkReader::load(Chunk& chunk) const {
  if (chunk.unread_.fd() < 0) return;
  const Chunk::Unread file = std::move(chunk.unread_);
  chunk.reserve(chunk.size_);
  read_at(file.fd(), chunk.offset, {chunk.bytes_.get(), chunk.size_}, name(chunk.source));
  check_unchanged(file.fd(), file.stamp(), name(chunk.source));
  std::memset(chunk.bytes_.get() + chunk.size_, 0, kPaddingBytes);
}

bool ChunkReader::next(Chunk& chunk) {
  chunk.size_ = 0;
  chunk.unread_ = Chunk::Unread();
  while (!input_ || (input_ended_ && rest_.empty())) {
    in_long_record_ = false;
    if (!open_next()) return false;
  }
  const size_t cap = static_cast<size_t>(options_.max_record_bytes);
  size_t wanted = static_cast<size_t>(options_.chunk_bytes);
  if (chunk.capacity_ > 8 * wanted) {  // the memory for a long record is not kept for short ones
    chunk.bytes_.reset();
    chunk.capacity_ = 0;
  }
  if (cut_unread(chunk)) return true;
  chunk.reserve(std::max(wanted, rest_.size()));
  std::memcpy(chunk.bytes_.get(), rest_.data(), rest_.size());
  chunk.size_ = rest_.size();
  rest_.clear();
  chunk.over_cap = in_long_record_;
  chunk.record_ends = true;
  if (in_long_record_) {  // pieces until the record's end
    fill(chunk, std::max(wanted, chunk.size_ + 1));
    const size_t end = end_of_record(chunk.text(), 0, options_.framing, input_ended_);
    take_piece(chunk, end);
    return true;
  }
  size_t searched = 0;
  while (true) {
    fill(chunk, std::max(wanted, chunk.size_));
    const size_t end = input_ended_ ? chunk.size_ : end_of_records(chunk.text(), searched);
    if (end != std::string_view::npos) {
      if (end == 0 && options_.framing != Framing::file) return next(chunk);  // an empty input
      take(chunk, end);
      return true;
    }
    searched = chunk.size_;
    if (chunk.size_ >= cap) {
      if (const size_t lines = end_of_cr_lines(chunk.text()); lines > 0) {
        take(chunk, lines);
        return true;
      }
      chunk.over_cap = true;
      take_piece(chunk, std::string_view::npos);
      return true;
    }
    wanted = std::min(cap, chunk.size_ + std::min(chunk.size_, kGrowthBytes));
  }
}

}  // namespace stream
