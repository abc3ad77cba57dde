// SPDX-License-Identifier: MIT
// Every tool is stopped at random moments by SIGKILL, SIGTERM and SIGINT, and killed or failed by
// the disk at each operation that changes a file. Every file with a final name afterwards is
// complete; the same command again gives the bytes of an undisturbed run; and no leftovers
// accumulate.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>
#include <sstream>
#include <thread>

#include "tests/names_on_disk.h"
#include "tests/tools/run_tool.h"

namespace tools {
namespace {

using Files = std::map<std::string, std::string>;

/// A command line; @ stands for the folder of its output.
struct Case {
  const char* name;
  const char* command;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Names that no reader opens: temporaries and the mark of wiki-extract's folder.
bool is_hidden(const std::string& path) { return base_name(path).starts_with('.'); }

Files visible(const Files& all) {
  Files found;
  for (const auto& [path, bytes] : all) {
    if (!is_hidden(path)) found.emplace(path, bytes);
  }
  return found;
}

/// Names of the files that only one has or whose bytes differ.
std::string difference(const Files& left, const Files& right) {
  std::string names;
  for (const auto& [path, bytes] : left) {
    const auto other = right.find(path);
    if (other == right.end() || other->second != bytes) names += path + " ";
  }
  for (const auto& [path, bytes] : right) {
    if (!left.contains(path)) names += path + " ";
  }
  return names;
}

class KillTest : public ToolTest, public testing::WithParamInterface<Case> {
 protected:
  KillTest() {
    make_folder("in");
    write_documents();
    // Of more than 256 KiB: the kernel copies these when they are merged.
    for (const auto& [prefix, seed] : {std::pair("a", "1"), {"b", "2"}}) {
      EXPECT_EQ(run("in", {"make-dataset", prefix, "4000", "90", seed}).status, 0);
    }
    EXPECT_EQ(run("in", {"make-dataset", "old", "4000", "60", "3", "uncounted-eod"}).status, 0);
    words_ = words_of(GetParam().command);
    fresh();
    const auto begin = std::chrono::steady_clock::now();
    const Ended ended = run("out", words_);
    clean_time_ = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(ended.status, 0) << ended.err;
    clean_ = files("out");
    EXPECT_EQ(difference(visible(clean_), clean_), "") << "a run leaves something behind";
    EXPECT_FALSE(clean_.empty());
  }

  void write_documents() const {
    std::mt19937 random(7);
    std::ofstream json(folder_ + "/in/text.jsonl");
    std::ofstream dump(folder_ + "/in/wiki.xml");
    dump << "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.10/\" version=\"0.10\">\n";
    for (int i = 0; i < 1500; ++i) {
      std::string text;
      for (size_t n = random() % 80; n > 0; --n)
        text += "word" + std::to_string(random() % 99) + ' ';
      json << "{\"text\":\"" << text << "\",\"title\":\"t " << i << "\"}\n";
      if (i % 500 == 7) json << "no json " << i << "\n";
      dump << "<page><title>Page " << i << "</title><ns>0</ns><id>" << i + 1
           << "</id><revision><id>" << i + 1 << "</id><text>" << text
           << "</text></revision></page>\n";
    }
    dump << "</mediawiki>\n";
  }

  std::vector<std::string> words_of(const std::string& command) const {
    std::vector<std::string> words;
    std::istringstream in(command);
    for (std::string word; in >> word;) {
      if (word == "@vocab") {
        for (const std::string& more : tokenize({})) {
          if (more != "bpe-tokenize" && more != "-q") words.push_back(more);
        }
        continue;
      }
      if (word.starts_with('@')) word = folder_ + "/out" + word.substr(1);
      words.push_back(word);
    }
    return words;
  }

  /// The output folder as it is before a run.
  void fresh() const {
    make_folder("out");
    if (words_[0] != "inspect-dataset") return;
    for (const char* name : {"old.bin", "old.idx", "old.manifest"}) {
      if (std::filesystem::exists(folder_ + "/in/" + name))
        std::filesystem::copy(folder_ + "/in/" + name, folder_ + "/out/" + name);
    }
  }

