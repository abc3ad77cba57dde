// SPDX-License-Identifier: MIT
// CRC-32C (Castagnoli), the checksum of the blocks in a manifest: in hardware if the processor has
// SSE 4.2, chosen at run time, otherwise by table. Detects every burst error of up to 32 bits. Does
// not protect against deliberate changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace indexed {

/// Extends the checksum `crc` by `bytes`. Start with 0.
uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes) noexcept;

/// A checksum's eight hexadecimal digits.
std::string hex8(uint32_t checksum);

/// Extends the checksum `crc` by `bytes` bytes whose own checksum is `next`.
uint32_t crc32c_joined(uint32_t crc, uint32_t next, int64_t bytes) noexcept;

/// crc32c() by table, on any machine; tests compare the hardware's with it.
uint32_t crc32c_by_table(uint32_t crc, std::span<const std::byte> bytes) noexcept;

}  // namespace indexed
