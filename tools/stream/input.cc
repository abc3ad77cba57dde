// SPDX-License-Identifier: MIT
// Room: tools/stream. Opening, recognising the kind, and the loop over members.
#include "tools/stream/input.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/text.h"
#include "tools/stream/codecs.h"

namespace stream {
namespace {

using namespace std::string_view_literals;

constexpr size_t kBufferBytes = size_t{1} << 17;
constexpr size_t kHeadBytes = 16;

struct Foreign {
  std::string_view magic;
  std::string_view what;
};

/// First bytes of files that users might give by mistake, which are not lines of text.
constexpr std::array kForeign = {
    Foreign{"PK\x03\x04"sv, "a zip archive"},   Foreign{"7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    Foreign{"PAR1"sv, "a Parquet file"},        Foreign{"\x04\x22\x4d\x18"sv, "an lz4 file"},
    Foreign{"LZIP\x01"sv, "an lzip file"},      Foreign{"ARROW1"sv, "an Arrow file"},
    Foreign{"MMIDIDX\0"sv, "a Megatron index"}, Foreign{"\xff\xfe"sv, "UTF-16 or UTF-32 text"},
    Foreign{"\xfe\xff"sv, "UTF-16 text"}};

bool is_bzip2(std::string_view head) {
  return head.size() >= 10 && head.starts_with("BZh") && head[3] >= '1' && head[3] <= '9' &&
         (head.substr(4, 6) == "\x31\x41\x59\x26\x53\x59"sv ||
          head.substr(4, 6) == "\x17\x72\x45\x38\x50\x90"sv);
}

bool is_zstd(std::string_view head) {
  const bool skippable =
      head.size() >= 4 && (head[0] & 0xF0) == 0x50 && head.substr(1, 3) == "\x2a\x4d\x18"sv;
  return head.starts_with("\x28\xb5\x2f\xfd"sv) || skippable;
}

/// A header of compress: bit 7 of its third byte says that codes begin anew when the table is full,
/// bits 0 to 4 are the longest code's bits. As text it would not be UTF-8.
bool is_compress(std::string_view head) {
  if (head.size() < 3 || !head.starts_with("\x1f\x9d"sv)) return false;
  const int longest_bits = head[2] & 0x1f;
  return (head[2] & 0x60) == 0 && longest_bits >= 9 && longest_bits <= 16;
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

/// The format has no magic number: the usual properties, a dictionary of a size that programs
/// choose, an unpacked size that is unknown or below 256 GiB, and the coder's first byte, which is
/// always 0. Source: the LZMA SDK's lzma-specification.txt; liblzma's bounds for the same.
bool is_lzma(std::string_view head) {
  if (head.size() < 14 || !head.starts_with("\x5d\0\0"sv) || head[13] != '\0') return false;
  const uint64_t dictionary = little_endian(head.substr(1, 4));
  const uint64_t unpacked = little_endian(head.substr(5, 8));
  const bool usual = std::has_single_bit(dictionary) ||
                     (dictionary % 3 == 0 && std::has_single_bit(dictionary / 3)) ||
                     (dictionary > 0 && dictionary % (1 << 20) == 0);
  return usual && (unpacked == UINT64_MAX || unpacked < uint64_t{1} << 38);
}

}  // namespace

FileStamp FileStamp::of(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return {};
  return {.regular = true, .size = info.st_size, .modified = info.st_mtim};
}

void check_unchanged(int fd, const FileStamp& before, const std::string& name) {
  if (!before.regular) return;
  struct stat info {};
  if (fstat(fd, &info) != 0) throw std::system_error(errno, std::generic_category(), name);
  if (info.st_size < before.size) {
    throw InputError(cli::concat(name, ": was cut short from ", before.size, " to ", info.st_size,
                                 " bytes while it was read"));
  }
  if (info.st_size == before.size && (info.st_mtim.tv_sec != before.modified.tv_sec ||
                                      info.st_mtim.tv_nsec != before.modified.tv_nsec)) {
    throw InputError(cli::concat(name, ": was changed while it was read"));
  }
}

struct Input::Codec {
  AnyCodec any;
};

std::string_view name_of(Kind kind) {
  constexpr std::array<std::string_view, 6> kNames = {"plain", "gzip", "bzip2",
                                                      "xz",    "zstd", "lzma"};
  return kNames[static_cast<size_t>(kind)];
}

Kind kind_of(std::string_view head) {
  if (head.starts_with("\x1f\x8b"sv)) return Kind::gzip;
  if (head.starts_with("\xfd\x37\x7a\x58\x5a\x00"sv)) return Kind::xz;
  if (is_bzip2(head)) return Kind::bzip2;
  if (is_zstd(head)) return Kind::zstd;
  if (is_lzma(head)) return Kind::lzma;
  return Kind::plain;
}

Input::Input(std::string path, UnpackLimit limit, Packed packed)
    : name_(path == "-" ? "standard input" : path),
      limit_(limit),
      buffer_(std::make_unique<char[]>(kBufferBytes)),
      codec_(std::make_unique<Codec>()) {
  fd_ = path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                    : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), name_);
  try {
    struct stat info {};
    if (fstat(fd_, &info) != 0) throw std::system_error(errno, std::generic_category(), name_);
    stamp_ = FileStamp::of(info);
    if (stamp_.regular) posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
    while (in_.size() < kHeadBytes && !at_end_) refill();
    refuse_foreign();
    kind_ = kind_of(in_);
    as_it_is_ = kind_ == Kind::plain || (kind_ == Kind::bzip2 && packed == Packed::keep_bzip2);
    is_plain_file_ = kind_ == Kind::plain && S_ISREG(info.st_mode) && path != "-";
    switch (kind_) {
      case Kind::plain:
        break;
      case Kind::gzip:
        codec_->any.emplace<GzipCodec>();
        break;
      case Kind::bzip2:
        codec_->any.emplace<Bzip2Codec>();
        break;
      case Kind::xz:
        codec_->any.emplace<XzCodec>();
        break;
      case Kind::zstd:
        codec_->any.emplace<ZstdCodec>();
        break;
      case Kind::lzma:
        codec_->any.emplace<LzmaCodec>();
        break;
    }
  } catch (...) {
    close(fd_);
    throw;
  }
}

Input::~Input() { close(fd_); }

/// Refuses what begins like a file of another kind.
void Input::refuse_foreign() const {
  const auto refuse = [&](std::string_view what) {
    const std::string message = cli::concat(
        name_, ": ", what, ": expected UTF-8 text, plain or as gzip, bzip2, xz, lzma or zstd");
    if (what.starts_with("UTF-16")) throw Utf16Error(message);
    throw InputError(message);
  };
  if (is_compress(in_)) refuse("a file of compress (.Z), which `gzip -d` unpacks");
  for (const Foreign& foreign : kForeign) {
    if (in_.starts_with(foreign.magic)) refuse(foreign.what);
  }
}

void Input::fail(std::string_view what) const {
  throw InputError(
      cli::concat(name_, ":byte ", packed_bytes() + 1, ": ", name_of(kind_), " data ", what));
}

/// Moves the rest to the front of the buffer and reads after it.
void Input::refill() {
  std::memmove(buffer_.get(), in_.data() == nullptr ? buffer_.get() : in_.data(), in_.size());
  ssize_t got;
  do {
    got = ::read(fd_, buffer_.get() + in_.size(), kBufferBytes - in_.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) throw std::system_error(errno, std::generic_category(), name_);
  at_end_ = got == 0;
  if (at_end_) check_unchanged();
  packed_bytes_ += got;
  in_ = std::string_view(buffer_.get(), in_.size() + static_cast<size_t>(got));
}

/// Whether another member follows; zeros at the end, as tapes and block devices leave them, are not
/// a member. xz has them between members, too, to fill blocks up.
bool Input::starts_member() {
  while (in_.size() < kHeadBytes && !at_end_) refill();
  if (in_.empty()) return false;
  if (kind_of(in_) == kind_) return true;
  while (true) {
    const size_t other = in_.find_first_not_of('\0');
    if (other != std::string_view::npos) {
      in_.remove_prefix(other);
      while (in_.size() < kHeadBytes && !at_end_) refill();
      if (kind_ == Kind::xz && kind_of(in_) == kind_) return true;
      fail("ends, but other bytes follow: expected the end of the file or another member");
    }
    in_ = {};
    if (at_end_) return false;
    refill();
  }
}

void Input::start_at(int64_t byte) {
  if (!as_it_is_) {
    throw InputError(cli::concat(name_, ": ", name_of(kind_),
                                 " data can only be read from its front: no --range"));
  }
  if (lseek(fd_, byte, SEEK_SET) != byte) {
    throw InputError(cli::concat(name_, ": is no file: no --range"));
  }
  in_ = {};
  at_end_ = false;
  packed_bytes_ = 0;
}

void Input::skip(int64_t bytes) {
  const int64_t step = bytes - static_cast<int64_t>(in_.size());
  if (lseek(fd_, step, SEEK_CUR) < 0) {
    throw std::system_error(errno, std::generic_category(), name_);
  }
  in_ = {};
  at_end_ = false;
  packed_bytes_ += step;
}

size_t Input::read(std::span<char> out) {
  if (as_it_is_) {
    if (in_.empty() && !at_end_) {  // straight into the caller's memory
      ssize_t got;
      do {
        got = ::read(fd_, out.data(), out.size());
      } while (got < 0 && errno == EINTR);
      if (got < 0) throw std::system_error(errno, std::generic_category(), name_);
      at_end_ = got == 0;
      if (at_end_) check_unchanged();
      packed_bytes_ += got;
      return static_cast<size_t>(got);
    }
    const size_t size = std::min(out.size(), in_.size());
    std::memcpy(out.data(), in_.data(), size);
    in_.remove_prefix(size);
    return size;
  }
  while (!out.empty()) {
    if (!in_member_) {
      if (!starts_member()) return 0;
      std::visit(
          [](auto& codec) {
            if constexpr (requires { codec.reset(); }) codec.reset();
          },
          codec_->any);
      in_member_ = true;
    }
    if (in_.empty() && !at_end_) refill();
    Step step;
    std::visit(
        [&](auto& codec) {
          if constexpr (requires { codec.reset(); }) step = codec.step(in_, out);
        },
        codec_->any);
    in_.remove_prefix(step.consumed);
    if (!step.error.empty()) fail(cli::concat("is damaged: ", step.error));
    in_member_ = !step.member_end;
    unpacked_bytes_ += static_cast<int64_t>(step.made);
    if (unpacked_bytes_ - limit_.allowance > limit_.ratio * packed_bytes()) {
      fail(cli::concat("unpacks to more than ", limit_.ratio,
                       " times its size: a bomb, or raise --max-ratio"));
    }
    if (step.made > 0) return step.made;
    if (in_member_ && in_.empty() && at_end_) fail("ends in the middle: the file is cut short");
  }
  return 0;
}

}  // namespace stream
