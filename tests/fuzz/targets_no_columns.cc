// SPDX-License-Identifier: MIT
// targets.h: a build without Apache Arrow.
// It has no reader of columns.
#include "tests/fuzz/targets.h"

namespace fuzz {

std::span<const Target> column_targets() { return {}; }

}  // namespace fuzz
