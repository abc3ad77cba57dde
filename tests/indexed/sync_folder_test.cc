// SPDX-License-Identifier: MIT
// Which folders a save may not be able to sync, and which errors are errors.
#include "libindexed/sync_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/indexed/scratch.h"

namespace indexed {
namespace {

TEST(SyncFolder, WhatCannotBeAskedForIsNoError) {
  const ScratchFolder folder;
  EXPECT_EQ(sync_folder(folder.path()), 0);
  const int proc = ::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(proc, 0);
  EXPECT_EQ(::fsync(proc) != 0 ? errno : 0, EINVAL) << "it has no fsync";
  ::close(proc);
  EXPECT_EQ(sync_folder("/proc"), 0);
}

// Names can be given in a folder whose names cannot be read.
TEST(SyncFolder, OneThatMayBeWrittenButNotReadIsNoError) {
  const ScratchFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0333), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(100);
    if (::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY) >= 0) ::_exit(101);
    ::_exit(sync_folder(folder.path()));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ::chmod(folder.path().c_str(), 0700);
}

TEST(SyncFolder, AnyOtherErrorIsOne) {
  const ScratchFolder folder;
  EXPECT_EQ(sync_folder(folder / "none"), ENOENT);
  write_whole(folder / "file", "");
  EXPECT_EQ(sync_folder(folder / "file"), ENOTDIR);
}

}  // namespace
}  // namespace indexed
