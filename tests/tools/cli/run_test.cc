// SPDX-License-Identifier: MIT
// Tests of a program's start and end: exit status, messages, signals, in child processes where the
// process must die.
#include "tools/cli/run.h"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/own.h"
#include "tests/tools/cli/sample_flags.h"

namespace cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

template <class Body>
Outcome run_with(std::vector<std::string> words, Body body, const Program& program) {
  words.insert(words.begin(), "sample-tool");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status =
      run<Sample>(program, sample_table(), static_cast<int>(argv.size()), argv.data(), body);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

const Program kProgram = {.name = "sample-tool", .summary = "does nothing", .config_file = true};
const std::vector<std::string> kLine = {"--prefix", "x"};

TEST(Run, StatusAndMessages) {
  const auto fine = [](Sample&, Invocation&) { return 0; };
  EXPECT_EQ(run_with(kLine, +fine, kProgram).status, 0);
  const Outcome wrong = run_with({"--prefx", "x"}, +fine, kProgram);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(wrong.err, "sample-tool: unknown option --prefx: did you mean --prefix\n");
  EXPECT_EQ(run_with({}, +fine, kProgram).err, "sample-tool: --output-prefix PREFIX is missing\n");
  EXPECT_EQ(run_with({"--prefix", "x", "y"}, +fine, kProgram).err,
            "sample-tool: unexpected argument \"y\"\n");
  const auto refused = [](Sample&, Invocation&) -> int {
    throw std::system_error(ENOENT, std::generic_category(), "some/file");
  };
  const Outcome missing = run_with(kLine, +refused, kProgram);
  EXPECT_EQ(missing.status, 1);
  EXPECT_EQ(missing.err, "sample-tool: some/file: no such file or directory\n");
  const auto bad = [](Sample&, Invocation&) -> int { throw std::runtime_error("a:3: wrong"); };
  EXPECT_EQ(run_with(kLine, +bad, kProgram).err, "sample-tool: a:3: wrong\n");
  const auto memory = [](Sample&, Invocation&) -> int { throw std::bad_alloc(); };
  EXPECT_EQ(run_with(kLine, +memory, kProgram).err, "sample-tool: out of memory\n");
}

TEST(Run, HelpWinsOverWhatIsWrong) {
  const auto body = [](Sample&, Invocation&) { return 1; };
  EXPECT_THAT(run_with({"--workers", "0", "--help"}, +body, kProgram).out,
              HasSubstr("--workers N"));
  EXPECT_EQ(run_with({"-h"}, +body, kProgram).status, 0);
  EXPECT_EQ(run_with({"--version"}, +body, kProgram).out,
            "sample-tool (gristmill) " + std::string(version()) + "\n");
  EXPECT_THAT(run_with({"--help-completion"}, +body, kProgram).out, HasSubstr("complete -o"));
  EXPECT_THAT(run_with({"--help"}, +body, kProgram).out, Not(HasSubstr("help-completion")));
}

TEST(Run, FlagsWithoutEffectAreSaidOnceUnlessQuiet) {
  const auto body = [](Sample&, Invocation& call) {
    call.console.note("closing");
    return 0;
  };
  EXPECT_EQ(
      run_with({"--prefix", "x", "--chunk-size", "1", "--chunk-size", "2"}, +body, kProgram).err,
      "sample-tool: --chunk-size: accepted, no effect here: chunks are cut by bytes\n"
      "sample-tool: closing\n");
  EXPECT_EQ(run_with({"--prefix", "x", "--chunk-size", "1", "-q"}, +body, kProgram).err, "");
}

TEST(Run, ConfigFileThenCommandLine) {
  const tests::OwnFolder folder;
  const std::string path = folder / "run.toml";
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("workers = 5\noutput_prefix = \"p\"\nrate = 0.125\n", file);
  std::fclose(file);
  const auto body = [](Sample& options, Invocation& call) {
    std::printf("%ld %s %g\n%s\n", static_cast<long>(options.workers), options.prefix.c_str(),
                options.rate, call.command_line.c_str());
    return 0;
  };
  EXPECT_EQ(run_with({"--config", path, "--workers", "6"}, +body, kProgram).out,
            "6 p 0.125\nsample-tool --config " + path + " --workers 6\n");
  const std::string shown = run_with({"--config", path, "--show-config"}, +body, kProgram).out;
  EXPECT_THAT(shown, HasSubstr("workers = 5\n"));
  // What is shown is a configuration, whose use neither shows it again nor needs the first file.
  file = std::fopen(path.c_str(), "w");
  std::fputs(shown.c_str(), file);
  std::fclose(file);
  EXPECT_EQ(run_with({"--config", path}, +body, kProgram).out,
            "5 p 0.125\nsample-tool --config " + path + "\n");
  std::remove(path.c_str());
}

/// A terminal of so many columns for stderr, as long as it lives; what was written there.
class Terminal {
 public:
  explicit Terminal(int columns) : saved_(dup(STDERR_FILENO)) {
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    int inner = -1;
    EXPECT_EQ(openpty(&outer_, &inner, nullptr, nullptr, &size), 0);
    fcntl(outer_, F_SETFL, O_NONBLOCK);
    dup2(inner, STDERR_FILENO);
    close(inner);
  }
  ~Terminal() { restore(); }

  /// Everything that was written; ends the terminal.
  std::string text() {
    restore();
    std::string all;
    char buffer[4096];
    for (ssize_t n; (n = read(outer_, buffer, sizeof buffer)) > 0;) {
      all.append(buffer, static_cast<size_t>(n));
    }
    close(outer_);
    return all;
  }

 private:
  void restore() {
    if (saved_ < 0) return;
    std::fflush(stderr);
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    saved_ = -1;
  }
  int saved_;
  int outer_ = -1;
};

/// A line is drawn after half a second of work, the next a fifth of a second later.
std::string drawn(int columns, const std::vector<ProgressState>& states) {
  Terminal terminal(columns);
  {
    Console console("sample-tool");
    console.progress({.done = 1, .total = 100});  // too early to say anything
    for (const ProgressState& state : states) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      console.progress(state);
      console.progress(state);  // not twice
    }
    console.note("a closing line");
  }
  return terminal.text();
}

