// SPDX-License-Identifier: MIT
// lower-glibc VERSION SHIM PATH...: lets programs and libraries that were linked on this machine
// start on glibc VERSION. Used for the archive and the wheel (cmake/packaging.cmake).
//
// A linker gives each symbol the newest version that this machine's glibc has, although most have
// an older one that does the same: when glibc 2.34 took libpthread into libc.so.6, it gave all of
// its functions a new version. For each symbol whose version is newer than VERSION, in every
// dynamic ELF file of the paths (folders are walked):
//   - a symbol that SHIM defines (packaging/glibc_shim.cc) is asked of it;
//   - any other is asked for under its newest version that is not newer than VERSION, of the
//     library that had it before 2.34 (a loader older than 2.30 looks no further than that one);
//   - one that has none is an error: nothing then starts on VERSION unnoticed.
#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "packaging/elf_file.h"

namespace {

using packaging::ElfFile;
using packaging::Need;
using packaging::Symbol;
using Numbers = std::vector<int>;
using Versions = std::map<std::string, std::set<std::string>>;  // of each symbol

const std::string kGlibc = "GLIBC_";

// {2, 14} of "GLIBC_2.14"; empty for GLIBC_PRIVATE and others that are no release.
Numbers numbers(const std::string& version) {
  Numbers result;
  std::istringstream in(version.substr(version.starts_with(kGlibc) ? kGlibc.size() : 0));
  std::string part;
  while (std::getline(in, part, '.')) {
    if (part.empty() || part.find_first_not_of("0123456789") != std::string::npos) return {};
    result.push_back(std::stoi(part));
  }
  return result;
}

Versions versions_of(const ElfFile& library) {
  Versions all;
  for (const Symbol& symbol : library.symbols()) {
    const auto version = library.definitions().find(symbol.version);
    if (symbol.defined && version != library.definitions().end())
      all[symbol.name].insert(version->second);
  }
  return all;
}

// The versions that this machine's library `name` defines; the loader finds it.
const Versions& host_versions(const std::string& name) {
  static std::map<std::string, Versions> read;
  const auto known = read.find(name);
  if (known != read.end()) return known->second;
  void* handle = dlopen(name.c_str(), RTLD_LAZY);
  const link_map* map = nullptr;
  if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
    throw std::runtime_error(name + ": " + dlerror());
  const auto library = ElfFile::read(map->l_name);
  if (!library) throw std::runtime_error(std::string(map->l_name) + ": no shared library");
  return read[name] = versions_of(*library);
}

// The library that had a function of today's libc.so.6 when its version was an old one.
std::string old_library(const std::string& symbol) {
  static const std::vector<std::pair<std::string, std::string>> kPrefixes = {
      {"pthread_", "libpthread.so.0"}, {"__pthread_", "libpthread.so.0"},
      {"sem_", "libpthread.so.0"},     {"dladdr", "libdl.so.2"},
      {"dlclose", "libdl.so.2"},       {"dlerror", "libdl.so.2"},
      {"dlinfo", "libdl.so.2"},        {"dlopen", "libdl.so.2"},
      {"dlsym", "libdl.so.2"},         {"dlvsym", "libdl.so.2"},
      {"shm_open", "librt.so.1"},      {"shm_unlink", "librt.so.1"},
      {"timer_", "librt.so.1"},        {"aio_", "librt.so.1"},
      {"lio_listio", "librt.so.1"},    {"mq_", "librt.so.1"},
      {"openpty", "libutil.so.1"},     {"forkpty", "libutil.so.1"},
      {"login_tty", "libutil.so.1"},   {"res_", "libresolv.so.2"},
      {"__res_", "libresolv.so.2"},    {"dn_", "libresolv.so.2"},
  };
  for (const auto& [prefix, library] : kPrefixes) {
    if (symbol.starts_with(prefix)) return library;
  }
  return "libc.so.6";
}

struct Target {
  Numbers limit;
  std::string shim_name;
  Versions shim;
};

// The version under which `symbol` is to be asked for instead of `need`.
Need replacement(const std::string& path, const Symbol& symbol, const Need& need,
                 const Target& target) {
  const auto in_shim = target.shim.find(symbol.name);
  if (in_shim != target.shim.end())
    return {.library = target.shim_name, .version = *in_shim->second.begin()};
  Need best;
  const Versions& host = host_versions(need.library);
  const auto known = host.find(symbol.name);
  if (known != host.end()) {
    for (const std::string& version : known->second) {
      const Numbers value = numbers(version);
      if (!value.empty() && value <= target.limit && numbers(best.version) < value)
        best = {.library = need.library == "libc.so.6" ? old_library(symbol.name) : need.library,
                .version = version};
    }
  }
  if (best.version.empty())
    throw std::runtime_error(path + ": " + symbol.name + " needs " + need.version +
                             ", and neither an older glibc nor " + target.shim_name + " has it");
  return best;
}

void lower(const std::filesystem::path& path, const Target& target) {
  auto file = ElfFile::read(path);
  if (!file) return;
  bool changed = false;
  const std::map<uint16_t, Need> needs = file->needs();
  std::set<uint16_t> used;
  for (const Symbol& symbol : file->symbols()) {
    const auto need = needs.find(symbol.version);
    if (need == needs.end()) continue;
    used.insert(symbol.version);
    if (!need->second.version.starts_with(kGlibc)) continue;
    const Numbers value = numbers(need->second.version);
    if (!value.empty() && value <= target.limit) continue;
    file->ask(symbol, replacement(path.string(), symbol, need->second, target));
    changed = true;
  }
  for (const auto& [index, need] : needs) {
    // GLIBC_ABI_DT_RELR and its like: the loader must know how to read the file.
    if (!used.contains(index) && need.version.starts_with("GLIBC_ABI"))
      throw std::runtime_error(path.string() + ": needs " + need.version + " of the loader");
  }
  if (changed) file->write();
}

void lower_all(const std::filesystem::path& path, const Target& target) {
  if (!std::filesystem::is_directory(path)) return lower(path, target);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file() && !entry.is_symlink()) lower(entry.path(), target);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: lower-glibc VERSION SHIM PATH...\n", stderr);
    return 2;
  }
  try {
    Target target{.limit = numbers(argv[1])};
    if (target.limit.empty()) throw std::runtime_error(std::string(argv[1]) + ": no version");
    const auto shim = ElfFile::read(argv[2]);
    if (!shim) throw std::runtime_error(std::string(argv[2]) + ": no shared library");
    target.shim_name = shim->soname();
    target.shim = versions_of(*shim);
    for (int i = 3; i < argc; ++i) lower_all(argv[i], target);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lower-glibc: %s\n", error.what());
    return 1;
  }
  return 0;
}
