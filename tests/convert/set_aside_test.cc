// SPDX-License-Identifier: MIT
// Changes of names in a root that a kill has ended: the next conversion undoes them, and nothing
// that somebody else has put there since is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "convert/set_aside.h"
#include "convert/target_root.h"
#include "tests/convert/outcomes.h"
#include "tests/own.h"

namespace convert {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class SetAsideTest : public testing::Test {
 protected:
  SetAsideTest() { fs::create_directories(root_); }

  fs::path at(const std::string& name) const { return root_ / name; }
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories(at(name).parent_path());
    std::ofstream(at(name)) << text;
  }
  std::string get(const std::string& name) const {
    return fs::is_regular_file(at(name)) ? read_file(at(name)) : "";
  }

  // An old model with a tracker and a folder behind a link, and one killed over it.
  void kill_over_old() const {
    put("latest_checkpointed_iteration.txt", "old");
    put("tokenizer/a b.json", "old");
    put("elsewhere/weights", "old");
    fs::create_directory_symlink("elsewhere", at("release"));
    kill(true);
  }
  void kill(bool replace) const {
    put(".new/a", "new");
    put(".new/b", "new");
    put(".new/weights", "new");
    const auto change = [&] {
      SetAside old(root_, kTracker);
      if (replace)
        for (const char* name :
             {"latest_checkpointed_iteration.txt", "release", "tokenizer/a b.json"})
          old.take(at(name));
      old.make_folders(at("tokenizer"));
      old.name(at(".new/a"), at("tokenizer/a b.json"));
      old.name(at(".new/b"), at("tokenizer/b.json"));
      old.make_folders(at("release/rank"));
      old.name(at(".new/weights"), at("release/rank/weights"));
      std::raise(SIGKILL);
    };
    EXPECT_EXIT(change(), testing::KilledBySignal(SIGKILL), "");
    ASSERT_EQ(get("release/rank/weights"), "new");
  }
  void expect_old() const {
    EXPECT_EQ(get("latest_checkpointed_iteration.txt"), "old");
    EXPECT_EQ(get("tokenizer/a b.json"), "old");
    EXPECT_EQ(get("release/weights"), "old");
    EXPECT_TRUE(fs::is_symlink(at("release")));
    EXPECT_FALSE(fs::exists(at("tokenizer/b.json")));
    EXPECT_FALSE(fs::exists(at(".replaced")));
  }

  tests::OwnFolder own_;
  fs::path root_ = own_ / "root";
};

TEST_F(SetAsideTest, TheOldOneGetsItsNamesBack) {
  kill_over_old();
  undo_killed(root_);
  expect_old();
  undo_killed(root_);
  expect_old();
}

TEST_F(SetAsideTest, WhereThereWasNoneNothingStays) {
  kill(false);
  undo_killed(root_);
  for (const char* name : {"release", "tokenizer", ".replaced"})
    EXPECT_FALSE(fs::exists(at(name))) << name;
}

TEST_F(SetAsideTest, WhatIsTheUsersStays) {
  kill(false);
  EXPECT_EQ(names_of_killed(root_).size(), 3U);
  fs::remove(at("release/rank/weights"));
  put("release/rank/weights", "user's");
  put("tokenizer/c.json", "user's");
  EXPECT_EQ(names_of_killed(root_).size(), 2U);
  undo_killed(root_);
  EXPECT_EQ(get("release/rank/weights"), "user's");
  EXPECT_EQ(get("tokenizer/c.json"), "user's");
  EXPECT_FALSE(fs::exists(at("tokenizer/a b.json")));
}

// The tracker, which somebody has made: the new model is taken to be whole.
TEST_F(SetAsideTest, WhatATrackerNamesStays) {
  kill(false);
  put("latest_checkpointed_iteration.txt", "release");
  undo_killed(root_);
  EXPECT_EQ(get("release/rank/weights"), "new");
}

// An export that replaces another in a root of checkpoints.
class SetAsideExportTest : public SetAsideTest {
 protected:
  SetAsideExportTest() {
    put("latest_checkpointed_iteration.txt", "release");
    put("config.json", "old");
    put("weights", "old");
  }
  /// Killed when it has the weights' name, or all.
  void kill_export(bool all) const {
    put(".new/config.json", "new");
    put(".new/weights", "new");
    const auto change = [&] {
      SetAside old(root_, kConfig);
      for (const char* name : {"config.json", "weights"}) old.take(at(name));
      old.name(at(".new/weights"), at("weights"));
      if (all) old.name_last(at(".new/config.json"));
      std::raise(SIGKILL);
    };
    EXPECT_EXIT(change(), testing::KilledBySignal(SIGKILL), "");
    ASSERT_EQ(get("weights"), "new");
  }
};

TEST_F(SetAsideExportTest, IsUndoneWhateverTrackerIsThere) {
  kill_export(false);
  EXPECT_TRUE(has_unfinished_changes(root_, kConfig));
  EXPECT_FALSE(has_unfinished_changes(root_, kTracker));
  undo_killed(root_);
  EXPECT_EQ(get("config.json") + get("weights"), "oldold");
  EXPECT_FALSE(fs::exists(at(".replaced")));
}