  /// Checks what a stopped run left, runs the command again, checks again.
  void check_and_repeat(const std::string& when, bool may_leave_hidden) const {
    const Files left = files("out");
    const bool mends = words_[0] == "inspect-dataset";
    for (const auto& [path, bytes] : left) {
      if (is_hidden(path)) {
        EXPECT_TRUE(may_leave_hidden || base_name(path) == ".unfinished") << when << ": " << path;
        continue;
      }
      const auto whole = clean_.find(path);
      if (mends) continue;  // the old files are valid too; the second run decides
      ASSERT_NE(whole, clean_.end()) << when << ": " << path;
      EXPECT_TRUE(bytes == whole->second) << when << ": " << path << " is not whole";
    }
    if (visible(left) == clean_ && !mends) return;  // it had finished
    const Ended again = run("out", words_);
    EXPECT_EQ(again.status, 0) << when << ", the same command again: " << again.err;
    EXPECT_EQ(difference(files("out"), clean_), "") << when << ", the same command again";
  }

  std::vector<std::string> words_;
  Files clean_;
  std::chrono::steady_clock::duration clean_time_{};
};

TEST_P(KillTest, AtMomentsOfChance) {
  std::mt19937 random(11);
  using Micro = std::chrono::microseconds;
  const int64_t micros = std::chrono::duration_cast<Micro>(clean_time_).count();
  for (int round = 0; round < 15; ++round) {
    const int signal = std::array{SIGKILL, SIGTERM, SIGINT}[static_cast<size_t>(round) % 3];
    const int64_t delay = static_cast<int64_t>(random()) % (micros + micros / 8 + 1);
    fresh();
    const pid_t pid = start("out", words_);
    std::this_thread::sleep_for(Micro(delay));
    kill(pid, signal);
    const Ended ended = wait(pid);
    EXPECT_TRUE(ended.status == 0 || ended.status == 128 + signal) << ended.status << ended.err;
    check_and_repeat("signal " + std::to_string(signal) + " after " + std::to_string(delay) + " us",
                     signal == SIGKILL);
  }
}

TEST_P(KillTest, LeftoversDoNotPileUp) {
  fresh();
  std::mt19937 random(12);
  const int64_t micros = std::chrono::duration_cast<std::chrono::microseconds>(clean_time_).count();
  for (int round = 0; round < 8; ++round) {
    const pid_t pid = start("out", words_);
    std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int64_t>(random()) % micros));
    kill(pid, SIGKILL);
    wait(pid);
    const Files left = files("out");
    EXPECT_LE(left.size() - visible(left).size(), 8U);
  }
  check_and_repeat("killed eight times", true);
}

TEST_P(KillTest, AtEveryOperation) {
  const std::map<std::string, std::string> shim = {{"LD_PRELOAD", FAULT_SHIM},
                                                   {"FAULT_ROOT", folder_ + "/out"}};
  const auto with = [&](std::map<std::string, std::string> more) {
    more.insert(shim.begin(), shim.end());
    return more;
  };
  fresh();
  ASSERT_EQ(run("out", words_, with({{"FAULT_COUNT", folder_ + "/count"}})).status, 0);
  long operations = 0;
  std::ifstream(folder_ + "/count", std::ios::binary)
      .read(reinterpret_cast<char*>(&operations), sizeof operations);
  ASSERT_GT(operations, 2);
  for (long at = 1; at <= operations; ++at) {
    // Where there are very many: those at both ends and some of the others.
    if (at > 8 && at + 16 < operations && at % std::max(1L, operations / 6) != 0) continue;
    const std::string when =
        "at operation " + std::to_string(at) + " of " + std::to_string(operations);
    fresh();
    const Ended killed = run("out", words_, with({{"FAULT_AT", std::to_string(at)}}));
    EXPECT_TRUE(killed.status == 128 + SIGKILL || killed.status == 0) << when << killed.status;
    check_and_repeat("killed " + when, true);
    fresh();
    const Ended full = run("out", words_,
                           with({{"FAULT_AT", std::to_string(at)},
                                 {"FAULT_ERRNO", std::to_string(ENOSPC)},
                                 {"FAULT_TIMES", "1"}}));
    EXPECT_TRUE(full.status == 0 || full.status == 1) << when << ": " << full.status;
    EXPECT_EQ(full.status == 1, full.err.find(": no space left on device\n") != std::string::npos)
        << when << ": " << full.err;
    // Where the fsync of the folder fails, the files have their names: the message says so.
    const size_t complete = full.err.find(": complete");
    if (full.status == 1 && visible(files("out")) == clean_ && words_[0] != "inspect-dataset") {
      EXPECT_NE(complete, std::string::npos) << when << ": " << full.err;
    }
    if (complete != std::string::npos) {
      const size_t path = full.err.rfind(": ", complete - 1) + 2;
      EXPECT_TRUE(std::filesystem::exists(full.err.substr(path, complete - path))) << full.err;
    }
    if (full.status == 0) {
      EXPECT_EQ(difference(visible(files("out")), clean_), "") << "no error, " << when;
    } else {
      check_and_repeat("disk full " + when, true);
    }
  }
}

// With --force, what an earlier run refused goes when the outputs of this one have their names.
class EarlierQuarantine : public ToolTest {
 protected:
  /// Runs `words` on a good document; each operation fails in turn. `last`: the output that gets
  /// its name last.
  void expect_kept(const std::vector<std::string>& words, const std::string& quarantine,
                   const std::string& last) const {
    make_folder("in");
    std::ofstream(folder_ + "/in/good.jsonl") << "{\"text\":\"one\"}\n";
    bool ended_well = false;
    for (int at = 1; at < 200 && !ended_well; ++at) {
      make_folder("out");
      make_folder("out/v");
      for (const std::string& name : {quarantine, last})
        std::ofstream(folder_ + "/out/" + name) << "old";
      const std::string count = folder_ + "/count";
      const Ended ended = run("out", words,
                              {{"LD_PRELOAD", FAULT_SHIM},
                               {"FAULT_ROOT", folder_ + "/out"},
                               {"FAULT_AT", std::to_string(at)},
                               {"FAULT_ERRNO", std::to_string(EIO)},
                               {"FAULT_TIMES", "1"},
                               {"FAULT_COUNT", count}});
      const Files left = files("out");
      const auto output = left.find(last);
      const bool written = output != left.end() && output->second != "old";
      if (!written) {
        EXPECT_TRUE(left.contains(quarantine)) << words[0] << ", operation " << at;
      }
      if (ended.status == 0) {
        EXPECT_FALSE(left.contains(quarantine)) << words[0] << ", operation " << at;
      }
      long operations = 0;
      std::ifstream(count, std::ios::binary)
          .read(reinterpret_cast<char*>(&operations), sizeof operations);
      ended_well = operations < at;
    }
    EXPECT_TRUE(ended_well);
  }
};

TEST_F(EarlierQuarantine, StaysWhereTheRunFails) {
  expect_kept(
      {"json-extract", "-q", "-f", "--on-error", "quarantine", "-o", "x", "../in/good.jsonl"},
      "x.quarantine", "x");
  expect_kept({"bpe-train", "-q", "-f", "--vocab-size", "260", "--on-error", "quarantine",
               "--output", "v", "../in/good.jsonl"},
              "v/quarantine", "v/tokenizer.json");
  std::vector<std::string> words = tokenize(
      {"-f", "--on-error", "quarantine", "--output-prefix", "x", "--input", "../in/good.jsonl"});
  expect_kept(words, "x.quarantine", "x_text_document.idx");
}

// With --force, and other shards: after a kill the folder has the old dataset, the new one, or
// shards that nobody reads; the same command again mends it.
class ReplacedShards : public ToolTest {
 protected:
  /// What merge-datasets makes of the shards in `out`; empty if it refuses them.
  std::string merged() const {
    make_folder("whole");
    const Ended ended =
        run("out", {"merge-datasets", "-q", "--input", ".", "--output-prefix", "../whole/x"});
    if (ended.status == 0) return files("whole").at("x.bin");
    EXPECT_NE(ended.err.find("has no partner"), std::string::npos) << ended.err;
    return "";
  }

