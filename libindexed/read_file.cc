// SPDX-License-Identifier: MIT
// See read_file.h.
#include "libindexed/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "libindexed/mapped_file.h"

namespace indexed {
namespace {

[[noreturn]] void fail(const std::string& path, int code) {
  throw std::system_error(code, std::generic_category(), path);
}

}  // namespace

std::string read_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) fail(path, errno);
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) {
    const MappedFile file(path);
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path, errno);
  std::string text;
  std::string buffer(1 << 16, '\0');
  ssize_t size = 0;
  while ((size = ::read(fd, buffer.data(), buffer.size())) > 0 || (size < 0 && errno == EINTR)) {
    if (size > 0) text.append(buffer, 0, static_cast<size_t>(size));
  }
  const int code = errno;
  ::close(fd);
  if (size < 0) fail(path, code);
  return text;
}

}  // namespace indexed