TEST_F(SetAsideExportTest, WithAllItsNamesStays) {
  fs::remove(at("latest_checkpointed_iteration.txt"));
  kill_export(true);
  EXPECT_FALSE(has_unfinished_changes(root_, kConfig));
  undo_killed(root_);
  EXPECT_EQ(get("config.json") + get("weights"), "newnew");
  put(".new/config.json", "newer");
  {
    SetAside old(root_, kConfig);
    old.take(at("config.json"));
    old.name_last(at(".new/config.json"));
    old.keep();
  }
  EXPECT_EQ(get("config.json") + get("weights"), "newernew");
  for (const char* name : {".replaced", ".replaced.2", ".replaced.done"})
    EXPECT_FALSE(fs::exists(at(name))) << name;
}

// Somebody has put the old config.json back: it does not make the new weights its own.
TEST_F(SetAsideExportTest, IsNotWholeByAnotherConfig) {
  kill_export(false);
  put("config.json", "old");
  EXPECT_TRUE(has_unfinished_changes(root_, kConfig));
  EXPECT_THAT(error_of<std::system_error>([&] { undo_killed(root_); }),
              HasSubstr(at(".replaced/config.json").string() + ": remove one of the two"));
  EXPECT_THAT(error_of<std::system_error>([&] { SetAside(root_, kConfig).take(at("weights")); }),
              HasSubstr("remove one of the two"));
  EXPECT_EQ(get("weights"), "new") << "nothing is undone";
  EXPECT_EQ(get(".replaced/weights"), "old");
  fs::rename(at(".replaced/config.json"), at("config.json"));
  undo_killed(root_);
  EXPECT_EQ(get("config.json") + get("weights"), "oldold");
}

// What the old model had is no longer complete, as after a removal that was cut short.
TEST_F(SetAsideExportTest, WithAllItsNamesStaysWhateverIsLeftOfTheOld) {
  for (const char* gone : {"config.json", "weights"}) {
    put("config.json", "old");
    put("weights", "old");
    kill_export(true);
    fs::remove(at(".replaced") / gone);
    undo_killed(root_);
    EXPECT_EQ(get("config.json") + get("weights"), "newnew") << gone;
    fs::remove_all(at(".replaced"));
  }
}

// A config.json that was edited before the next conversion is taken for somebody else's.
TEST_F(SetAsideExportTest, WithAnEditedConfigNothingIsUndone) {
  kill_export(true);
  fs::remove(at("config.json"));
  put("config.json", "edited");
  EXPECT_THAT(error_of<std::system_error>([&] { undo_killed(root_); }),
              HasSubstr("remove one of the two"));
  EXPECT_EQ(get("config.json") + get("weights"), "editednew");
  EXPECT_EQ(get(".replaced/config.json") + get(".replaced/weights"), "oldold");
  fs::remove(at(".replaced/config.json"));
  fs::remove(at("config.json"));
  fs::remove(at("weights"));
  fs::remove_all(at(".replaced"));
  kill_export(true);  // where there was none
  fs::remove(at("config.json"));
  put("config.json", "edited");
  undo_killed(root_);
  EXPECT_EQ(get("config.json") + get("weights"), "editednew");
}

// The record says so, where what was set aside could not be removed.
TEST_F(SetAsideExportTest, WithARecordOfItsEndStaysWhateverIsEdited) {
  kill_export(true);
  std::ofstream(at(".replaced/.changes"), std::ios::app) << "finished" << '\0';
  fs::remove(at("config.json"));
  put("config.json", "edited");
  EXPECT_FALSE(has_unfinished_changes(root_, kConfig));
  undo_killed(root_);
  EXPECT_EQ(get("config.json") + get("weights"), "editednew");
}

// Its error shows somebody else's config.json, which stays.
TEST_F(SetAsideExportTest, WhereTheLastNameIsNotFreeItIsUndone) {
  put(".new/config.json", "new");
  put(".new/weights", "new");
  {
    SetAside old(root_, kConfig);
    for (const char* name : {"config.json", "weights"}) old.take(at(name));
    old.name(at(".new/weights"), at("weights"));
    put("config.json", "user's");
    EXPECT_THAT(error_of<std::system_error>([&] { old.name_last(at(".new/config.json")); }),
                HasSubstr("config.json: File exists"));
  }
  EXPECT_EQ(get("config.json"), "user's");
  EXPECT_EQ(get(".replaced/config.json"), "old");
  fs::remove(at("config.json"));
  undo_killed(root_);
  EXPECT_EQ(get("config.json") + get("weights"), "oldold");
}

// The old tracker, which somebody has put back.
TEST_F(SetAsideTest, ATrackerDoesNotMakeAHalfModelWhole) {
  kill_over_old();
  put("latest_checkpointed_iteration.txt", "old");
  EXPECT_THAT(error_of<std::system_error>([&] { undo_killed(root_); }),
              HasSubstr("remove one of the two"));
  EXPECT_EQ(get(".replaced/tokenizer/a b.json"), "old");
  fs::remove(at("latest_checkpointed_iteration.txt"));
  undo_killed(root_);
  expect_old();
}

