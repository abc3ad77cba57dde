// SPDX-License-Identifier: MIT
// MD5, because Megatron names its cache files by it. Not for anything that an attacker can
// influence.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace indexed {

/// The digest of RFC 1321 as 32 lower-case hexadecimal digits.
std::string md5_hex(std::span<const std::byte> bytes);
std::string md5_hex(std::string_view text);

}  // namespace indexed
