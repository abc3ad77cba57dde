// Checkpoints: what was written is read back bit for bit, in any other layout; damage is named;
// half-written checkpoints are never visible.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "libindexed/format.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/named_tokenizer.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string name = fs::temp_directory_path() / "checkpoint_test.XXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  ~CheckpointTest() override { fs::remove_all(root_); }

  // A model of two tensors whose values depend on the iteration.
  void save(int64_t iteration, int64_t keep_last = 0) {
    CheckpointRoot root(root_);
    save(root, iteration, keep_last);
  }
  void save(CheckpointRoot& root, int64_t iteration, int64_t keep_last = 0) {
    std::vector<float> matrix(6 * 8), vector(5);
    std::iota(matrix.begin(), matrix.end(), static_cast<float>(iteration));
    std::iota(vector.begin(), vector.end(), static_cast<float>(-iteration));
    CheckpointMeta meta;
    meta.writer = "test";
    meta.run = run_;
    meta.state.iteration = iteration;
    meta.config = {{"num-layers", {"2"}}, {"data-path", {"0.3", "a", "0.7", "b"}}};
    meta.model = {{"family", "gpt2"}, {"hidden_size", "64"}, {"tied_embeddings", "true"}};
    root.save(
        meta,
        {{"model", "matrix", "F32", {6, 8}, Piece::whole({6, 8}), std::as_bytes(std::span(matrix))},
         {"model", "vector", "F32", {5}, Piece::whole({5}), std::as_bytes(std::span(vector))},
         {"exp_avg", "vector", "F32", {5}, Piece::whole({5}), std::as_bytes(std::span(vector))}},
        keep_last);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const fs::directory_entry& entry : fs::directory_iterator(root_))
      out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
  }
  std::string tracker() const {
    std::ifstream in(root_ + "/latest_checkpointed_iteration.txt");
    std::string text;
    in >> text;
    return text;
  }

  std::string root_, run_;
};

std::vector<float> as_floats(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

void flip(const std::string& path, int64_t byte, int bit = 0) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(byte);
  const int value = file.get();
  file.seekp(byte);
  file.put(static_cast<char>(value ^ (1 << bit)));
}

// A folder of the same iteration that is not ours, as Megatron writes it, is renamed, not lost.
TEST_F(CheckpointTest, FoldersOfOthersAreSetAside) {
  for (const std::string text : {"theirs", "more"}) {
    fs::remove_all(root_ + "/iter_0000020");
    fs::create_directories(root_ + "/iter_0000020/mp_rank_00");
    std::ofstream(root_ + "/iter_0000020/mp_rank_00/model_optim_rng.pt") << text;
    save(20);
    EXPECT_TRUE(find_checkpoint(root_, std::nullopt));
  }
  save(20);
  EXPECT_THAT(names(),
              ElementsAre(".trainer.lock", "iter_0000020", "iter_0000020.set_aside",
                          "iter_0000020.set_aside.2", "latest_checkpointed_iteration.txt"));
  for (const std::string place : {"", ".2"})
    EXPECT_TRUE(
        fs::exists(root_ + "/iter_0000020.set_aside" + place + "/mp_rank_00/model_optim_rng.pt"));
}

TEST_F(CheckpointTest, ComesBack) {
  save(20);
  EXPECT_THAT(names(),
              ElementsAre(".trainer.lock", "iter_0000020", "latest_checkpointed_iteration.txt"));
  EXPECT_EQ(tracker(), "20");
  Checkpoint checkpoint = Checkpoint::open(*find_checkpoint(root_, std::nullopt));
  EXPECT_EQ(checkpoint.meta().state.iteration, 20);
  EXPECT_THAT(checkpoint.meta().config.at("data-path"), ElementsAre("0.3", "a", "0.7", "b"));
  EXPECT_EQ(checkpoint.meta().model.at("hidden_size"), "64");
  EXPECT_EQ(checkpoint.meta().model.at("family"), "gpt2");
  EXPECT_EQ(checkpoint.meta().model.at("tied_embeddings"), "true");
  EXPECT_THAT(as_floats(checkpoint.read(*checkpoint.meta().find("model", "vector"))),
              ElementsAre(-20, -19, -18, -17, -16));
  std::vector<float> box(4);
  checkpoint.read(*checkpoint.meta().find("model", "matrix"), Piece::box({2, 3}, {2, 2}),
                  std::as_writable_bytes(std::span(box)));
  EXPECT_THAT(box, ElementsAre(20 + 19, 20 + 20, 20 + 27, 20 + 28));
  checkpoint.verify();
}