TEST(Progress, ADumbTerminalGetsNoEscapes) {
  for (const char* name : {"dumb", ""}) {
    setenv("TERM", name, 1);
    EXPECT_EQ(drawn(80, {{.done = 10, .total = 100}}), "sample-tool: a closing line\r\n") << name;
  }
  unsetenv("TERM");
  EXPECT_EQ(drawn(80, {{.done = 10, .total = 100}}), "sample-tool: a closing line\r\n");
  setenv("TERM", "xterm", 1);
  EXPECT_THAT(drawn(80, {{.done = 10, .total = 100}}), HasSubstr("\x1b[K"));
}

TEST(Console, WhatIsDrawnBelowStaysBelow) {
  const auto lines = [](bool quiet) {
    Terminal terminal(80);
    {
      Console console("sample-tool");
      console.set_quiet(quiet);
      console.draw_below("one\ntwo\n");
      console.note("a message");
      console.clear_below();
      console.draw_below("three\n");
      console.draw_below("");
      console.error("the last");
      console.draw_below("end\n");
    }
    return terminal.text();
  };
  const std::string up = "\r\x1b[2A\x1b[J";
  EXPECT_EQ(lines(false), "one\r\ntwo\r\n" + up + "sample-tool: a message\r\none\r\ntwo\r\n" + up +
                              "three\r\n\r\x1b[1A\x1b[Jsample-tool: the last\r\nend\r\n");
  EXPECT_EQ(lines(true), "sample-tool: the last\r\n");
  setenv("TERM", "dumb", 1);
  EXPECT_EQ(lines(false), "sample-tool: a message\r\nsample-tool: the last\r\n");
  setenv("TERM", "xterm", 1);
}

TEST(Run, ProgressIsOneLineOfATerminal) {
  setenv("TERM", "xterm", 1);
  const std::string known = drawn(200, {{.done = 1 << 20, .total = 4 << 20, .items = 1234}});
  EXPECT_THAT(known,
              testing::MatchesRegex("\rsample-tool: 1.0 MiB of 4.0 MiB \\(25%\\), 1,234 documents, "
                                    "[0-9.]+ [KM]iB/s, [0-9]+ s left\x1b\\[K"
                                    "\r\x1b\\[Ksample-tool: a closing line\r\n"));
  EXPECT_THAT(drawn(200, {{.done = 1 << 20, .items = 1}}),
              testing::MatchesRegex("\rsample-tool: 1.0 MiB, 1 document, [0-9.]+ [KM]iB/s\x1b\\[K"
                                    "\r\x1b\\[Ksample-tool: a closing line\r\n"));
  EXPECT_THAT(drawn(200, {{300, 1200, 300, "token", true}}),
              HasSubstr("\rsample-tool: 300 of 1,200 tokens (25%), "));
  EXPECT_EQ(drawn(30, {{.done = 1 << 20, .total = 4 << 20, .items = 1234}}),
            "\rsample-tool: 1.0 MiB of 4.0 M\x1b[K\r\x1b[Ksample-tool: a closing line\r\n");
}

