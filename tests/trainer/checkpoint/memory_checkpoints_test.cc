// Checkpoints in memory: the bytes of those on disk, two generations, and writers that are killed,
// fail or find damage. Writers are processes, as ranks are.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>

#include "libindexed/format.h"
#include "tests/trainer/checkpoint/writer_links.h"
#include "trainer/checkpoint/memory_checkpoints.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kWorld = 3;
constexpr int64_t kRows = 999, kColumns = 400, kPart = kRows * kColumns / kWorld;

/// A kill of the writing process, in one of its tensors.
struct Kill {
  int rank = -1;
  int tensor = 0;      ///< 0: of the first file, 1: of the second.
  bool after = false;  ///< Its last byte was written.
};

class InMemory : public testing::Test {
 protected:
  InMemory() : links_(std::make_unique<WriterLinks>(kWorld)) {}

  /// Rank `rank`'s third of two matrices whose values depend on the iteration.
  struct Part {
    Part(int rank, int64_t iteration) : values(kPart) {
      std::iota(values.begin(), values.end(), static_cast<float>(iteration + 1000 * rank));
      meta.state.iteration = iteration;
      Piece piece = Piece::whole({kRows, kColumns});
      piece.count = kPart;
      piece.first = rank * kPart;
      for (const char* group : {"model", "exp_avg"})
        shards.push_back(
            {group, "matrix", "F32", {kRows, kColumns}, piece, std::as_bytes(std::span(values))});
    }
    std::vector<float> values;
    CheckpointMeta meta;
    std::vector<ShardSource> shards;
  };

  /// All ranks save an iteration, each a process. Returns what wait(2) says of each; when one was
  /// killed, the others are too, as by their launcher.
  std::vector<int> save(int64_t iteration, const Kill& kill = {}, int failing = -1) {
    links_ = std::make_unique<WriterLinks>(kWorld);
    std::vector<pid_t> children;
    for (int rank = 0; rank < kWorld; ++rank) {
      children.push_back(::fork());
      if (children.back() == 0) write(rank, iteration, kill, failing);
    }
    std::vector<int> statuses(kWorld);
    if (kill.rank >= 0) {
      ::waitpid(children[static_cast<size_t>(kill.rank)], &statuses[static_cast<size_t>(kill.rank)],
                0);
      for (const pid_t child : children) ::kill(child, SIGKILL);
    }
    for (int rank = 0; rank < kWorld; ++rank)
      if (rank != kill.rank)
        ::waitpid(children[static_cast<size_t>(rank)], &statuses[static_cast<size_t>(rank)], 0);
    return statuses;
  }

  /// The checkpoint holds what its iteration says, in all its bytes.
  void expect_whole(int64_t iteration) const {
    Checkpoint checkpoint = MemoryCheckpoints(files_.descriptors()).open(iteration);
    checkpoint.verify();
    for (const char* group : {"model", "exp_avg"}) {
      const std::vector<std::byte> bytes =
          checkpoint.read(*checkpoint.meta().find(group, "matrix"));
      for (int rank = 0; rank < kWorld; ++rank) {
        const Part part(rank, iteration);
        EXPECT_EQ(std::memcmp(bytes.data() + 4 * kPart * rank, part.values.data(), 4 * kPart), 0)
            << group << " of rank " << rank;
      }
    }
  }
  std::vector<int64_t> iterations() const {
    return MemoryCheckpoints(files_.descriptors()).iterations();
  }
  static std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  /// The text of a file, by its place among the descriptors.
  std::string content(size_t i) const {
    return content("/proc/self/fd/" + std::to_string(files_.descriptors()[i]));
  }

  MemoryFiles files_{kWorld};
  std::unique_ptr<WriterLinks> links_;

