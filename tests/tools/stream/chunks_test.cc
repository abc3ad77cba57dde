// SPDX-License-Identifier: MIT
// Tests of cutting: whatever the chunk size, the same records at the same places; the cap; several
// inputs.
#include "tools/stream/chunks.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <system_error>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/tools/stream/packing.h"
#include "tools/stream/records.h"

namespace stream {
namespace {

using ::testing::ElementsAre;

struct Piece {
  int64_t source;
  int64_t offset;
  std::string text;
  bool over_cap;

  bool operator==(const Piece&) const = default;
};

std::vector<Piece> cut(const std::vector<std::string>& paths, ChunkOptions options) {
  ChunkReader reader(paths, options);
  std::vector<Piece> pieces;
  Chunk chunk;
  while (reader.next(chunk)) {
    reader.load(chunk);
    pieces.push_back({chunk.source, chunk.offset, std::string(chunk.text()), chunk.over_cap});
  }
  EXPECT_EQ(reader.packed_bytes(), reader.total_bytes());
  return pieces;
}

TEST(ChunkReader, CutsAtRecordEndsOnly) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const Framing framing = round % 2 == 0 ? Framing::lines : Framing::nul;
    const char mark = framing == Framing::nul ? '\0' : '\n';
    std::string text;
    const size_t records = random() % 40;
    for (size_t i = 0; i < records; ++i) text += std::string(random() % 90, 'x') + mark;
    if (random() % 2 == 0) text += "no end";
    const TestFile file(pack(static_cast<Kind>(random() % 5), text));
    const int64_t chunk_bytes = 1 + static_cast<int64_t>(random() % 100);
    std::string joined;
    for (const Piece& piece : cut({file.path}, {.framing = framing, .chunk_bytes = chunk_bytes})) {
      EXPECT_EQ(piece.offset, static_cast<int64_t>(joined.size()));
      EXPECT_FALSE(piece.text.empty());
      joined += piece.text;
      EXPECT_TRUE(piece.text.back() == mark || joined.size() == text.size());
    }
    EXPECT_EQ(joined, text);
  }
}

/// What follows a chunk's text for parsers that load whole vectors.
bool is_padded(const Chunk& chunk) {
  const std::string_view text = chunk.text();
  return std::all_of(text.data() + text.size(), text.data() + text.size() + kPaddingBytes,
                     [](char byte) { return byte == 0; });
}

TEST(ChunkReader, LeavesTheSameBytesToLoad) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const Framing framing = round % 2 == 0 ? Framing::lines : Framing::nul;
    std::vector<std::unique_ptr<TestFile>> files;
    std::vector<std::string> paths;
    for (size_t f = 0; f < 1 + random() % 3; ++f) {
      std::string text;
      const size_t longest = std::array{40u, 3000u, 60000u}[random() % 3];
      const size_t records = random() % 60;
      for (size_t i = 0; i < records; ++i) {
        text += std::string(random() % longest, 'x') + (framing == Framing::nul ? '\0' : '\n');
      }
      if (random() % 2 == 0) text += "no end";
      if (random() % 4 == 0) text.clear();
      files.push_back(std::make_unique<TestFile>(pack(static_cast<Kind>(random() % 8 / 4), text)));
      paths.push_back(files.back()->path);
    }
    ChunkOptions options = {.framing = framing,
                            .chunk_bytes = 1 + static_cast<int64_t>(random() % 50000)};
    if (random() % 4 == 0) options.max_record_bytes = 70000;
    const std::vector<Piece> read = cut(paths, options);
    options.defer = true;
    EXPECT_EQ(cut(paths, options), read) << "round " << round;
  }
}

TEST(ChunkReader, LeavesMostBytesUnread) {
  const std::string line = std::string(99, 'x') + "\n";
  std::string text;
  for (int i = 0; i < 10000; ++i) text += line;
  const TestFile file(text);
  const auto written = std::filesystem::last_write_time(file.path);
  ChunkReader reader({file.path}, {.chunk_bytes = 100050, .defer = true});
  std::vector<Chunk> chunks(10);
  for (Chunk& chunk : chunks) ASSERT_TRUE(reader.next(chunk));
  Chunk none;
  EXPECT_FALSE(reader.next(none));
  // Chunks are loaded in any order, with what the file contains at that time. Only the last, which
  // the end of the file cuts, has been read before.
  const int fd = open(file.path.c_str(), O_WRONLY);
  for (size_t i = 0; i < text.size(); i += 100)
    ASSERT_EQ(pwrite(fd, "y", 1, static_cast<off_t>(i)), 1);
  close(fd);
  std::filesystem::last_write_time(file.path, written);  // else the change would be refused
  for (size_t i = chunks.size(); i-- > 0;) {
    reader.load(chunks[i]);
    EXPECT_EQ(chunks[i].text().size(), 100000u);
    EXPECT_EQ(chunks[i].text()[0], i < 9 ? 'y' : 'x') << i;
    EXPECT_TRUE(is_padded(chunks[i]));
    const std::string once(chunks[i].text());
    reader.load(chunks[i]);
    EXPECT_EQ(chunks[i].text(), once);
  }
}

