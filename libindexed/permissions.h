// Who may read and write a file that replaces another: those who could before.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <sys/stat.h>

#include <string>

namespace indexed {

/// Gives the new file `fd` the group, the permissions and the access list (acl(5)) of the file
/// `target`, with the status `old`, that it will replace. Its owner is who runs the program. Where
/// the system refuses the group or the list, those who are not the owner may do only what both the
/// group and all others were allowed before. Some file systems have none of these. Errors: none.
void copy_permissions(const std::string& target, const struct stat& old, int fd);

}  // namespace indexed
