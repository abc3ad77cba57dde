// One checkpoint, several processes: each writes its part at its own time, one of them fails or is
// killed, and what has a final name is always complete.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "tests/trainer/checkpoint/writer_links.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/meeting.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int kWorld = 3;
constexpr int64_t kRows = 3000, kColumns = 100;

class ManyWriters : public testing::Test {
 protected:
  ManyWriters() {
    std::string name = fs::temp_directory_path() / "many_writers_test.XXXXXX";
    root_ = ::mkdtemp(name.data());
    connect();
  }
  ~ManyWriters() override { fs::remove_all(root_); }

  // Rank `rank`'s third of a matrix whose values depend on the iteration.
  void save(CheckpointRoot& root, int rank, int64_t iteration) const {
    std::vector<float> part(kRows * kColumns / kWorld);
    std::iota(part.begin(), part.end(), static_cast<float>(iteration + 1000 * rank));
    Piece piece = Piece::whole({kRows, kColumns});
    piece.count = kRows * kColumns / kWorld;
    piece.first = rank * piece.count;
    CheckpointMeta meta;
    meta.state.iteration = iteration;
    const std::span<const std::byte> bytes = std::as_bytes(std::span(part));
    root.save(meta,
              {{"model", "matrix", "F32", {kRows, kColumns}, piece, bytes},
               {"exp_avg", "matrix", "F32", {kRows, kColumns}, piece, bytes}},
              0);
  }

  WriterPlace place(int rank) const { return links_->place(rank, std::chrono::seconds(20)); }
  // For writers whose save numbers start over.
  void connect() { links_ = std::make_unique<WriterLinks>(kWorld); }

  // A process that saves `iterations`; exit status 0 when all were whole, 1 when one was not.
  pid_t start(int rank, std::vector<int64_t> iterations, milliseconds late = {}) const {
    const pid_t child = ::fork();
    if (child != 0) return child;
    int status = 0;
    try {
      CheckpointRoot root(root_, place(rank));
      std::this_thread::sleep_for(late);
      for (const int64_t iteration : iterations) save(root, rank, iteration);
    } catch (const std::exception&) {
      status = 1;
    }
    ::_exit(status);
  }

  static int status_of(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // The newest checkpoint is whole, and holds what its iteration says.
  void expect_whole(int64_t at_least) const {
    const std::optional<std::string> folder = find_checkpoint(root_, std::nullopt);
    ASSERT_TRUE(folder);
    Checkpoint checkpoint = Checkpoint::open(*folder);
    checkpoint.verify();
    const int64_t iteration = checkpoint.meta().state.iteration;
    EXPECT_GE(iteration, at_least);
    const TensorRecord& matrix = *checkpoint.meta().find("model", "matrix");
    EXPECT_EQ(matrix.shards.size(), size_t{kWorld});
    const std::vector<std::byte> bytes = checkpoint.read(matrix);
    const float* values = reinterpret_cast<const float*>(bytes.data());
    for (int rank = 0; rank < kWorld; ++rank)
      EXPECT_EQ(values[rank * kRows * kColumns / kWorld],
                static_cast<float>(iteration + 1000 * rank));
  }

  std::string root_;
  std::unique_ptr<WriterLinks> links_;
};

TEST_F(ManyWriters, WriteOneCheckpointWhoeverIsLast) {
  for (int last = 0; last < kWorld; ++last) {
    std::vector<pid_t> children;
    connect();
    // Rank 0 takes the folder before others write, as the first training step has it.
    children.push_back(start(0, {last + 1}, milliseconds(last == 0 ? 60 : 20)));
    for (int rank = 1; rank < kWorld; ++rank)
      children.push_back(start(rank, {last + 1}, milliseconds(last == rank ? 60 : 20)));
    for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
    expect_whole(last + 1);
  }
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(iteration_folder(root_, 1)))
    files.push_back(entry.path().filename());
  EXPECT_THAT(files,
              testing::UnorderedElementsAre(
                  "meta.json", "rank_00000_model.safetensors", "rank_00000_optimizer.safetensors",
                  "rank_00001_model.safetensors", "rank_00001_optimizer.safetensors",
                  "rank_00002_model.safetensors", "rank_00002_optimizer.safetensors"));
}

TEST_F(ManyWriters, AKilledOneLeavesTheLastWholeCheckpoint) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < kWorld; ++rank) children.push_back(start(rank, {1}, milliseconds(20)));
  for (const pid_t child : children) ASSERT_EQ(status_of(child), 0);
  int64_t known = 1;
  for (int round = 0; round < 12; ++round) {
    children.clear();
    connect();
    std::vector<int64_t> iterations(50);
    std::iota(iterations.begin(), iterations.end(), known + 1);
    for (int rank = 0; rank < kWorld; ++rank)
      children.push_back(start(rank, iterations, milliseconds(10)));
    std::this_thread::sleep_for(milliseconds(15 + 7 * round));
    ::kill(children[static_cast<size_t>(round % kWorld)], SIGKILL);
    // When one fails, the others end, too, wherever they are.
    std::this_thread::sleep_for(milliseconds(3));
    for (const pid_t child : children) ::kill(child, SIGKILL);
    for (const pid_t child : children) status_of(child);
    expect_whole(known);
    known = Checkpoint::open(*find_checkpoint(root_, std::nullopt)).meta().state.iteration;
  }
  // The next writers clean up and continue.
  children.clear();
  connect();
  for (int rank = 0; rank < kWorld; ++rank)
    children.push_back(start(rank, {1000}, milliseconds(20)));
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
  expect_whole(1000);
  for (const fs::directory_entry& entry : fs::directory_iterator(root_))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".iter_")) << entry.path();
}

