// SPDX-License-Identifier: MIT
// ZIP archives made field by field: sizes and places in 64 bits, extra fields and comments around
// them, and every field of the directory changed.
#include "convert/zip_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

#include "libindexed/format.h"
#include "tests/convert/foreign_bytes.h"
#include "tests/convert/outcomes.h"

namespace convert {
namespace {

using foreign::little;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kElsewhere = 0xffffffff;  // the value is in the extra field

/// A member, and which of its values the directory gives in 64 bits.
struct Entry {
  std::string name, bytes;
  bool size = false, stored = false, header = false;
  std::string before, after, comment;  // other extra fields, and the entry's comment
  std::string extra = "whole";         // or the contents of the 64-bit field
};

struct Archive {
  std::string bytes;
  size_t directory = 0;
};

std::string extra_field(uint64_t id, const std::string& contents) {
  return little(id, 2) + little(contents.size(), 2) + contents;
}

std::string directory_entry(const Entry& e, uint64_t place) {
  std::string wide;
  if (e.size) wide += little(e.bytes.size(), 8);
  if (e.stored) wide += little(e.bytes.size(), 8);
  if (e.header) wide += little(place, 8);
  if (e.extra != "whole") wide = e.extra;
  const std::string extra = e.before + (wide.empty() ? "" : extra_field(1, wide)) + e.after;
  const auto* bytes = reinterpret_cast<const Bytef*>(e.bytes.data());
  const uint64_t sum = crc32(0, bytes, static_cast<uInt>(e.bytes.size()));
  return "PK\x01\x02" + little(45, 2) + little(45, 2) + little(0, 8) + little(sum, 4) +
         little(e.stored ? kElsewhere : e.bytes.size(), 4) +
         little(e.size ? kElsewhere : e.bytes.size(), 4) + little(e.name.size(), 2) +
         little(extra.size(), 2) + little(e.comment.size(), 2) + little(0, 8) +
         little(e.header ? kElsewhere : place, 4) + e.name + extra + e.comment;
}

/// Local headers have a name and an extra field of another length than the directory's.
Archive make(const std::vector<Entry>& entries, bool wide_end = false) {
  Archive out;
  std::string directory;
  for (const Entry& e : entries) {
    directory += directory_entry(e, out.bytes.size());
    out.bytes += "PK\x03\x04" + little(45, 2) + little(0, 8) + little(0, 12) +
                 little(e.name.size(), 2) + little(7, 2) + e.name + extra_field(9, "pad") + e.bytes;
  }
  out.directory = out.bytes.size();
  out.bytes += directory;
  if (wide_end) {
    const size_t end = out.bytes.size();
    out.bytes += "PK\x06\x06" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
                 little(entries.size(), 8) + little(entries.size(), 8) +
                 little(directory.size(), 8) + little(out.directory, 8) + "PK\x06\x07" +
                 little(0, 4) + little(end, 8) + little(1, 4) +
                 foreign::zip_end(0xffff, kElsewhere, kElsewhere);
  } else {
    out.bytes += foreign::zip_end(entries.size(), directory.size(), out.directory);
  }
  return out;
}

/// "name=contents" of each member, or the error.
std::vector<std::string> read(const std::string& archive) {
  try {
    Budget budget("z");
    const ZipArchive zip(std::as_bytes(std::span(archive)), "z", budget);
    std::vector<std::string> out;
    for (const ZipMember& member : zip.members()) {
      const std::span<const std::byte> bytes = zip.stored(member);
      out.push_back(member.name + "=" +
                    std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      EXPECT_EQ(zip.find(member.name), &member);
      if (!zip.intact(member)) out.back() += " (damaged)";
    }
    return out;
  } catch (const indexed::FormatError& e) {
    return {e.what()};
  }
}

std::vector<Entry> three() {
  return {{.name = "a", .bytes = "first"},
          {.name = "bb", .bytes = "2nd"},
          {.name = "ccc", .bytes = std::string(300, 'x')}};
}

const std::vector<std::string>& contents() {
  static const std::vector<std::string> all = {"a=first", "bb=2nd", "ccc=" + std::string(300, 'x')};
  return all;
}

TEST(ZipArchive, AnyOfItsValuesMayBeIn64Bits) {
  EXPECT_EQ(read(make(three()).bytes), contents());
  for (size_t changed = 0; changed < 3; ++changed) {
    for (int which = 1; which < 8; ++which) {
      for (int around = 0; around < 8; ++around) {
        std::vector<Entry> entries = three();
        Entry& e = entries[changed];
        e.size = which & 1, e.stored = which & 2, e.header = which & 4;
        if (around & 1) e.before = extra_field(0x5455, "times");
        if (around & 2) e.after = extra_field(0x7875, "");
        if (around & 4) e.comment = "a comment";
        EXPECT_EQ(read(make(entries).bytes), contents())
            << changed << " " << which << " " << around;
        EXPECT_EQ(read(make(entries, true).bytes), contents()) << changed << " " << which;
      }
    }
  }
}

// A value that should be in the extra field and is not there stays 2^32 - 1, which is in no file of
// this size.
TEST(ZipArchive, A64BitFieldThatIsTooShortGivesNoValue) {
  const std::string eight = little(5, 8);
  for (const std::string& extra : {std::string(), eight.substr(0, 7), std::string("\1", 1)}) {
    const Entry entry = {
        .name = "a", .bytes = "first", .size = true, .stored = true, .extra = extra};
    EXPECT_THAT(read(make({entry}).bytes), ElementsAre(HasSubstr("leaves the file")))
        << extra.size();
  }
  const Entry half = {.name = "a",
                      .bytes = "first",
                      .size = true,
                      .stored = true,
                      .extra = eight + eight.substr(0, 7)};
  EXPECT_THAT(read(make({half}).bytes), ElementsAre(HasSubstr("impossible sizes")));
  // A field of another number means something else.
  Entry other = {.name = "a", .bytes = "first", .size = true, .stored = true, .extra = ""};
  other.after = extra_field(2, eight + eight);
  EXPECT_THAT(read(make({other}).bytes), ElementsAre(HasSubstr("leaves the file")));
}

TEST(ZipArchive, AnExtraFieldEndsWhereTheDirectorySays) {
  // Exactly to the end of the directory, and one byte less than its own length.
  const std::string extra = extra_field(0x5455, "abc");
  EXPECT_THAT(read(make({{.name = "a", .bytes = "x", .after = extra}}).bytes), ElementsAre("a=x"));
  EXPECT_THAT(read(make({{.name = "a", .bytes = "x", .after = extra.substr(0, 6)}}).bytes),
              ElementsAre(HasSubstr("damaged extra field")));
  // The directory's last entry claims a byte more than there is.
  for (const size_t field : {28, 30, 32}) {
    Archive archive = make({{.name = "a", .bytes = "x", .after = extra}});
    ++archive.bytes[archive.directory + field];
    EXPECT_THAT(read(archive.bytes), ElementsAre(HasSubstr("directory"))) << field;
  }
}

// Long extra fields and comments are bytes of the file, which it may have: a member costs what it
// makes.
TEST(ZipArchive, LongExtraFieldsCostNothing) {
  std::vector<Entry> entries;
  std::vector<std::string> expected;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "m" + std::to_string(i);
    entries.push_back({.name = name,
                       .bytes = "x",
                       .after = extra_field(0x5455, std::string(60000, 'e')),
                       .comment = std::string(60000, 'c')});
    expected.push_back(name + "=x");
  }
  EXPECT_EQ(read(make(entries).bytes), expected);
}

TEST(ZipArchive, NamesHaveAtMost4096Bytes) {
  const std::string name(4096, 'n');
  EXPECT_THAT(read(make({{.name = name, .bytes = "x"}}).bytes), ElementsAre(name + "=x"));
  EXPECT_THAT(read(make({{.name = name + "n", .bytes = "x"}}).bytes),
              ElementsAre(HasSubstr("the directory is damaged")));
}

bool within(size_t at, std::initializer_list<std::pair<size_t, size_t>> ranges) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const auto& range) { return at >= range.first && at <= range.second; });
}

