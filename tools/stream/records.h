// SPDX-License-Identifier: MIT
// Room: tools/stream. Records of a chunk as documents: the texts of the wanted keys of a JSON line,
// or the record itself. One reader a worker; after the first chunks it allocates nothing. What is
// refused is listed with its place, not thrown: whether to stop is the policy's decision
// (policy.h), taken in the order of the input.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/stream/chunks.h"
#include "tools/stream/condition.h"
#include "tools/stream/json_scan.h"
#include "tools/stream/members.h"

namespace stream {

/// How records are read: an object a line, a text a line, NUL-ended texts, or the whole file as one
/// text.
enum class Format { json, lines, nul, file };

Framing framing_of(Format format);

/// One good record. Views are valid during the call that gets it, which may still refuse it.
struct Document {
  std::string_view raw;  ///< the record unchanged, without its end
  std::span<const std::vector<std::string_view>>
      texts;                         ///< one entry for each key: a string's one text, or all of a
                                     ///< list's
  std::span<const char> lists = {};  ///< one entry for each key: 1 if the value is a list
  int64_t line = 0;                  ///< in the chunk, from 0; records for -0
  int64_t offset = 0;                ///< in the chunk's text, bytes
  bool wanted = true;                ///< false: the condition is false, and there are no texts
  Complaint* verdict = nullptr;      ///< where refuse() puts its reason

  /// Turns it into a bad record, for reasons that only the tool can know.
  void refuse(Reason reason, std::string what) const { *verdict = {reason, 0, std::move(what)}; }
};

/// One refused record.
struct Refusal {
  Complaint complaint;  ///< its offset is in the chunk's text
  int64_t line = 0;     ///< in the chunk, from 0
  size_t begin = 0;     ///< the record in the chunk's text
  size_t size = 0;
};

/// The counts and refused records of a chunk.
struct ChunkReport {
  int64_t documents = 0;  ///< good and refused
  int64_t lines = 0;      ///< line ends passed, blank lines too
  std::vector<Refusal> refusals;
  void clear();
};

/// Reads chunks. Blank lines are not records. One thread at a time.
class DocumentReader {
 public:
  /// For Format::json: `keys` of members (members.h), how their texts are spelled, and a condition;
  /// good records that do not satisfy it are not wanted. Other formats ignore these: their document
  /// has one text, unchanged.
  DocumentReader(Format format, std::vector<std::string> keys,
                 Spelling spelling = Spelling::characters,
                 std::optional<Condition> condition = std::nullopt);
  DocumentReader(DocumentReader&&) noexcept;
  ~DocumentReader();

  /// Calls `each(document)` for the good records of `chunk`, in order, and appends the others to
  /// `report`.
  template <class Each>
  void read(const Chunk& chunk, ChunkReport& report, const Each& each) {
    open(chunk);
    while (next(report)) {
      each(document_);
      if (!complaint_.what.empty()) refuse(report);
      ++report.lines;
    }
  }

 private:
  void open(const Chunk& chunk);
  bool next(ChunkReport& report);
  void refuse(ChunkReport& report);
  void cut_record(const JsonHead& head);
  bool parse(const JsonHead& head);
  bool parse_json(const JsonHead& head);
  bool take_span(size_t key);

  Format format_;
  MemberFinder members_;
  std::span<const std::string> keys_;
  std::optional<Condition> condition_;
  std::string opening_;  ///< the beginning of a line whose first member is the first key; empty:
                         ///< not searched for
  Spelling spelling_;
  std::vector<std::vector<std::string_view>> texts_;
  std::vector<char> lists_;
  std::unique_ptr<char[]> room_;  ///< for texts with escapes
  size_t room_bytes_ = 0;

  // Of the chunk:
  std::string_view text_;
  bool opens_input_ = false;
  bool array_ = false;       ///< its lines are items of an array
  bool empty_file_ = false;  ///< the one record, not yet read, has no bytes
  bool all_utf8_ = false;
  size_t at_ = 0;       ///< where the next record begins
  size_t mark_at_ = 0;  ///< the first mark from there on; found once for all the \r before it
  // Of the record:
  Document document_;
  Complaint complaint_;
  char* room_left_ = nullptr;  ///< after its texts
};

}  // namespace stream
