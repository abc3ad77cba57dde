// SHA-256, for naming a tokenizer's configuration in manifests.
// Includes: C++ library only. Source: FIPS 180-4.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace tok {

/// SHA-256 of some bytes, as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace tok
