// SPDX-License-Identifier: MIT
// Processes the bytes of many tensors on all processors, a block at a time, as every writer of
// tensors does. A block stays in a cache while it is checked, summed and written, so memory is read
// once and written once. Several blocks, also of neighbouring tensors, are processed at the same
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "convert/tensor_source.h"

namespace convert {

/// Bytes per block, except at a tensor's end. A multiple of every element's size.
inline constexpr int64_t kBlockBytes = 2 << 20;

/// Some bytes of a tensor.
struct TensorBlock {
  size_t tensor = 0;  ///< index of the tensor
  int64_t at = 0;     ///< offset of the first byte in the tensor
  std::span<const std::byte> bytes;
};

/// Calls use(block) for every block of every tensor: on any thread, several at a time,
/// approximately in the order of tensors. Memory: a few blocks per thread, and what a source itself
/// needs. A tensor's pages are released after its last block. Errors: those of the sources and of
/// `use`; after the first no further block is started.
void for_each_block(std::span<const TensorSource> tensors,
                    const std::function<void(const TensorBlock&)>& use);

/// Reads each tensor into the memory of the same index, which must be large enough, on all
/// processors. Errors: those of the sources.
void load_all(std::span<const TensorSource> tensors, std::span<std::byte* const> memories);

/// Whether two tensors have the same dtype, shape and bytes. Errors: those of the sources.
bool same_bytes(const TensorSource& a, const TensorSource& b);

}  // namespace convert
