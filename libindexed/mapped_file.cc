// SPDX-License-Identifier: MIT
// MappedFile over open, fstat, mmap, madvise.
#include "libindexed/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace indexed {
namespace {

[[noreturn]] void fail(const std::string& path, int code) {
  throw std::system_error(code, std::generic_category(), path);
}

}  // namespace

MappedFile::MappedFile(const std::string& path, Access access) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(path, errno);
  struct stat info {};
  int code = ::fstat(fd, &info) != 0 ? errno : 0;
  if (code == 0 && S_ISDIR(info.st_mode)) code = EISDIR;
  if (code == 0 && !S_ISREG(info.st_mode)) {  // a pipe has no size and cannot be mapped
    ::close(fd);
    fail(path + ": not a regular file", ENODEV);
  }
  if (code == 0 && info.st_size > 0) {
    void* at = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
      code = errno;
    } else {
      data_ = static_cast<const std::byte*>(at);
      size_ = static_cast<size_t>(info.st_size);
      if (access == Access::sequential) ::madvise(at, size_, MADV_SEQUENTIAL);
      if (access == Access::random) ::madvise(at, size_, MADV_RANDOM);
    }
  }
  ::close(fd);
  if (code != 0) fail(path, code);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(size_t offset, size_t size) const noexcept {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  const size_t end = std::min(offset + size, size_);
  if (data_ == nullptr || begin >= end) return;
  ::madvise(const_cast<std::byte*>(data_ + begin), end - begin, MADV_DONTNEED);
}

}  // namespace indexed