  std::vector<std::string> shards_of(const std::string& tokens, const std::string& input) const {
    return tokenize({"-w", "1", "-f", "--shard-tokens", tokens, "-o", "x", "--input", input});
  }

  /// Old shards of `before` tokens, new ones of `after`.
  void expect_no_mixture(const std::string& before, const std::string& after) const {
    const std::vector<std::string> words = shards_of(after, "../in/new.jsonl");
    make_folder("out");
    ASSERT_EQ(run("out", shards_of(before, "../in/old.jsonl")).status, 0);
    const std::string old_whole = merged();
    const auto old_files = files("out");
    const auto fresh = [&] {
      make_folder("out");
      for (const auto& [name, bytes] : old_files)
        std::ofstream(folder_ + "/out/" + name, std::ios::binary) << bytes;
    };
    std::map<std::string, std::string> shim = {{"LD_PRELOAD", FAULT_SHIM},
                                               {"FAULT_ROOT", folder_ + "/out"}};
    shim["FAULT_COUNT"] = folder_ + "/count";
    ASSERT_EQ(run("out", words, shim).status, 0);
    const auto new_files = files("out");
    const std::string new_whole = merged();
    ASSERT_NE(new_whole, old_whole);
    long operations = 0;
    std::ifstream(folder_ + "/count", std::ios::binary)
        .read(reinterpret_cast<char*>(&operations), sizeof operations);
    int refused = 0;
    for (long at = operations; at > 0; --at) {
      fresh();
      shim["FAULT_AT"] = std::to_string(at);
      EXPECT_EQ(run("out", words, shim).status, 128 + SIGKILL);
      const std::string when = "killed at operation " + std::to_string(at);
      const std::string whole = merged();
      EXPECT_TRUE(whole.empty() || whole == old_whole || whole == new_whole) << when;
      EXPECT_EQ(run("out", words).status, 0) << when;
      EXPECT_EQ(difference(files("out"), new_files), "") << when << ", the same command again";
      if (whole == old_whole) break;  // before the first name
      refused += whole.empty();
    }
    EXPECT_GT(refused, 5);
  }
};

TEST_F(ReplacedShards, AreNeverMixedWithNewOnes) {
  make_folder("in");
  for (const std::string name : {"old", "new"}) {
    std::ofstream out(folder_ + "/in/" + name + ".jsonl");
    for (int i = 0; i < 12; ++i) out << "{\"text\":\"" << name << " text " << i << "\"}\n";
  }
  expect_no_mixture("60", "60");
  expect_no_mixture("30", "100");
  expect_no_mixture("100", "30");
}

// Two commands with one output: the one that is late takes nothing away from the other.
class OneOutput : public ToolTest {};

TEST_F(OneOutput, StaysThatOfTheFirst) {
  make_folder("in");
  make_folder("out");
  for (const auto& [prefix, seed] : {std::pair("a", "1"), {"b", "2"}})
    ASSERT_EQ(run("in", {"make-dataset", prefix, "40", "90", seed}).status, 0);
  const std::vector<std::string> late = {"merge-datasets",  "-q", "../in/a", "../in/a",
                                         "--output-prefix", "x"};
  const std::vector<std::string> first = {"merge-datasets", "-q", "../in/b", "--output-prefix",
                                          "x"};
  const std::map<std::string, std::string> shim = {{"LD_PRELOAD", FAULT_SHIM},
                                                   {"FAULT_ROOT", folder_ + "/out"}};
  std::map<std::string, std::string> environment = shim;
  environment["FAULT_LOG"] = folder_ + "/log";
  ASSERT_EQ(run("out", late, environment).status, 0);
  // The first operation that changes one of the names.
  long at = 0;
  std::ifstream log(folder_ + "/log");
  for (std::string line; std::getline(log, line);) {
    if (line.starts_with("from ")) continue;
    ++at;
    if (line == "unlink " + folder_ + "/out/x.idx") break;
    if (line == "rename " + folder_ + "/out/x.manifest") break;
  }
  ASSERT_TRUE(log) << "no name is given";
  make_folder("out");
  environment = shim;
  environment["FAULT_AT"] = std::to_string(at);
  environment["FAULT_SIGNAL"] = std::to_string(SIGSTOP);
  const pid_t pid = start("out", late, environment);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(run("out", first).status, 0);
  const Files written = visible(files("out"));
  EXPECT_EQ(written.size(), 3U);
  kill(pid, SIGCONT);
  const Ended ended = wait(pid);
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.err, "merge-datasets: x.manifest: not replaced without --force: file exists\n");
  EXPECT_EQ(difference(files("out"), written), "");
}

