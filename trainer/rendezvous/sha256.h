// SHA-256 and HMAC-SHA-256, for recognising a job's own processes. Not here: the secret (launch.h),
// the exchange (meeting.h). Only sha256.cc includes libcrypto.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rendezvous {

/// 32 bytes.
std::string sha256(std::string_view data);
/// 32 bytes that can be computed only with `key`.
std::string hmac_sha256(std::string_view key, std::string_view data);
/// Comparison in constant time.
bool same_bytes(std::string_view a, std::string_view b) noexcept;
/// Bytes from the system's random generator. Errors: std::system_error.
std::string random_bytes(size_t count);
/// Lower case, two characters per byte.
std::string to_hex(std::string_view bytes);

}  // namespace rendezvous