// Two halves of the columns, each of a whole checksum's block and a part of one.
TEST_F(CheckpointTest, ShardsOfSeveralBlocksComeBack) {
  constexpr int64_t kHalf = kChecksumBlock_bytes / 8 + 77'777;
  std::vector<float> left(2 * kHalf), right(2 * kHalf);
  std::iota(left.begin(), left.end(), 0.0f);
  std::iota(right.begin(), right.end(), 0.5f);
  const std::vector<int64_t> whole = {2, 2 * kHalf};
  CheckpointMeta meta;
  meta.state.iteration = 3;
  CheckpointRoot(root_).save(meta,
                             {{"model", "wide", "F32", whole, Piece::box({0, 0}, {2, kHalf}),
                               std::as_bytes(std::span(left))},
                              {"model", "wide", "F32", whole, Piece::box({0, kHalf}, {2, kHalf}),
                               std::as_bytes(std::span(right))}},
                             0);
  Checkpoint checkpoint = Checkpoint::open(*find_checkpoint(root_, std::nullopt));
  EXPECT_NO_THROW(checkpoint.verify());
  const std::vector<float> got =
      as_floats(checkpoint.read(*checkpoint.meta().find("model", "wide")));
  ASSERT_EQ(got.size(), 4u * kHalf);
  for (const int64_t row : {0, 1}) {
    const auto at = [&](const std::vector<float>& from, int64_t columns, int64_t first) {
      return std::span(from).subspan(static_cast<size_t>(row * columns + first), kHalf);
    };
    EXPECT_TRUE(std::ranges::equal(at(got, 2 * kHalf, 0), at(left, kHalf, 0))) << row;
    EXPECT_TRUE(std::ranges::equal(at(got, 2 * kHalf, kHalf), at(right, kHalf, 0))) << row;
  }
}

TEST_F(CheckpointTest, StateComesBackToTheLastBit) {
  CheckpointMeta meta;
  meta.state = {.iteration = 7,
                .consumed_train_samples = int64_t{1} << 40,
                .consumed_valid_samples = 3,
                .seed = 1234,
                .loss_scale = 65536,
                .growth_tracker = 5,
                .hysteresis_tracker = 1,
                .adam_steps = 6,
                .skipped_steps = 1,
                .interval_loss_sum = 0.1 + 0.2,
                .interval_steps = 3,
                .interval_applied = 2,
                .interval_skipped = 1,
                .interval_nan = 1};
  EXPECT_EQ(parse_meta(format_meta(meta), "m").state, meta.state);
  EXPECT_EQ(parse_meta(format_meta(meta), "m").run, "");
  meta.run = "torchrun's \"id\"";
  EXPECT_EQ(parse_meta(format_meta(meta), "m").run, meta.run);
  EXPECT_EQ(parse_meta(format_meta(meta), "m").tokenizer_hash, "");
  meta.tokenizer_hash = "12ab";
  EXPECT_EQ(parse_meta(format_meta(meta), "m").tokenizer_hash, "12ab");
}

TEST_F(CheckpointTest, EveryFlippedBitOfMetaIsSeen) {
  CheckpointMeta meta;
  meta.writer = "w";
  const std::string text = format_meta(meta);
  parse_meta(text, "m");
  for (size_t byte = 0; byte < text.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      EXPECT_THROW(parse_meta(damaged, "m"), indexed::FormatError) << byte << " " << bit;
    }
  }
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW(parse_meta(text.substr(0, length), "m"), indexed::FormatError) << length;
  }
}