// A repair, stopped at each of its operations while the dataset is replaced, and the reverse.
TEST_F(OneOutput, IsNeverOfARepairAndAnotherDataset) {
  make_folder("in");
  ASSERT_EQ(run("in", {"make-dataset", "a", "40", "90", "1"}).status, 0);
  ASSERT_EQ(run("in", {"make-dataset", "old", "60", "60", "3", "uncounted-eod"}).status, 0);
  const std::vector<std::string> repair = {"inspect-dataset", "quick", "-q", "--repair", "x"},
                                 replace = {"merge-datasets",  "-q", "--force", "../in/a",
                                            "--output-prefix", "x"};
  for (const bool repair_waits : {true, false}) {
    int refused = 0, replaced = 0;
    for (int at = 1;; ++at) {
      make_folder("out");
      for (const char* end : {".bin", ".idx"})
        std::filesystem::copy(folder_ + "/in/old" + end, folder_ + "/out/x" + end);
      const pid_t pid = start("out", repair_waits ? repair : replace,
                              {{"LD_PRELOAD", FAULT_SHIM},
                               {"FAULT_ROOT", folder_ + "/out"},
                               {"FAULT_SIGNAL", std::to_string(SIGSTOP)},
                               {"FAULT_AT", std::to_string(at)}});
      int status = 0;
      ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
      if (!WIFSTOPPED(status)) break;
      const std::string when = (repair_waits ? "repair" : "merge-datasets") +
                               std::string(" stopped at operation ") + std::to_string(at);
      const Ended second = run("out", repair_waits ? replace : repair);
      kill(pid, SIGCONT);
      const Ended first = wait(pid);
      refused += second.err.find("being written by another process") != std::string::npos;
      replaced += first.err.find("replaced while it was read") != std::string::npos;
      EXPECT_EQ(run("out", {"inspect-dataset", "verify", "-q", "x"}).status, 0)
          << when << ": " << first.err << second.err;
    }
    EXPECT_GT(refused, 0);
    EXPECT_EQ(replaced, repair_waits ? 1 : 0);
  }
}

