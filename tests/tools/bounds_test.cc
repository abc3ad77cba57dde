// SPDX-License-Identifier: MIT
// The memory that the man pages state holds for many small documents, for few long ones and for
// many shards; many shards need few descriptors; and a program that does nothing takes nearly none.
#include <fcntl.h>
#include <sys/resource.h>

#include <array>
#include <string_view>

#include "libindexed/dataset.h"
#include "tests/tools/run_tool.h"

namespace tools {
namespace {

/// What bpe-tokenize(1) and merge-datasets(1) promise, two workers.
constexpr int64_t kPromisedMib = 300;

class BoundsTest : public ToolTest {
 protected:
  BoundsTest() : ToolTest(true) {}

  /// Runs a command whose standard input is what `write` puts into the descriptor it gets.
  Ended run_with_input(const std::vector<std::string>& words,
                       const std::function<void(int)>& write) const {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    const pid_t writer = fork();
    if (writer == 0) {
      close(ends[0]);
      write(ends[1]);
      _exit(0);
    }
    close(ends[1]);
    const Ended ended = wait(start(".", words, {}, [&] { dup2(ends[0], STDIN_FILENO); }));
    close(ends[0]);
    waitpid(writer, nullptr, 0);
    return ended;
  }

  int64_t documents(const std::string& prefix) const {
    return indexed::IndexedDataset::open(folder_ + "/" + prefix).num_documents();
  }
};

void put(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n <= 0) _exit(1);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

// A pipeline of thousands of files starts a program for each.
TEST_F(BoundsTest, ProgramsStartSmall) {
  for (const char* program : {"bpe-tokenize", "json-extract", "merge-datasets", "shuffle-index"}) {
    const Ended ended = run(".", {program, "--version"});
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_LE(ended.peak_mib, 12) << program;
  }
}

TEST_F(BoundsTest, MillionsOfTinyDocuments) {
  constexpr int64_t kLines = 1000, kRounds = 5000;
  const Ended made = run_with_input(tokenize({"-w", "2", "--append-eod", "-o", "a"}), [](int fd) {
    std::string block;
    for (int64_t i = 0; i < kLines; ++i) {
      block += i % 3 == 0 ? "{\"text\":\"\"}\n" : "{\"text\":\"a b\"}\n";
    }
    for (int64_t i = 0; i < kRounds; ++i) put(fd, block);
  });
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_LE(made.peak_mib, kPromisedMib);
  EXPECT_EQ(documents("a_text_document"), kLines * kRounds);
  const Ended merged = run(
      ".", {"merge-datasets", "-q", "a_text_document", "a_text_document", "--output-prefix", "b"});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_LE(merged.peak_mib, kPromisedMib);
  EXPECT_EQ(documents("b"), 2 * kLines * kRounds);
  const Ended verified = run(".", {"inspect-dataset", "-q", "verify", "b"});
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_LE(verified.peak_mib, kPromisedMib);
}

TEST_F(BoundsTest, LinesNearTheCap) {
  // Digits and marks, of which each is a token, with escapes throughout; then words.
  const std::array<std::string_view, 2> texts = {"7\\n!#", "some words and "};
  const Ended made = run_with_input(tokenize({"-w", "2", "-o", "a"}), [&](int fd) {
    for (int line = 0; line < 4; ++line) {
      std::string block;
      while (block.size() < size_t{1} << 20) block += texts[static_cast<size_t>(line) % 2];
      put(fd, "{\"text\":\"");
      for (int i = 0; i < 60; ++i) put(fd, block);
      put(fd, "\"}\n{\"text\":\"a short one\"}\n");
    }
  });
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_LE(made.peak_mib, kPromisedMib);
  EXPECT_EQ(documents("a_text_document"), 8);
}

TEST_F(BoundsTest, OneLongWord) {
  // One piece without a place where it may be cut.
  const Ended made = run_with_input(tokenize({"-w", "2", "-o", "a"}), [&](int fd) {
    put(fd, "{\"text\":\"");
    const std::string block(size_t{1} << 20, 'a');
    for (int i = 0; i < 14; ++i) put(fd, block);
    put(fd, "\"}\n");
  });
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_LE(made.peak_mib, kPromisedMib);
  EXPECT_EQ(documents("a_text_document"), 1);
}

// What a long record takes is a multiple of its bytes, not of its words. The formula is that of
// near-dedup(1).
TEST_F(BoundsTest, NearDedupOfLongDocuments) {
  constexpr int64_t kRecordMib = 40;
  for (const std::string text : {"a b c d ", "漢字仮名", "a\\n\\u00e9 "}) {
    std::ofstream out(folder_ + "/long.jsonl");
    for (int line = 0; line < 3; ++line) {
      out << "{\"n\":" << line << ",\"text\":\"";
      std::string block;
      while (block.size() < size_t{1} << 20) block += text;
      for (int64_t i = 0; i < kRecordMib; ++i) out << block;
      out << "\"}\n";
    }
    out.close();
    const Ended ended =
        run(".", {"near-dedup", "-q", "-f", "-w", "2", "-o", "kept.jsonl", "long.jsonl"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_LE(ended.peak_mib, 2 * 20 + 5 * kRecordMib / 2) << text;
  }
}

TEST_F(BoundsTest, FortyThousandShards) {
  namespace fs = std::filesystem;
  make_folder("in");
  ASSERT_EQ(run(".", {"make-dataset", "a", "3", "9", "1", "no-manifest"}).status, 0);
  for (int i = 0; i < 40000; ++i) {
    const std::string prefix = folder_ + "/in/part_" + std::to_string(i);
    for (const char* end : {".bin", ".idx"})
      fs::create_hard_link(folder_ + "/a" + end, prefix + end);
  }
  const pid_t pid =
      start(".", {"merge-datasets", "-q", "--input", "in", "--output-prefix", "all"}, {}, [] {
        const struct rlimit limit = {256, 256};
        setrlimit(RLIMIT_NOFILE, &limit);
      });
  const Ended merged = wait(pid);
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_LE(merged.peak_mib, kPromisedMib);
  EXPECT_EQ(documents("all"), 3 * 40000);
}

}  // namespace
}  // namespace tools
