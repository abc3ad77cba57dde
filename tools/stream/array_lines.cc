// SPDX-License-Identifier: MIT
// Room: tools/stream. See array_lines.h: one look at each byte, strings stepped over.
#include "tools/stream/array_lines.h"

#include "tools/cli/text.h"
#include "tools/stream/input.h"

namespace stream {

void ArrayLines::refuse(int64_t at, const std::string& what) const {
  throw InputError(cli::concat(name_, ":byte ", at + 1, ": ", what));
}

void ArrayLines::rewrite(std::span<char> bytes) {
  for (char& byte : bytes) {
    if (!in_string_) {
      mark(byte);
    } else if (byte == '\n' || byte == '\r') {
      byte = kLineEndInString;
      escaped_ = false;
    } else if (escaped_) {
      escaped_ = false;
    } else if (byte == '\\') {
      escaped_ = true;
    } else if (byte == '"') {
      in_string_ = false;
    }
    ++at_;
  }
}

/// A byte outside of strings.
void ArrayLines::mark(char& byte) {
  const bool line_end = byte == '\n' || byte == '\r';
  if (byte == ' ' || byte == '\t' || line_end) {
    byte = byte == '\t' ? byte : ' ';
    return;
  }
  const std::string found = cli::concat("found ", cli::quote(std::string(1, byte)));
  if (!opened_) {
    if (byte != '[') refuse(at_, cli::concat(found, ", expected \"[\", which opens a JSON array"));
    opened_ = true;
    depth_ = 1;
    byte = ' ';
    return;
  }
  if (depth_ == 0) refuse(at_, cli::concat(found, " behind the JSON array"));
  if (byte == '[' || byte == '{') {
    ++depth_;
  } else if (byte == ']' || byte == '}') {
    if (depth_ == 1 && byte == '}') refuse(at_, cli::concat(found, ", expected \",\" or \"]\""));
    if (--depth_ == 0) {
      if (blank_ && commas_ > 0) refuse(at_, cli::concat(found, ", expected an item"));
      byte = '\n';
      return;
    }
  } else if (byte == ',' && depth_ == 1) {
    if (blank_) refuse(at_, cli::concat(found, ", expected an item"));
    byte = '\n';
    ++commas_;
    blank_ = true;
    return;
  }
  in_string_ = byte == '"';
  blank_ = false;
}

void ArrayLines::end() const {
  if (!opened_) refuse(at_, "the file ends, expected \"[\", which opens a JSON array");
  if (depth_ > 0)
    refuse(at_, cli::concat("the file ends inside the JSON array, in item ", commas_ + 1));
}

}  // namespace stream
