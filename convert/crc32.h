// SPDX-License-Identifier: MIT
// CRC-32 of ZIP members. zlib's takes a second per gigabyte; here 16 bytes at a time are folded by
// carry-less multiplication if the processor supports it, which is decided at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace convert {

/// Extends `crc`, the checksum of the data so far, by `bytes`. Start with 0. The same as zlib's
/// crc32().
/// Source: Gopal et al. 2009, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ".
uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes) noexcept;

/// The checksum of two concatenated parts with checksums `crc` and `next`; the second has `bytes`
/// bytes.
uint32_t crc32_joined(uint32_t crc, uint32_t next, int64_t bytes) noexcept;

}  // namespace convert
