// SPDX-License-Identifier: MIT
// Converts arrays between float formats, and checks arrays, by loops that the compiler generates
// for several instruction sets. The reference for one number is trainer/ops/number.h.
// dtype is safetensors' spelling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace convert {

/// Whether numbers of this dtype are converted here: F64, F32, F16, BF16.
bool is_float(std::string_view dtype) noexcept;

/// Converts `count` numbers, rounded to nearest even; numbers that are too large become infinite,
/// and NaN becomes a quiet NaN. `in` and `out` need no alignment and do not overlap.
/// Both are is_float().
void convert_floats(std::string_view from, const std::byte* in, std::string_view to, std::byte* out,
                    int64_t count) noexcept;

/// How many are infinite or NaN; 0 for a dtype that is not a float.
int64_t count_not_finite(std::string_view dtype, std::span<const std::byte> bytes) noexcept;

/// `count` elements as fp32. Errors: indexed::FormatError for a dtype that is not a float.
std::vector<float> to_floats(std::string_view dtype, const std::byte* data, int64_t count);

}  // namespace convert
