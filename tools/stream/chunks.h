// SPDX-License-Identifier: MIT
// Room: tools/stream. Inputs cut into chunks that end where a record ends, so that workers can
// process them independently; for plain files, if asked, only the ends are searched for and the
// workers read the bytes. A chunk knows its place in its file; records.h counts its lines, which
// are added up in order. Memory: a chunk has kChunkBytes, or one record if that is longer, up to
// the cap.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/stream/array_lines.h"
#include "tools/stream/input.h"
#include "tools/stream/range.h"

namespace stream {

/// What ends a record: a line end, a NUL byte, or the end of the file.
enum class Framing { lines, nul, file };

/// Readable bytes past a chunk's text, for parsers that load whole vectors.
inline constexpr size_t kPaddingBytes = 64;

/// Text of whole records, or a piece of one record that is over the cap.
class Chunk {
 public:
  /// Before ChunkReader::load() has read the chunk, only the size is valid.
  std::string_view text() const { return {bytes_.get(), size_}; }

  int64_t source = 0;  ///< which input, counted from 0
  int64_t offset = 0;  ///< of the text in the unpacked input, bytes from 0
  int64_t begin = 0;   ///< where reading of its input began; not 0 only with a --range
  Framing framing = Framing::lines;
  bool array = false;       ///< the lines are items of a JSON array
  bool first = false;       ///< the first chunk of its input that is read
  bool over_cap = false;    ///< a piece of a record longer than the cap; no record is whole
  bool record_ends = true;  ///< with over_cap: the piece is the record's last

 private:
  friend class ChunkReader;
  struct Free {
    void operator()(char* bytes) const noexcept { std::free(bytes); }
  };
  /// Owns a descriptor of the file that still has the text.
  class Unread {
   public:
    Unread() = default;
    Unread(int fd, const FileStamp& stamp) : fd_(fd), stamp_(stamp) {}
    Unread(Unread&& from) noexcept : fd_(std::exchange(from.fd_, -1)), stamp_(from.stamp_) {}
    Unread& operator=(Unread&& from) noexcept;
    ~Unread();
    int fd() const { return fd_; }
    const FileStamp& stamp() const { return stamp_; }

   private:
    int fd_ = -1;
    FileStamp stamp_;
  };
  void reserve(size_t bytes);
  std::unique_ptr<char[], Free> bytes_;
  size_t capacity_ = 0;
  size_t size_ = 0;
  Unread unread_;
};

/// How inputs are cut.
struct ChunkOptions {
  Framing framing = Framing::lines;
  int64_t chunk_bytes = 512 << 10;
  int64_t max_record_bytes = 64 << 20;  ///< the cap; at least chunk_bytes
  UnpackLimit unpack = {};
  Range range = {};    ///< if not whole: needs plain files
  bool array = false;  ///< a file is one JSON array, whose items are the lines (array_lines.h)
  bool defer = false;  ///< next() leaves most bytes of plain files to load()
};

/// The number of lines, or of records with Framing::nul, that end in the first `bytes` bytes of a
/// plain file, as DocumentReader counts them. Errors: those of Input.
int64_t count_ends(const std::string& path, int64_t bytes, Framing framing);

/// Reads inputs one after another. One thread, except for load().
class ChunkReader {
 public:
  /// Errors: std::system_error naming the first of `paths` that cannot be opened; all are tried
  /// before any is read. InputError for a range of a packed input or of one that is not a file.
  ChunkReader(std::vector<std::string> paths, ChunkOptions options);

  /// Fills `chunk`, reusing its memory; false at the end of the last input.
  /// Errors: those of Input.
  bool next(Chunk& chunk);

  /// Reads the text of a chunk that next() cut with `defer`; does nothing for others. Any thread.
  /// Errors: std::system_error; InputError if the file was cut short since.
  void load(Chunk& chunk) const;

  /// The input's name for messages: its path, or "standard input".
  const std::string& name(int64_t source) const { return names_[static_cast<size_t>(source)]; }
  const std::vector<std::string>& names() const { return names_; }
  /// Packed bytes read from all inputs so far, and of all inputs in total; the latter is 0 if one
  /// is not a file.
  int64_t packed_bytes() const;
  int64_t total_bytes() const { return total_bytes_; }

 private:
  void measure();
  void check_range() const;
  bool open_next();
  bool has_empty_file(int64_t size) const;
  void start_inside(int64_t byte);
  void end_at_range(std::string_view text, size_t from, size_t& size);
  void fill(Chunk& chunk, size_t wanted);
  bool cut_unread(Chunk& chunk);
  void describe(Chunk& chunk);
  size_t end_of_records(std::string_view text, size_t from) const;
  size_t end_of_cr_lines(std::string_view text) const;
  void take(Chunk& chunk, size_t size);
  void take_piece(Chunk& chunk, size_t end);

  std::vector<std::string> paths_;
  std::vector<std::string> names_;
  std::vector<int64_t> sizes_;  // of the files; 0 for inputs that are not files
  ChunkOptions options_;
  std::unique_ptr<Input> input_;
  std::optional<ArrayLines> array_;  // of the open input
  int64_t source_ = -1;
  int64_t offset_ = 0;          // of the next chunk in the open input
  int64_t finished_bytes_ = 0;  // packed bytes of inputs already closed
  int64_t total_bytes_ = 0;
  int64_t range_begin_ = 0;  // in the concatenated bytes of all inputs
  int64_t range_end_ = 0;
  int64_t source_begin_ = 0;  // where reading of the open input began
  int64_t last_begin_ = 0;    // in it: a record that begins here or later is not part of the range
  int64_t position_ = 0;      // in it: of the next byte that is read
  std::string rest_;          // bytes read after the last whole record
  std::string tail_;          // of cut_unread
  bool input_ended_ = false;
  bool first_ = true;
  bool in_long_record_ = false;
};

}  // namespace stream