TEST_F(ManyWriters, OneThatFailsFailsAllAndLeavesNothing) {
  CheckpointRoot first(root_, place(0));
  const pid_t good = start(1, {5});
  const pid_t bad = ::fork();
  if (bad == 0) {
    int status = 0;
    try {
      CheckpointRoot root(root_, place(2));
      CheckpointMeta meta;
      meta.state.iteration = 5;
      const std::vector<float> none(1);
      root.save(meta,
                {{"model",
                  "matrix",
                  "F99",
                  {kRows, kColumns},
                  Piece::whole({1}),
                  std::as_bytes(std::span(none))}},
                0);
    } catch (const std::exception&) {
      status = 1;
    }
    ::_exit(status);
  }
  try {
    save(first, 0, 5);
    ADD_FAILURE() << "no error";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 2: "));
  }
  EXPECT_EQ(status_of(good), 1);
  EXPECT_EQ(status_of(bad), 1);
  EXPECT_FALSE(find_checkpoint(root_, std::nullopt));
  // The lock alone.
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
}

// Rank 2 cannot write; the others learn of it between two blocks.
TEST_F(ManyWriters, WhereOneFailsTheOthersStopWriting) {
  CheckpointMeta meta;
  meta.state.iteration = 9;
  constexpr int64_t kFloats = 3 * kChecksumBlock_bytes / 4;
  std::atomic<int> blocks = 0;
  std::atomic<bool> failed = false, late = false;
  std::vector<std::string> errors(kWorld);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kWorld; ++rank)
    ranks.emplace_back([&, rank] {
      WriterPlace mine = place(rank);
      mine.name = [](int of) { return "rank " + std::to_string(of) + " (n7)"; };
      CheckpointRoot root(root_, mine);
      const std::vector<std::byte> zeros(kChecksumBlock_bytes);
      const auto wait_for_failure = [&](int64_t, int64_t size) {
        ++blocks;
        // Half of rank 0's patience: the wait must not end because of it.
        for (int i = 0; i < 1000 && !failed; ++i) std::this_thread::sleep_for(milliseconds(10));
        late = late || !failed;
        return std::span(zeros).first(static_cast<size_t>(size));
      };
      ShardSource shard{"model",   "m" + std::to_string(rank), "F32",
                        {kFloats}, Piece::whole({kFloats}),    {}};
      shard.read = wait_for_failure;
      if (rank == 0)
        shard.read = [&](int64_t, int64_t size) {
          return std::span(zeros).first(static_cast<size_t>(size));
        };
      try {
        root.save(meta, {shard}, 0, rank == 2 ? "no memory for a copy" : "");
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
      failed = failed || rank == 2;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_LE(blocks, 1);
  EXPECT_FALSE(late) << "the others heard of it only when all had written";
  EXPECT_THAT(errors, testing::Each("rank 2 (n7): no memory for a copy"));
  EXPECT_FALSE(fs::exists(root_ + "/.iter_0000009.tmp"));
}

// Rank 2 hangs: the ranks that wait for it in vain learn that it was rank 2.
TEST_F(ManyWriters, OneThatDoesNotComeIsNamedToAll) {
  WriterPlace first = place(0);
  first.patience = std::chrono::seconds(1);
  CheckpointRoot root(root_, first);  // It removes leftovers, so it is there before others write.
  std::string error;
  std::thread other([&] {
    CheckpointRoot root(root_, place(1));
    try {
      save(root, 1, 4);
    } catch (const std::exception& why) {
      error = why.what();
    }
  });
  EXPECT_THROW(save(root, 0, 4), std::runtime_error);
  other.join();
  EXPECT_EQ(error, "rank 2: wrote no shards within 1 s");
}

// Each host has a folder of its own under one name: what no reader could load gets no final name.
TEST_F(ManyWriters, AFolderThatHostsDoNotShareIsNoCheckpoint) {
  const std::string own = root_, other = root_ + "/other host";
  fs::create_directory(other);
  std::vector<pid_t> children;
  for (int rank = 1; rank < kWorld; ++rank) {
    root_ = rank == 1 ? other : own;
    children.push_back(start(rank, {5}, milliseconds(20)));
  }
  root_ = own;
  WriterPlace first = place(0);
  first.patience = std::chrono::seconds(1);
  CheckpointRoot root(root_, first);
  try {
    save(root, 0, 5);
    ADD_FAILURE() << "no error";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("/rank_00001_model.safetensors: is not here, though its rank "
                                   "wrote it: --save must be one folder for all hosts"));
  }
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 1);
  EXPECT_FALSE(find_checkpoint(root_, std::nullopt));
}

