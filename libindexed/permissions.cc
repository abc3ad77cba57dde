// See permissions.h.
//
// SPDX-License-Identifier: MIT
#include "libindexed/permissions.h"

#include <linux/limits.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace indexed {
namespace {

constexpr const char* kAccessList = "system.posix_acl_access";

// The access list of a file as the system writes it: a version, and entries of 8 bytes in its
// order. Empty where the file has none or the file system knows none.
std::string access_list_of(const std::string& path) {
  std::string list(XATTR_SIZE_MAX, '\0');
  const ssize_t size = ::getxattr(path.c_str(), kAccessList, list.data(), list.size());
  list.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return list;
}

}  // namespace

void copy_permissions(const std::string& target, const struct stat& old, int fd) {
  struct stat own {};
  const bool same_group = (::fstat(fd, &own) == 0 && own.st_gid == old.st_gid) ||
                          ::fchown(fd, static_cast<uid_t>(-1), old.st_gid) == 0;
  const std::string list = access_list_of(target);
  mode_t mode = old.st_mode & 0777;
  if (same_group && !list.empty() && ::fsetxattr(fd, kAccessList, list.data(), list.size(), 0) == 0)
    return;  // the mode is part of it
  // The folder may have given the new file a list that the old one does not have.
  if (list.empty()) static_cast<void>(::fremovexattr(fd, kAccessList));
  if (!same_group || !list.empty()) {
    const mode_t both = (mode >> 3) & mode & 07;
    mode = (mode & 0700) | both << 3 | both;
  }
  static_cast<void>(::fchmod(fd, mode));
}

}  // namespace indexed
