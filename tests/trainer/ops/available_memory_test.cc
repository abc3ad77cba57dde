// SPDX-License-Identifier: MIT
// The memory that is left, held to what the kernel says.
#include "trainer/ops/available_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace ops {
namespace {

/// Bytes in a line of /proc/meminfo.
int64_t in_meminfo(const std::string& name) {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  return 0;
}

TEST(AvailableMemory, IsWhatTheKernelAndTheContainerLeave) {
  const int64_t free = in_meminfo("MemAvailable");
  if (free == 0) GTEST_SKIP() << "no /proc/meminfo";
  const int64_t found = available_host_bytes();
  EXPECT_GT(found, 0);
  // Other processes take and return memory meanwhile.
  EXPECT_LE(found, in_meminfo("MemTotal"));
  EXPECT_LE(found, 2 * free);
  int64_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    EXPECT_LE(found, limit);
    EXPECT_GE(found, std::min(free, limit - used) / 2);
  } else {
    EXPECT_GE(found, free / 2);
  }
}

}  // namespace
}  // namespace ops
