// Folders of checkpoints that another run has, or that cannot be read: what the trainer says of
// them, and that it changes nothing there.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

class FoldersTest : public ProgramTest {};

// --ckpt-step is not for it.
TEST_F(FoldersTest, ADamagedPretrainedCheckpointGetsAnOfferThatApplies) {
  ASSERT_EQ(run({"--save", "s", "--save-interval", "6"}).status, 0);
  const std::string model = folder_ + "/s/iter_0000012/rank_00000_model.safetensors";
  std::filesystem::resize_file(model, 100);
  const std::string offer = ": begin from it with --pretrained-checkpoint s/iter_0000006\n";
  for (const char* given : {"s", "s/", "s/iter_0000012", "./s/iter_0000012/"})
    for (const Words& load : {Words{}, Words{"--load", "new"}}) {
      Words words = {"--pretrained-checkpoint", given, "--save", "new"};
      words.insert(words.end(), load.begin(), load.end());
      const Ended ended = run(words);
      EXPECT_EQ(ended.status, 1);
      EXPECT_THAT(ended.err, HasSubstr(offer)) << given;
    }
  EXPECT_EQ(run({"--pretrained-checkpoint", "s/iter_0000006", "--save", "new"}).status, 0)
      << read("err");
}

// Metrics are written beside the run's own files, never over them: under their names, through links
// of files and folders, and where neither is there yet.
TEST_F(FoldersTest, MetricsAreNoFileOfTheRunItself) {
  std::filesystem::create_symlink("s", folder_ + "/link");
  std::filesystem::create_symlink("s/config.toml", folder_ + "/leads.jsonl");
  for (const int round : {0, 1}) {
    for (const char* name :
         {"s/config.toml", "./s/../s/latest_checkpointed_iteration.txt", "link/config.toml",
          "leads.jsonl", "s/iter_0000012/metrics.jsonl", "s/tokenizer/m", "s/.trainer.lock"}) {
      const Ended ended = run({"--save", "s", "--metrics-file", name});
      EXPECT_EQ(ended.status, 2) << name << ended.err;
      EXPECT_THAT(ended.err, ContainsRegex("^trainer: --metrics-file [^\n]*: the run keeps its own "
                                           "[^\n]* in --save s\n$"));
      EXPECT_EQ(std::filesystem::exists(folder_ + "/s/config.toml"), round == 1);
    }
    EXPECT_EQ(run({"--save", "s", "--metrics-file", "s/own.jsonl"}).status, 0) << read("err");
    EXPECT_EQ(read("s/latest_checkpointed_iteration.txt"), "12");
  }
  // A copy of links: the file that is named is replaced, not what it leads to.
  std::filesystem::create_directory(folder_ + "/copy");
  std::filesystem::create_symlink("../s/config.toml", folder_ + "/copy/config.toml");
  EXPECT_EQ(run({"--save", "copy", "--metrics-file", "copy/config.toml"}).status, 2);
}

// As `cp -as` copies a run: what a save and its log change is the copy, never the original.
TEST_F(FoldersTest, NothingOfAnotherRunIsChangedThroughLinks) {
  ASSERT_EQ(run({"--save", "s", "--save-interval", "6"}).status, 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ + "/s")) {
    const std::string copy =
        folder_ + "/copy/" + entry.path().lexically_relative(folder_ + "/s").string();
    if (entry.is_directory()) continue;
    std::filesystem::create_directories(std::filesystem::path(copy).parent_path());
    std::filesystem::create_symlink(entry.path(), copy);
  }
  const auto original = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ + "/s"))
      if (entry.is_regular_file())
        files[entry.path().string()] = read(entry.path().lexically_relative(folder_).string());
    return files;
  };
  const std::map<std::string, std::string> before = original();
  ASSERT_GT(before.size(), 5U);
  std::filesystem::remove_all(folder_ + "/copy/iter_0000012");
  const Words again = {"--save", "copy", "--load", "copy", "--ckpt-step", "6", "--keep-last", "1"};
  EXPECT_EQ(run(again).status, 0) << read("err");
  EXPECT_EQ(read("copy/latest_checkpointed_iteration.txt"), "12");
  EXPECT_EQ(read("copy/metrics.jsonl").empty(), false);
  EXPECT_TRUE(original() == before);
  for (const char* name : {"latest_checkpointed_iteration.txt", "config.toml", "metrics.jsonl"})
    EXPECT_FALSE(std::filesystem::is_symlink(folder_ + "/copy/" + name)) << name;
}

