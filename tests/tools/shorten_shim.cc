// A library for LD_PRELOAD that cuts a file while a program reads it: as if another process cut it
// at the worst moment. SHORTEN (when the file is mapped) or SHORTEN_READ (after its first read):
// how the file's path ends. SHORTEN_BY: how many bytes it loses, once; without it one page is left.
//
// SPDX-License-Identifier: MIT
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

std::atomic<bool> cut_once = false;

// Cuts the file behind `fd` if the variable `name` names it.
void cut(const char* name, int fd) {
  const char* wanted = std::getenv(name);
  if (wanted == nullptr || fd < 0) return;
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return;
  path[length] = 0;
  if (!std::string_view(path).ends_with(wanted)) return;
  off_t left = 4096;
  if (const char* by = std::getenv("SHORTEN_BY")) {
    struct stat info {};
    if (cut_once.exchange(true)) return;
    if (stat(path, &info) != 0) std::abort();
    left = info.st_size - std::atol(by);
  }
  if (truncate(path, left) != 0) std::abort();
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  static auto* const call = real<void*(void*, size_t, int, int, int, off_t)>("mmap");
  void* at = call(address, size, protection, flags, fd, offset);
  if (at != MAP_FAILED && (flags & MAP_TYPE) == MAP_SHARED) cut("SHORTEN", fd);
  return at;
}

extern "C" ssize_t read(int fd, void* bytes, size_t size) {
  static auto* const call = real<ssize_t(int, void*, size_t)>("read");
  const ssize_t got = call(fd, bytes, size);
  if (got > 0) cut("SHORTEN_READ", fd);
  return got;
}
