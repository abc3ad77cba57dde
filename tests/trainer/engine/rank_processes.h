// Ranks as processes of a test: forked before the parent has touched a device, so that each may
// open one of its own. They share a FileStore in a temporary folder.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trainer/rendezvous/file_store.h"

namespace ranks {

/// What `body` returns (0..255), run in a process of its own.
inline int in_a_process(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// What a rank prints when it is still running after its time.
inline void on_alarm(int) {
  constexpr char kWords[] = "a rank has not ended in time: it waits for the others, or hangs\n";
  static_cast<void>(!write(STDERR_FILENO, kWords, sizeof kWords - 1));
  _exit(3);
}

/// Runs body(rank, store) in `size` processes and expects each to end without a failed expectation
/// or an exception; a rank still running after `seconds` prints that and ends, and all end with the
/// test.
inline void run_rank_processes(int size, unsigned seconds,
                               const std::function<void(int, rendezvous::Store&)>& body) {
  std::string folder = std::filesystem::temp_directory_path() / "ranks.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::vector<pid_t> pids;
  std::fprintf(stderr, "%s\n", testing::UnitTest::GetInstance()->current_test_info()->name());
  std::fflush(nullptr);
  for (int rank = 0; rank < size; ++rank) {
    const auto failures = [] {
      return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
    };
    const pid_t pid = fork();
    if (pid == 0) {
      const int before = failures();
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::signal(SIGALRM, on_alarm);
      alarm(seconds);
      rendezvous::FileStore store(folder);
      try {
        body(rank, store);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        _exit(2);
      }
      std::fflush(nullptr);
      _exit(failures() == before ? 0 : 1);
    }
    pids.push_back(pid);
  }
  for (size_t rank = 0; rank < pids.size(); ++rank) {
    int status = 0;
    waitpid(pids[rank], &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << "rank " << rank << ": signal " << WTERMSIG(status);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0) << "rank " << rank;
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace ranks
