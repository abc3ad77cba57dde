// See named_tokenizer.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/named_tokenizer.h"

#include <filesystem>
#include <map>

#include "libindexed/message.h"
#include "libindexed/read_file.h"
#include "trainer/checkpoint/checkpoint.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "tokenizer";

fs::path without_slash(const fs::path& path) {
  const fs::path normal = without_dots(path);
  return normal.filename().empty() ? normal.parent_path() : normal;
}

// The regular files of a folder; those of its folders do not decide how a text is encoded.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file())
      files[entry.path().filename().string()] = indexed::read_file(entry.path().string());
  return files;
}

// What cannot be read, such as another user's folder, is as if it were not there.
bool differs(const fs::path& named, const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_directory(named, ignored)) return false;
  const std::map<std::string, std::string> own = files_of(folder);
  try {
    return files_of(named) != own;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

std::string tokenizer_folder(const std::string& checkpoint) {
  return (without_slash(fs::absolute(checkpoint)).parent_path() / kFolder).string();
}

std::string take_own_tokenizer(const std::string& folder,
                               std::initializer_list<std::string*> names) {
  std::string note;
  std::error_code ignored;
  for (std::string* name : names) {
    const fs::path path = without_slash(*name);
    const bool whole = path.filename() == kFolder;
    const fs::path named = whole ? path : path.parent_path();
    if (named.filename() != kFolder || same_folder(named.string(), folder)) continue;
    const fs::path own = whole ? fs::path(folder) : fs::path(folder) / path.filename();
    if (!folder.empty() && fs::exists(own)) {
      if (differs(named, folder))
        note = indexed::message(named.string(), ": the checkpoint names it, but its files differ ",
                                "from those of ", folder, ", which are taken");
      *name = own.string();
    } else if (fs::exists(path, ignored)) {
      note = indexed::message(path.string(), ": taken because the checkpoint names it: none is ",
                              "beside the checkpoint");
    }
  }
  return note;
}

}  // namespace trainer
