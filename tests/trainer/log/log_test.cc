// The lines that users' scripts parse, metrics.jsonl through a crash, and TensorBoard's framing.
// That real TensorBoard reads the events is checked by tests/reference/tensorboard_golden.py, which
// wrote tests/golden/trainer/events.json from a file of this writer; here the same file must come
// out again, byte for byte but for times and host.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>

#include <nlohmann/json.hpp>

#include "libindexed/crc32c.h"
#include "trainer/log/iteration_line.h"
#include "trainer/log/metrics.h"
#include "trainer/log/tensorboard.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = fs::temp_directory_path() / "log_test.XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

IterationRecord some_record() {
  IterationRecord r;
  r.iteration = 100;
  r.train_iters = 500000;
  r.consumed_train_samples = 800;
  r.global_batch_size = 8;
  r.seconds_per_iteration = 0.12345;
  r.learning_rate = 1.5e-4;
  r.lm_loss = 9.123456789;
  r.loss_scale = 65536;
  r.grad_norm = 2.34567;
  r.skipped_iterations = 1;
  r.tokens_per_second = 66342.6;
  r.seconds_left = 3725;
  r.data_wait_seconds = 0.0003;
  r.peak_memory_bytes = 3 << 19;
  r.planned_memory_bytes = 2 << 20;
  r.time = 1.7e9;
  return r;
}

TEST(IterationLine, IsMegatronsWithOursAtTheEnd) {
  setenv("TZ", "UTC", 1);
  EXPECT_EQ(
      format_iteration_line(some_record()),
      " [2023-11-14 22:13:20] iteration      100/  500000 | consumed samples:          800 |"
      " elapsed time per iteration (ms): 123.5 | learning rate: 1.500000E-04 |"
      " global batch size:     8 | lm loss: 9.123457E+00 | loss scale: 65536.0 | grad norm: 2.346 |"
      " number of skipped iterations:   1 | number of nan iterations:   0 |"
      " tokens per second: 66342.6 | time left: 1:02:05 | waiting for data (ms): 0.3 |"
      " peak memory (MiB): 1.5 | planned memory (MiB): 2.0 |");
  IterationRecord r = some_record();
  r.tflops_per_device = 412.34;
  r.params_norm = 101.5;
  r.num_zeros = 12;
  r.slowest = {.rank = 3, .cost_seconds = 0.0125, .communication_seconds = 0.002};
  const std::string line = format_iteration_line(r);
  EXPECT_THAT(line,
              testing::HasSubstr(" elapsed time per iteration (ms): 123.5 | throughput per GPU "
                                 "(TFLOP/s/GPU): 412.3 | learning rate:"));
  EXPECT_THAT(line,
              testing::HasSubstr(" grad norm: 2.346 | num zeros: 12 | params norm: 101.500 |"));
  EXPECT_THAT(line, testing::HasSubstr(" time left: 1:02:05 | slowest rank: 3 | slowest rank cost "
                                       "(ms): 12.5 | exposed communication (ms): 2.0 | waiting "
                                       "for data (ms): 0.3 |"));
}

