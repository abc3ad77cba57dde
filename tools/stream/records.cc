// SPDX-License-Identifier: MIT
// Room: tools/stream. Splitting, and the fast way through simdjson. A line that simdjson refuses
// goes to the law (json_scan.h), which either takes it, as Python would, or says where and why not.
#include "tools/stream/records.h"

#include <new>

#include <simdjson.h>

#include "tools/cli/text.h"

namespace stream {
namespace {

/// Lines up to this go through simdjson, whose tables take 14 bytes a byte of line.
constexpr size_t kFastLineBytes = size_t{256} << 10;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

bool take_value(simdjson::dom::element value, std::vector<std::string_view>& texts, char& is_list) {
  texts.clear();
  is_list = 0;
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) {
    texts.push_back(text);
    return true;
  }
  simdjson::dom::array list;
  if (value.get(list) != simdjson::SUCCESS) return false;
  is_list = 1;
  for (const simdjson::dom::element item : list) {
    if (item.get(text) != simdjson::SUCCESS) return false;
    texts.push_back(text);
  }
  return true;
}

}  // namespace

struct DocumentReader::Parser {
  simdjson::dom::parser json;
  std::vector<simdjson::dom::element> values;
  std::vector<bool> found;
};

Framing framing_of(Format format) {
  if (format == Format::nul) return Framing::nul;
  return format == Format::file ? Framing::file : Framing::lines;
}

void ChunkReport::clear() {
  documents = lines = 0;
  refusals.clear();
}

DocumentReader::DocumentReader(Format format, std::vector<std::string> keys, bool law_only)
    : format_(format),
      keys_(format == Format::json ? std::move(keys) : std::vector<std::string>(1)),
      law_only_(law_only),
      parser_(std::make_unique<Parser>()),
      texts_(keys_.size()),
      lists_(keys_.size()),
      spans_(keys_.size()) {
  parser_->values.resize(keys_.size());
  parser_->found.resize(keys_.size());
  if (format == Format::json && parser_->json.allocate(kFastLineBytes) != simdjson::SUCCESS) {
    throw std::bad_alloc();
  }
}

DocumentReader::DocumentReader(DocumentReader&&) noexcept = default;
DocumentReader::~DocumentReader() = default;

void DocumentReader::read(const Chunk& chunk, ChunkReport& report,
                          const std::function<void(const Document&)>& each) {
  const std::string_view text = chunk.text();
  const char mark = format_ == Format::nul ? '\0' : '\n';
  size_t at = 0;
  while (at < text.size()) {
    size_t end = format_ == Format::file ? text.size() : text.find(mark, at);
    const bool ended = end != std::string_view::npos;
    if (!ended) end = text.size();
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
  if (format_ == Format::json && !law_only_ && record.size() <= kFastLineBytes &&
      parse_json(record, complaint))
    return true;
  if (!simdjson::validate_utf8(record.data(), record.size())) {
    const size_t bad = find_bad_utf8(record);
    complaint = {Reason::utf8, bad,
                 cli::concat("byte ", cli::quote(record.substr(bad, 1)), " is not UTF-8")};
    return false;
  }
  if (format_ == Format::json) return parse_by_law(record, complaint);
  texts_[0].assign(1, record);
  return true;
}

/// False where the law has to decide, for good or bad; complaint is not set.
bool DocumentReader::parse_json(std::string_view record, Complaint&) {
  simdjson::dom::object object;
  // The chunk's padding stands for the parser's.
  const auto parsed = parser_->json.parse(record.data(), record.size(), false);
  if (parsed.get(object) != simdjson::SUCCESS) return false;
  parser_->found.assign(keys_.size(), false);
  for (const simdjson::dom::key_value_pair member : object) {
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (member.key == keys_[i]) {  // of equal keys the last one counts
        parser_->values[i] = member.value;
        parser_->found[i] = true;
      }
    }
  }
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (!parser_->found[i] || !take_value(parser_->values[i], texts_[i], lists_[i])) {
      return false;
    }
  }
  return true;
}

bool DocumentReader::parse_by_law(std::string_view record, Complaint& complaint) {
  if (!scan_json(record, keys_, spans_, complaint)) return false;
  unescaped_.clear();
  unescaped_.reserve(record.size());  // views into it stay valid
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
  lists_[key] = span.type == JsonType::list ? 1 : 0;
  size_t at = span.begin + (span.type == JsonType::list ? 1 : 0);
  while (true) {
    at = record.find_first_not_of(" \t\r\n,", at);
    if (at >= span.end || record[at] == ']') return true;
    if (record[at] != '"') return wrong_type(" has an item that is no string", at);
    const size_t plain = record.find_first_of("\"\\", at + 1);
    if (record[plain] == '"') {  // nothing is escaped: the text as it stands
      texts_[key].push_back(record.substr(at + 1, plain - at - 1));
      at = plain + 1;
      if (span.type == JsonType::string) return true;
      continue;
    }
    const size_t from = unescaped_.size();
    const Unescaped result = unescape(record, at, unescaped_);
    if (!result.whole) {
      complaint = {Reason::surrogate, result.end,
                   cli::concat("lone surrogate ", record.substr(result.end, 6), " in key ",
                               cli::quote(keys_[key]), ": no character, it has no UTF-8 form")};
      return false;
    }
    texts_[key].push_back(std::string_view(unescaped_).substr(from));
    at = result.end;
    if (span.type == JsonType::string) return true;
  }
}

}  // namespace stream
