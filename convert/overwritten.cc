// SPDX-License-Identifier: MIT
// Room: convert. Lists of existing files, read and replaced; see overwritten.h.
#include "convert/overwritten.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "convert/hf_folder.h"
#include "convert/set_aside.h"
#include "convert/tokenizer_files.h"
#include "tools/cli/same_file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/killed_conversion.h"

namespace convert {
namespace {

namespace fs = std::filesystem;

// Adds the regular files that `Iterator` finds in `folder`; none if there is no such folder.
template <class Iterator>
void add_files(const fs::path& folder, std::vector<std::string>& files) {
  std::error_code none;
  for (const fs::directory_entry& entry : Iterator(folder, none))
    if (entry.is_regular_file(none)) files.push_back(entry.path().string());
}

// Files that a killed conversion has set aside, or has not named yet.
std::vector<std::string> hidden_in(const std::string& root) {
  std::vector<std::string> files;
  for (const char* name : {trainer::kReplaced, kUnnamedFiles})
    add_files<fs::recursive_directory_iterator>(fs::path(root) / name, files);
  return files;
}

// Files that the next conversion removes or renames, since a killed one has left them in a folder.
std::vector<std::string> of_killed(const std::string& root) {
  std::vector<std::string> files = hidden_in(root);
  for (const std::string& name : names_of_killed(root)) {
    files.push_back(name);
    add_files<fs::directory_iterator>(name, files);
  }
  return files;
}

// The files of the tokenizer that a conversion into a root replaces or removes, and of_killed().
std::vector<std::string> beside(const std::string& root) {
  std::vector<std::string> files = of_killed(root);
  const std::string folder = root + "/tokenizer";
  if (!fs::is_directory(folder)) return files;
  for (const std::string& name : tokenizer_file_names(folder)) files.push_back(folder + "/" + name);
  for (const char* name : {"config.json", "generation_config.json"})
    files.push_back(folder + "/" + name);
  return files;
}

// The files of an export in a folder: config.json, weights, tokenizer.
std::vector<std::string> export_in(const std::string& path) {
  std::vector<std::string> files;
  if (!fs::is_directory(path)) return files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name == "generation_config.json" || is_model_file(name))
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<std::string> model_inputs(const std::string& path, bool hf_folder) {
  std::vector<std::string> files = {path};
  if (hf_folder) {
    add_files<fs::directory_iterator>(path, files);
    return files;
  }
  add_files<fs::recursive_directory_iterator>(path, files);
  std::vector<std::string> exported = export_in(path);
  for (std::string& file : hidden_in(path)) exported.push_back(std::move(file));
  std::sort(exported.begin(), exported.end());
  std::erase_if(files, [&](const std::string& file) {
    return std::binary_search(exported.begin(), exported.end(), file);
  });
  if (const std::string folder = folder_beside_checkpoint(path); !folder.empty())
    add_files<fs::recursive_directory_iterator>(folder, files);
  return files;
}

std::vector<std::string> overwritten_by_hf(const std::string& path) {
  std::vector<std::string> files = of_killed(path);
  for (std::string& file : export_in(path)) files.push_back(std::move(file));
  return files;
}

std::vector<std::string> overwritten_by_megatron(const std::string& path) {
  if (path.ends_with(".pt")) return {path};
  std::vector<std::string> files = beside(path);
  files.push_back(path + "/release/mp_rank_00/model_optim_rng.pt");
  return files;
}

std::vector<std::string> overwritten_by_start(const std::string& path, int64_t iteration) {
  std::vector<std::string> files = beside(path);
  add_files<fs::directory_iterator>(trainer::iteration_folder(path, iteration), files);
  return files;
}

void refuse_overwriting(const std::vector<std::string>& overwritten,
                        const std::vector<std::string>& inputs) {
  for (const std::string& file : overwritten) cli::refuse_input_as_output("--output", file, inputs);
}

}  // namespace convert
