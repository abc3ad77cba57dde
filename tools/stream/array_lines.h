// SPDX-License-Identifier: MIT
// Room: tools/stream. A file that is one JSON array, made into JSON lines as it is read: the commas
// between its items become line ends, its brackets and all other line ends blanks. No byte moves,
// so places in the text are places in the file, and a line's number is its item's. Items are
// checked by who reads the lines (json_scan.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace stream {

/// One file's array. One thread.
class ArrayLines {
 public:
  /// `name` is for messages.
  explicit ArrayLines(std::string name) : name_(std::move(name)) {}

  /// Rewrites the bytes that follow those before. Errors: InputError for what is no array: another
  /// opening, an item of nothing, a bracket that does not fit, bytes behind the end.
  void rewrite(std::span<char> bytes);

  /// The file has ended. Errors: InputError where the array has not.
  void end() const;

 private:
  void mark(char& byte);
  [[noreturn]] void refuse(int64_t at, const std::string& what) const;

  std::string name_;
  int64_t at_ = 0;      ///< bytes of the file before the one at hand
  int64_t depth_ = 0;   ///< of brackets, the array's counted
  int64_t commas_ = 0;  ///< between items
  bool opened_ = false;
  bool blank_ = true;  ///< nothing of the item has come
  bool in_string_ = false;
  bool escaped_ = false;  ///< the byte before is the backslash of an escape
};

}  // namespace stream
