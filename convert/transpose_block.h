// SPDX-License-Identifier: MIT
// Transposes a block of memory with vector instructions. Not here: which blocks make up a tensor
// (tensor_source.h).
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
