// SPDX-License-Identifier: MIT
// A walk over the bytes of many tensors on all processors, a block at a time: what every writer of
// tensors does. A block stays in a cache while it is looked at, summed and written, so memory is
// read once and written once; several blocks, of neighbouring tensors too, are under way at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "convert/tensor_source.h"

namespace convert {

/// Bytes of a block, except at a tensor's end. A multiple of every element's size.
inline constexpr int64_t kBlockBytes = 2 << 20;

/// Some bytes of a tensor.
struct TensorBlock {
  size_t tensor = 0;  ///< index into the tensors walked over
  int64_t at = 0;     ///< place of the first byte in the tensor
  std::span<const std::byte> bytes;
};

/// Calls use(block) for every block of every tensor: on any thread, several at a time, in about the
/// order of tensors. Memory: a few blocks a thread, and what a source holds itself. Pages of a
/// tensor are given back when its last block was used.
/// Errors: those of the sources and of `use`; no block is begun after the first.
void for_each_block(std::span<const TensorSource> tensors,
                    const std::function<void(const TensorBlock&)>& use);

/// Reads each tensor into the memory of the same index, which has room for it, on all processors.
/// Errors: those of the sources.
void load_all(std::span<const TensorSource> tensors, std::span<std::byte* const> memories);

}  // namespace convert
