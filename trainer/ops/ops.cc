// The one visit of all operations that every backend shares; see ops.h. It is here, and not in the
// header, because each file that includes it would instantiate it for all operations.
// SPDX-License-Identifier: MIT
#include "trainer/ops/ops.h"

#include <chrono>

namespace ops {

std::vector<double> Ops::timed(std::span<const std::function<void()>> parts) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  synchronize();
  Clock::time_point begin = Clock::now();
  for (const std::function<void()>& part : parts) {
    part();
    synchronize();
    const Clock::time_point end = Clock::now();
    seconds.push_back(std::chrono::duration<double>(end - begin).count());
    begin = end;
  }
  return seconds;
}

int64_t Ops::workspace_bytes(const AnyArgs& args) {
  return scratch_of(std::visit([](const auto& a) { return AnyCall(&a); }, args));
}

}  // namespace ops