// The kind of expression that users' plotting scripts use.
TEST(IterationLine, UsersExpressionsStillMatch) {
  const std::string line = format_iteration_line(some_record());
  std::smatch match;
  ASSERT_TRUE(std::regex_search(
      line, match, std::regex(R"(iteration\s+(\d+)/\s*(\d+) \|.*lm loss: ([0-9.E+-]+) \|)")));
  EXPECT_EQ(match[1], "100");
  EXPECT_EQ(std::stod(match[3]), 9.123457);
  ASSERT_TRUE(std::regex_search(line, match,
                                std::regex(R"(elapsed time per iteration \(ms\): ([0-9.]+))")));
  ASSERT_TRUE(std::regex_search(line, match, std::regex(R"(consumed samples:\s+(\d+))")));
  // Whole lines as Megatron-core has printed them since 0.5, field by field.
  IterationRecord r = some_record();
  r.tflops_per_device = 412.34;
  const std::string whole = format_iteration_line(r);
  ASSERT_TRUE(std::regex_search(
      whole, match,
      std::regex(R"(\[(.*?)\]\s+iteration\s+(\d+)/\s+(\d+)\s+\|\s+consumed samples:\s+(\d+)\s+\|)"
                 R"(\s+elapsed time per iteration \(ms\):\s+([\d.]+)\s+\|)"
                 R"(\s+throughput per GPU \(TFLOP/s/GPU\):\s+([\d.]+)\s+\|)"
                 R"(\s+learning rate:\s+([\d.E+-]+)\s+\|\s+global batch size:\s+(\d+)\s+\|)"
                 R"(\s+lm loss:\s+([\d.E+-]+)\s+\|\s+loss scale:\s+([\d.]+)\s+\|)"
                 R"(\s+grad norm:\s+([\d.]+)\s+\|\s+number of skipped iterations:\s+(\d+)\s+\|)"
                 R"(\s+number of nan iterations:\s+(\d+)\s+\|)")));
  EXPECT_EQ(match[6], "412.3");
  const std::string validation = format_validation_lines(
      {.prefix = "iteration 20 on test set", .iteration = 20, .lm_loss = 2});
  ASSERT_TRUE(std::regex_search(
      validation, match,
      std::regex(
          R"(validation loss at iteration (\d+)( on \w+ set)? \| lm loss value: ([\d.eE+-]+))")));
  EXPECT_EQ(match[2], " on test set");
}

TEST(IterationLine, Validation) {
  const ValidationRecord r{.prefix = "iteration 1000", .iteration = 1000, .lm_loss = 3.5};
  const std::string rule(96, '-');
  EXPECT_EQ(format_validation_lines(r), rule +
                                            "\n validation loss at iteration 1000 | lm loss value: "
                                            "3.500000E+00 | lm loss PPL: 3.311545E+01 | \n" +
                                            rule);
  EXPECT_EQ(perplexity(25), std::exp(20.0));
}

TEST(IterationLine, Durations) {
  EXPECT_EQ(format_duration(0.4), "0:00:00");
  EXPECT_EQ(format_duration(3599.6), "1:00:00");
  EXPECT_EQ(format_duration(86400 + 61), "1 day 0:01:01");
  EXPECT_EQ(format_duration(2 * 86400), "2 days 0:00:00");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(NAN), "?");
}

TEST(IterationLine, JsonKeepsEveryBit) {
  IterationRecord r = some_record();
  r.lm_loss = 0.1 + 0.2;
  r.grad_norm = INFINITY;
  const nlohmann::json json = nlohmann::json::parse(format_iteration_json(r));
  EXPECT_EQ(json.at("lm_loss").get<double>(), 0.1 + 0.2);
  EXPECT_TRUE(json.at("grad_norm").is_null());
  EXPECT_EQ(json.at("consumed_train_samples"), 800);
}

TEST(Metrics, RefusesAFileThatIsNoRuns) {
  const Folder folder;
  const std::string path = folder / "file";
  const auto content_after = [&](const std::string& before) {
    std::ofstream(path, std::ios::binary) << before;
    Metrics({.metrics_file = path}, 1);
    return read_file(path);
  };
  for (const std::string foreign : {"my notes\n", "notes without an end", "{\"a\": 1}\n",
                                    "{\"a\": 1}", "[1]\n", "{\n  \"a\": 1\n}\n", "iteration 5\n"}) {
    try {
      content_after(foreign);
      ADD_FAILURE() << foreign;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(path)) << foreign;
    }
    EXPECT_EQ(read_file(path), foreign);
  }
  const std::string line = "{\"iteration\": 0, \"event\": \"start\"}\n";
  EXPECT_EQ(content_after(line), line);
  EXPECT_EQ(content_after("a damaged line\n" + line), line);
  EXPECT_EQ(content_after(line + "{\"iterat"), line);
  EXPECT_EQ(content_after("{\"iterat"), "");
  EXPECT_EQ(content_after(""), "");
  EXPECT_EQ(content_after("\n"), "");
  EXPECT_EQ(content_after(std::string(64, '\0')), "");
  EXPECT_EQ(content_after(std::string(8, '\0') + line), line);
  EXPECT_EQ(content_after(line + std::string(8, '\0') + line + line), line + line + line);
  EXPECT_EQ(content_after(line + line.substr(0, line.size() - 1)), line + line);
}

