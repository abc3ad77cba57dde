// Reads the fault shim's log of what a process changed, in order: whether each name was given only
// to data already on the disk, and whether every name is on the disk in the end.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <functional>
#include <istream>
#include <map>
#include <set>
#include <string>
#include <vector>

/// Whether a name implies that another, given before it in its folder, exists.
using Relies = std::function<bool(const std::string& name, const std::string& earlier)>;

/// What a power cut could have left incomplete; `named` counts the names.
inline std::vector<std::string> torn_by_a_power_cut(std::istream& log, const Relies& relies,
                                                    int& named) {
  std::vector<std::string> torn;
  std::set<std::string> unsynced;  // files with bytes, and folders with names, not on the disk.
  std::multimap<std::string, std::string> names;  // by folder, while it is not on the disk
  const auto folder = [](const std::string& path) { return path.substr(0, path.rfind('/')); };
  std::string operation, path, from;
  while (log >> operation >> path) {
    if (operation == "write") unsynced.insert(path);
    if (operation == "fsync") unsynced.erase(path), names.erase(path);
    if (operation == "unlink") unsynced.erase(path);
    if (operation == "from") from = path;
    if (operation != "rename") continue;
    if (unsynced.contains(from)) torn.push_back(path + ": its bytes are not on the disk");
    for (const std::string& other : unsynced)
      if (other.starts_with(from + "/")) torn.push_back(path + ": without " + other);
    const auto [first, last] = names.equal_range(folder(path));
    if (std::any_of(first, last, [&](const auto& name) { return relies(path, name.second); }))
      torn.push_back(path + ": before a name that it relies on");
    if (!path.ends_with(".old.tmp")) {
      unsynced.insert(folder(path));
      names.emplace(folder(path), path);
    }
    ++named;
  }
  for (const std::string& other : unsynced) torn.push_back("in the end: " + other);
  return torn;
}
