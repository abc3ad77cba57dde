// How a work in independent parts is done. This library has no threads of its own: a caller that
// has some says how they share the loading of a tokenizer. Results never depend on it.
// Includes: C++ library only.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>

namespace tok {

/// Calls part(0) to part(count - 1), at once or one after the other, and returns when all have
/// returned. Of what parts throw, that of the first part comes out.
using DoParts = std::function<void(size_t count, const std::function<void(size_t)>& part)>;

/// On the calling thread.
inline void one_after_another(size_t count, const std::function<void(size_t)>& part) {
  for (size_t i = 0; i < count; ++i) part(i);
}

}  // namespace tok
