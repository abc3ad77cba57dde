// LogFile on a failing disk, simulated by a limit on the size or number of files that is lifted
// again. Waiting lines are written in order; when there are too many, the oldest are lost, and both
// the file and the console say so.
//
// SPDX-License-Identifier: MIT
#include "trainer/log/log_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include <nlohmann/json.hpp>

#include "trainer/log/metrics.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// A limit of this process, as long as it lives.
class Limit {
 public:
  Limit(__rlimit_resource kind, rlim_t value) : kind_(kind) {
    getrlimit(kind_, &before_);
    rlimit now = before_;
    now.rlim_cur = value;
    setrlimit(kind_, &now);
  }
  ~Limit() { setrlimit(kind_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  __rlimit_resource kind_;
  rlimit before_{};
};

class LogFileTest : public testing::Test {
 protected:
  LogFileTest() {
    std::signal(SIGXFSZ, SIG_IGN);
    std::string name = fs::temp_directory_path() / "log_file_test.XXXXXX";
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ + "/log";
  }
  ~LogFileTest() override { fs::remove_all(folder_); }

  LogFileOptions options(size_t most_kept_bytes = 1000) {
    return {
        .path = path_,
        .gap =
            [](int64_t lost, int64_t iteration) {
              return "lost " + std::to_string(lost) + " to " + std::to_string(iteration) + "\n";
            },
        .say = [this](const std::string& line) { said_.push_back(line.substr(folder_.size())); },
        .most_kept_bytes = most_kept_bytes};
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  std::string read() const { return read(path_); }

  std::string folder_, path_;
  std::vector<std::string> said_;
};

TEST_F(LogFileTest, WhatWaitsIsWrittenInOrder) {
  LogFile log(options());
  log.add("one\n", 1);
  log.flush();
  {
    const Limit full(RLIMIT_FSIZE, 7);  // a line is cut: there is room for three letters.
    for (const char* line : {"two\n", "three\n", "four\n"}) {
      log.add(line, 2);
      log.flush();
    }
    EXPECT_EQ(read(), "one\ntwo");
  }
  log.add("five\n", 5);
  log.flush();
  EXPECT_EQ(read(), "one\ntwo\nthree\nfour\nfive\n");
  EXPECT_THAT(said_, ElementsAre("/log: file too large: lines are kept in memory, 0 KiB at most, "
                                 "and tried again; training continues",
                                 "/log: is written again: 4 lines that waited are in it, none is "
                                 "lost"));
}

TEST_F(LogFileTest, AboveTheBoundTheOldestAreLostAndTheirPlaceSaysSo) {
  LogFile log(options(30));
  log.add("first line\n", 1);
  log.flush();
  std::optional<Limit> full;
  full.emplace(RLIMIT_FSIZE, 14);
  for (int i = 2; i <= 9; ++i) {  // "li" of line 2 is in the file, so its end must follow.
    log.add("line " + std::to_string(i) + " ..\n", i);
    log.flush();
  }
  EXPECT_EQ(read(), "first line\nlin");
  full.reset();
  log.flush();
  EXPECT_EQ(read(), "first line\nline 2 ..\nlost 5 to 7\nline 8 ..\nline 9 ..\n");
  ASSERT_EQ(said_.size(), 3u);
  EXPECT_EQ(said_[1], "/log: file too large: 0 KiB wait: from here on the oldest lines are lost");
  EXPECT_EQ(said_[2],
            "/log: is written again: 3 lines that waited are in it, 5 lines before are lost");
  // It continues as before, and a second failure is reported like the first.
  log.add("line 10\n", 10);
  log.flush();
  EXPECT_THAT(read(), testing::EndsWith("line 9 ..\nline 10\n"));
  full.emplace(RLIMIT_FSIZE, 1);
  log.add("line 11\n", 11);
  log.flush();
  full.reset();
  log.flush();
  EXPECT_EQ(said_.back(), "/log: is written again: 1 line that waited is in it, none is lost");
}

// The note about a gap is not lost itself when more lines are.
TEST_F(LogFileTest, AGapThatCouldNotBeWrittenGrows) {
  LogFile log(options(25));
  std::optional<Limit> full;
  const auto add = [&](int from, int to) {
    for (int i = from; i <= to; ++i) {
      log.add("a line " + std::to_string(i) + "\n", i);
      log.flush();
    }
  };
  full.emplace(RLIMIT_FSIZE, 0);
  add(1, 8);
  EXPECT_EQ(read(), "");
  full.reset();
  log.flush();
  EXPECT_EQ(read(), "lost 6 to 6\na line 7\na line 8\n");
}

// Somebody moves the file away, or empties it, to make room: a line that was cut there is complete
// here.
TEST_F(LogFileTest, AFileThatIsReplacedGetsWholeLines) {
  LogFile log(options());
  const auto torn = [&](const char* line) {
    const Limit full(RLIMIT_FSIZE, read().size() + 2);
    log.add(line);
    log.flush();
  };
  torn("moved\n");
  EXPECT_EQ(read(), "mo");
  fs::rename(path_, path_ + ".old");
  log.flush();
  EXPECT_EQ(read(), "moved\n");
  torn("emptied\n");
  fs::resize_file(path_, 0);
  log.flush();
  EXPECT_EQ(read(), "emptied\n");
}

TEST_F(LogFileTest, AtTheStartOnlyWhatNoRetryMendsIsAnError) {
  {
    std::optional<Limit> none;
    none.emplace(RLIMIT_NOFILE, 0);
    LogFile log(options());
    log.add("waits\n");
    log.flush();
    none.reset();
    log.flush();
    EXPECT_EQ(read(), "waits\n");
    EXPECT_THAT(said_.front(), StartsWith("/log: too many open files: "));
  }
  fs::create_directory(folder_ + "/folder");
  LogFileOptions wrong = options();
  wrong.path = folder_ + "/folder";
  EXPECT_THROW(LogFile{wrong}, std::system_error);
  wrong.path = path_ + "/below a file";
  EXPECT_THROW(LogFile{wrong}, std::system_error);
}

TEST_F(LogFileTest, WhatIsLostInTheEndIsCounted) {
  const Limit full(RLIMIT_FSIZE, 1);
  {
    LogFile log(options(30));
    for (int i = 1; i <= 9; ++i) log.add("a line " + std::to_string(i) + "\n", i);
    log.flush();
  }
  EXPECT_EQ(said_.back(), "/log: file too large: 9 lines are lost");
}

TEST_F(LogFileTest, TheHeadOfAFileIsThereOnce) {
  LogFileOptions headed = options();
  headed.head = "head of five\n";
  LogFile log(headed);
  EXPECT_EQ(read(), "head of five\n");
  fs::remove(path_);
  {
    const Limit full(RLIMIT_FSIZE, 4);
    log.add("x");  // still in the old file.
    log.flush();
    log.flush();
  }
  log.add("y\n");
  log.flush();
  EXPECT_EQ(read(), "head of five\nxy\n");
}

// metrics.jsonl: old lines are removed when the disk allows it, and lines that a killed run had in
// memory are reported as missing.
TEST_F(LogFileTest, WhatIsNoFileIsNeitherReadNorWaitedFor) {
  IterationRecord r;
  r.iteration = 1;
  {
    Metrics metrics({.metrics_file = "/dev/full", .say = options().say}, 0);
    metrics.interval(r);
    metrics.flush();
  }
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  Metrics metrics({.metrics_file = path_, .say = options().say}, 0);
  metrics.interval(r);
  metrics.flush();  // no reader: the line waits
  const int reader = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  metrics.flush();
  char line[2] = {};
  EXPECT_EQ(::read(reader, line, 1), 1);
  EXPECT_STREQ(line, "{");
  ::close(reader);
}

TEST_F(LogFileTest, MetricsOfADeadRunWaitToo) {
  const auto lines = [&] {
    std::vector<std::string> out;
    std::ifstream in(path_);
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      out.push_back(record.value("event", "") + record.at("iteration").dump());
    }
    return out;
  };
  IterationRecord r;
  MetricsOptions first{.metrics_file = path_};
  {
    Metrics metrics(first, 0);
    for (r.iteration = 10; r.iteration <= 50; r.iteration += 10) metrics.interval(r);
  }
  // Of a run that begins from a checkpoint in another folder, they may be another run's.
  {
    said_.clear();
    Metrics({.metrics_file = path_,
             .first_iteration = 60,
             .last_interval = 60,
             .from_elsewhere = true,
             .say = options().say},
            0);
    EXPECT_THAT(lines(), ElementsAre("10", "20", "30", "40", "50"));
    EXPECT_THAT(said_, ElementsAre(HasSubstr(": its lines of iterations 1 to 60 stay: they are ")));
  }
  // It died with lines 60 to 80 in memory, after a checkpoint of 85, and of 35 before.
  for (const auto& [iterations, last_interval] : {std::pair{85, 80}, std::pair{35, 30}}) {
    said_.clear();
    {
      MetricsOptions second{.metrics_file = path_,
                            .first_iteration = iterations,
                            .last_interval = last_interval,
                            .say = options().say};
      std::optional<Limit> none;
      none.emplace(RLIMIT_NOFILE, 0);
      Metrics metrics(second, 0);
      r.iteration = 90;
      metrics.interval(r);
      none.reset();
      metrics.flush();
    }
    if (iterations == 85) {
      EXPECT_THAT(lines(), ElementsAre("10", "20", "30", "40", "50", "lines lost80", "90"));
      EXPECT_THAT(said_,
                  testing::Contains(HasSubstr("the lines of iterations 51 to 80 are missing")));
    } else {
      EXPECT_THAT(lines(), ElementsAre("10", "20", "30", "90"));
      EXPECT_THAT(said_, testing::Not(testing::Contains(HasSubstr("missing"))));
    }
  }
}

}  // namespace
}  // namespace trainer
