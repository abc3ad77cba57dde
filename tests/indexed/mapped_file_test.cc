// SPDX-License-Identifier: MIT
// A mapped file that is cut short under its reader: the fault has the file's name and the place, in
// the first of many mappings as in the last, and also where the kernel was to read the bytes.
#include "libindexed/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "libindexed/format.h"
#include "libindexed/output_file.h"
#include "libindexed/read_file.h"
#include "tests/indexed/scratch.h"

namespace indexed {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

std::string describe(const void* address) {
  char line[4096];
  return {line, describe_fault(address, line, sizeof line)};
}

/// What cli::run does, in short.
void say_and_exit(int, siginfo_t* info, void*) {
  char line[4096];
  const size_t length = describe_fault(info->si_addr, line, sizeof line);
  static_cast<void>(!write(STDERR_FILENO, line, length));
  _exit(1);
}

void catch_faults() {
  struct sigaction action = {};
  action.sa_sigaction = say_and_exit;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

std::string make_file(const ScratchFolder& folder, const std::string& name) {
  const std::string path = folder / name;
  std::ofstream(path, std::ios::binary) << std::string(kBytes, 'x');
  return path;
}

TEST(MappedFileFault, ThePlaceOfEveryMappingIsKnown) {
  const ScratchFolder folder;
  const std::string path = make_file(folder, "a\nb.bin");
  std::vector<MappedFile> files;
  for (int i = 0; i < 600; ++i)  // more than two blocks of the table
    files.emplace_back(path, MappedFile::Access::normal, MappedFile::Refuse::cuts);
  for (const MappedFile& file : {std::cref(files.front()), std::cref(files.back())})
    EXPECT_EQ(describe(file.bytes().data() + 12'345),
              folder / "a?b.bin: byte 12345: cannot be read: input/output error");
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(
      describe(files[300].bytes().data() + kBytes - 1),
      folder / "a?b.bin: byte 1048575: the file was cut short to 100 bytes while it was read");
  make_file(folder, "a\nb.bin");  // as it was, before a mapping ends: else no output could follow
  const std::byte* gone = files.back().bytes().data();
  EXPECT_NE(describe(gone), "");
  files.pop_back();
  EXPECT_EQ(describe(gone), "");
  EXPECT_EQ(describe(nullptr), "");
  MappedFile moved = std::move(files.back());
  EXPECT_NE(describe(moved.bytes().data()), "");
  char line[8];
  EXPECT_EQ(describe_fault(moved.bytes().data(), line, sizeof line), sizeof line)
      << "cut, not over";
}

TEST(MappedFileFault, ReadingPastTheNewEndIsNamed) {
  const ScratchFolder folder;
  const std::string path = make_file(folder, "data.bin");
  const auto child = [&] {
    catch_faults();
    const MappedFile file(path);
    std::filesystem::resize_file(path, 8192);
    touch(file.bytes());
    _exit(0);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(1),
              "data.bin: byte 8192: the file was cut short to 8192 bytes while it was read");
}

TEST(MappedFileFault, WritingBytesThatAreGoneNamesTheirFile) {
  const ScratchFolder folder;
  const std::string path = make_file(folder, "data.bin");
  for (const bool at_place : {false, true}) {
    const auto child = [&] {
      catch_faults();
      const MappedFile file(path);
      OutputFile out(folder / "out");
      std::filesystem::resize_file(path, 8192);
      if (at_place)
        out.write_at(0, file.bytes());
      else
        out.write(file.bytes());
      _exit(0);
    };
    EXPECT_EXIT(child(), ::testing::ExitedWithCode(1), "data.bin: byte [0-9]+: the file was cut");
    std::filesystem::resize_file(path, kBytes);
  }
}

/// Runs `work` in a process of its own, because a change that was found counts from then on.
/// Returns what check_mapped_files() says after it.
template <class Work>
std::string changes(const ScratchFolder& folder, Work work) {
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream said(folder / "said");
    try {
      work();
      check_mapped_files();
    } catch (const FormatError& error) {
      said << error.what();
    }
    said.close();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::ifstream in(folder / "said");
  return std::string(std::istreambuf_iterator<char>(in), {});
}

TEST(MappedFileChange, ACutInsideTheLastPageIsFound) {
  const ScratchFolder folder;
  const std::string path = make_file(folder, "data.bin");
  const std::string why = path + ": the file was cut short to 1048575 bytes while it was read";
  for (const auto refuse : {MappedFile::Refuse::changes, MappedFile::Refuse::cuts}) {
    make_file(folder, "data.bin");
    EXPECT_EQ(changes(folder,
                      [&] {
                        const MappedFile file(path, MappedFile::Access::normal, refuse);
                        std::filesystem::resize_file(path, kBytes - 1);
                        check_mapped_files();
                      }),
              why)
        << "while it is mapped";
    make_file(folder, "data.bin");
    EXPECT_EQ(changes(folder,
                      [&] {
                        const MappedFile file(path, MappedFile::Access::normal, refuse);
                        std::filesystem::resize_file(path, kBytes - 1);
                      }),
              why)
        << "after it was mapped";
  }
}

TEST(MappedFileChange, ACutFileThatLostItsNameIsFound) {
  const ScratchFolder folder;
  const std::string path = make_file(folder, "data.bin");
  const auto cut_and = [&](auto rename) {
    return changes(folder, [&] {
      make_file(folder, "data.bin");
      const MappedFile file(path);
      rename();
      std::filesystem::resize_file(folder / "moved", kBytes - 1);
    });
  };
  const std::string why = path + ": the file was cut short while it was read";
  EXPECT_EQ(cut_and([&] { std::filesystem::rename(path, folder / "moved"); }), why);
  EXPECT_EQ(cut_and([&] {
              std::filesystem::rename(path, folder / "moved");
              make_file(folder, "data.bin");
            }),
            why);
}

TEST(MappedFileChange, BytesThatWereWrittenAreFoundAndOnlyWhereAsked) {
  const ScratchFolder folder;
  const std::string path = make_file(folder, "data.bin");
  const auto touched = [&](MappedFile::Refuse refuse, size_t grown) {
    return changes(folder, [&] {
      make_file(folder, "data.bin");
      const MappedFile file(path, MappedFile::Access::normal, refuse);
      if (grown > 0) std::filesystem::resize_file(path, kBytes + grown);
      std::filesystem::last_write_time(path, std::filesystem::file_time_type());
    });
  };
  const std::string why = path + ": the file was changed while it was read";
  EXPECT_EQ(touched(MappedFile::Refuse::changes, 0), why);
  EXPECT_EQ(touched(MappedFile::Refuse::changes, 1), why);
  EXPECT_EQ(touched(MappedFile::Refuse::cuts, 0), "");
  EXPECT_EQ(touched(MappedFile::Refuse::cuts, 1), "");
}

TEST(MappedFileChange, WhatIsRemovedOrReplacedWholeIsNoChange) {
  const ScratchFolder folder;
  const std::string path = make_file(folder, "data.bin");
  EXPECT_EQ(changes(folder,
                    [&] {
                      const MappedFile file(path);
                      std::filesystem::remove(path);
                    }),
            "");
  EXPECT_EQ(changes(folder,
                    [&] {
                      make_file(folder, "data.bin");
                      const MappedFile file(path);
                      OutputFile other(path, Existing::replace);
                      other.write("another");
                      other.commit();
                    }),
            "");
  EXPECT_EQ(changes(folder,
                    [&] {
                      std::ofstream(path, std::ios::binary) << std::string(10'000, '\0');
                      const MappedFile file(path);
                      std::filesystem::remove(path);
                    }),
            "")
      << "a page of zeros";
}

TEST(MappedFileChange, NoOutputGetsItsNameAfterOne) {
  const ScratchFolder folder;
  const std::string path = make_file(folder, "data.bin");
  for (const bool set : {false, true}) {
    make_file(folder, "data.bin");
    EXPECT_THAT(changes(folder,
                        [&] {
                          const MappedFile file(path);
                          OutputFile a(folder / "a"), b(folder / "b");
                          std::filesystem::resize_file(path, kBytes - 1);
                          OutputFile* const both[] = {&a, &b};
                          if (set)
                            commit_set(both);
                          else
                            a.commit();
                        }),
                ::testing::HasSubstr("data.bin: the file was cut short"));
    EXPECT_FALSE(std::filesystem::exists(folder / "a"));
    EXPECT_FALSE(std::filesystem::exists(folder / "b"));
  }
}

TEST(MappedFileChange, AProcessCanForgetWhatItFoundAndFindsItAgainWhereStillMapped) {
  const ScratchFolder folder;
  const std::string path = make_file(folder, "data.bin");
  EXPECT_EQ(changes(folder,
                    [&] {
                      const MappedFile whole(make_file(folder, "other.bin"));
                      {
                        const MappedFile file(path);
                        std::filesystem::resize_file(path, kBytes - 1);
                        EXPECT_THROW(check_mapped_files(), FormatError);
                      }
                      EXPECT_THROW(check_mapped_files(), FormatError);
                      forget_changed_files();
                    }),
            "");
  EXPECT_THAT(changes(folder,
                      [&] {
                        make_file(folder, "data.bin");
                        const MappedFile file(path);
                        std::filesystem::resize_file(path, kBytes - 1);
                        EXPECT_THROW(check_mapped_files(), FormatError);
                        forget_changed_files();
                        check_mapped_files();
                      }),
              ::testing::HasSubstr("data.bin: the file was cut short"));
}

// Read whole: what a regular file had counts for the last check, a pipe is read to its end.
TEST(MappedFile, ReadFileIsTheContentOfFilesAndPipes) {
  const ScratchFolder folder;
  const std::string path = make_file(folder, "f");
  EXPECT_EQ(read_file(path), std::string(kBytes, 'x'));
  EXPECT_EQ(read_file("/dev/null"), "");
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream(pipe, std::ios::binary) << std::string(kBytes, 'p');
    _exit(0);
  }
  EXPECT_EQ(read_file(pipe), std::string(kBytes, 'p'));
  waitpid(child, nullptr, 0);
  for (const auto& [name, code] : {std::pair{folder / "none", ENOENT}, {folder / "", EISDIR}}) {
    try {
      read_file(name);
      ADD_FAILURE() << name;
    } catch (const std::system_error& error) {
      EXPECT_EQ(error.code().value(), code) << name;
      EXPECT_THAT(error.what(), testing::HasSubstr(name));
    }
  }
}

}  // namespace
}  // namespace indexed
