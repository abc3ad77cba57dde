// How much host memory this process can still get. Not here: memory of devices (ops.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace ops {

/// Bytes still available on this machine and in this process' container, if it has one; a large
/// number where the system does not say. Who takes more may be killed.
int64_t available_host_bytes();

}  // namespace ops
