// SPDX-License-Identifier: MIT
// Room: tools/stream. A file that is one JSON array, made into JSON lines as it is read: the commas
// between its items become line ends, its brackets and all other line ends become blanks; those
// inside a string, which JSON forbids, become kLineEndInString. No byte moves, so places in the
// text are places in the file, and a line's number is its item's. The reader of the lines checks
// the items (json_scan.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace stream {

/// A control character for a line end inside a string: the item is refused as one line.
inline constexpr char kLineEndInString = '\x1e';

/// One file's array. One thread.
class ArrayLines {
 public:
  /// `name` is for messages.
  explicit ArrayLines(std::string name) : name_(std::move(name)) {}

  /// Rewrites the next bytes of the file. Errors: InputError if it is not an array: another first
  /// character, an empty item, a bracket that does not match, bytes after the end.
  void rewrite(std::span<char> bytes);

  /// The file has ended. Errors: InputError if the array has not.
  void end() const;

 private:
  void mark(char& byte);
  [[noreturn]] void refuse(int64_t at, const std::string& what) const;

  std::string name_;
  int64_t at_ = 0;      ///< bytes of the file before the current one
  int64_t depth_ = 0;   ///< of brackets, including the array's
  int64_t commas_ = 0;  ///< between items
  bool opened_ = false;
  bool blank_ = true;  ///< no byte of the item has been read
  bool in_string_ = false;
  bool escaped_ = false;  ///< the byte before is the backslash of an escape
};

}  // namespace stream
