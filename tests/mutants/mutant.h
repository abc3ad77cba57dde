// The switch of tests/mutants/run: every change is `mutant::on(N) ? changed : original`.
// GRISTMILL_MUTANT says which one is on in this process and in the programs that it starts.
// GRISTMILL_MUTANT_TRACE instead names a file with one byte per change: a change that is reached
// sets its byte, so that the driver knows which tests can detect it. Where the compiler must know a
// value, the original is used.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <type_traits>

namespace mutant {

inline unsigned char* trace_map() {
  const char* path = std::getenv("GRISTMILL_MUTANT_TRACE");
  const int fd = path ? ::open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return nullptr;
  struct stat about {};
  void* map = MAP_FAILED;
  if (::fstat(fd, &about) == 0) {
    map = ::mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ | PROT_WRITE, MAP_SHARED,
                 fd, 0);
  }
  ::close(fd);
  return map == MAP_FAILED ? nullptr : static_cast<unsigned char*>(map);
}

inline int chosen() {
  const char* text = std::getenv("GRISTMILL_MUTANT");
  return text ? std::atoi(text) : 0;
}

inline unsigned char* const reached = trace_map();
inline const int active = chosen();

/// Whether change `n`, counted from 1, is on.
constexpr bool on(int n) {
  if (std::is_constant_evaluated()) return false;
  if (__builtin_expect(reached != nullptr, 0)) reached[n] = 1;
  return active == n;
}

}  // namespace mutant
