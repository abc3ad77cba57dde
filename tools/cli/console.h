// SPDX-License-Identifier: MIT
// Room: tools/cli. What a program prints for people: one-line messages on stderr, flushed after
// stdout, and a progress line if stderr is a terminal. Data never goes through here.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace cli {

/// The progress of the work. Units: `done` and `total` in bytes of input, or in items if
/// `in_items`; total is 0 if unknown (a pipe).
struct ProgressState {
  int64_t done = 0;
  int64_t total = 0;
  int64_t items = 0;                        ///< documents, articles, files so far
  std::string_view item_noun = "document";  ///< singular
  bool in_items = false;
};

/// Whether file descriptor `fd` is a terminal that knows escapes: one that TERM does not call dumb.
bool erases_lines(int fd);

/// The program's voice. Any thread may call any function. Every message is one line, whatever
/// names it quotes: one_line() of text.h.
class Console {
 public:
  /// `tool` is the name with which every message begins.
  explicit Console(std::string tool);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  /// -q: only errors. -v: log lines too.
  void set_quiet(bool quiet) { quiet_ = quiet; }
  void set_verbose(bool verbose) { verbose_ = verbose; }
  bool quiet() const { return quiet_; }
  bool verbose() const { return verbose_; }
  const std::string& tool() const { return tool_; }

  /// `tool: message`, for errors; printed with -q too.
  void error(std::string_view message);
  /// `tool: message` unless -q: closing counts, a flag without effect, a skipped record.
  void note(std::string_view message);
  /// `message` without the tool's name, unless -q: lines that users' scripts parse.
  void line(std::string_view message);
  /// `tool: message` with -v only; then `block` unchanged, lines without foreign names.
  void log(std::string_view message, std::string_view block = {});

  /// Draws the progress line (done, total, rate, time left) at most five times a second, on a
  /// terminal only, no wider than that.
  void progress(const ProgressState& state);
  /// Removes the progress line; messages do so by themselves.
  void clear_progress();

  /// Lines that stay below everything else on a terminal, a picture say: drawn now, and again after
  /// each message, until the next call; empty: none. Whoever else writes to the terminal removes
  /// them first, with clear_below(). No line may be wider than the terminal.
  void draw_below(std::string lines);
  void clear_below();

 private:
  using Clock = std::chrono::steady_clock;
  void write(std::string_view head, std::string_view message, std::string_view block = {});
  void erase_line();
  void erase_below();
  void show_below();

  std::string tool_;
  bool quiet_ = false;
  bool verbose_ = false;
  bool terminal_;
  bool drawn_ = false;
  std::string below_;
  int64_t below_drawn_ = 0;  // lines
  std::mutex mutex_;
  Clock::time_point start_;
  Clock::time_point last_draw_;
};

}  // namespace cli
