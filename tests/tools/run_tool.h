// SPDX-License-Identifier: MIT
// What the tests share that run the tools as programs: a folder of their own, runs that end by
// themselves or by a signal, and the bytes that are in the folder afterwards.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace tools {

/// How a run ended: exit status, or 128 + signal; its most memory in MiB; its errors.
struct Ended {
  int status = 0;
  int64_t peak_mib = 0;
  std::string err;
};

/// A folder, and programs that run in it.
class ToolTest : public testing::Test {
 protected:
  explicit ToolTest(bool on_disk = false) {
    // In memory where that can be had: hundreds of short runs would otherwise wait for the disk.
    std::string name = access("/dev/shm", W_OK) == 0 && !on_disk
                           ? "/dev/shm"
                           : std::filesystem::temp_directory_path().string();
    name += "/tool_test.XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~ToolTest() override { std::filesystem::remove_all(folder_); }

  /// Words of a command with the small vocabulary of tests/golden.
  static std::vector<std::string> tokenize(std::vector<std::string> more) {
    const std::string golden = GOLDEN_DIR "/tools/";
    std::vector<std::string> words = {"bpe-tokenize",        "-q",           "--vocab-file",
                                      golden + "vocab.json", "--merge-file", golden + "merges.txt",
                                      "--no-pad-vocab-size"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  /// Starts words[0] of the tools' folder in `folder`, a folder in this test's. `prepare` runs in
  /// the child before it becomes the program.
  pid_t start(const std::string& folder, std::vector<std::string> words,
              const std::map<std::string, std::string>& environment = {},
              const std::function<void()>& prepare = nullptr) const {
    words[0] = std::string(TOOLS_FOLDER "/") + words[0];
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    const bool ready = chdir((folder_ + "/" + folder).c_str()) == 0 &&
                       freopen((folder_ + "/.stdout").c_str(), "w", stdout) &&
                       freopen((folder_ + "/.stderr").c_str(), "w", stderr) &&
                       freopen("/dev/null", "r", stdin);
    if (!ready) _exit(126);
    if (prepare) prepare();
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execv(argv[0], argv.data());
    _exit(127);
  }

  Ended wait(pid_t pid) const {
    int status = 0;
    struct rusage usage {};
    wait4(pid, &status, 0, &usage);
    std::ifstream in(folder_ + "/.stderr");
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            usage.ru_maxrss / 1024, std::string(std::istreambuf_iterator<char>(in), {})};
  }

  Ended run(const std::string& folder, const std::vector<std::string>& words,
            const std::map<std::string, std::string>& environment = {}) const {
    return wait(start(folder, words, environment));
  }

  void make_folder(const std::string& name) const {
    std::filesystem::remove_all(folder_ + "/" + name);
    std::filesystem::create_directories(folder_ + "/" + name);
  }

  /// Every file below a folder: its name there and its bytes.
  std::map<std::string, std::string> files(const std::string& name) const {
    namespace fs = std::filesystem;
    std::map<std::string, std::string> found;
    const fs::path root = folder_ + "/" + name;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      found[fs::relative(entry.path(), root).string()] =
          std::string(std::istreambuf_iterator<char>(in), {});
    }
    return found;
  }

  std::string folder_;
};

}  // namespace tools