TEST(Run, NoProgressWhereStderrIsNoTerminal) {
  testing::internal::CaptureStderr();
  {
    Console console("sample-tool");
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    console.progress({.done = 1, .total = 2});
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Run, AFullDiskBehindStdoutIsAnError) {
  const auto child = [] {
    const int full = open("/dev/full", O_WRONLY);
    dup2(full, STDOUT_FILENO);
    const auto body = [](Sample&, Invocation&) {
      std::puts("x");
      return 0;
    };
    char name[] = "sample-tool", flag[] = "--prefix=x";
    char* argv[] = {name, flag};
    _exit(run<Sample>(kProgram, sample_table(), 2, argv, +body));
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(1),
              "sample-tool: standard output: no space left on device");
}

bool say_unlinked(int) noexcept {
  const ssize_t written = write(STDERR_FILENO, "unlinked\n", 9);
  static_cast<void>(written);
  return true;
}

class RunSignal : public testing::TestWithParam<int> {};

TEST_P(RunSignal, UnlinksThenDiesOfTheSignal) {
  const auto child = [] {
    static int number = GetParam();
    const auto body = [](Sample&, Invocation&) {
      raise(number);
      return 0;
    };
    Program program = kProgram;
    program.at_signal = say_unlinked;
    char name[] = "sample-tool", flag[] = "--prefix=x";
    char* argv[] = {name, flag};
    _exit(run<Sample>(program, sample_table(), 2, argv, +body));
  };
  EXPECT_EXIT(child(), testing::KilledBySignal(GetParam()), "^unlinked\n$");
}

size_t say_file(const void* address, char* line, size_t size) noexcept {
  const bool known = address == reinterpret_cast<const void*>(4096);
  return known ? static_cast<size_t>(std::snprintf(line, size, "data.bin: byte 7: cut short")) : 0;
}

/// A body that faults at an address, or is sent the signal.
template <uintptr_t address>
int fault(Sample&, Invocation&) {
  siginfo_t info = {};
  info.si_signo = SIGBUS;
  info.si_code = static_cast<int>(BUS_ADRERR);
  if (address == 0) info.si_code = static_cast<int>(SI_USER);
  info.si_addr = reinterpret_cast<void*>(address);
  struct sigaction action = {};
  sigaction(SIGBUS, nullptr, &action);
  action.sa_sigaction(SIGBUS, &info, nullptr);
  return 0;
}

TEST(RunFault, IsNamedAndUnlinksWhereTheFileIsKnown) {
  const auto child = [](int (*body)(Sample&, Invocation&)) {
    Program program = kProgram;
    program.at_signal = say_unlinked;
    program.at_fault = say_file;
    char name[] = "sample-tool", flag[] = "--prefix=x";
    char* argv[] = {name, flag};
    const int status = run<Sample>(program, sample_table(), 2, argv, body);
    raise(SIGBUS);  // the default action again
    _exit(status);
  };
  EXPECT_EXIT(child(fault<4096>), testing::ExitedWithCode(1),
              "^sample-tool: data.bin: byte 7: cut short\nunlinked\n$");
  EXPECT_EXIT(child(fault<8192>), testing::KilledBySignal(SIGBUS), "^$");
  EXPECT_EXIT(child(fault<0>), testing::KilledBySignal(SIGBUS), "^$");
}

/// As indexed::remove_temporaries does while another thread gives files their names: not yet, then
/// that thread raises the signal again, then it may end.
bool unlink_at_the_third_call(int number) noexcept {
  static int calls = 0;
  if (++calls == 2) std::thread([number] { raise(number); }).join();
  return calls == 3 && say_unlinked(number);
}

TEST(RunFault, WaitsUntilFilesHaveTheirNames) {
  const auto child = [] {
    Program program = kProgram;
    program.at_signal = unlink_at_the_third_call;
    program.at_fault = say_file;
    char name[] = "sample-tool", flag[] = "--prefix=x";
    char* argv[] = {name, flag};
    run<Sample>(program, sample_table(), 2, argv, fault<4096>);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(1),
              "^sample-tool: data.bin: byte 7: cut short\nunlinked\n$");
}

TEST(Describe, ALinkThatLeadsNowhereIsSaid) {
  const std::string folder = std::filesystem::temp_directory_path() / "describe.XXXXXX";
  std::string name = folder;
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const auto refusal = [](const std::string& path) -> std::string {
    try {
      std::filesystem::create_directories(path);
      return "";
    } catch (const std::exception& error) {
      return describe(error);
    }
  };
  const std::string link = name + "/link";
  std::filesystem::create_symlink("nowhere", link);
  EXPECT_EQ(refusal(link), link + ": is a link that leads nowhere");
  EXPECT_EQ(refusal(link + "/below/it"), link + ": is a link that leads nowhere");
  std::filesystem::create_directory(name + "/nowhere");
  EXPECT_EQ(refusal(link + "/below"), "");
  std::filesystem::remove_all(name);
}

INSTANTIATE_TEST_SUITE_P(Fatal, RunSignal, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGPIPE));

}  // namespace
}  // namespace cli
