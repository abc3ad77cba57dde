// See sync_folder.h.
//
// SPDX-License-Identifier: MIT
#include "libindexed/sync_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace indexed {

int sync_folder(const std::string& folder) noexcept {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno == EACCES ? 0 : errno;
  const int error = ::fsync(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  return error == EINVAL || error == EROFS ? 0 : error;
}

}  // namespace indexed