TEST(Metrics, OneTrainerWritesAFile) {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl";
  IterationRecord r = some_record();
  std::optional<Metrics> first;
  first.emplace(MetricsOptions{.metrics_file = path}, 1);
  first->interval(r);
  const std::string line = read_file(path);
  try {
    Metrics({.metrics_file = path}, 1);
    ADD_FAILURE() << "two trainers write one file";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), path + ": another trainer is writing there");
  }
  EXPECT_EQ(read_file(path), line);
  Metrics({.metrics_file = path, .only_adds = true}, 1);  // evaluates beside it.
  EXPECT_EQ(read_file(path), line);
  first.reset();
  std::string said;
  Metrics({.metrics_file = path, .say = [&](const std::string& text) { said = text; }}, 1);
  EXPECT_EQ(said, path + ": line 1 is removed: this run begins at step 0");
  EXPECT_EQ(read_file(path), "");
}

// What a run that begins anew has moved is not lost, and a run that goes on from later says where.
TEST(Metrics, LinesOfLaterCheckpointsAreMoved) {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl", moved = folder / "metrics.1.jsonl";
  IterationRecord r = some_record();
  Metrics({.metrics_file = path}, 1).interval(r);
  const std::string line = read_file(path);
  std::string said;
  const auto say = [&](const std::string& text) { said = text; };
  Metrics({.metrics_file = path, .moves_later = true, .say = say}, 1).interval(r);
  EXPECT_EQ(said, path + ": line 1 is moved to " + moved + ": this run begins at step 0");
  EXPECT_EQ(read_file(moved), line);
  const int64_t later = r.iteration + 10;
  Metrics({.metrics_file = path, .first_iteration = later, .last_interval = later, .say = say}, 1);
  EXPECT_THAT(said, testing::HasSubstr(" are missing: an earlier start moved lines to " + moved));
  EXPECT_THAT(read_file(path), testing::HasSubstr("{\"event\":\"lines moved\","));
  EXPECT_THAT(read_file(path), testing::StartsWith(line));
}

TEST(Metrics, ForgetsWhatADeadRunSaidAfterItsCheckpoint) {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl";
  IterationRecord r = some_record();
  {
    Metrics metrics({.metrics_file = path}, 1.7e9);
    for (r.iteration = 1; r.iteration <= 5; ++r.iteration) metrics.interval(r);
    metrics.validation({.prefix = "iteration 4", .iteration = 4, .lm_loss = 1});
    metrics.event("checkpoint", 3, {{"path", "a \"b\"\xff"}});
  }
  std::ofstream(path, std::ios::app)
      << "{\"iteration\": 2, \"torn";  // killed in the middle of a line
  {
    Metrics metrics({.metrics_file = path, .first_iteration = 3}, 1.7e9);
    r.iteration = 4;
    metrics.interval(r);
  }
  std::vector<int> iterations;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    iterations.push_back(nlohmann::json::parse(line).at("iteration"));
  EXPECT_THAT(iterations, testing::ElementsAre(1, 2, 3, 3, 4));
}

// One record: length, masked CRC of the length, data, masked CRC of the data.
std::vector<std::string> read_records(const std::string& bytes) {
  std::vector<std::string> records;
  const auto crc = [](std::string_view text) {
    const uint32_t plain = indexed::crc32c(0, std::as_bytes(std::span(text.data(), text.size())));
    return std::rotr(plain, 15) + 0xa282ead8u;
  };
  const auto number = [](std::string_view text) {
    uint64_t value = 0;
    for (size_t i = text.size(); i > 0; --i)
      value = value << 8 | static_cast<unsigned char>(text[i - 1]);
    return value;
  };
  for (size_t at = 0; at < bytes.size();) {
    const std::string_view rest = std::string_view(bytes).substr(at);
    if (rest.size() < 12) {
      ADD_FAILURE() << "cut record";
      break;
    }
    const uint64_t length = number(rest.substr(0, 8));
    EXPECT_EQ(number(rest.substr(8, 4)), crc(rest.substr(0, 8)));
    if (rest.size() < 16 + length) {
      ADD_FAILURE() << "cut record";
      break;
    }
    EXPECT_EQ(number(rest.substr(12 + length, 4)), crc(rest.substr(12, length)));
    records.emplace_back(rest.substr(12, length));
    at += 16 + length;
  }
  return records;
}

