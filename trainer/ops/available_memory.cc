// See available_memory.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace ops {
namespace {

int64_t number_in(const char* file) {
  int64_t out = 0;
  return std::ifstream(file) >> out ? out : std::numeric_limits<int64_t>::max();
}

}  // namespace

int64_t available_host_bytes() {
  int64_t out = std::numeric_limits<int64_t>::max();
  std::ifstream in("/proc/meminfo");
  for (std::string name, rest; in >> name && std::getline(in, rest);)
    if (name == "MemAvailable:") out = std::stoll(rest) * 1024;
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  if (limit == std::numeric_limits<int64_t>::max()) return out;  // no limit, or the word max
  return std::min(out, limit - number_in("/sys/fs/cgroup/memory.current"));
}

}  // namespace ops