TEST(ChunkReader, AFileThatIsCutShortOrGrowsIsSeen) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::string(99, 'x') + "\n";
  const TestFile file(text);
  {
    ChunkReader reader({file.path}, {.chunk_bytes = 1000, .defer = true});
    Chunk chunk;
    ASSERT_TRUE(reader.next(chunk));
    ASSERT_EQ(truncate(file.path.c_str(), 500), 0);
    EXPECT_THROW(reader.load(chunk), InputError);
    EXPECT_THROW(reader.next(chunk), InputError);
  }
  std::string joined;
  ChunkReader reader({file.path}, {.chunk_bytes = 100, .defer = true});
  Chunk chunk;
  ASSERT_TRUE(reader.next(chunk));
  const int fd = open(file.path.c_str(), O_WRONLY | O_APPEND);
  ASSERT_EQ(write(fd, "more\n", 5), 5);
  close(fd);
  do {
    reader.load(chunk);
    joined += chunk.text();
  } while (reader.next(chunk));
  EXPECT_EQ(joined, text.substr(0, 500) + "more\n");
}

TEST(ChunkReader, AllPartsOfARangeAreTheWhole) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const Framing framing = std::array{Framing::lines, Framing::nul, Framing::file}[round % 3];
    const char mark = framing == Framing::nul ? '\0' : '\n';
    std::vector<std::unique_ptr<TestFile>> files;
    std::vector<std::string> paths;
    const size_t num_files = 1 + random() % 3;
    for (size_t f = 0; f < num_files; ++f) {
      std::string text;
      const size_t records = random() % 12;
      for (size_t i = 0; i < records; ++i) text += std::string(random() % 40, 'x') + mark;
      if (random() % 2 == 0) text += "no end";
      if (random() % 4 == 0) text.clear();
      files.push_back(std::make_unique<TestFile>(text));
      paths.push_back(files.back()->path);
    }
    ChunkOptions options = {.framing = framing,
                            .chunk_bytes = 1 + static_cast<int64_t>(random() % 60)};
    if (random() % 4 == 0) options.max_record_bytes = 20;  // pieces over the cap
    options.defer = random() % 2 == 0;
    std::vector<int64_t> begun(num_files);
    const auto joined = [&](Range range) {
      options.range = range;
      std::vector<std::string> texts(num_files);
      ChunkReader reader(paths, options);
      Chunk chunk;
      std::vector<int64_t> next(num_files, -1);
      while (reader.next(chunk)) {
        reader.load(chunk);
        const size_t source = static_cast<size_t>(chunk.source);
        EXPECT_EQ(chunk.first, next[source] < 0);
        EXPECT_EQ(chunk.offset, chunk.first ? chunk.begin : next[source]);
        next[source] = chunk.offset + static_cast<int64_t>(chunk.text().size());
        texts[source] += chunk.text();
        begun[source] += chunk.offset == 0;
      }
      return texts;
    };
    const std::vector<std::string> whole = joined({});
    for (const int64_t parts : {1, 2, 3, 7, 100}) {
      std::vector<std::string> all(num_files);
      begun.assign(num_files, 0);
      for (int64_t part = 1; part <= parts; ++part) {
        const std::vector<std::string> texts = joined({part, parts});
        for (size_t f = 0; f < num_files; ++f) {
          // A part ends where a record does.
          if (framing != Framing::file && all[f].size() + texts[f].size() < whole[f].size()) {
            EXPECT_TRUE(texts[f].empty() || texts[f].back() == mark);
          }
          all[f] += texts[f];
        }
      }
      EXPECT_EQ(all, whole) << parts << " parts, round " << round;
      // Every file is one record, an empty one, too.
      if (framing == Framing::file) {
        EXPECT_EQ(begun, std::vector<int64_t>(num_files, 1)) << parts;
      }
    }
  }
}