 private:
  [[noreturn]] void write(int rank, int64_t iteration, const Kill& kill, int failing) const {
    int status = 0;
    try {
      MemoryCheckpoints memory(files_.descriptors(), links_->place(rank, std::chrono::seconds(20)));
      Part part(rank, iteration);
      ShardSource& victim = part.shards[static_cast<size_t>(kill.tensor)];
      if (kill.rank == rank && kill.after) {
        victim.done = [] { ::raise(SIGKILL); };
      } else if (kill.rank == rank) {
        victim.read = [bytes = victim.bytes](int64_t, int64_t) {
          ::raise(SIGKILL);
          return bytes;
        };
        victim.bytes = {};
      }
      memory.save(part.meta, part.shards, failing == rank ? "nothing to write" : "");
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      status = 1;
    }
    ::_exit(status);
  }
};

// One writer: the files have the bytes that a save on disk gives, the record too.
TEST(InMemoryAlone, HasTheBytesOfACheckpointOnDisk) {
  std::string root = fs::temp_directory_path() / "in_memory_test.XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  std::vector<float> values(12345);
  std::iota(values.begin(), values.end(), 1.0f);
  const Piece whole = Piece::whole({12345});
  const std::vector<ShardSource> shards = {
      {"model", "a", "F32", {12345}, whole, std::as_bytes(std::span(values))},
      {"main", "a", "F32", {12345}, whole, std::as_bytes(std::span(values))}};
  CheckpointMeta meta;
  meta.state.iteration = 7;
  meta.config["lr"] = {"1"};
  CheckpointRoot(root).save(meta, shards, 0);
  const MemoryFiles files(1);
  MemoryCheckpoints memory(files.descriptors());
  EXPECT_GT(memory.more_bytes(shards), 8 * 12345 - 1);
  for (int i = 0; i < 2; ++i) memory.save(meta, shards);
  EXPECT_THAT(memory.iterations(), ElementsAre(7, 7));
  memory.forget_after(6);
  EXPECT_THAT(memory.iterations(), ElementsAre());
  memory.save(meta, shards);
  EXPECT_EQ(memory.more_bytes(shards), 0);
  const auto text = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const char* names[] = {"/meta.json", "/rank_00000_model.safetensors",
                         "/rank_00000_optimizer.safetensors"};
  for (size_t i = 0; i < 3; ++i) {
    const std::string wanted = text(iteration_folder(root, 7) + names[i]);
    EXPECT_FALSE(wanted.empty());
    EXPECT_TRUE(text("/proc/self/fd/" + std::to_string(files.descriptors()[i])) == wanted)
        << names[i];
  }
  EXPECT_EQ(memory.open(7).path(), "memory:/iter_0000007");
  // One that is smaller, as that of a rank after a change of layout.
  const Piece half = Piece::whole({100});
  for (const int64_t next : {8, 9}) {
    meta.state.iteration = next;
    memory.save(meta,
                {{"model", "a", "F32", {100}, half, std::as_bytes(std::span(values)).first(400)}});
    EXPECT_EQ(memory.iterations().front(), next);
    memory.open(next).verify();
  }
  fs::remove_all(root);
}

TEST_F(InMemory, TheTwoNewestAreKept) {
  for (int64_t iteration = 1; iteration < 5; ++iteration) {
    EXPECT_THAT(save(iteration), ElementsAre(0, 0, 0));
    const std::vector<int64_t> two = {iteration, iteration - 1};
    EXPECT_EQ(iterations(), iteration == 1 ? std::vector<int64_t>{1} : two);
    expect_whole(iteration);
  }
  EXPECT_THROW(MemoryCheckpoints(files_.descriptors()).open(2), indexed::FormatError);
}

