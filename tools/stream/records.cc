// SPDX-License-Identifier: MIT
// Room: tools/stream. Splits chunks into records and checks the types of the wanted values. JSON
// itself is in json_scan.h; simdjson checks UTF-8.
#include "tools/stream/records.h"

#include <algorithm>
#include <utility>

#include <simdjson.h>

#include "tools/cli/text.h"

namespace stream {
namespace {

/// Room for texts beyond this is freed instead of kept for the next line.
constexpr size_t kKeptRoom = size_t{4} << 20;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

constexpr size_t kNone = std::string_view::npos;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

/// Whether the key can be between quotes without escapes.
bool stands_as_it_is(std::string_view key) {
  return std::none_of(key.begin(), key.end(), [](char c) {
    return static_cast<uint8_t>(c) < 0x20 || c == '"' || c == '\\';
  });
}

/// Reads the head of the first line of `text`; `text` may have more lines, since a string cannot
/// contain a line end. `opening` is `{"KEY":`, which at most one blank follows.
JsonHead read_head(std::string_view text, std::string_view opening, Spelling spelling,
                   char*& room) {
  size_t begin = opening.size();
  if (begin == 0 || !text.starts_with(opening)) return {};
  if (text.substr(begin, 1) == " ") ++begin;
  if (text.substr(begin, 1) != "\"") return {};
  return {.begin = begin, .string = read_string(text, begin, spelling, room)};
}

/// Whether the head is the whole first line of `text`, except for the closing brace.
bool is_all(const JsonHead& head, std::string_view text) {
  return head.end() > 0 && head.string.surrogate == kNone && text.substr(head.end(), 2) == "}\n";
}

/// The keys that a line has, for the message that one is missing.
std::string present_keys(std::string_view line) {
  constexpr size_t kMostNames = 20;
  std::vector<std::string> names;
  for (const std::string_view name : member_names(line)) {
    names.push_back(names.size() == kMostNames ? "..." : cli::quote(name));
    if (names.size() > kMostNames) break;
  }
  if (names.empty()) return "the object is empty";
  return cli::concat(names.size() == 1 ? "there is only " : "there are ", cli::join(names, ", "));
}

/// What an input may be whose first record is not JSON, for the message that says so; else empty.
/// `alone`: nothing is behind it.
std::string_view other_kind(std::string_view record, bool alone) {
  const size_t begin = record.find_first_not_of(" \t");
  if (record == "{" && !alone) return " (an object on several lines: `jq -c .` puts it on one)";
  if (begin == std::string_view::npos || record[begin] == '{' || record[begin] == '[') return {};
  return record[begin] == '<' ? " (an XML dump: wiki-extract reads it)"
                              : " (plain text: --input-format lines)";
}

/// Whether an item of an array was refused for the line end that `fault` begins with, behind a
/// backslash or not.
bool is_line_end(std::string_view fault) {
  if (fault.starts_with('\\')) fault.remove_prefix(1);
  return fault.starts_with(kLineEndInString);
}

}  // namespace

Framing framing_of(Format format) {
  if (format == Format::nul) return Framing::nul;
  return format == Format::file ? Framing::file : Framing::lines;
}

void ChunkReport::clear() {
  documents = lines = 0;
  refusals.clear();
}

DocumentReader::DocumentReader(Format format, std::vector<std::string> keys, Spelling spelling,
                               std::optional<Condition> condition)
    : format_(format),
      members_(format == Format::json ? std::move(keys) : std::vector<std::string>(1)),
      keys_(members_.keys()),
      condition_(format == Format::json ? std::move(condition) : std::nullopt),
      spelling_(spelling),
      texts_(keys_.size()),
      lists_(keys_.size()) {
  if (format == Format::json && !condition_ && !keys_.empty() && stands_as_it_is(keys_[0])) {
    opening_ = cli::concat("{\"", keys_[0], "\":");
  }
}

DocumentReader::DocumentReader(DocumentReader&&) noexcept = default;
DocumentReader::~DocumentReader() = default;

void DocumentReader::open(const Chunk& chunk) {
  text_ = chunk.text();
  opens_input_ = chunk.offset == 0;
  array_ = chunk.array;
  // Records end between characters, so each is UTF-8 if all of them together are.
  all_utf8_ = simdjson::validate_utf8(text_.data(), text_.size());
  at_ = mark_at_ = 0;
  empty_file_ = format_ == Format::file && text_.empty() && chunk.first;
  document_.texts = texts_;
  document_.lists = lists_;
  document_.verdict = &complaint_;
  complaint_ = {};
  const size_t room_needed = text_.size() + kRoomSlack;
  if (format_ != Format::json ||
      (room_needed <= room_bytes_ && room_bytes_ <= std::max(room_needed, kKeptRoom)))
    return;
  room_bytes_ = std::max(room_needed, kKeptRoom / 16);
  room_ = std::make_unique_for_overwrite<char[]>(room_bytes_);
}

/// Reads up to the next good record, which is then document_; false at the end of the chunk.
bool DocumentReader::next(ChunkReport& report) {
  const std::string_view opening = all_utf8_ ? opening_ : std::string_view();
  for (; at_ < text_.size() || std::exchange(empty_file_, false); ++report.lines) {
    const std::string_view rest = text_.substr(at_);
    document_.line = report.lines;
    document_.offset = static_cast<int64_t>(at_);
    room_left_ = room_.get();
    const JsonHead head = read_head(rest, opening, spelling_, room_left_);
    if (keys_.size() == 1 && is_all(head, rest)) {
      ++report.documents;
      texts_[0].assign(1, {head.string.text.data(), head.string.text.size()});
      lists_[0] = 0;
      document_.raw = rest.substr(0, head.end() + 1);
      at_ += head.end() + 2;
      return true;
    }
    cut_record(head);
    if (format_ == Format::json && is_blank(document_.raw)) continue;
    ++report.documents;
    if (parse(head)) return true;
    refuse(report);
  }
  return false;
}

/// Adds the record to the refused ones.
void DocumentReader::refuse(ChunkReport& report) {
  const auto begin = static_cast<size_t>(document_.offset);
  complaint_.offset += begin;
  report.refusals.push_back({std::move(complaint_), document_.line, begin, document_.raw.size()});
  complaint_ = {};
}

/// Finds the end of the record that begins at at_, and goes to the next.
void DocumentReader::cut_record(const JsonHead& head) {
  const char mark = format_ == Format::nul ? '\0' : '\n';
  if (at_ == 0 || at_ > mark_at_)
    mark_at_ = format_ == Format::file ? kNone : text_.find(mark, at_ + head.end());
  const bool ended = mark_at_ != kNone;
  const size_t end = ended ? mark_at_ : text_.size();
  std::string_view record = text_.substr(at_, end - at_);
  size_t next = end + 1;
  if (format_ == Format::json || format_ == Format::lines) {
    // As Python reads files: \r\n ends a line, and so does a \r alone.
    const size_t carriage = record.find('\r', head.end());
    if (carriage != std::string_view::npos) {
      if (carriage + 1 != record.size() || !ended) next = at_ + carriage + 1;
      record = record.substr(0, carriage);
    }
  }
  document_.raw = record;
  at_ = next;
}

/// The texts of the record; false where it is refused, with complaint_.
bool DocumentReader::parse(const JsonHead& head) {
  const std::string_view record = document_.raw;
  if (opens_input_ && document_.offset == 0 && format_ == Format::json &&
      record.starts_with(kByteOrderMark)) {
    complaint_ = {
        Reason::byte_order_mark, 0,
        "the file opens with a byte order mark: expected JSON, remove its first three bytes"};
    return false;
  }
  if (!all_utf8_ && !simdjson::validate_utf8(record.data(), record.size())) {
    const size_t bad = find_bad_utf8(record);
    complaint_ = {Reason::utf8, bad,
                  cli::concat("byte ", cli::quote(record.substr(bad, 1)), " is not UTF-8")};
    return false;
  }
  if (format_ == Format::json) return parse_json(head);
  texts_[0].assign(1, record);
  return true;
}

bool DocumentReader::parse_json(const JsonHead& head) {
  if (head.end() == 0) room_left_ = room_.get();  // an invalid string may have begun there
  if (!members_.find(document_.raw, head, spelling_, room_left_, complaint_)) {
    if (opens_input_ && document_.line == 0 && complaint_.reason == Reason::json)
      complaint_.what += other_kind(document_.raw, at_ >= text_.size());
    if (array_ && is_line_end(document_.raw.substr(complaint_.offset)))
      complaint_.what = "malformed JSON: line end inside a string, expected the escape \\n";
    return false;
  }
  if (condition_) {
    const int met = condition_->holds(document_.raw, complaint_);
    if (met < 0) return false;
    document_.wanted = met == 1;
    if (!document_.wanted) return true;
  }
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (members_.spans()[i].end == 0) {
      complaint_ = {
          Reason::missing_key, 0,
          cli::concat("key ", cli::quote(keys_[i]), " is missing: ", present_keys(document_.raw))};
      return false;
    }
    if (!take_span(i)) return false;
  }
  return true;
}