/// The lines of a part of a file, each with its number in the part.
std::vector<std::string> lines_of(const std::string& path, ChunkOptions options) {
  ChunkReader reader({path}, options);
  DocumentReader documents(Format::lines, {});
  std::vector<std::string> lines;
  Chunk chunk;
  int64_t before = 0;
  while (reader.next(chunk)) {
    reader.load(chunk);
    if (chunk.first && chunk.begin > 0) before = count_ends(path, chunk.begin, Framing::lines);
    ChunkReport report;
    documents.read(chunk, report, [&](const Document& document) {
      lines.push_back(std::to_string(before + document.line) + " " + std::string(document.raw));
    });
    before += report.lines;
  }
  return lines;
}

TEST(ChunkReader, PartsMeetAtEveryKindOfLineEnd) {
  std::mt19937 random(7);
  for (int round = 0; round < 120; ++round) {
    // Few kinds of ends, or many; short lines, so that parts begin inside of ends, too.
    const size_t kinds = 1 + random() % 7;
    std::string text;
    const size_t num_lines = random() % 14;
    for (size_t i = 0; i < num_lines; ++i) {
      text += std::string(random() % (round % 2 == 0 ? 3 : 20), static_cast<char>('a' + i));
      if (kinds & 1 && (kinds == 1 || random() % 2 == 0)) text += '\r';
      if (kinds & 2 && random() % 3 > 0) text += "\r\n";
      if (kinds & 4 && random() % 2 == 0) text += '\n';
    }
    const TestFile file(text);
    ChunkOptions options = {.chunk_bytes = 1 + static_cast<int64_t>(random() % 30),
                            .defer = random() % 2 == 0};
    const std::vector<std::string> whole = lines_of(file.path, options);
    const auto most = static_cast<int64_t>(text.size()) + 2;
    for (int64_t parts = 1; parts <= most; parts += 1 + static_cast<int64_t>(random() % 6)) {
      std::vector<std::string> all;
      for (int64_t part = 1; part <= parts; ++part) {
        options.range = {part, parts};
        const std::vector<std::string> lines = lines_of(file.path, options);
        all.insert(all.end(), lines.begin(), lines.end());
      }
      options.range = {};
      ASSERT_EQ(all, whole) << parts << " parts, round " << round;
    }
  }
}

TEST(ChunkReader, PartsOfLinesThatEndWithCarriageReturnsAreEqual) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "line " + std::to_string(i % 10) + "\r";
  const TestFile file(text);
  for (int64_t part = 1; part <= 10; ++part) {
    EXPECT_EQ(lines_of(file.path, {.range = {part, 10}}).size(), 5000u) << part;
  }
  // The first line ends where the second read of the second part begins, or near.
  for (const std::string_view end : {"\r", "\r\n", "\n"}) {
    for (size_t size = 271'060; size < 271'080; ++size) {
      std::string two = std::string(size, 'x') + std::string(end);
      const std::string second(280'000 - two.size(), 'y');
      const TestFile at(two + second);
      EXPECT_EQ(lines_of(at.path, {.range = {1, 2}}).size(), 1u) << size;
      EXPECT_THAT(lines_of(at.path, {.range = {2, 2}}), ElementsAre("1 " + second)) << size;
    }
  }
}

TEST(ChunkReader, ALongLineEndsAtACarriageReturn) {
  for (const std::string_view end : {"\r", "\r\n", "\n"}) {
    for (size_t size = 250; size < 320; ++size) {
      const std::string line = std::string(size, 'x') + std::string(end);
      const TestFile file(line + "after" + std::string(end) + "last");
      for (const int64_t chunk_bytes : {7, 64, 100}) {
        const ChunkOptions options = {.chunk_bytes = chunk_bytes, .max_record_bytes = 100};
        std::string long_parts, others;
        for (const Piece& piece : cut({file.path}, options))
          (piece.over_cap ? long_parts : others) += piece.text;
        EXPECT_EQ(long_parts, line) << size << " " << chunk_bytes;
        EXPECT_EQ(others, "after" + std::string(end) + "last");
      }
    }
  }
}

TEST(ChunkReader, RangesNeedPlainFiles) {
  for (const Kind kind : {Kind::gzip, Kind::bzip2, Kind::xz, Kind::zstd}) {
    const TestFile file(pack(kind, "a\nb\n"));
    EXPECT_THROW(ChunkReader({file.path}, {.range = {1, 2}}), InputError);
    EXPECT_NO_THROW(ChunkReader({file.path}, {.range = {1, 1}}));
  }
  EXPECT_THROW(ChunkReader({"-"}, {.range = {1, 2}}), InputError);
}

