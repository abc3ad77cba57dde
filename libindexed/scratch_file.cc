// SPDX-License-Identifier: MIT
// ScratchFile: a buffer before write(2), and reading back from the front.
#include "libindexed/scratch_file.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "libindexed/output_file.h"

namespace indexed {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;
constexpr size_t kPieceBytes = size_t{1} << 20;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

size_t read_at(int fd, int64_t offset, std::span<std::byte> into, const std::string& path) {
  size_t got = 0;
  while (got < into.size()) {
    const ssize_t n =
        ::pread(fd, into.data() + got, into.size() - got, offset + static_cast<int64_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path);
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

ScratchFile::ScratchFile(const std::string& beside)
    : beside_(beside), fd_(open_scratch_file(beside)) {
  buffer_.reserve(kBufferBytes);
}

ScratchFile::~ScratchFile() { ::close(fd_); }

void ScratchFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > buffer_.capacity()) {
    write_through(buffer_);
    buffer_.clear();
  }
  if (bytes.size() > buffer_.capacity()) {
    write_through(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void ScratchFile::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(beside_);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void ScratchFile::read_all(const std::function<void(std::span<const std::byte>)>& use) {
  std::vector<std::byte> piece(kPieceBytes);
  for (int64_t at = 0;;) {
    const size_t n = read_at(fd_, at, piece, beside_);
    if (n == 0) break;
    use(std::span<const std::byte>(piece.data(), n));
    at += static_cast<int64_t>(n);
  }
  use(std::span<const std::byte>(buffer_));
}

}  // namespace indexed