// The step is named by hand where the tracker cannot be read, and the next save writes a good one.
TEST_F(FoldersTest, WithAStepTheTrackerNeedNotBeReadable) {
  ASSERT_EQ(run({"--save", "s", "--save-interval", "6"}).status, 0);
  const std::string tracker = folder_ + "/s/latest_checkpointed_iteration.txt";
  for (const bool dangling : {false, true}) {
    std::filesystem::remove(tracker);
    if (dangling)
      std::filesystem::create_symlink("nowhere", tracker);
    else
      std::ofstream(tracker) << "junk";
    const Ended without = run({"--save", "s", "--load", "s"});
    EXPECT_EQ(without.status, 1);
    EXPECT_THAT(without.err, HasSubstr("s/latest_checkpointed_iteration.txt: "));
    EXPECT_THAT(without.err, HasSubstr("the newest stored is 12"));
    EXPECT_EQ(run({"--save", "s", "--load", "s", "--ckpt-step", "6"}).status, 0) << read("err");
    EXPECT_THAT(read("out"), HasSubstr("checkpoint from s/iter_0000006 at iteration 6"));
    EXPECT_EQ(read("s/latest_checkpointed_iteration.txt"), "12");
  }
}

// As `cp -al` copies a run: the files that are not replaced as a whole are its log and its lock.
TEST_F(FoldersTest, NothingOfAnotherRunIsChangedThroughHardLinks) {
  ASSERT_EQ(run({"--save", "s", "--save-interval", "6"}).status, 0);
  const std::string metrics = read("s/metrics.jsonl");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ + "/s")) {
    const std::string copy =
        folder_ + "/copy/" + entry.path().lexically_relative(folder_ + "/s").string();
    if (entry.is_directory()) continue;
    std::filesystem::create_directories(std::filesystem::path(copy).parent_path());
    std::filesystem::create_hard_link(entry.path(), copy);
  }
  EXPECT_EQ(run({"--save", "copy", "--load", "copy", "--ckpt-step", "6"}).status, 0) << read("err");
  EXPECT_EQ(read("s/metrics.jsonl"), metrics);
}

