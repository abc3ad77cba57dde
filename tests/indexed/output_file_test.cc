// SPDX-License-Identifier: MIT
// OutputFile: nothing has the final name before commit; the destructor, a signal or an earlier
// SIGKILL leaves nothing behind; a set gets its last name only when all files are complete.
#include "libindexed/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <fstream>
#include <span>
#include <system_error>
#include <thread>

#include "libindexed/temporary_names.h"
#include "tests/indexed/scratch.h"

// In the place of the C library's: the mode that a file had before.
static mode_t mode_before_fchmod = 0;
extern "C" int fchmod(int fd, mode_t mode) noexcept {
  struct stat info {};
  if (::fstat(fd, &info) == 0) mode_before_fchmod = info.st_mode & 0777;
  return static_cast<int>(::syscall(SYS_fchmod, fd, mode));
}

namespace indexed {
namespace {

TEST(OutputFile, AppearsOnlyOnCommit) {
  ScratchFolder folder;
  OutputFile file(folder / "x");
  file.write("hello ");
  file.write(std::string(3 << 20, 'a'));
  file.write(" end");
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  file.commit();
  EXPECT_EQ(read_whole(folder / "x"), "hello " + std::string(3 << 20, 'a') + " end");
  EXPECT_EQ(folder.num_files(), 1u);
}

// The calls of this process that wrote something, by the kernel's count.
int64_t calls() {
  std::ifstream counts("/proc/self/io");
  for (std::string name, value; counts >> name >> value;)
    if (name == "syscw:") return std::stoll(value);
  return -1;
}

// A large call takes huge pages for the kernel's cache, which virtual machines have to get from
// their host: 256 KiB at most, which end at multiples of it.
TEST(OutputFile, WritesInSmallCalls) {
  if (calls() < 0) GTEST_SKIP() << "the kernel counts no calls";
  const ScratchFolder folder;
  std::string text(2 << 20, 0);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i % 251);
  OutputFile file(folder / "x");
  int64_t before = calls();
  file.write(text);
  EXPECT_EQ(calls() - before, 8);
  before = calls();
  file.write_at(100, std::as_bytes(std::span<const char>(text)));
  EXPECT_EQ(calls() - before, 9);
  file.commit();
  const std::string all = read_whole(folder / "x");
  EXPECT_EQ(all.substr(0, 100), text.substr(0, 100));
  EXPECT_EQ(all.substr(100), text);
}

TEST(OutputFile, DestructorRemoves) {
  ScratchFolder folder;
  {
    OutputFile file(folder / "x");
    file.write("half");
    file.flush();
    EXPECT_EQ(folder.num_files(), 1u);
  }
  EXPECT_EQ(folder.num_files(), 0u);
}

int code_of(const std::string& path, Existing existing) {
  try {
    OutputFile file(path, existing);
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

TEST(OutputFile, Refusals) {
  ScratchFolder folder;
  write_whole(folder / "old", "old");
  EXPECT_EQ(code_of(folder / "old", Existing::refuse), EEXIST);
  EXPECT_EQ(code_of(folder / "old", Existing::replace), 0);
  EXPECT_EQ(read_whole(folder / "old"), "old");
  EXPECT_EQ(code_of(folder / "none/x", Existing::refuse), ENOENT);
  EXPECT_EQ(code_of(folder.path(), Existing::replace), EISDIR);
  EXPECT_EQ(code_of("/dev/null", Existing::replace), ENOTSUP);
  OutputFile first(folder / "x");
  EXPECT_EQ(code_of(folder / "x", Existing::refuse), EBUSY);
  // A target that appears while we write is not overwritten either.
  write_whole(folder / "x", "other");
  EXPECT_THROW(first.commit(), std::system_error);
  EXPECT_EQ(read_whole(folder / "x"), "other");
}

TEST(OutputFile, TwoOfOneNameAreNamed) {
  const ScratchFolder folder;
  const OutputFile first(folder / "both");
  for (const char* name : {"both", "./both"}) {
    try {
      const OutputFile second(folder / name);
      ADD_FAILURE() << name;
    } catch (const std::system_error& error) {
      EXPECT_THAT(error.what(),
                  ::testing::HasSubstr("both: two outputs of this command have this name"));
    }
  }
}

TEST(OutputFile, FollowsLinks) {
  ScratchFolder folder;
  write_whole(folder / "real", "old");
  std::filesystem::create_symlink("real", folder / "link");
  OutputFile file(folder / "link", Existing::replace);
  file.write("new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_whole(folder / "real"), "new");
}

TEST(OutputFile, ReplacesALinkItselfWhereItIsToldTo) {
  ScratchFolder folder;
  write_whole(folder / "real", "old");
  std::filesystem::permissions(folder / "real", std::filesystem::perms(0600));
  std::filesystem::create_directory(folder / "folder");
  for (const char* target : {"real", "nowhere", "folder"}) {
    const std::string link = folder / "link";
    std::filesystem::remove(link);
    std::filesystem::create_symlink(target, link);
    OutputFile file(link, Existing::replace_link);
    file.write("new");
    file.commit();
    EXPECT_FALSE(std::filesystem::is_symlink(link)) << target;
    EXPECT_EQ(read_whole(link), "new");
  }
  EXPECT_EQ(read_whole(folder / "real"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "nowhere"));
  EXPECT_THROW(OutputFile(folder / "folder", Existing::replace_link), std::system_error);
  OutputFile file(folder / "real", Existing::replace_link);
  file.commit();
  EXPECT_EQ(std::filesystem::status(folder / "real").permissions(), std::filesystem::perms(0600));
}

TEST(OutputFile, WriteAt) {
  ScratchFolder folder;
  OutputFile file(folder / "x");
  file.write_at(4, std::as_bytes(std::span("efgh", 4)));
  file.write_at(0, std::as_bytes(std::span("abcd", 4)));
  EXPECT_EQ(file.size(), 8);
  file.commit();
  EXPECT_EQ(read_whole(folder / "x"), "abcdefgh");
}

// Between what is written through the buffer; a file that cannot be read is the caller's error.
TEST(OutputFile, AppendsFromFiles) {
  ScratchFolder folder;
  {
    OutputFile source(folder / "source");
    source.write(std::string(3 << 20, 's') + "tail");
    source.commit();
  }
  const int from = ::open((folder / "source").c_str(), O_RDONLY);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  OutputFile file(folder / "x");
  file.write("front ");
  EXPECT_EQ(file.append_from(ends[0], 0, 4), 0);
  file.write("begin ");
  int64_t copied = 0;
  while (const int64_t n = file.append_from(from, copied, (3 << 20) + 4 - copied)) copied += n;
  EXPECT_EQ(copied, (3 << 20) + 4);
  EXPECT_EQ(file.size(), 12 + copied);
  file.write(" end");
  EXPECT_EQ(file.append_from(from, copied, 1), 0);  // the file ends there
  file.commit();
  EXPECT_EQ(read_whole(folder / "x"), "front begin " + std::string(3 << 20, 's') + "tail end");
  for (const int fd : {from, ends[0], ends[1]}) ::close(fd);
}

TEST(OutputFile, SetCommitsLastNameLast) {
  ScratchFolder folder;
  for (const char* content : {"one", "two"}) {
    OutputFile bin(folder / "a.bin", Existing::replace);
    OutputFile idx(folder / "a.idx", Existing::replace);
    bin.write(content);
    idx.write(content);
    OutputFile* const set[] = {&bin, &idx};
    commit_set(set);
    EXPECT_EQ(read_whole(folder / "a.bin"), content);
    EXPECT_EQ(read_whole(folder / "a.idx"), content);
  }
  // The first rename fails: the old index is removed rather than left with data that it does not
  // describe.
  OutputFile bin(folder / "a.bin", Existing::replace);
  OutputFile idx(folder / "a.idx", Existing::replace);
  std::filesystem::remove(folder / "a.bin");
  std::filesystem::create_directory(folder / "a.bin");
  OutputFile* const set[] = {&bin, &idx};
  EXPECT_THROW(commit_set(set), std::system_error);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.idx"));
}

// Runs `child` in a process, sends it a signal once it has written a byte to the pipe, returns its
// wait status.
template <class Child>
int run_and_signal(int number, Child child) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    child();
    (void)!::write(pipe_ends[1], "x", 1);
    for (;;) ::pause();
  }
  char byte;
  EXPECT_EQ(::read(pipe_ends[0], &byte, 1), 1);
  ::kill(pid, number);
  int status = 0;
  ::waitpid(pid, &status, 0);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  return status;
}

TEST(OutputFile, SignalsRemoveTemporaries) {
  ScratchFolder folder;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    const int status = run_and_signal(number, [&, number = number] {
      ::signal(number, [](int caught) {
        remove_temporaries(caught);
        ::signal(caught, SIG_DFL);
        ::raise(caught);
      });
      auto* first = new OutputFile(folder / "x");
      auto* second = new OutputFile(folder / "y");
      first->write("half");
      second->write("half");
      // What is finished and waits for its name: a folder in a folder, in any order.
      std::filesystem::create_directories(folder / "hidden/inner");
      auto* waiting = new std::vector<RemoveOnSignal>();
      for (const char* name : {"hidden/inner/file", "hidden", "hidden/inner", "hidden/file"}) {
        if (std::string_view(name).ends_with("file")) write_whole(folder / name, "whole");
        waiting->emplace_back(folder / name);
      }
      write_whole(folder / "named", "whole");
      const RemoveOnSignal no_longer(folder / "named");
    });
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), number);
    EXPECT_EQ(folder.num_files(), 1u);
    std::filesystem::remove(folder / "named");
  }
}

