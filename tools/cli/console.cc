// SPDX-License-Identifier: MIT
// Room: tools/cli. Messages and the progress line.
// Not here: files, and anything on stdout.
#include "tools/cli/console.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/cli/text.h"

namespace cli {
namespace {

/// The text cut to stderr's width: a terminal would put the rest on a second line, which could not
/// be erased.
std::string_view fitting(std::string_view text) {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return text;
  return text.substr(0, size.ws_col - 1U);
}

std::string progress_text(const ProgressState& state, double seconds) {
  const auto amount = [&](double value) {
    return state.in_items ? with_commas(static_cast<int64_t>(value)) : readable_bytes(value);
  };
  const double rate = static_cast<double>(state.done) / seconds;
  std::string text = amount(static_cast<double>(state.done));
  if (state.total > 0) {
    const double share = static_cast<double>(state.done) / static_cast<double>(state.total);
    text += concat(" of ", amount(static_cast<double>(state.total)),
                   state.in_items ? concat(" ", state.item_noun, "s") : "", " (",
                   static_cast<int64_t>(100 * share), "%)");
  }
  if (!state.in_items && state.items > 0)
    text += concat(", ", counted(state.items, state.item_noun));
  text += concat(", ", amount(rate), "/s");
  if (state.total > state.done && rate > 0) {
    const double left = static_cast<double>(state.total - state.done) / rate;
    text += concat(", ", readable_time(left), " left");
  }
  return text;
}

}  // namespace

bool erases_lines(int fd) {
  const char* terminal = std::getenv("TERM");
  if (isatty(fd) != 1 || terminal == nullptr) return false;
  return *terminal != '\0' && std::string_view(terminal) != "dumb";
}

Console::Console(std::string tool)
    : tool_(std::move(tool)), terminal_(erases_lines(STDERR_FILENO)), start_(Clock::now()) {}

Console::~Console() {
  clear_progress();  // what is drawn below stays: it is the run's last picture
}

void Console::erase_line() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

// From the line below the drawn ones up to the first of them, and everything from there on.
void Console::erase_below() {
  if (below_drawn_ == 0) return;
  std::fputs(concat("\r\x1b[", below_drawn_, "A\x1b[J").c_str(), stderr);
  below_drawn_ = 0;
}

void Console::show_below() {
  if (below_.empty() || !terminal_ || quiet_) return;
  std::fwrite(below_.data(), 1, below_.size(), stderr);
  below_drawn_ = std::count(below_.begin(), below_.end(), '\n');
}

void Console::draw_below(std::string lines) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::fflush(stdout);
  erase_line();
  erase_below();
  below_ = std::move(lines);
  show_below();
  std::fflush(stderr);
}

void Console::clear_below() {
  const std::lock_guard<std::mutex> lock(mutex_);
  erase_below();
  std::fflush(stderr);
}

// Messages quote names of files, tensors and keys that others chose: characters that would start a
// second line or control the terminal are escaped here, for all messages.
void Console::write(std::string_view head, std::string_view message, std::string_view block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::fflush(stdout);
  erase_line();
  erase_below();
  const std::string text = concat(head, head.empty() ? "" : ": ", one_line(message), "\n", block);
  std::fwrite(text.data(), 1, text.size(), stderr);
  show_below();
  std::fflush(stderr);
}

void Console::error(std::string_view message) { write(tool_, message); }

void Console::note(std::string_view message) {
  if (!quiet_) write(tool_, message);
}

void Console::line(std::string_view message) {
  if (!quiet_) write({}, message);
}

void Console::log(std::string_view message, std::string_view block) {
  if (verbose_) write(tool_, message, block);
}

void Console::progress(const ProgressState& state) {
  if (!terminal_ || quiet_) return;
  const Clock::time_point now = Clock::now();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (now - last_draw_ < std::chrono::milliseconds(200)) return;
  last_draw_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (seconds < 0.5) return;  // short work shows nothing
  std::string text = concat(tool_, ": ", progress_text(state, seconds));
  text = concat("\r", fitting(text), "\x1b[K");
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Console::clear_progress() {
  const std::lock_guard<std::mutex> lock(mutex_);
  erase_line();
  std::fflush(stderr);
}

}  // namespace cli