/// What may happen when the byte `at` of a directory entry is one more.
std::string allowed_in_entry(size_t at, size_t name_bytes) {
  // Versions, the second byte of flags, time, number of the disk, attributes.
  if (within(at, {{4, 7}, {9, 9}, {12, 15}, {34, 41}})) return "the same";
  if (within(at, {{16, 19}})) return "damaged";
  return within(at, {{46, 46 + name_bytes - 1}}) ? "renamed" : "refused";
}

std::string outcome_of(const std::vector<std::string>& found) {
  if (found.size() != contents().size()) return "refused";
  std::string out = "the same";
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == contents()[i]) continue;
    out = found[i] == contents()[i] + " (damaged)" ? "damaged" : "renamed";
  }
  return out;
}

TEST(ZipArchive, AWrongByteInADirectoryEntryIsRefusedOrMeansNothing) {
  for (const bool wide : {false, true}) {
    std::vector<Entry> entries = three();
    for (Entry& e : entries) e.size = e.stored = e.header = wide;
    const Archive whole = make(entries);
    size_t at = whole.directory;
    for (const Entry& e : entries) {
      const size_t bytes = 46 + e.name.size() + (wide ? 4 + 24 : 0);
      for (size_t i = 0; i < bytes; ++i, ++at) {
        std::string changed = whole.bytes;
        ++changed[at];
        EXPECT_EQ(outcome_of(read(changed)), allowed_in_entry(i, e.name.size()))
            << "byte " << i << " of " << e.name << ": " << read(changed)[0];
      }
    }
  }
}

TEST(ZipArchive, AWrongByteInAnEndRecordIsRefusedOrMeansNothing) {
  for (const bool wide : {false, true}) {
    const Archive whole = make(three(), wide);
    const size_t records = wide ? 56 + 20 + 22 : 22;
    for (size_t i = 0; i < records; ++i) {
      std::string changed = whole.bytes;
      ++changed[whole.bytes.size() - records + i];
      // Numbers of disks, entries on this disk, length of a comment; in a 64-bit archive also the
      // record's own length and versions, and all counts of the old record.
      const bool nothing =
          wide ? within(i, {{4, 31}, {60, 63}, {72, 75}, {80, 97}}) : within(i, {{4, 9}, {20, 21}});
      EXPECT_EQ(outcome_of(read(changed)), nothing ? "the same" : "refused") << wide << " " << i;
    }
  }
}

TEST(ZipArchive, CommentsOfUpTo65535BytesMayFollow) {
  const std::string whole = make(three()).bytes;
  EXPECT_EQ(read(whole + std::string(65535, ' ')), contents());
  EXPECT_THAT(read(whole + std::string(65536, ' ')), ElementsAre(HasSubstr("no end record")));
}

}  // namespace
}  // namespace convert