TEST_F(CheckpointTest, DamageIsNamedAndThePreviousOffered) {
  save(10);
  save(20);
  const std::string shard = iteration_folder(root_, 20) + "/rank_00000_model.safetensors";
  const int64_t size = static_cast<int64_t>(fs::file_size(shard));
  flip(shard, size - 3);
  Checkpoint checkpoint = Checkpoint::open(iteration_folder(root_, 20));
  try {
    checkpoint.verify();
    FAIL() << "damage not seen";
  } catch (const indexed::FormatError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "iter_0000020/rank_00000_model.safetensors: vector: bytes 0 to 20: checksum differs"));
  }
  const auto offer = [&] {
    return offer_previous(root_, 20, [](int64_t step) { return "take " + std::to_string(step); });
  };
  EXPECT_EQ(offer(), "the previous whole checkpoint is of step 10: take 10");
  flip(iteration_folder(root_, 10) + "/rank_00000_model.safetensors", size - 3);
  EXPECT_EQ(offer(), "there is no whole checkpoint before it");
  fs::resize_file(shard, fs::file_size(shard) - 1);
  EXPECT_THROW(Checkpoint::open(iteration_folder(root_, 20)), indexed::FormatError);
  fs::remove(shard);
  EXPECT_THROW(Checkpoint::open(iteration_folder(root_, 20)), std::system_error);
}

