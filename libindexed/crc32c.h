// SPDX-License-Identifier: MIT
// CRC-32C (Castagnoli), the checksum of the blocks in a manifest: in hardware where the processor
// has SSE 4.2, chosen at run time, by table elsewhere. Detects every error of up to 32 bits in a
// row. Not a defence against intent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace indexed {

/// The checksum of what `crc` was the checksum of, followed by `bytes`. Start with 0.
uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes) noexcept;

/// The checksum of what `crc` was the checksum of, followed by `bytes` bytes whose own is `next`.
uint32_t crc32c_joined(uint32_t crc, uint32_t next, int64_t bytes) noexcept;

/// crc32c() by table, on any machine; the law that the hardware answers to in tests.
uint32_t crc32c_by_table(uint32_t crc, std::span<const std::byte> bytes) noexcept;

}  // namespace indexed
