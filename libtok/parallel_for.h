// How to run independent parts of a task. This library creates no threads: a caller that has some
// can share the loading of a tokenizer among them. Results never depend on it. Includes: C++
// library only.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>

namespace tok {

/// Calls part(0) to part(count - 1), in parallel or one after another, and returns when all have
/// returned. If parts throw, the exception of the first one is rethrown.
using ParallelFor = std::function<void(size_t count, const std::function<void(size_t)>& part)>;

/// On the calling thread.
inline void serial_for(size_t count, const std::function<void(size_t)>& part) {
  for (size_t i = 0; i < count; ++i) part(i);
}

}  // namespace tok
