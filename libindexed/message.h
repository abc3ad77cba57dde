// SPDX-License-Identifier: MIT
// message(...): joins the parts of an error message; the oldest supported compiler's library has no
// std::format. Messages are `place: what: why` without the tool's name, which the catch in main
// prepends.
#pragma once

#include <sstream>
#include <string>

namespace indexed {

/// The arguments printed one after another with operator<<.
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace indexed