bool DocumentReader::take_span(size_t key) {
  const std::string_view record = document_.raw;
  const JsonSpan span = members_.spans()[key];
  texts_[key].clear();
  const auto wrong_type = [&](std::string_view what, size_t at) {
    complaint_ = {Reason::wrong_type, at,
                  cli::concat("key ", cli::quote(keys_[key]), what,
                              ", expected a string or a list of strings")};
    return false;
  };
  if (span.type != JsonType::string && span.type != JsonType::list) {
    return wrong_type(cli::concat(" is ", name_of(span.type)), span.begin);
  }
  const auto take = [&](std::string_view text, size_t surrogate) {
    texts_[key].push_back(text);
    if (surrogate == std::string_view::npos) return true;
    complaint_ = {Reason::surrogate, surrogate,
                  cli::concat("lone surrogate ", record.substr(surrogate, 6), " in key ",
                              cli::quote(keys_[key]), ": no character, it has no UTF-8 form")};
    return false;
  };
  lists_[key] = span.type == JsonType::list ? 1 : 0;
  if (span.type == JsonType::string) return take(span.text, span.surrogate);
  for (size_t at = span.begin + 1;;) {
    at = record.find_first_not_of(" \t\r\n,", at);
    if (at >= span.end || record[at] == ']') return true;
    if (record[at] != '"') return wrong_type(" has an item that is no string", at);
    const JsonString item = read_string(record, at, spelling_, room_left_);
    if (!take(item.text, item.surrogate)) return false;
    at = item.end;
  }
}

}  // namespace stream