// The lock of a folder copied with links is the copy's own; a hard link cannot be told from it, so
// the refusal says what to do.
TEST_F(FoldersTest, ALockThatIsALinkIsNotAnotherRuns) {
  ASSERT_EQ(run({"--save", "s", "--save-interval", "6"}).status, 0);
  const int lock = ::open((folder_ + "/s/.trainer.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  std::filesystem::create_directories(folder_ + "/copy");
  const std::string copy = folder_ + "/copy/.trainer.lock";
  std::filesystem::create_symlink("../s/.trainer.lock", copy);
  EXPECT_EQ(run({"--save", "copy"}).status, 0) << read("err");
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/s/.trainer.lock"));
  std::filesystem::remove(copy);
  std::filesystem::create_hard_link(folder_ + "/s/.trainer.lock", copy);
  EXPECT_THAT(run({"--save", "copy"}).err,
              HasSubstr("copy: another trainer is saving there, or in a folder that shares "
                        "copy/.trainer.lock with it by a hard link: then remove this file here"));
  ::close(lock);
}

TEST_F(FoldersTest, APathNeedNotBeUtf8) {
  const Ended ended = run({"--save", "s\377", "--save-interval", "6"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(read("s\377/latest_checkpointed_iteration.txt"), "12");
  EXPECT_EQ(run({"--load", "s\377"}).status, 0) << read("err");
}

TEST_F(FoldersTest, AModelThatAKilledConversionPutAsideIsNotMissed) {
  std::filesystem::create_directories(folder_ + "/s/.replaced");
  std::ofstream(folder_ + "/s/.replaced/.changes") << "taken x";
  const Ended ended = run({"--load", "s"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("s: no checkpoint there: a conversion was killed"));
  // One in the folder where the trainer runs is of no concern without --load.
  std::filesystem::rename(folder_ + "/s/.replaced", folder_ + "/.replaced");
  EXPECT_EQ(run({}).status, 0) << read("err");
}

// config.toml does not say where that run's metrics are, unless its command did; those of earlier
// trainers say it.
TEST_F(FoldersTest, AConfigurationFollowsSaveWithItsMetrics) {
  ASSERT_EQ(run({"--save", "a"}).status, 0);
  const std::string lines = read("a/metrics.jsonl"), own = read("a/config.toml");
  EXPECT_THAT(own, Not(HasSubstr("metrics-file")));
  std::ofstream(folder_ + "/old.toml") << own << "metrics-file = \"a/metrics.jsonl\"\n";
  std::string save = "b";
  for (const char* config : {"a/config.toml", "old.toml"}) {
    const Ended ended = wait(start({"--config", config, "--save", save, "--train-iters", "4"}, {},
                                   TRAINER_PROGRAM, false));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(read("a/metrics.jsonl"), lines) << config;
    EXPECT_THAT(read(save + "/metrics.jsonl"), HasSubstr("\"train_iters\": 4,")) << config;
    save += "b";
  }
  std::filesystem::rename(folder_ + "/a", folder_ + "/c");
  EXPECT_EQ(wait(start({"--config", "old.toml", "--save", "c", "--load", "c"}, {}, TRAINER_PROGRAM,
                       false))
                .status,
            0);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a"));
  const std::string moved = read("c/metrics.jsonl");
  EXPECT_EQ(
      wait(start({"--config", "c/config.toml", "--save", "d", "--metrics-file", "c/metrics.jsonl"},
                 {}, TRAINER_PROGRAM, false))
          .status,
      1);
  EXPECT_EQ(read("c/metrics.jsonl"), moved);
}

TEST_F(FoldersTest, MetricsOfAnotherRunAreNotRemoved) {
  const Words words = {"--metrics-file", "m.jsonl", "--save"};
  const auto in = [&](const char* save) {
    Words more = words;
    more.emplace_back(save);
    return run(more);
  };
  ASSERT_EQ(in("a").status, 0);
  const std::string lines = read("m.jsonl");
  for (const Ended& ended : {in("b"), run({"--metrics-file", "m.jsonl"}),
                             run({"--metrics-file", "m.jsonl", "--load", "a", "--finetune"})}) {
    EXPECT_EQ(ended.status, 1);
    EXPECT_THAT(ended.err, HasSubstr("m.jsonl: lines 1 to "));
    EXPECT_THAT(ended.err, HasSubstr(" are of another run, and a run that begins at step 0 would "
                                     "remove them: name another file (--metrics-file), or remove "
                                     "this one\n"));
    EXPECT_EQ(read("m.jsonl"), lines);
  }
  const Ended again = in("a");
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.err, ContainsRegex("m.jsonl: lines 1 to [0-9]+ are moved to m.1.jsonl: this "
                                       "run begins at step 0\n"));
  EXPECT_EQ(read("m.1.jsonl"), lines);
  EXPECT_THAT(in("a").err, HasSubstr(" are moved to m.2.jsonl: "));
  EXPECT_EQ(read("m.1.jsonl"), lines);
  EXPECT_EQ(std::ranges::count(read("m.jsonl"), '\n'), std::ranges::count(lines, '\n'));
  // Also where what names the newest checkpoint cannot be read, and not where a name has no room.
  std::ofstream(folder_ + "/a/latest_checkpointed_iteration.txt") << "xx";
  EXPECT_THAT(in("a").err, HasSubstr(" are moved to m.3.jsonl: "));
  const std::string longest = "long/" + std::string(254, 'm');
  ASSERT_EQ(run({"--save", "long", "--metrics-file", longest}).status, 0);
  const Ended no_room = run({"--save", "long", "--metrics-file", longest});
  EXPECT_EQ(no_room.status, 1);
  EXPECT_THAT(no_room.err, HasSubstr(": file name too long\n"));
  // The checkpoint says so, too, where config.toml is the user's.
  std::ofstream(folder_ + "/a/config.toml", std::ios::app) << "# mine\n";
  std::ofstream(folder_ + "/a/config.toml") << "lr = 1\n# mine\n";
  EXPECT_EQ(run({"--metrics-file", "m.jsonl", "--save", "a", "--load", "a"}).status, 0);
}

}  // namespace
}  // namespace trainer
