// SPDX-License-Identifier: MIT
// Base64 as tiktoken's files and their kin have it. Includes: C++ library only.
#pragma once

#include <string>
#include <string_view>

namespace tok {

/// Decodes padded base64 into `out`. Returns false when the text is not that.
bool decode_base64(std::string_view text, std::string& out);

}  // namespace tok
