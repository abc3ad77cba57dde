// SPDX-License-Identifier: MIT
// Room: tools/stream. Values of a JSON line by their keys, also of objects inside it: raw.text is
// the member "raw.text" of the line, or, if there is none, "text" of the object "raw". json_scan.h
// parses the JSON.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/stream/json_scan.h"

namespace stream {

/// Finds the values of some keys in one line after another. One thread at a time.
class MemberFinder {
 public:
  explicit MemberFinder(std::vector<std::string> keys);

  std::span<const std::string> keys() const { return std::span(scanned_).first(num_keys_); }

  /// As scan_json, for paths too; spans() has the values afterwards.
  bool find(std::string_view line, const JsonHead& head, Spelling spelling, char*& room,
            Complaint& complaint);

  /// One entry for each key; views of the line and the room.
  std::span<const JsonSpan> spans() const { return std::span(spans_).first(num_keys_); }

 private:
  /// A key with a point in it; `scanned_` has the object of its first part.
  struct Path {
    size_t key;
    size_t first;
    std::string rest;
  };
  static JsonSpan inside(std::string_view line, const JsonSpan& object, const std::string& path,
                         Spelling spelling, char*& room);

  size_t num_keys_;
  std::vector<std::string> scanned_;  ///< the keys, and the first parts of paths
  std::vector<JsonSpan> spans_;
  std::vector<Path> paths_;
};

}  // namespace stream
