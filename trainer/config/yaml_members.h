// A YAML file of keys and values as JSON, within bounds of memory. Not here: what the keys mean
// (neox.cc). May include: tools/cli, nlohmann-json, yaml-cpp.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace trainer {

/// The keys of the one map in `text`, in order, with their values; a key that occurs twice is there
/// twice. A plain scalar has YAML's type, a quoted one is a string; aliases are written out.
/// `path` is named in errors. Errors: cli::UsageError with the line, for a text that is no YAML, is
/// no map, has several documents, is not UTF-8, is too deep, or too large with its aliases.
std::vector<std::pair<std::string, nlohmann::json>> yaml_members(const std::string& path,
                                                                 const std::string& text);

}  // namespace trainer