TEST(Range, IsWrittenKofN) {
  EXPECT_EQ(parse_range("3/7").part, 3);
  EXPECT_EQ(parse_range("3/7").parts, 7);
  for (const char* bad : {"", "3", "0/7", "8/7", "-1/7", "1/0", "1/7/9", "a/b", "1/", "/1"}) {
    EXPECT_THROW(parse_range(bad), cli::UsageError) << bad;
  }
  const Range last = {int64_t{1} << 30, int64_t{1} << 30};
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_EQ(last.end(kHuge), kHuge);
  EXPECT_EQ(last.begin(kHuge), kHuge - (int64_t{1} << 32));
}

TEST(ChunkReader, InputsFollowEachOtherAndNeverMix) {
  const TestFile a("1\n2");
  const TestFile empty("");
  const TestFile b(pack_gzip("3\n"));
  const std::vector<Piece> pieces = cut({a.path, empty.path, b.path}, {});
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].text, "1\n2");
  EXPECT_EQ(pieces[1].text, "3\n");
  EXPECT_EQ(pieces[1].source, 2);
  EXPECT_EQ(pieces[1].offset, 0);
}

TEST(ChunkReader, RecordsOverTheCapComeInPieces) {
  for (const int64_t chunk_bytes : {7, 64, 100}) {
    const std::string text =
        "short\n" + std::string(1000, 'x') + "\nafter\n" + std::string(300, 'y');
    const TestFile file(text);
    std::string whole;
    std::string long_parts;
    for (const Piece& piece :
         cut({file.path}, {.chunk_bytes = chunk_bytes, .max_record_bytes = 100})) {
      EXPECT_EQ(piece.offset, static_cast<int64_t>(whole.size()));
      whole += piece.text;
      if (piece.over_cap) long_parts += piece.text;
      EXPECT_LE(piece.text.size(), 200u);
    }
    EXPECT_EQ(whole, text);
    EXPECT_EQ(long_parts, std::string(1000, 'x') + "\n" + std::string(300, 'y'));
  }
}

TEST(ChunkReader, OneFileOneRecord) {
  const TestFile file("a\nb\0c\n" + std::string(5000, 'z'));
  const std::vector<Piece> pieces =
      cut({file.path}, {.framing = Framing::file, .chunk_bytes = 16, .max_record_bytes = 1 << 20});
  EXPECT_EQ(pieces.size(), 1u);
}

TEST(ChunkReader, AllInputsAreTriedFirst) {
  const TestFile a("1\n");
  EXPECT_THROW(ChunkReader({a.path, "/no/such/file"}, {}), std::system_error);
  EXPECT_THROW(ChunkReader({"/tmp"}, {}), InputError);
}

/// What reading to the end says if `change` is made after the first chunk; empty: nothing.
template <class Change>
std::string refusal(const ChunkOptions& options, Change change) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line\n";
  const TestFile file(text);
  ChunkReader reader({file.path}, options);
  Chunk chunk;
  EXPECT_TRUE(reader.next(chunk));
  change(file.path);
  try {
    do reader.load(chunk);
    while (reader.next(chunk));
  } catch (const InputError& error) {
    return std::string(error.what()).substr(file.path.size());
  }
  return "";
}

TEST(ChunkReader, AFileThatChangesWhileItIsReadIsRefused) {
  const auto cut = [](const std::string& path) { std::filesystem::resize_file(path, 400); };
  const auto grow = [](const std::string& path) { std::ofstream(path, std::ios::app) << "x\n"; };
  const auto touch = [](const std::string& path) {
    std::filesystem::last_write_time(path, std::filesystem::file_time_type());
  };
  const std::string changed = ": was changed while it was read";
  for (const bool defer : {false, true}) {
    const ChunkOptions whole = {.chunk_bytes = 50, .defer = defer};
    EXPECT_EQ(refusal(whole, [](const std::string&) {}), "");
    EXPECT_EQ(refusal(whole, cut), ": was cut short from 500 to 400 bytes while it was read");
    EXPECT_EQ(refusal(whole, grow), "");
    EXPECT_EQ(refusal(whole, touch), changed);
    ChunkOptions half = whole;
    half.range = {1, 2};
    EXPECT_EQ(refusal(half, [](const std::string&) {}), "");
    EXPECT_EQ(refusal(half, touch), changed) << "where the end of the file is not read";
  }
}

TEST(ChunkReader, TheBytesOfAChunkThatWaitsAreCheckedWhenTheyAreRead) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line\n";
  const TestFile file(text);
  ChunkReader reader({file.path}, {.chunk_bytes = 50, .defer = true});
  Chunk waits, last;
  ASSERT_TRUE(reader.next(waits));
  while (reader.next(last)) reader.load(last);
  std::filesystem::last_write_time(file.path, std::filesystem::file_time_type());
  EXPECT_THROW(reader.load(waits), InputError);
}

}  // namespace
}  // namespace stream