// Where both replace: the first is stopped at each of its operations. The second is refused or ends
// well, and what both leave is one dataset.
TEST_F(OneOutput, IsNeverOfTwoRunsThatReplace) {
  make_folder("in");
  for (const auto& [prefix, seed] : {std::pair("a", "1"), {"b", "2"}})
    ASSERT_EQ(run("in", {"make-dataset", prefix, "40", "90", seed}).status, 0);
  const auto merge = [](const std::string& prefix, const std::string& output) {
    return std::vector<std::string>{"merge-datasets",  "-q",  "--force", "../in/" + prefix,
                                    "--output-prefix", output};
  };
  std::map<std::string, std::string> shim = {{"LD_PRELOAD", FAULT_SHIM},
                                             {"FAULT_ROOT", folder_ + "/out"}};
  shim["FAULT_SIGNAL"] = std::to_string(SIGSTOP);
  int refused = 0;
  bool stopped = true;
  for (int at = 1; stopped; ++at) {
    make_folder("out");
    ASSERT_EQ(run("out", merge("a", "x")).status, 0);
    shim["FAULT_AT"] = std::to_string(at);
    const pid_t pid = start("out", merge("b", "x"), shim);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    stopped = WIFSTOPPED(status);
    if (!stopped) break;
    const std::string when = "stopped at operation " + std::to_string(at);
    EXPECT_EQ(run("out", merge("b", "beside")).status, 0) << when;
    const Ended second = run("out", merge("a", "x"));
    if (second.status != 0) {
      EXPECT_TRUE(
          second.err.starts_with("merge-datasets: x.") &&
          second.err.ends_with(": being written by another process: device or resource busy\n"))
          << when << ": " << second.err;
      ++refused;
    }
    if (at % 3 == 0) {  // a killed one is no obstacle
      kill(pid, SIGKILL);
      wait(pid);
      EXPECT_EQ(run("out", merge("a", "x")).status, 0) << when;
    } else {
      kill(pid, SIGCONT);
      EXPECT_EQ(wait(pid).status, 0) << when;
    }
    EXPECT_EQ(run("out", {"inspect-dataset", "verify", "-q", "x"}).status, 0) << when;
    EXPECT_EQ(files("out").size(), 6U) << when;
  }
  EXPECT_GT(refused, 5);
}