// Every bit of every shard: verify() or open() must object, or the tensors must still be what they
// were (padding and the free text of the header).
TEST_F(CheckpointTest, NoFlippedBitReachesATensor) {
  save(20);
  const std::string folder = iteration_folder(root_, 20);
  const auto contents = [&] {
    Checkpoint checkpoint = Checkpoint::open(folder);
    checkpoint.verify();
    std::vector<std::byte> all;
    for (const TensorRecord& tensor : checkpoint.meta().tensors) {
      for (const std::byte byte : checkpoint.read(tensor)) all.push_back(byte);
    }
    return all;
  };
  const std::vector<std::byte> good = contents();
  int refused = 0;
  for (const char* name : {"rank_00000_model.safetensors", "rank_00000_optimizer.safetensors"}) {
    const std::string shard = folder + "/" + name;
    for (int64_t byte = 0; byte < static_cast<int64_t>(fs::file_size(shard)); ++byte) {
      const int bit = static_cast<int>(byte % 8);
      flip(shard, byte, bit);
      try {
        EXPECT_EQ(contents(), good) << name << " byte " << byte;
      } catch (const std::exception&) {
        ++refused;
      }
      flip(shard, byte, bit);
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_EQ(contents(), good);
}

TEST_F(CheckpointTest, KeepsTheLastAndReplacesTheSame) {
  for (const int64_t iteration : {10, 20, 30, 40}) save(iteration, 2);
  EXPECT_THAT(stored_iterations(root_), ElementsAre(30, 40));
  save(30);  // a run set back: 40 stays, the tracker says 30
  EXPECT_THAT(stored_iterations(root_), ElementsAre(30, 40));
  EXPECT_EQ(tracker(), "30");
  EXPECT_EQ(*find_checkpoint(root_, std::nullopt), iteration_folder(root_, 30));
  EXPECT_EQ(*find_checkpoint(root_, 40), iteration_folder(root_, 40));
  EXPECT_EQ(*find_checkpoint(iteration_folder(root_, 40), std::nullopt),
            iteration_folder(root_, 40));
  EXPECT_EQ(*find_checkpoint(iteration_folder(root_, 40), 40), iteration_folder(root_, 40));
  EXPECT_THROW(find_checkpoint(iteration_folder(root_, 40), 30), indexed::FormatError);
}

// A run that does not continue what it finds in its folder removes nothing of it.
// In a root that was copied with links. One of them may lead nowhere.
TEST_F(CheckpointTest, ASaveWritesThroughNoLink) {
  const std::string other = root_ + "/other", path = root_ + "/latest_checkpointed_iteration.txt";
  fs::create_directories(other + "/iter_0000010");
  std::ofstream(other + "/tracker") << "77";
  std::ofstream(other + "/iter_0000010/meta.json") << "{\"crc32c\": \"another's\"}";
  for (const char* target : {"other/tracker", "other/nothing"}) {
    for (const char* link : {"iter_0000010", "latest_checkpointed_iteration.txt"})
      fs::remove_all(root_ + "/" + link);
    fs::create_symlink(target, path);
    fs::create_directory_symlink("other/iter_0000010", iteration_folder(root_, 10));
    save(10);
    EXPECT_EQ(tracker(), "10");
    EXPECT_FALSE(fs::is_symlink(path));
    EXPECT_FALSE(fs::is_symlink(iteration_folder(root_, 10)));
    Checkpoint::open(iteration_folder(root_, 10)).verify();
  }
  std::ifstream in(other + "/tracker");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "77");
  EXPECT_FALSE(fs::exists(other + "/nothing"));
  EXPECT_TRUE(fs::exists(other + "/iter_0000010/meta.json"));
}

TEST_F(CheckpointTest, OnlyOwnOnesAreRemovedWhereOthersAre) {
  run_ = "theirs";
  for (const int64_t iteration : {10, 20}) save(iteration);
  for (const char* run : {"", "ours"}) {
    run_ = run;
    CheckpointRoot root(root_, {}, true);
    for (const int64_t iteration : {30, 40, 50}) save(root, iteration, 2);
    EXPECT_THAT(stored_iterations(root_), ElementsAre(10, 20, 40, 50)) << run;
  }
  // A later start of the same run knows its own by their run.
  CheckpointRoot again(root_, {}, true);
  save(again, 60, 2);
  EXPECT_THAT(stored_iterations(root_), ElementsAre(10, 20, 50, 60));
}

TEST_F(CheckpointTest, OneFolderHasManyNames) {
  fs::create_directories(root_ + "/there");
  fs::create_directory_symlink(root_ + "/there", root_ + "/link");
  fs::create_directory_symlink("later", root_ + "/early");
  EXPECT_TRUE(same_folder(root_ + "/early/", root_ + "/later"));
  EXPECT_FALSE(same_folder(root_ + "/early", root_ + "/there"));
  EXPECT_TRUE(same_folder(root_ + "/link", root_ + "/there/"));
  EXPECT_TRUE(same_folder(fs::relative(root_ + "/there"), root_ + "/there"));
  EXPECT_TRUE(same_folder("not there/", "./not there"));
  EXPECT_FALSE(same_folder(root_ + "/there", root_));
  EXPECT_FALSE(same_folder("not there", "not there either"));
  EXPECT_FALSE(same_folder("", ""));
  EXPECT_FALSE(same_folder("", "."));
}

TEST_F(CheckpointTest, ARecordIsOursUnlessAnotherProgramMadeIt) {
  save(10);
  const std::string folder = root_ + "/iter_0000010", record = folder + "/meta.json";
  EXPECT_TRUE(is_checkpoint(folder));
  EXPECT_FALSE(is_checkpoint(root_));
  std::ifstream in(record);
  const std::string whole(std::istreambuf_iterator<char>(in), {});
  const auto write = [&](const std::string& text) { std::ofstream(record) << text; };
  for (const char* foreign : {R"({"name": "data"})", R"(["tensors", "files"])", "7"}) {
    write(foreign);
    EXPECT_FALSE(is_checkpoint(folder)) << foreign;
    EXPECT_THAT(stored_iterations(root_), ElementsAre()) << foreign;
  }
  std::string renamed = whole;
  renamed.replace(renamed.find("crc32c"), 6, "crc32b");
  for (const std::string& damaged :
       {std::string(), std::string(100, '\0'), whole.substr(0, 5), whole.substr(0, 500), renamed}) {
    write(damaged);
    EXPECT_TRUE(is_checkpoint(folder)) << damaged.substr(0, 20);
    EXPECT_THAT(stored_iterations(root_), ElementsAre(10)) << damaged.substr(0, 20);
  }
  // A save of the same step puts another program's folder aside; it removes our own.
  write(R"({"name": "data"})");
  save(10);
  EXPECT_TRUE(fs::exists(folder + ".set_aside/meta.json"));
  // One that is no whole JSON may be ours, damaged, for a reader; no save removes it.
  write("lang: en");
  save(10);
  EXPECT_TRUE(fs::exists(folder + ".set_aside.2/meta.json"));
  fs::create_directories(root_ + "/iter_0000005");
  std::ofstream(root_ + "/iter_0000005/meta.json") << "lang: en";
  save(20, 1);
  EXPECT_TRUE(fs::exists(root_ + "/iter_0000005/meta.json"));
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(CheckpointTest, DotsAfterALinkAreThoseOfTheFileSystem) {
  fs::create_directories(root_ + "/data/runs");
  fs::create_directories(root_ + "/proj");
  fs::create_directory_symlink("../data/runs", root_ + "/proj/runs");
  const std::string data = fs::canonical(root_ + "/data"), dots = root_ + "/proj/runs/..";
  EXPECT_EQ(tokenizer_folder(dots + "/s/iter_0000010"), data + "/s/tokenizer");
  EXPECT_EQ(plain_path(dots), data);
  EXPECT_EQ(plain_path(dots + "/./s/"), data + "/s");
  EXPECT_EQ(plain_path(root_ + "/proj/runs/."), root_ + "/proj/runs");
  EXPECT_EQ(plain_path(root_ + "/nowhere/../s"), fs::canonical(root_) / "s");
  EXPECT_TRUE(lies_in(dots + "/s", root_ + "/data"));
  EXPECT_FALSE(lies_in(dots + "/s", root_ + "/proj"));
}

TEST_F(CheckpointTest, AnEntryIsInTheFolderOfItsNameAndOfItsLink) {
  fs::create_directories(root_ + "/far/moved");
  fs::create_directories(root_ + "/s/here");
  fs::create_directory_symlink("../far/moved", root_ + "/s/linked");
  for (const char* entry : {"/s/here", "/s/here/", "/s/here/.", "/s/linked", "/s/linked/"})
    EXPECT_TRUE(lies_in(root_ + entry, root_ + "/s")) << entry;
  EXPECT_TRUE(lies_in(root_ + "/s/linked", root_ + "/far"));
  EXPECT_FALSE(lies_in(root_ + "/s/here", root_ + "/far"));
  EXPECT_FALSE(lies_in(root_ + "/s", root_ + "/s"));
}

TEST_F(CheckpointTest, TrackerThatIsWrongIsAnError) {
  EXPECT_FALSE(find_checkpoint(root_, std::nullopt).has_value());
  EXPECT_FALSE(find_checkpoint(root_ + "/not there", std::nullopt).has_value());
  save(10);
  std::ofstream(root_ + "/latest_checkpointed_iteration.txt") << "";
  EXPECT_THROW(find_checkpoint(root_, std::nullopt), indexed::FormatError);
  std::ofstream(root_ + "/latest_checkpointed_iteration.txt") << "30";
  try {
    find_checkpoint(root_, std::nullopt);
    FAIL();
  } catch (const indexed::FormatError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the newest stored is 10"));
  }
  fs::remove(root_ + "/latest_checkpointed_iteration.txt");
  EXPECT_EQ(*find_checkpoint(root_, std::nullopt), iteration_folder(root_, 10));
}

TEST_F(CheckpointTest, AFolderOrAPipeIsNoTrackerAndNoMeta) {
  save(10);
  const std::string meta = iteration_folder(root_, 10) + "/meta.json";
  for (const std::string& path : {root_ + "/latest_checkpointed_iteration.txt", meta}) {
    for (const bool pipe : {false, true}) {
      fs::remove_all(path);
      ASSERT_TRUE(pipe ? mkfifo(path.c_str(), 0600) == 0 : fs::create_directory(path));
      try {
        Checkpoint::open(*find_checkpoint(root_, std::nullopt));
        FAIL() << path;
      } catch (const std::system_error& error) {
        EXPECT_THAT(error.what(), HasSubstr(path));
        EXPECT_EQ(error.code().value(), pipe ? ENOTSUP : EISDIR);
      }
    }
    fs::remove_all(path);
  }
}

TEST_F(CheckpointTest, LeavingsAreRemovedAndASecondWriterRefused) {
  fs::create_directories(root_ + "/.iter_0000010.123.tmp");
  const CheckpointRoot root(root_);
  EXPECT_THAT(names(), ElementsAre(".trainer.lock"));
  EXPECT_THROW(CheckpointRoot{root_}, std::runtime_error);
}

// Random boxes and ranges of random tensors, divided one way and read another.
TEST_F(CheckpointTest, AnyCutReadsIntoAnyOther) {
  std::mt19937 random(5);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 50; ++round) {
    const int64_t rows = draw(1, 7), columns = draw(1, 9);
    const auto value = [&](int64_t row, int64_t column) {
      return static_cast<float>(row * columns + column);
    };
    // Elements of a piece in its own order.
    const auto elements = [&](const Piece& piece) {
      std::vector<float> out;
      for (int64_t e = piece.first; e < piece.first + piece.count; ++e) {
        out.push_back(
            value(piece.offsets[0] + e / piece.shape[1], piece.offsets[1] + e % piece.shape[1]));
      }
      return out;
    };
    // Cut: a row, a column, and each of the four boxes into two ranges.
    const int64_t row = draw(0, rows), column = draw(0, columns);
    std::vector<Piece> cut;
    for (const auto& [r, n] : {std::pair{int64_t{0}, row}, std::pair{row, rows - row}}) {
      for (const auto& [c, m] :
           {std::pair{int64_t{0}, column}, std::pair{column, columns - column}}) {
        Piece piece = Piece::box({r, c}, {n, m});
        if (piece.count == 0) continue;
        const int64_t half = draw(0, piece.count);
        Piece second = piece;
        second.first = half;
        second.count -= half;
        piece.count = half;
        if (piece.count > 0) cut.push_back(piece);
        if (second.count > 0) cut.push_back(second);
      }
    }
    std::vector<std::vector<float>> held;
    for (const Piece& piece : cut) held.push_back(elements(piece));
    std::vector<ShardSource> shards;
    for (size_t i = 0; i < cut.size(); ++i) {
      shards.push_back(
          {"model", "t", "F32", {rows, columns}, cut[i], std::as_bytes(std::span(held[i]))});
    }
    CheckpointMeta meta;
    meta.state.iteration = round;
    CheckpointRoot(root_).save(meta, shards, 1);
    Checkpoint checkpoint = Checkpoint::open(iteration_folder(root_, round));
    const int64_t r = draw(0, rows - 1), c = draw(0, columns - 1);
    Piece wanted = Piece::box({r, c}, {draw(1, rows - r), draw(1, columns - c)});
    wanted.first = draw(0, wanted.count - 1);
    wanted.count = draw(1, wanted.count - wanted.first);
    std::vector<float> out(static_cast<size_t>(wanted.count));
    checkpoint.read(checkpoint.meta().tensors[0], wanted, std::as_writable_bytes(std::span(out)));
    EXPECT_EQ(out, elements(wanted));
  }
}

TEST_F(CheckpointTest, MissingElementsAreAnError) {
  const std::vector<float> half(4);
  CheckpointMeta meta;
  CheckpointRoot(root_).save(
      meta, {{"model", "t", "F32", {8}, Piece::box({0}, {4}), std::as_bytes(std::span(half))}}, 0);
  Checkpoint checkpoint = Checkpoint::open(iteration_folder(root_, 0));
  try {
    checkpoint.read(checkpoint.meta().tensors[0]);
    FAIL();
  } catch (const indexed::FormatError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model t: shards hold 4 of 8 elements"));
  }
}

// Threads that share the writing make the files that one makes.
TEST_F(CheckpointTest, ThreadsChangeNoByte) {
  std::vector<float> large(static_cast<size_t>(2 * kChecksumBlock_bytes / 4 + 3));
  std::iota(large.begin(), large.end(), 0.5f);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(large));
  const int64_t count = static_cast<int64_t>(large.size());
  std::vector<std::string> files;
  for (const int threads : {1, 4}) {
    const std::string path = root_ + "/" + std::to_string(threads);
    std::atomic<int> done = 0;
    std::vector<ShardSource> shards;
    for (const char* name : {"a", "b"}) {
      ShardSource shard{"model", name, "F32", {count}, Piece::whole({count}), {}};
      shard.read = [bytes](int64_t at, int64_t size) {
        return bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(size));
      };
      shard.done = [&done] { ++done; };
      shards.push_back(shard);
    }
    CheckpointRoot(path, {.threads = threads}).save({}, shards, 0);
    EXPECT_EQ(done, 2);
    for (const char* name : {"/meta.json", "/rank_00000_model.safetensors"}) {
      std::ifstream in(path + "/iter_0000000" + name, std::ios::binary);
      files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    Checkpoint::open(path + "/iter_0000000").verify();
  }
  EXPECT_TRUE(files[0] == files[2] && files[1] == files[3]);
}

}  // namespace
}  // namespace trainer
