// See yaml_members.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/config/yaml_members.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/cli/fields.h"
#include "tools/cli/parse.h"
#include "tools/cli/text.h"

namespace trainer {
namespace {

using cli::concat;
using cli::UsageError;
using nlohmann::json;

// A plain scalar has the type that YAML gives it; a quoted one is a string.
json scalar(const YAML::Node& node) {
  const std::string text = node.Scalar();
  if (node.Tag() == "!") return text;
  constexpr std::array<std::string_view, 6> kTrue = {"true", "True", "TRUE", "yes", "Yes", "on"};
  constexpr std::array<std::string_view, 6> kFalse = {"false", "False", "FALSE", "no", "No", "off"};
  if (std::ranges::find(kTrue, text) != kTrue.end()) return true;
  if (std::ranges::find(kFalse, text) != kFalse.end()) return false;
  if (text == "null" || text == "None" || text == "~" || text.empty()) return nullptr;
  const char* end = text.data() + text.size();
  int64_t whole = 0;
  const std::from_chars_result result = std::from_chars(text.data(), end, whole);
  if (result.ec == std::errc() && result.ptr == end) return whole;
  try {
    return cli::parse_real(text, -1e300, 1e300);
  } catch (const UsageError&) {
    return text;
  }
}

// Whether a document begins after another: YAML::Load reads the first alone, and YAML::LoadAll
// does not end on some damaged texts.
// Source: YAML 1.2.2, 9.1 and 9.2: a line that opens with --- or ... is in no value.
bool has_several_documents(std::string_view text) {
  bool begun = false, ended = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const bool marks = line.find_first_not_of(" \t\r", 3) != 3;
    if (marks && line.starts_with("...")) {
      ended = begun;
      continue;
    }
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == line.npos || line[first] == '#' || line[0] == '%') continue;
    if (ended || (begun && marks && line.starts_with("---"))) return true;
    begun = true;
  }
  return false;
}

// Writes a file's aliases out, up to a bound: a few of them, inside one another, stand for more
// than any memory holds, and one inside itself for ever more.
class Expansion {
 public:
  explicit Expansion(std::string path, size_t file_bytes)
      : path_(std::move(path)), left_(std::max(kMost, 4 * file_bytes)) {}

  json value(const YAML::Node& node, int depth = 0) {
    const size_t cost = 1 + (node.IsScalar() ? node.Scalar().size() : 0);
    if (depth >= kDeepest) fail(node, concat("values lie more than ", kDeepest, " deep"));
    if (cost > left_)
      fail(node, concat("with its aliases written out it has more than ",
                        cli::with_commas(int64_t{kMost}), " values and bytes"));
    left_ -= cost;
    if (node.IsScalar()) return text(node, scalar(node));
    if (node.IsSequence()) {
      json list = json::array();
      for (const YAML::Node& item : node) list.push_back(value(item, depth + 1));
      return list;
    }
    if (!node.IsMap()) return nullptr;
    json map = json::object();
    for (const auto& member : node) {
      const json key = text(member.first, member.first.as<std::string>());
      map[key.get_ref<const std::string&>()] = value(member.second, depth + 1);
    }
    return map;
  }

 private:
  static constexpr size_t kMost = 1 << 20;
  static constexpr int kDeepest = 64;

  [[noreturn]] void fail(const YAML::Node& node, const std::string& why) const {
    throw UsageError(concat(path_, ":", node.Mark().line + 1, ": ", why));
  }

  // `value`, which is `node`'s, if JSON can hold it: yaml-cpp does not look at what it reads.
  json text(const YAML::Node& node, json value) const {
    try {
      static_cast<void>(value.dump());
    } catch (const json::exception&) {
      fail(node, concat(cli::quote(node.Scalar()), " is not UTF-8"));
    }
    return value;
  }

  std::string path_;
  size_t left_;
};

}  // namespace

std::vector<std::pair<std::string, json>> yaml_members(const std::string& path,
                                                       const std::string& text) {
  try {
    if (has_several_documents(text))
      throw UsageError(concat(path, ": several documents, divided by ---: expected one"));
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) throw UsageError(concat(path, ": expected keys with values"));
    Expansion expansion(path, text.size());
    std::vector<std::pair<std::string, json>> members;
    for (const auto& member : root)
      members.emplace_back(member.first.as<std::string>(), expansion.value(member.second));
    return members;
  } catch (const YAML::Exception& error) {
    throw UsageError(concat(path, ":", error.mark.line + 1, ": ", error.msg));
  }
}

}  // namespace trainer
