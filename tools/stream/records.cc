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
      spans_(keys_.size()) {}

DocumentReader::DocumentReader(DocumentReader&&) noexcept = default;
DocumentReader::~DocumentReader() = default;

void DocumentReader::read(const Chunk& chunk, ChunkReport& report,
                          const std::function<void(const Document&)>& each) {
  const std::string_view text = chunk.text();
  const char mark = format_ == Format::nul ? '\0' : '\n';
  size_t at = 0;
  size_t mark_at = 0;  // the first mark from `at` on; searched once for all the \r before it
  const auto find_mark = [&] { return format_ == Format::file ? kNone : text.find(mark, at); };
  while (at < text.size()) {
    if (at == 0 || at > mark_at) mark_at = find_mark();
    const bool ended = mark_at != kNone;
    const size_t end = ended ? mark_at : text.size();
    std::string_view record = text.substr(at, end - at);
    size_t next = end + 1;
    if (format_ == Format::json || format_ == Format::lines) {
      // As Python reads files: \r\n ends a line, and so does a \r alone.
      const size_t carriage = record.find('\r');
      if (carriage != std::string_view::npos) {
        if (carriage + 1 != record.size() || !ended) next = at + carriage + 1;
        record = record.substr(0, carriage);
      }
    }
    read_record(text, record, report.lines, chunk.offset == 0 && at == 0, report, each);
    ++report.lines;
    at = next;
  }
}

void DocumentReader::read_record(std::string_view text, std::string_view record, int64_t line,
                                 bool first_record, ChunkReport& report,
                                 const std::function<void(const Document&)>& each) {
  const size_t begin = static_cast<size_t>(record.data() - text.data());
  if (format_ == Format::json && is_blank(record)) return;
  ++report.documents;
  Complaint complaint;
  bool good = false;
  if (first_record && format_ == Format::json && record.starts_with(kByteOrderMark)) {
    complaint = {
        Reason::byte_order_mark, 0,
        "the file opens with a byte order mark: expected JSON, remove its first three bytes"};
  } else {
    good = parse(record, complaint);
  }
  if (good) {
    each({record, texts_, lists_, line, static_cast<int64_t>(begin), &complaint});
    if (complaint.what.empty()) return;
  }
  complaint.offset += begin;
  report.refusals.push_back({std::move(complaint), line, begin, record.size()});
}

bool DocumentReader::parse(std::string_view record, Complaint& complaint) {
  if (!simdjson::validate_utf8(record.data(), record.size())) {
    const size_t bad = find_bad_utf8(record);
    complaint = {Reason::utf8, bad,
                 cli::concat("byte ", cli::quote(record.substr(bad, 1)), " is not UTF-8")};
    return false;
  }
  if (format_ == Format::json) return parse_json(record, complaint);
  texts_[0].assign(1, record);
  return true;
}

bool DocumentReader::parse_json(std::string_view record, Complaint& complaint) {
  const size_t room_needed = record.size() + kRoomSlack;
  if (room_bytes_ < room_needed || room_bytes_ > std::max(room_needed, kKeptRoom)) {
    room_bytes_ = std::max(room_needed, kKeptRoom / 16);
    room_ = std::make_unique_for_overwrite<char[]>(room_bytes_);
  }
  char* room = room_.get();
  if (!scan_json(record, keys_, spelling_, spans_, room, complaint)) return false;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (spans_[i].end == 0) {
      complaint = {Reason::missing_key, 0,
                   cli::concat("key ", cli::quote(keys_[i]), " is missing")};
      return false;
    }
    if (!take_span(record, i, room, complaint)) return false;
  }
  return true;
}

bool DocumentReader::take_span(std::string_view record, size_t key, char*& room,
                               Complaint& complaint) {
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
    const JsonString item = read_string(record, at, spelling_, room);
    if (!take(item.text, item.surrogate)) return false;
    at = item.end;
  }
}

}  // namespace stream
