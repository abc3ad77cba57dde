// SPDX-License-Identifier: MIT
// CRC-32 of ZIP members. zlib's takes a second a gigabyte; here 16 bytes are folded at a time by
// carry-less products where the processor has them, chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace convert {

/// The checksum of what `crc` was the checksum of, followed by `bytes`. Start with 0. The same as
/// zlib's crc32().
/// Source: Gopal et al. 2009, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ".
uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes) noexcept;

/// The checksum of what `crc` was the checksum of, followed by `bytes` bytes whose own is `next`.
uint32_t crc32_joined(uint32_t crc, uint32_t next, int64_t bytes) noexcept;

}  // namespace convert
