// SPDX-License-Identifier: MIT
// Room: tools/stream. Bytes of a file or of stdin, unpacked if they are compressed. The first bytes
// decide the kind, never the name: plain, gzip, bzip2, xz, zstd, lzma, with any number of members.
// Not here: lines and records (chunks.h). May include POSIX and the four libraries, in input.cc and
// codecs.cc alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <sys/stat.h>

namespace stream {

/// The bytes of an input are invalid: damaged, cut short, over a limit. The text begins with the
/// place.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The same for text in UTF-16 that is not packed: nothing here converts it.
struct Utf16Error : InputError {
  using InputError::InputError;
};

/// What a regular file was when it was opened; empty for pipes and devices.
struct FileStamp {
  bool regular = false;
  off_t size = 0;
  timespec modified = {};

  static FileStamp of(const struct stat& info);
};

/// Checks the file behind `fd` against what it was; `name` is for messages. It may have grown:
/// lines that are appended meanwhile are read, too.
/// Errors: InputError if it was cut short, or has its size and another modification time.
void check_unchanged(int fd, const FileStamp& before, const std::string& name);

/// How an input is packed.
enum class Kind { plain, gzip, bzip2, xz, zstd, lzma };

/// "gzip", ...; for messages.
std::string_view name_of(Kind kind);

/// The kind of a file that begins with `head` (16 bytes are enough).
Kind kind_of(std::string_view head);

/// How much an input may grow by unpacking: `allowance` bytes, plus `ratio` times the packed bytes
/// read.
struct UnpackLimit {
  int64_t ratio = 500;
  int64_t allowance = int64_t{1} << 30;
};

/// Whether bzip2 is unpacked by Input or left to bzip2_blocks.h.
enum class Packed { unpack, keep_bzip2 };

/// One open input, read from front to back by one thread.
class Input {
 public:
  /// Opens `path`; "-" is stdin. Reads the first bytes to find the kind.
  /// Errors: std::system_error (cannot be opened or read, is a folder); InputError for an archive
  /// of a known kind that is not read here (zip, 7z, Parquet, ...), and for UTF-16 text.
  /// With Packed::keep_bzip2, read() gives the packed bytes of a bzip2 file, for callers that
  /// unpack blocks in parallel.
  explicit Input(std::string path, UnpackLimit limit = {}, Packed packed = Packed::unpack);
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  ~Input();

  /// Fills `out` from its front; returns how many bytes, 0 only at the end of the input.
  /// Errors: std::system_error; InputError `path:byte N: what: why`, N counted from 1 in the packed
  /// file. At the end also those of check_unchanged().
  size_t read(std::span<char> out);

  /// For a caller that stops before the end of the file.
  /// Errors: InputError if the file is not what it was when it was opened.
  void check_unchanged() const { stream::check_unchanged(fd_, stamp_, name_); }

  /// Continues at `byte` of the file, counted from 0; packed_bytes() counts from there. Errors:
  /// InputError if the input is not a file or its bytes cannot be read from the middle.
  void start_at(int64_t byte);

  /// Moves forward by `bytes`, or back if negative, in what read() gives of plain_file(); adjusts
  /// packed_bytes().
  void skip(int64_t bytes);

  /// The descriptor of a plain file that was opened by its name, for pread; -1 for anything else.
  int plain_file() const { return is_plain_file_ ? fd_ : -1; }

  /// `path`, or "standard input" for messages.
  const std::string& name() const { return name_; }
  Kind kind() const { return kind_; }
  /// Bytes taken from the file so far, packed.
  int64_t packed_bytes() const { return packed_bytes_ - static_cast<int64_t>(in_.size()); }
  /// Size of the file; 0 if the input is not a file.
  int64_t file_bytes() const { return stamp_.size; }
  /// The file as it was opened.
  const FileStamp& stamp() const { return stamp_; }

 private:
  struct Codec;
  void refill();
  void refuse_foreign() const;
  bool starts_member();
  [[noreturn]] void fail(std::string_view what) const;

  std::string name_;
  UnpackLimit limit_;
  int fd_ = -1;
  FileStamp stamp_;
  Kind kind_ = Kind::plain;
  int64_t packed_bytes_ = 0;
  int64_t unpacked_bytes_ = 0;
  bool as_it_is_ = false;  // no codec: plain, or bzip2 kept packed
  bool is_plain_file_ = false;
  bool at_end_ = false;     // the descriptor gave its last byte
  bool in_member_ = false;  // the codec is between the header and the end of a member
  std::unique_ptr<char[]> buffer_;
  std::string_view in_;  // bytes read but not yet unpacked, inside buffer_
  std::unique_ptr<Codec> codec_;
};

}  // namespace stream
