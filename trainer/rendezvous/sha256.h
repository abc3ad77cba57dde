// SHA-256 and HMAC-SHA-256, for knowing a job's own processes. Not here: where the secret is kept
// (launch.h), the exchange (meeting.h). sha256.cc alone sees libcrypto.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rendezvous {

/// 32 bytes.
std::string sha256(std::string_view data);
/// 32 bytes that only who knows `key` can make.
std::string hmac_sha256(std::string_view key, std::string_view data);
/// Equality in a time that does not depend on where they differ.
bool same_bytes(std::string_view a, std::string_view b) noexcept;
/// Bytes from the system's generator. Errors: std::system_error.
std::string random_bytes(size_t count);
/// Lower case, two characters a byte.
std::string to_hex(std::string_view bytes);

}  // namespace rendezvous