// Each rank in turn, at the beginning and the end of each of its files, and again in the save that
// follows: the newest complete checkpoint stays whole.
TEST_F(InMemory, AKillInTheMiddleLeavesTheOneBefore) {
  int64_t iteration = 10;
  ASSERT_THAT(save(iteration), ElementsAre(0, 0, 0));
  for (int rank = 0; rank < kWorld; ++rank)
    for (const int tensor : {0, 1})
      for (const bool after : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rank " << rank << " tensor " << tensor << after);
        for (const int64_t next : {iteration + 1, iteration + 2}) {
          const std::vector<int> statuses = save(next, {rank, tensor, after});
          EXPECT_EQ(statuses[static_cast<size_t>(rank)], SIGKILL);
          EXPECT_THAT(iterations(), ElementsAre(iteration));
          expect_whole(iteration);
        }
        ASSERT_THAT(save(iteration + 3), ElementsAre(0, 0, 0));
        iteration += 3;
        EXPECT_THAT(iterations(), ElementsAre(iteration, iteration - 3));
        expect_whole(iteration);
      }
}

TEST_F(InMemory, WhereOneFailsAllDropTheSave) {
  ASSERT_THAT(save(1), ElementsAre(0, 0, 0));
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_THAT(save(2 + rank, {}, rank), ElementsAre(256, 256, 256));
    EXPECT_THAT(iterations(), ElementsAre(1));
    expect_whole(1);
  }
  EXPECT_THAT(save(5), ElementsAre(0, 0, 0));
  EXPECT_THAT(iterations(), ElementsAre(5, 1));
}

// A changed byte of a tensor is found and named; a changed record, or a file of another size, is no
// complete checkpoint.
TEST_F(InMemory, DamageIsFound) {
  ASSERT_THAT(save(1), ElementsAre(0, 0, 0));
  ASSERT_THAT(save(2), ElementsAre(0, 0, 0));
  const size_t second = files_.descriptors().size() / 2;  // of which save(2) has made use
  const auto flip = [&](size_t i, off_t at) {
    char byte = 0;
    const int fd = files_.descriptors()[i];
    ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
    byte = static_cast<char>(byte ^ 4);
    ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
  };
  const size_t model_of_rank_1 = second + 3;
  const off_t end = static_cast<off_t>(content(model_of_rank_1).size()) - 1;
  flip(model_of_rank_1, end);
  EXPECT_THAT(iterations(), ElementsAre(2, 1));
  {
    // Closed before the byte is put back: a file that changes while it is mapped fails every later
    // save of this process.
    Checkpoint damaged = MemoryCheckpoints(files_.descriptors()).open(2);
    EXPECT_NO_THROW(damaged.verify(
        [](const std::string& file) { return file != "rank_00001_model.safetensors"; }));
    try {
      damaged.verify();
      ADD_FAILURE();
    } catch (const indexed::FormatError& error) {
      EXPECT_THAT(error.what(), HasSubstr("memory:/iter_0000002/rank_00001_model.safetensors: "));
    }
  }
  flip(model_of_rank_1, end);
  expect_whole(2);
  for (const off_t at : {off_t{0}, static_cast<off_t>(content(second).size()) / 2}) {
    flip(second, at);
    EXPECT_THAT(iterations(), ElementsAre(1));
    flip(second, at);
  }
  ASSERT_EQ(::ftruncate(files_.descriptors()[model_of_rank_1], end), 0);
  EXPECT_THAT(iterations(), ElementsAre(1));
  // The next save takes that place.
  ASSERT_THAT(save(3), ElementsAre(0, 0, 0));
  EXPECT_THAT(iterations(), ElementsAre(3, 1));
  expect_whole(3);
}

TEST_F(InMemory, WhatIsNotContinuedFromIsForgotten) {
  ASSERT_THAT(save(1), ElementsAre(0, 0, 0));
  ASSERT_THAT(save(9), ElementsAre(0, 0, 0));
  MemoryCheckpoints(files_.descriptors()).forget_after(1);
  EXPECT_THAT(iterations(), ElementsAre(1));
  ASSERT_THAT(save(2), ElementsAre(0, 0, 0));
  EXPECT_THAT(iterations(), ElementsAre(2, 1));
  expect_whole(1);
}

}  // namespace
}  // namespace trainer
