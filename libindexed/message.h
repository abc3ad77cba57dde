// SPDX-License-Identifier: MIT
// message(...): the pieces of an error message, joined; the standard library's format is not in the
// oldest compiler served. Messages say `place: what: why` without the tool's name, which the catch
// in main puts first.
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