// How hosts find out at a start whether they share the folder. The mark goes with its owner, and
// that of a killed process with the next one who holds the folder, and with a save.
TEST_F(ManyWriters, AMarkIsSeenWhereTheFolderIsTheSame) {
  const std::string other = root_ + "/other host";
  fs::create_directory(other);
  std::string name;
  {
    const FolderMark mark(root_, "0123abcd");
    name = mark.name();
    EXPECT_THAT(name, testing::HasSubstr("0123abcd"));
    EXPECT_TRUE(sees_mark(root_, name, milliseconds(0)));
    EXPECT_FALSE(sees_mark(other, name, milliseconds(20)));
    std::thread late([&] {
      std::this_thread::sleep_for(milliseconds(100));
      std::ofstream(other + "/" + name) << "";
    });
    EXPECT_TRUE(sees_mark(other, name, std::chrono::seconds(60))) << "shown late";
    late.join();
  }
  EXPECT_FALSE(fs::exists(root_ + "/" + name));
  EXPECT_THROW(FolderMark(root_ + "/none", "0123abcd"), std::system_error);
  const auto killed = [&] { std::ofstream(root_ + "/.start_4567.99.tmp") << ""; };
  killed();
  CheckpointRoot root(root_, {});
  EXPECT_FALSE(fs::exists(root_ + "/.start_4567.99.tmp"));
  killed();
  save(root, 0, 3);
  EXPECT_FALSE(fs::exists(root_ + "/.start_4567.99.tmp"));
}

// Leftovers of earlier writers, under the names of what is written now, do not become part of it.
TEST_F(ManyWriters, LeftoversUnderTheSameNameAreReplaced) {
  CheckpointRoot root(root_, place(0));  // has cleaned up already
  const std::string temporary = root_ + "/.iter_0000007.tmp";
  fs::create_directories(temporary + "/rank_00009.d");
  for (const char* name :
       {"meta.json", "rank_00001_model.safetensors", "rank_00009_model.safetensors"})
    std::ofstream(temporary + "/" + name) << "old";
  fs::create_directory(root_ + "/.iter_0000006.tmp");
  std::vector<pid_t> children;
  for (int rank = 1; rank < kWorld; ++rank) children.push_back(start(rank, {7}));
  save(root, 0, 7);
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
  expect_whole(7);
  for (const fs::directory_entry& entry : fs::directory_iterator(iteration_folder(root_, 7)))
    EXPECT_FALSE(entry.path().filename().string().starts_with("rank_00009")) << entry.path();
  EXPECT_FALSE(fs::exists(root_ + "/.iter_0000006.tmp"));
}

/// Two writers that are threads, with a box of letters for each.
class Boxes {
 public:
  WriterPlace place(int rank) {
    WriterPlace place{.rank = rank, .world = 2, .patience = std::chrono::seconds(20)};
    place.post = [this, rank](int, int64_t, const std::string& text) {
      const std::lock_guard<std::mutex> lock(mutex_);
      boxes_[1 - rank].push_back({rank, text});
    };
    place.letters = [this, rank](int64_t, milliseconds wait) {
      if (wait.count() > 0) std::this_thread::sleep_for(milliseconds(1));
      const std::lock_guard<std::mutex> lock(mutex_);
      return std::exchange(boxes_[rank], {});
    };
    return place;
  }

 private:
  std::mutex mutex_;
  std::vector<WriterLetter> boxes_[2];
};

// A record longer than a letter may be arrives whole, and is written before the save is complete;
// where it cannot be written, the save is dropped and both say why.
TEST(Meeting, ARecordIsHandedOutBeforeTheSaveIsComplete) {
  for (const size_t size : {size_t{0}, size_t{5}, size_t{16} << 20, (size_t{40} << 20) + 3})
    for (const bool fails : {false, true}) {
      Boxes boxes;
      std::string record(size, 'x'), written = "nothing", first_error, second_error;
      if (size > 0) record.back() = 'y';
      std::thread first([&] {
        const WriterPlace place = boxes.place(0);
        Meeting meeting(1, place);
        CheckpointMeta meta;
        try {
          meeting.gather(meta, "");
          meeting.hand_out(record, {1});
          EXPECT_TRUE(fails || written == record);
          meeting.tell("");
        } catch (const std::exception& error) {
          first_error = error.what();
        }
      });
      std::thread second([&] {
        const WriterPlace place = boxes.place(1);
        Meeting meeting(1, place);
        try {
          meeting.report_and_wait({}, "", [&](const std::string& text) {
            if (fails) throw std::runtime_error("no room");
            written = text;
          });
        } catch (const std::exception& error) {
          second_error = error.what();
        }
      });
      first.join();
      second.join();
      EXPECT_EQ(first_error, fails ? "rank 1: no room" : "");
      EXPECT_EQ(second_error, fails ? "rank 1: no room" : "");
      EXPECT_TRUE(written == (fails ? "nothing" : record));
    }
}

}  // namespace
}  // namespace trainer
