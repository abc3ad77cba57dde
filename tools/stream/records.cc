// SPDX-License-Identifier: MIT
// Room: tools/stream. Splitting, and what the values of the wanted keys may be. JSON itself is in
// json_scan.h; simdjson says whether a record is UTF-8.
#include "tools/stream/records.h"

#include <algorithm>

#include <simdjson.h>

#include "tools/cli/text.h"

namespace stream {
namespace {

/// Room for texts beyond this is given back rather than kept for the next line.
constexpr size_t kKeptRoom = size_t{4} << 20;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

constexpr size_t kNone = std::string_view::npos;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

/// Whether JSON may have the key between quotes without escapes.
bool stands_as_it_is(std::string_view key) {
  return std::none_of(key.begin(), key.end(), [](char c) {
    return static_cast<uint8_t>(c) < 0x20 || c == '"' || c == '\\';
  });
}

/// Whether a head is all of the line that begins `text`, the closing brace aside.
bool is_all(const JsonHead& head, std::string_view text) {
  return head.end > 0 && head.span.surrogate == kNone && text.substr(head.end, 2) == "}\n";
}

/// Lists a record of `text`; the complaint's offset is in the record.
void refuse(std::string_view text, std::string_view record, Complaint& complaint,
            ChunkReport& report) {
  const size_t begin = static_cast<size_t>(record.data() - text.data());
  complaint.offset += begin;
  report.refusals.push_back({std::move(complaint), report.lines, begin, record.size()});
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

DocumentReader::DocumentReader(Format format, std::vector<std::string> keys, Spelling spelling)
    : format_(format),
      keys_(format == Format::json ? std::move(keys) : std::vector<std::string>(1)),
      spelling_(spelling),
      texts_(keys_.size()),
      lists_(keys_.size()),
      spans_(keys_.size()) {
  if (format == Format::json && !keys_.empty() && stands_as_it_is(keys_[0])) {
    opening_ = cli::concat("{\"", keys_[0], "\":");
  }
}

DocumentReader::DocumentReader(DocumentReader&&) noexcept = default;
DocumentReader::~DocumentReader() = default;

void DocumentReader::make_room(size_t bytes) {
  if (bytes <= room_bytes_ && room_bytes_ <= std::max(bytes, kKeptRoom)) return;
  room_bytes_ = std::max(bytes, kKeptRoom / 16);
  room_ = std::make_unique_for_overwrite<char[]>(room_bytes_);
}

/// Hands on a record whose texts are known, and lists it where it is then refused.
void DocumentReader::give(std::string_view text, std::string_view record, ChunkReport& report,
                          const std::function<void(const Document&)>& each) {
  const size_t begin = static_cast<size_t>(record.data() - text.data());
  Complaint complaint;
  each({record, texts_, lists_, report.lines, static_cast<int64_t>(begin), &complaint});
  if (!complaint.what.empty()) refuse(text, record, complaint, report);
}

/// The head of the line that begins `text`, where it may be read before the line's end is known.
JsonHead DocumentReader::head_of(std::string_view text) {
  if (!all_utf8_ || opening_.empty()) return {};
  return read_head(text, opening_, spelling_, room_left_);
}

void DocumentReader::read(const Chunk& chunk, ChunkReport& report,
                          const std::function<void(const Document&)>& each) {
  const std::string_view text = chunk.text();
  // Records end between characters, so each is UTF-8 where all of them together are.
  all_utf8_ = simdjson::validate_utf8(text.data(), text.size());
  if (format_ == Format::json) make_room(text.size() + kRoomSlack);
  const char mark = format_ == Format::nul ? '\0' : '\n';
  size_t at = 0;
  size_t mark_at = 0;  // the first mark from `at` on; searched once for all the \r before it
  while (at < text.size()) {
    room_left_ = room_.get();
    const JsonHead head = head_of(text.substr(at));  // no line ends in it
    if (keys_.size() == 1 && is_all(head, text.substr(at))) {
      ++report.documents;
      texts_[0].assign(1, head.span.text);
      lists_[0] = 0;
      give(text, text.substr(at, head.end + 1), report, each);
      ++report.lines;
      at += head.end + 2;
      continue;
    }
    if (at == 0 || at > mark_at)
      mark_at = format_ == Format::file ? kNone : text.find(mark, at + head.end);
    const bool ended = mark_at != kNone;
    const size_t end = ended ? mark_at : text.size();
    std::string_view record = text.substr(at, end - at);
    size_t next = end + 1;
    if (format_ == Format::json || format_ == Format::lines) {
      // As Python reads files: \r\n ends a line, and so does a \r alone.
      const size_t carriage = record.find('\r', head.end);
      if (carriage != std::string_view::npos) {
        if (carriage + 1 != record.size() || !ended) next = at + carriage + 1;
        record = record.substr(0, carriage);
      }
    }
    read_record(text, record, head, chunk.offset == 0 && at == 0, report, each);
    ++report.lines;
    at = next;
  }
}

void DocumentReader::read_record(std::string_view text, std::string_view record,
                                 const JsonHead& head, bool first_record, ChunkReport& report,
                                 const std::function<void(const Document&)>& each) {
  if (format_ == Format::json && is_blank(record)) return;
  ++report.documents;
  Complaint complaint;
  if (first_record && format_ == Format::json && record.starts_with(kByteOrderMark)) {
    complaint = {
        Reason::byte_order_mark, 0,
        "the file opens with a byte order mark: expected JSON, remove its first three bytes"};
  } else if (parse(record, head, complaint)) {
    return give(text, record, report, each);
  }
  refuse(text, record, complaint, report);
}

bool DocumentReader::parse(std::string_view record, const JsonHead& head, Complaint& complaint) {
  if (!all_utf8_ && !simdjson::validate_utf8(record.data(), record.size())) {
    const size_t bad = find_bad_utf8(record);
    complaint = {Reason::utf8, bad,
                 cli::concat("byte ", cli::quote(record.substr(bad, 1)), " is not UTF-8")};
    return false;
  }
  if (format_ == Format::json) return parse_json(record, head, complaint);
  texts_[0].assign(1, record);
  return true;
}

bool DocumentReader::parse_json(std::string_view record, const JsonHead& head,
                                Complaint& complaint) {
  if (!scan_json(record, head, keys_, spelling_, spans_, room_left_, complaint)) return false;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (spans_[i].end == 0) {
      complaint = {Reason::missing_key, 0,
                   cli::concat("key ", cli::quote(keys_[i]), " is missing")};
      return false;
    }
    if (!take_span(record, i, complaint)) return false;
  }
  return true;
}

bool DocumentReader::take_span(std::string_view record, size_t key, Complaint& complaint) {
  const JsonSpan span = spans_[key];
  texts_[key].clear();
  const auto wrong_type = [&](std::string_view what, size_t at) {
    complaint = {Reason::wrong_type, at,
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
    complaint = {Reason::surrogate, surrogate,
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
