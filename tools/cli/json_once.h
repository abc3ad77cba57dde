// A JSON text in whose objects no key stands twice. Parsers keep the last one, so that a number
// which a user reads and changes may not be the one that counts.
// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace cli {

/// A key that stands twice in one object; what() is the key.
class TwiceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Errors: Json::exception for what is no JSON; TwiceError.
template <class Json>
Json parse_once(std::string_view text) {
  using Event = typename Json::parse_event_t;
  std::vector<std::set<std::string>> open;  // the keys so far of the objects around this place
  return Json::parse(text, [&](int, Event event, Json& parsed) {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event != Event::key) return true;
    const auto key = parsed.template get<std::string>();
    if (!open.back().insert(key).second) throw TwiceError(key);
    return true;
  });
}

}  // namespace cli
