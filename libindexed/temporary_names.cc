// See temporary_names.h.
//
// SPDX-License-Identifier: MIT
#include "libindexed/temporary_names.h"

#include <algorithm>
#include <climits>

#include <unistd.h>

#include "libindexed/md5.h"

namespace indexed {
namespace {

constexpr std::string_view kEnd = ".tmp";

/// Room for a number of any process, and for kEnd.
constexpr size_t kRoom = 10 + kEnd.size();

/// Whether the file system of `path` has names of `size` bytes.
bool has_room(const std::string& path, size_t size) {
  const long most = ::pathconf(folder_of(path).c_str(), _PC_NAME_MAX);
  return size <= static_cast<size_t>(most > 0 ? most : NAME_MAX);
}

/// At most the first 40 bytes, cut between characters.
std::string beginning_of(const std::string& name) {
  size_t size = std::min<size_t>(name.size(), 40);
  while (size > 0 && size < name.size() && (static_cast<unsigned char>(name[size]) & 0xC0) == 0x80)
    --size;
  return name.substr(0, size);
}

}  // namespace

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string in_folder_of(const std::string& path, const std::string& name) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? name : path.substr(0, slash + 1) + name;
}

TemporaryNames::TemporaryNames(const std::string& target)
    : target_(target),
      whole_("." + name_of(target) + "."),
      shorter_("." + beginning_of(name_of(target)) + "~" + md5_hex(name_of(target)).substr(0, 16) +
               "."),
      fits_(whole_.size() + kRoom <= 100 || has_room(target, whole_.size() + kRoom)) {}

std::string TemporaryNames::own() const {
  return in_folder_of(target_,
                      (fits_ ? whole_ : shorter_) + std::to_string(::getpid()) + std::string(kEnd));
}

std::string TemporaryNames::scratch() const {
  return in_folder_of(target_, (fits_ ? whole_ : shorter_) + "XXXXXX");
}

bool TemporaryNames::contains(std::string_view name) const {
  const std::string& begin = fits_ || name.starts_with(whole_) ? whole_ : shorter_;
  if (name.size() <= begin.size() + kEnd.size() || !name.starts_with(begin) ||
      !name.ends_with(kEnd))
    return false;
  name.remove_prefix(begin.size());
  name.remove_suffix(kEnd.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace indexed
