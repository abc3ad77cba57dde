// SPDX-License-Identifier: MIT
// Room: tools/columns. Recognises the kind of a file.
#include "tools/columns/column_file.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/text.h"

namespace columns {
namespace {

/// The first bytes of a regular file.
std::string head_of(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  struct stat status = {};
  char bytes[8];
  const bool known = fstat(fd, &status) == 0;
  const ssize_t size = known && S_ISREG(status.st_mode) ? pread(fd, bytes, sizeof bytes, 0) : -2;
  const int error = errno;
  close(fd);
  if (!known || size == -1) throw std::system_error(error, std::generic_category(), path);
  if (size < 0 && S_ISDIR(status.st_mode))
    throw ColumnError(path + ": a folder, expected the files in it");
  if (size < 0) throw ColumnError(path + ": not a file: Parquet is read from both ends");
  return std::string(bytes, static_cast<size_t>(size));
}

}  // namespace

ColumnFile open_column_file(const std::string& path, const std::vector<std::string>& columns) {
  const std::string head = head_of(path);
  if (head.starts_with("PAR1")) return open_parquet(path, columns);
  if (head.starts_with("PARE"))
    throw ColumnError(path + ": its columns' names are encrypted, which is not read here");
  // A stream begins with a message: a marker and the length; before Arrow 0.15 only the length.
  if (head.starts_with("ARROW1") || head.starts_with("\xff\xff\xff\xff"))
    return open_ipc(path, columns);
  throw ColumnError(
      cli::concat(path, ": neither Parquet nor Arrow IPC: it begins with ", cli::quote(head)));
}

}  // namespace columns
