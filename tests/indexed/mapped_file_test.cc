// SPDX-License-Identifier: MIT
// A mapped file that is cut short under its reader: the fault has the file's name and the place, in
// the first of many mappings as in the last, and also where the kernel was to read the bytes.
#include "libindexed/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include "libindexed/output_file.h"
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
  for (int i = 0; i < 600; ++i) files.emplace_back(path);  // more than two blocks of the table
  for (const MappedFile& file : {std::cref(files.front()), std::cref(files.back())})
    EXPECT_EQ(describe(file.bytes().data() + 12'345),
              folder / "a?b.bin: byte 12345: cannot be read: input/output error");
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(
      describe(files[300].bytes().data() + kBytes - 1),
      folder / "a?b.bin: byte 1048575: the file was cut short to 100 bytes while it was read");
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

}  // namespace
}  // namespace indexed
