// SHA-256, for naming a tokenizer's configuration in manifests.
// digest.cc alone sees libcrypto.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace tok {

/// SHA-256 of some bytes, as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace tok
