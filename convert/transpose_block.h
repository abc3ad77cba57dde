// SPDX-License-Identifier: MIT
// Rows and columns of a block of memory exchanged, by vectors. Which blocks make a tensor is
// tensor_source.h's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convert {

/// Element (r, c) of `in` becomes element (c, r) of `out`, for `rows` by `columns` elements of
/// `element` bytes. Rows of both are that many bytes apart. The memories do not overlap and need
/// no alignment. Fast for 1, 2, 4 and 8 bytes.
void transpose_block(const std::byte* in, int64_t in_row, int64_t rows, int64_t columns,
                     int64_t element, std::byte* out, int64_t out_row) noexcept;

}  // namespace convert