// A set whose files have gone must not get its name on another thread, whatever signals follow.
TEST(OutputFile, NothingGetsANameWhileASignalsFilesGo) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    static std::atomic<bool> removed = false;
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &term, nullptr);
    ::signal(SIGTERM, [](int caught) {
      if (!remove_temporaries(caught)) ::_exit(9);
      removed = true;
      ::usleep(500'000);
      ::_exit(7);
    });
    std::thread([term] {
      ::pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
      ::pause();
    }).detach();
    ::kill(::getpid(), SIGTERM);
    while (!removed) ::usleep(100);
    std::thread([] {
      ::usleep(100'000);
      remove_temporaries(SIGINT);  // of a handler on a third thread.
    }).detach();
    const NamingSection section;
    ::_exit(8);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(OutputFile, NextRunRemovesWhatSigkillLeft) {
  ScratchFolder folder;
  const int status = run_and_signal(SIGKILL, [&] { new OutputFile(folder / "x"); });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(folder.num_files(), 1u);
  write_whole(folder / ".x.note.tmp", "not ours: no number");
  OutputFile file(folder / "x");
  EXPECT_TRUE(std::filesystem::exists(folder / ".x.note.tmp"));
  EXPECT_EQ(folder.num_files(), 2u);
  file.commit();
  EXPECT_EQ(folder.num_files(), 2u);
}

// What an error in the middle of a set leaves shows the next run what happened, also when a signal
// ends the process afterwards.
TEST(OutputFile, SignalsLeaveTheMarkOfAHalfNamedSet) {
  ScratchFolder folder;
  const auto fails_halfway = [&] {
    ::signal(SIGTERM, [](int caught) {
      remove_temporaries(caught);
      ::_exit(0);
    });
    auto* const first = new OutputFile(folder / "a", Existing::replace);
    auto* const second = new OutputFile(folder / "b", Existing::replace);
    auto* const last = new OutputFile(folder / "c", Existing::replace);
    std::filesystem::create_directory(folder / "b");
    OutputFile* const set[] = {first, second, last};
    EXPECT_THROW(commit_set(set), std::system_error);
  };
  EXPECT_EQ(run_and_signal(SIGTERM, fails_halfway), 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "a"));
  EXPECT_TRUE(left_unfinished(folder / "c"));
}

// A process that goes on after such an error cleans up what it opens later.
TEST(OutputFile, AHalfNamedSetKeepsNoLaterTemporaries) {
  ScratchFolder folder;
  {
    OutputFile first(folder / "a", Existing::replace);
    OutputFile second(folder / "b", Existing::replace);
    OutputFile last(folder / "c", Existing::replace);
    std::filesystem::create_directory(folder / "b");
    OutputFile* const set[] = {&first, &second, &last};
    EXPECT_THROW(commit_set(set), std::system_error);
  }
  EXPECT_TRUE(left_unfinished(folder / "c"));
  { OutputFile later(folder / "later"); }
  EXPECT_FALSE(left_unfinished(folder / "later"));
  const int status = run_and_signal(SIGTERM, [&] {
    ::signal(SIGTERM, [](int caught) {
      remove_temporaries(caught);
      ::_exit(0);
    });
    new OutputFile(folder / "later");
  });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(left_unfinished(folder / "later"));
}

// Names of open files are refused, whatever leads to them; what is behind them stays.
TEST(OutputFile, OpenFilesAreNotReplaced) {
  ScratchFolder folder;
  write_whole(folder / "log", "text");
  const int fd = ::open((folder / "log").c_str(), O_WRONLY | O_CLOEXEC);
  const std::string name = "/dev/fd/" + std::to_string(fd);
  std::filesystem::create_symlink(name, folder / "link");
  std::filesystem::create_symlink("link", folder / "link-to-link");
  for (const std::string& path :
       {name, "/proc/self/fd/" + std::to_string(fd), folder / "link", folder / "link-to-link"}) {
    try {
      OutputFile(path, Existing::replace).commit();
      ADD_FAILURE() << path;
    } catch (const std::system_error& error) {
      EXPECT_EQ(error.code().value(), ENOTSUP) << path;
      EXPECT_THAT(error.what(), testing::HasSubstr(path + ": an open file, not a name"));
    }
  }
  ::close(fd);
  EXPECT_EQ(read_whole(folder / "log"), "text");
  // A link to a file stays one, and what it leads to is replaced, with its permissions.
  std::filesystem::create_symlink("log", folder / "to-log");
  std::filesystem::permissions(folder / "log", std::filesystem::perms(0640));
  OutputFile file(folder / "to-log", Existing::replace);
  file.write("new");
  file.commit();
  EXPECT_EQ(read_whole(folder / "log"), "new");
  EXPECT_EQ(std::filesystem::status(folder / "log").permissions(), std::filesystem::perms(0640));
}

// Replaces x, by a process of user and group 4242 if `foreign`. Returns the new file's group and
// mode, of before it has its name if `early`.
std::string replaced(const ScratchFolder& folder, bool foreign, bool early = false) {
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0777));
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (foreign && (::setgroups(0, nullptr) != 0 || ::setgid(4242) != 0 || ::setuid(4242) != 0))
      ::_exit(1);
    {
      OutputFile file(folder / "x", Existing::replace);
      struct stat info {};
      ::fstat(file.fd(), &info);
      if (!early) file.commit();
      if (!early) ::stat((folder / "x").c_str(), &info);
      ::dprintf(ends[1], "%d %o", static_cast<int>(info.st_gid), info.st_mode & 0777u);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  char text[100] = "";
  EXPECT_GT(::read(ends[0], text, sizeof text - 1), 0);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

TEST(OutputFile, KeepsTheGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give files to groups that it is not in";
  const ScratchFolder folder;
  const auto old = [&](gid_t group, mode_t mode) {
    write_whole(folder / "x", "old");
    ASSERT_EQ(::chown((folder / "x").c_str(), 0, group), 0);
    ASSERT_EQ(::chmod((folder / "x").c_str(), mode), 0);
  };
  old(1234, 0640);
  EXPECT_EQ(replaced(folder, false), "1234 640");
  EXPECT_EQ(replaced(folder, false, true), "1234 640");
  // Who may not give it to that group gives nothing to another one.
  EXPECT_EQ(replaced(folder, true), "4242 600");
  old(1234, 0664);
  EXPECT_EQ(replaced(folder, true), "4242 644");
  old(1234, 0604);
  EXPECT_EQ(replaced(folder, true), "4242 600");
  old(4242, 0660);
  EXPECT_EQ(replaced(folder, true), "4242 660");
}

// An access list in the system's form: the owner, user 1234, the group, the mask, all others.
std::string access_list() {
  std::string list("\2\0\0\0", 4);
  const auto entry = [&](char tag, char rights, uint32_t id) {
    list += {tag, '\0', rights, '\0'};
    list.append(reinterpret_cast<const char*>(&id), 4);
  };
  constexpr uint32_t kNone = ~0u;
  entry(1, 6, kNone);
  entry(2, 4, 1234);
  entry(4, 0, kNone);
  entry(16, 4, kNone);
  entry(32, 0, kNone);
  return list;
}

std::string list_of(const std::string& path) {
  char list[1000];
  const ssize_t size = ::getxattr(path.c_str(), "system.posix_acl_access", list, sizeof list);
  return size < 0 ? "" : std::string(list, static_cast<size_t>(size));
}

TEST(OutputFile, KeepsTheAccessList) {
  const ScratchFolder folder;
  const std::string list = access_list();
  const auto set = [&](const char* kind, const std::string& path) {
    return ::setxattr(path.c_str(), kind, list.data(), list.size(), 0) == 0;
  };
  write_whole(folder / "x", "old");
  if (!set("system.posix_acl_access", folder / "x"))
    GTEST_SKIP() << "the file system has no access lists";
  OutputFile(folder / "x", Existing::replace).commit();
  EXPECT_EQ(list_of(folder / "x"), list);
  if (::geteuid() == 0) {
    // The mask's bits are not the group's, which had no right.
    ASSERT_EQ(::chown((folder / "x").c_str(), 0, 1234), 0);
    EXPECT_EQ(replaced(folder, true), "4242 600");
    EXPECT_EQ(list_of(folder / "x"), "");
  }
  // The folder's list is for new files, not for one whose permissions are known.
  write_whole(folder / "y", "old");
  std::filesystem::permissions(folder / "y", std::filesystem::perms(0640));
  ASSERT_TRUE(set("system.posix_acl_default", folder.path()));
  OutputFile(folder / "y", Existing::replace).commit();
  EXPECT_EQ(list_of(folder / "y"), "");
}

// Nobody else may open what will be private, not even for a moment.
TEST(OutputFile, IsPrivateFromTheStart) {
  const ScratchFolder folder;
  write_whole(folder / "x", "old");
  std::filesystem::permissions(folder / "x", std::filesystem::perms(0640));
  mode_before_fchmod = 0;
  const OutputFile file(folder / "x", Existing::replace);
  EXPECT_EQ(mode_before_fchmod, 0600u);
}

// The longest names have temporary files too, whose shorter names the next run knows.
TEST(OutputFile, NamesOfEveryLength) {
  const ScratchFolder folder;
  for (size_t size = 230; size <= NAME_MAX; ++size) {
    const std::string path = folder / std::string(size, 'n');
    const int status = run_and_signal(SIGKILL, [&] { new OutputFile(path); });
    ASSERT_TRUE(WIFSIGNALED(status)) << size;
    EXPECT_TRUE(left_unfinished(path)) << size;
    EXPECT_FALSE(left_unfinished(folder / std::string(size - 1, 'n'))) << size;
    {
      OutputFile file(path);
      EXPECT_EQ(folder.num_files(), 1u) << "what was left is gone, " << size;
      EXPECT_FALSE(left_unfinished(path)) << "it is being written";
      EXPECT_THROW(OutputFile second(path), std::system_error);
      file.write("text");
      file.commit();
    }
    EXPECT_EQ(read_whole(path), "text");
    OutputFile(path, Existing::replace).commit();
    EXPECT_EQ(read_whole(path), "");
    const int scratch = open_scratch_file(path);
    EXPECT_GE(scratch, 0);
    ::close(scratch);
    EXPECT_EQ(folder.num_files(), 1u) << size;
    std::filesystem::remove(path);
  }
  EXPECT_THROW(OutputFile(folder / std::string(NAME_MAX + 1, 'n')).commit(), std::system_error);
  EXPECT_EQ(folder.num_files(), 0u);
  // Long names of one beginning have temporary files of their own, and signals remove them.
  const std::string begin(250, 'n');
  const int status = run_and_signal(SIGTERM, [&] {
    ::signal(SIGTERM, [](int caught) {
      remove_temporaries(caught);
      ::_exit(0);
    });
    new OutputFile(folder / (begin + "1"));
    new OutputFile(folder / (begin + "2"));
    EXPECT_EQ(folder.num_files(), 2u);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(folder.num_files(), 0u);
}

TEST(TemporaryNames, AreCutBetweenCharacters) {
  std::string name = "n";
  for (int i = 0; i < 100; ++i) name += "\u00e9";
  const std::string whole = TemporaryNames("folder/" + name).own();
  EXPECT_TRUE(whole.starts_with("folder/." + name + ".")) << whole;
  for (int i = 0; i < 27; ++i) name += "\u00e9";
  const std::string cut = TemporaryNames("folder/" + name).own();
  EXPECT_TRUE(cut.starts_with("folder/." + name.substr(0, 39) + "~")) << cut;
}

// A temporary file of ours is a file: a link or a folder of such a name is another's.
TEST(OutputFile, LinksAndFoldersAreNotLeftOverFiles) {
  ScratchFolder folder;
  write_whole(folder / "precious", "text");
  ASSERT_EQ(::symlink((folder / "precious").c_str(), (folder / ".x.123.tmp").c_str()), 0);
  ASSERT_EQ(::mkdir((folder / ".x.124.tmp").c_str(), 0700), 0);
  OutputFile(folder / "x").commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / ".x.123.tmp"));
  EXPECT_TRUE(std::filesystem::is_directory(folder / ".x.124.tmp"));
  EXPECT_EQ(read_whole(folder / "precious"), "text");
}

// A limit on file size simulates a full disk: the error has the path, and nothing remains.
TEST(OutputFile, DiskRefuses) {
  ScratchFolder folder;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int result = 1;
    try {
      OutputFile file(folder / "x");
      file.write(std::string(4 << 20, 'a'));
      file.commit();
    } catch (const std::system_error& error) {
      result = error.code().value() == EFBIG && std::string(error.what()).starts_with(folder / "x")
                   ? 0
                   : 2;
    }
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(folder.num_files(), 0u);
}

}  // namespace
}  // namespace indexed