TEST_F(SetAsideTest, AFolderThatIsCalledLikeADoneOneStays) {
  put(".replaced.done/mine", "user's");
  put("a", "old");
  put(".new/a", "new");
  for (int i = 0; i < 2; ++i) {
    SetAside old(root_, kTracker);
    old.take(at("a"));
    old.keep();
    put("a", "old");
  }
  EXPECT_EQ(get(".replaced.done/mine"), "user's");
  EXPECT_FALSE(fs::exists(at(".replaced")));
  EXPECT_FALSE(fs::exists(at(".replaced.done.2")));
}

// As another user's files in a folder that only they may change.
TEST_F(SetAsideExportTest, WhatCannotBeRemovedStopsNoLaterOne) {
  fs::remove(at("weights"));
  put("weights/locked/mine", "old");
  fs::permissions(own_.path(), fs::perms::all);
  fs::permissions(root_, fs::perms::all);
  fs::permissions(at("weights"), fs::perms::all);
  fs::permissions(at("weights/locked"), fs::perms::owner_read | fs::perms::owner_exec);
  const auto replace_twice = [&] {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) std::_Exit(1);  // root may remove everything
    for (int i = 0; i < 2; ++i) {
      put("new", "new");
      SetAside old(root_, kConfig);
      for (const char* name : {"config.json", "weights"}) old.take(at(name));
      old.name_last(at("new"));
      old.keep();
    }
    std::_Exit(get("config.json") == "new" && !fs::exists(at(".replaced")) ? 0 : 2);
  };
  EXPECT_EXIT(replace_twice(), testing::ExitedWithCode(0), "");
  EXPECT_EQ(get(".replaced.done/weights/locked/mine"), "old");
  fs::permissions(at(".replaced.done/weights/locked"), fs::perms::all);
}

TEST_F(SetAsideExportTest, ReplacesNothingThatItHasNotTaken) {
  put(".new/config.json", "new");
  put(".new/weights", "new");
  {
    SetAside old(root_, kConfig);
    old.take(at("config.json"));
    EXPECT_THAT(error_of<std::system_error>([&] { old.name(at(".new/weights"), at("weights")); }),
                HasSubstr("weights: File exists"));
  }
  EXPECT_EQ(get("config.json") + get("weights"), "oldold");
}

TEST_F(SetAsideTest, InThePlaceOfAnOldNameBothStay) {
  kill_over_old();
  fs::remove(at("tokenizer/a b.json"));
  put("tokenizer/a b.json", "user's");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(error_of<std::system_error>([&] { undo_killed(root_); }),
                HasSubstr("root/tokenizer/a b.json: in the place of the old model's, which a "
                          "killed conversion has moved to " +
                          at(".replaced/tokenizer/a b.json").string() + ": remove one of the two"));
    EXPECT_EQ(get("tokenizer/a b.json"), "user's");
    EXPECT_EQ(get(".replaced/tokenizer/a b.json"), "old");
  }
  fs::remove(at("tokenizer/a b.json"));
  undo_killed(root_);
  expect_old();
}

// Of a record that is cut at any byte, what is there is undone: the rest was not changed yet.
TEST_F(SetAsideTest, ACutRecordUndoesWhatItHas) {
  kill_over_old();
  const std::string record = get(".replaced/.changes");
  ASSERT_GT(record.size(), 100U);
  const size_t first = record.find('\0', record.find('\0') + 1) + 1;  // behind the last name
  for (size_t size = first; size < record.size(); size += 7) {
    fs::remove_all(own_.path());
    put("latest_checkpointed_iteration.txt", "old");
    put(".replaced/.changes", record.substr(0, size));
    fs::rename(at("latest_checkpointed_iteration.txt"),
               at(".replaced/latest_checkpointed_iteration.txt"));
    undo_killed(root_);
    EXPECT_EQ(get("latest_checkpointed_iteration.txt"), "old") << size;
  }
}

// A folder of that name without a record is nobody's.
TEST_F(SetAsideTest, WhatHasNoRecordStays) {
  put(".replaced/mine", "user's");
  undo_killed(root_);
  put(".new/a", "new");
  {
    SetAside changes(root_, kTracker);
    changes.name(at(".new/a"), at("a"));
    changes.keep();
  }
  EXPECT_EQ(get("a"), "new");
  EXPECT_EQ(get(".replaced.2/mine"), "user's");
}

// Its next checkpoint would have the tokenizer of the conversion.
TEST_F(SetAsideTest, AFolderInWhichATrainerSavesIsRefused) {
  put(".trainer.lock", "");
  const RootTarget target{root_.string(), "release", false};
  const int lock = ::open(at(".trainer.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT([&] { open_root(target, {}); },
              testing::ThrowsMessage<std::exception>(HasSubstr("a trainer is saving there")));
  ::close(lock);
  EXPECT_TRUE(open_root(target, {}));
}

}  // namespace
}  // namespace convert
