// SPDX-License-Identifier: MIT
// Room: tools/stream. A path is followed only if the line has no member with the whole name, by a
// second scan of the object that the first one found.
#include "tools/stream/members.h"

#include <algorithm>
#include <array>
#include <utility>

namespace stream {
namespace {

/// Where a path's first part ends; npos where it has one part.
size_t first_point(std::string_view path) {
  const size_t point = path.find('.');
  return point == 0 || point + 1 >= path.size() ? std::string_view::npos : point;
}

}  // namespace

MemberFinder::MemberFinder(std::vector<std::string> keys)
    : num_keys_(keys.size()), scanned_(std::move(keys)) {
  for (size_t key = 0; key < num_keys_; ++key) {
    const size_t point = first_point(scanned_[key]);
    if (point == std::string::npos) continue;
    const std::string first = scanned_[key].substr(0, point);
    const auto found = std::find(scanned_.begin(), scanned_.end(), first);
    paths_.push_back(
        {key, static_cast<size_t>(found - scanned_.begin()), scanned_[key].substr(point + 1)});
    if (found == scanned_.end()) scanned_.push_back(first);
  }
  spans_.resize(scanned_.size());
}

bool MemberFinder::find(std::string_view line, const JsonHead& head, Spelling spelling, char*& room,
                        Complaint& complaint) {
  if (!scan_json(line, head, scanned_, spelling, spans_, room, complaint)) return false;
  for (const Path& path : paths_) {
    if (spans_[path.key].end == 0)
      spans_[path.key] = inside(line, spans_[path.first], path.rest, spelling, room);
  }
  return true;
}

/// The value under `path` of an object of the line; its end is 0 where there is none.
JsonSpan MemberFinder::inside(std::string_view line, const JsonSpan& object,
                              const std::string& path, Spelling spelling, char*& room) {
  if (object.end == 0 || object.type != JsonType::object) return {};
  const size_t point = first_point(path);
  const std::array<std::string, 2> keys = {
      path, point == std::string::npos ? std::string() : path.substr(0, point)};
  std::array<JsonSpan, 2> found;
  const size_t wanted = point == std::string::npos ? 1 : 2;
  Complaint none;  // the line was checked
  if (!scan_json(line.substr(object.begin, object.end - object.begin), {},
                 std::span(keys).first(wanted), spelling, std::span(found).first(wanted), room,
                 none))
    return {};
  for (JsonSpan& span : found) {
    if (span.end == 0) continue;
    span.begin += object.begin;
    span.end += object.begin;
    if (span.surrogate != std::string_view::npos) span.surrogate += object.begin;
  }
  if (found[0].end > 0 || wanted == 1) return found[0];
  return inside(line, found[1], path.substr(point + 1), spelling, room);
}

}  // namespace stream