// Of two that begin at the same time one is refused, and one ends well.
TEST_F(OneOutput, IsThatOfOneOfTwoThatBeginTogether) {
  make_folder("in");
  ASSERT_EQ(run("in", {"make-dataset", "a", "4000", "90", "1"}).status, 0);
  for (int round = 0; round < 20; ++round) {
    make_folder("out");
    const std::vector<std::string> words = {
        "merge-datasets", "-q", "--force", "../in/a", "../in/a", "../in/a", "--output-prefix", "x"};
    const pid_t one = start("out", words), other = start("out", words);
    const int first = wait(one).status, second = wait(other).status;
    EXPECT_TRUE(first == 0 || second == 0) << first << " " << second;
    EXPECT_EQ(run("out", {"inspect-dataset", "verify", "-q", "x"}).status, 0);
    EXPECT_EQ(files("out").size(), 3U);
  }
}

// An index is named when the data it describes has its name for good.
TEST_P(KillTest, NamesAreGivenToWhatIsOnTheDisk) {
  fresh();
  ASSERT_EQ(run("out", words_,
                {{"LD_PRELOAD", FAULT_SHIM},
                 {"FAULT_ROOT", folder_ + "/out"},
                 {"FAULT_LOG", folder_ + "/log"}})
                .status,
            0);
  std::ifstream log(folder_ + "/log");
  int named = 0;
  const auto relies = [](const std::string& path, const std::string& earlier) {
    return path.ends_with(".idx") && !earlier.ends_with(".idx");
  };
  EXPECT_EQ(torn_by_a_power_cut(log, relies, named), std::vector<std::string>());
  EXPECT_GT(named, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Tools, KillTest,
    testing::Values(
        Case{"json_extract",
             "json-extract -q -w 2 --on-error quarantine -o @/x.jsonl ../in/text.jsonl"},
        Case{"json_extract_zstd",
             "json-extract -q -w 2 --on-error skip --compress zstd -o @/x.zst ../in/text.jsonl"},
        Case{"near_dedup",
             "near-dedup -q -w 2 --on-error skip -d @/list -o @/x.jsonl ../in/text.jsonl"},
        Case{"wiki_extract", "wiki-extract -q --processes 2 -b 100K -o @/text ../in/wiki.xml"},
        Case{"bpe_train",
             "bpe-train -q --workers 2 --vocab-size 300 --on-error quarantine --output @/v "
             "--input ../in/text.jsonl"},
        Case{"bpe_tokenize",
             "bpe-tokenize -q -w 2 --append-eod --on-error skip @vocab -o @/x "
             "--input ../in/text.jsonl"},
        Case{"bpe_tokenize_keys",
             "bpe-tokenize -q -w 1 --json-keys text title --on-error quarantine @vocab -o @/x "
             "--input ../in/text.jsonl"},
        Case{"bpe_tokenize_shards",
             "bpe-tokenize -q -w 1 --shard-tokens 200000 --on-error skip @vocab -o @/x "
             "--input ../in/text.jsonl"},
        Case{"bpe_tokenize_no_manifest",
             "bpe-tokenize -q -w 1 --json-keys text title --no-manifest --on-error skip @vocab "
             "-o @/x --input ../in/text.jsonl"},
        Case{"merge_datasets", "merge-datasets -q ../in/a ../in/b ../in/a --output-prefix @/x"},
        Case{"merge_datasets_no_manifest",
             "merge-datasets -q --no-manifest ../in/a ../in/b --output-prefix @/x"},
        Case{"shuffle_index",
             "shuffle-index -q --data-path 0.3 ../in/a 0.7 ../in/b --split 8,1,1 "
             "--seq-length 16 --samples 900,20,20 --data-cache-path @/cache "
             "--tokenizer-type NullTokenizer --vocab-size 1000"},
        Case{"shuffle_index_rewrite",
             "shuffle-index -q --data-path ../in/a ../in/b --mem 300K --rewrite @/x"},
        Case{"inspect_dataset_repair", "inspect-dataset quick @/old --repair"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tools
