// SPDX-License-Identifier: MIT
// Tests of which files are one: a socket that is standard input and standard output is both, as a
// terminal is; a file is not.
#include "tools/cli/same_file.h"

#include <functional>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/own.h"
#include "tools/cli/flags.h"

namespace cli {
namespace {

// What `call` complains of while `fd` is standard input and standard output.
std::string with_both(int fd, const std::function<void()>& call) {
  const int input = dup(STDIN_FILENO), output = dup(STDOUT_FILENO);
  fflush(stdout);
  dup2(fd, STDIN_FILENO);
  dup2(fd, STDOUT_FILENO);
  std::string complaint;
  try {
    call();
  } catch (const UsageError& error) {
    complaint = error.what();
  }
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  close(input);
  close(output);
  return complaint;
}

TEST(SameFile, ASocketIsBothInputAndOutput) {
  const tests::OwnFolder folder;
  const auto filter = [] { refuse_input_as_output("--output", "-", {"-"}); };
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(with_both(ends[0], filter), "");
  const int file = open((folder / "x").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  EXPECT_EQ(with_both(file, filter), "standard output is the same file as standard input");
  // A pipe has two ends: who reads and writes one gets back what it writes.
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const int pipe = open((folder / "pipe").c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(with_both(pipe, filter), "standard output is the same file as standard input");
  for (const int fd : {ends[0], ends[1], file, pipe}) close(fd);
}

}  // namespace
}  // namespace cli
