// The one visit of all operations that every backend shares; see ops.h. It is here, and not in the
// header, because each file that includes it would instantiate it for all operations.
// SPDX-License-Identifier: MIT
#include "trainer/ops/ops.h"

namespace ops {

int64_t Ops::workspace_bytes(const AnyArgs& args) {
  return scratch_of(std::visit([](const auto& a) { return AnyCall(&a); }, args));
}

}  // namespace ops
