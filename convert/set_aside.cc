// SPDX-License-Identifier: MIT
// set_aside.h: renames within one root, and their reverse.
#include "convert/set_aside.h"

#include <system_error>

namespace convert {

namespace fs = std::filesystem;

// Of the name itself, not of what a link leads to.
static bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::symlink_status(path, none).type() != fs::file_type::not_found;
}

SetAside::SetAside(const std::string& root) : root_(root), aside_(root_ / ".replaced") {}

SetAside::~SetAside() { give_back(); }

void SetAside::take(const fs::path& path) {
  if (!is_there(path)) return;
  if (!used_) fs::remove_all(aside_);
  used_ = true;
  const fs::path old = aside_ / path.lexically_relative(root_);
  fs::create_directories(old.parent_path());
  names_.emplace_back(path, old);
  fs::rename(path, old);
}

void SetAside::make_folders(const fs::path& path) {
  if (path.empty() || fs::is_directory(path)) return;
  make_folders(path.parent_path());
  expect(path);
  fs::create_directory(path);
}

void SetAside::name(const fs::path& file, const fs::path& path) {
  if (!is_there(path)) expect(path);
  fs::rename(file, path);
}

void SetAside::expect(const fs::path& path) { names_.emplace_back(path, fs::path()); }

void SetAside::keep() noexcept {
  names_.clear();
  std::error_code ignored;
  fs::remove_all(aside_, ignored);
}

void SetAside::give_back() noexcept {
  std::error_code ignored;
  bool whole = true;
  for (auto at = names_.rbegin(); at != names_.rend(); ++at) {
    const auto& [path, old] = *at;
    if (old.empty()) {
      fs::remove(path, ignored);  // of a folder only one that is empty
    } else if (is_there(old)) {
      fs::rename(old, path, ignored);
      whole = whole && !is_there(old);
    }
  }
  if (whole && !names_.empty()) fs::remove_all(aside_, ignored);
}

}  // namespace convert
