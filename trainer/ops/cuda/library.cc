// Library over dlopen. The loader's own search comes first, so that LD_LIBRARY_PATH decides.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "trainer/ops/tensor.h"

namespace ops::cuda {
namespace {

namespace fs = std::filesystem;

/// Adds a folder, unless it is listed already.
void add(const std::string& folder, std::vector<std::string>& folders) {
  if (std::ranges::find(folders, folder) == folders.end()) folders.push_back(folder);
}

void add_toolkit(const std::string& root, std::vector<std::string>& folders) {
  for (const char* inner : {"/lib64", "/lib"}) {
    if (fs::is_directory(root + inner)) add(root + inner, folders);
  }
}

/// Adds the folders of packages that pip installed under a Python's prefix.
void add_packages(const std::string& prefix, std::vector<std::string>& folders) {
  glob_t found{};
  if (glob((prefix + "/lib/python3*/*-packages/nvidia/*/lib").c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) add(found.gl_pathv[i], folders);
  }
  globfree(&found);
}

std::string environment_of_process(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string path_of(void* handle, const char* name) {
  const link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && *map->l_name != 0 ? map->l_name : name;
}

}  // namespace

std::vector<std::string> library_folders(
    const std::function<std::string(const char*)>& environment) {
  std::vector<std::string> folders;
  if (const std::string root = environment("CUDA_HOME"); !root.empty()) add_toolkit(root, folders);
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string prefix = environment(name); !prefix.empty())
      add_packages(prefix, folders);
  }
  const std::string path = environment("PATH");
  for (size_t begin = 0, end = 0; begin < path.size(); begin = end + 1) {
    end = std::min(path.find(':', begin), path.size());
    fs::path programs = path.substr(begin, end - begin);
    if (!programs.has_filename()) programs = programs.parent_path();  // a trailing slash
    if (!programs.is_absolute() || !fs::exists(programs / "python3")) continue;
    const fs::path prefix = programs.parent_path();
    add_packages(prefix, folders);
    add_packages(prefix / "local", folders);
  }
  if (const std::string home = environment("HOME"); !home.empty())
    add_packages(home + "/.local", folders);
  add_toolkit("/usr/local/cuda", folders);
  return folders;
}

Library::Library(const char* name) {
  handle_ = dlopen(name, RTLD_NOW);
  std::string reason = handle_ == nullptr ? dlerror() : "";
  const std::vector<std::string> folders =
      handle_ == nullptr ? library_folders(environment_of_process) : std::vector<std::string>();
  for (size_t i = 0; i < folders.size() && handle_ == nullptr; ++i) {
    const std::string file = folders[i] + "/" + name;
    if (!fs::exists(file)) continue;
    handle_ = dlopen(file.c_str(), RTLD_NOW);
    if (handle_ == nullptr) reason = dlerror();
  }
  if (handle_ == nullptr) {
    throw DeviceError(
        "cuda: " + reason +
        "; looked for where the loader looks (LD_LIBRARY_PATH), in $CUDA_HOME, in the "
        "nvidia packages of Python ($VIRTUAL_ENV, $CONDA_PREFIX, python3), in "
        "/usr/local/cuda");
  }
  path_ = path_of(handle_, name);
}

void* Library::symbol(const char* name) const {
  void* found = dlsym(handle_, name);
  if (found == nullptr) throw DeviceError("cuda: " + path_ + ": has no " + name);
  return found;
}

}  // namespace ops::cuda