TEST(TensorBoard, FramingAndMessages) {
  const Folder folder;
  std::string path;
  {
    EventWriter writer(folder.path(), 1.5, 7);
    writer.scalar("lm loss", 2.5, 300, 2.0);
    path = writer.path();
  }
  EXPECT_THAT(fs::path(path).filename().string(), testing::StartsWith("events.out.tfevents.1."));
  const std::vector<std::string> records = read_records(read_file(path));
  using namespace std::string_literals;
  EXPECT_THAT(
      records,
      testing::ElementsAre(
          "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x1a\x0d"s + "brain.Event:2",
          "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\x07\x3a\x02\x08\x01"s,
          "\x09\x00\x00\x00\x00\x00\x00\x00\x40\x10\xac\x02\x2a\x10\x0a\x0e\x0a\x07lm loss"s +
              "\x15\x00\x00\x20\x40"s));
}

// tests/reference/tensorboard_golden.py had real TensorBoard read these very bytes, and wrote down
// what it saw.
TEST(TensorBoard, BytesThatRealTensorBoardRead) {
  const Folder folder;
  std::string path;
  {
    EventWriter writer(folder.path(), 1.7e9, 3);
    for (int step = 1; step <= 300; ++step) {
      writer.scalar("lm loss", 10.0 / step, step, 1.7e9 + step);
      writer.scalar("lm loss vs samples", 10.0 / step, int64_t{512} * step, 1.7e9 + step);
    }
    writer.text("configuration/text_summary", "```toml\nlr = 0.1 # \u00e9\n```\n", 2, 1.7e9);
    path = writer.path();
  }
  const std::string golden = std::string(GOLDEN_DIR) + "/trainer/events.tfevents";
  if (std::getenv("UPDATE_GOLDEN"))
    fs::copy_file(path, golden, fs::copy_options::overwrite_existing);
  EXPECT_EQ(read_file(path), read_file(golden));
}

TEST(TensorBoard, TagsAreMegatrons) {
  const Folder folder;
  {
    Metrics metrics(
        {.tensorboard_dir = folder.path(), .timers = true, .validation_ppl = true, .world_size = 8},
        1.7e9);
    IterationRecord r = some_record();
    r.tflops_per_device = 1;
    r.slowest = {.rank = 1};
    metrics.configuration("a = \"```\"\n", 99, 1.7e9);
    metrics.points(r);
    metrics.interval(r);
    metrics.validation({.prefix = "iteration 100", .iteration = 100, .lm_loss = 2});
  }
  std::string all;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) {
    for (const std::string& record : read_records(read_file(entry.path()))) all += record;
  }
  for (const char* tag : {"learning-rate",
                          "learning-rate vs samples",
                          "batch-size",
                          "batch-size vs samples",
                          "lm loss",
                          "lm loss vs samples",
                          "loss-scale",
                          "loss-scale vs samples",
                          "world-size",
                          "grad-norm",
                          "grad-norm vs samples",
                          "iteration-time",
                          "throughput",
                          "lm loss validation",
                          "lm loss validation vs samples",
                          "lm loss validation ppl",
                          "tokens-per-second",
                          "slowest-rank",
                          "slowest-rank-cost",
                          "exposed-communication-time",
                          "data-wait-time",
                          "peak-memory-bytes",
                          "planned-memory-bytes"}) {
    const std::string counted =
        std::string(1, static_cast<char>(std::string_view(tag).size())) + tag;
    EXPECT_THAT(all, testing::HasSubstr("\x0a" + counted)) << tag;
  }
  EXPECT_THAT(all, testing::HasSubstr("````toml\na = \"```\"\n````\n"));
}

}  // namespace
}  // namespace trainer
