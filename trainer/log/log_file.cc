// See log_file.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/log/log_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "libindexed/message.h"

namespace trainer {
namespace {

using indexed::message;

constexpr size_t kBatchBytes = size_t{1} << 16;

// The system's error text, for use within a line.
std::string words(int error) {
  std::string text = std::generic_category().message(error);
  const bool plain = text.size() > 1 && !(text[1] >= 'A' && text[1] <= 'Z');
  if (plain && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] + 32);
  return text;
}

std::string counted(int64_t count, const std::string& noun) {
  return message(count, " ", noun, count == 1 ? "" : "s");
}

// False if another process has locked this regular file. Where there are no locks, there are none.
bool takes_lock(int fd) {
  struct stat about {};
  if (::fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) return true;
  return ::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

[[noreturn]] void refuse(const std::string& path) {
  throw std::runtime_error(message(path, ": another trainer is writing there"));
}

// Keeps others out of a file that is there, until it is open to be written.
class Lock {
 public:
  explicit Lock(const LogFileOptions& options) {
    if (!options.exclusive || !std::filesystem::is_regular_file(options.path, none_)) return;
    fd_ = ::open(options.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0 || takes_lock(fd_)) return;
    ::close(fd_);
    refuse(options.path);
  }
  ~Lock() {
    if (fd_ >= 0) ::close(fd_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int fd_ = -1;
  std::error_code none_;  // errors are found when the file is opened to be written.
};

}  // namespace

bool may_pass(int error) noexcept {
  constexpr std::array kPassing = {ENOSPC, EDQUOT, EIO,    EFBIG,     EMFILE, ENFILE,
                                   ENOMEM, ESTALE, EAGAIN, ETIMEDOUT, ENXIO};
  return std::ranges::find(kPassing, error) != kPassing.end();
}

LogFile::LogFile(LogFileOptions options) : options_(std::move(options)) { flush(); }

LogFile::~LogFile() {
  try {
    flush();
  } catch (const std::exception&) {  // counted below
  }
  const int64_t lost = static_cast<int64_t>(kept_.size()) - (gap_lost_ > 0) + all_lost_;
  if (!kept_.empty())
    say(message(options_.path, ": ", words(refusal_), ": ", counted(lost, options_.noun),
                lost == 1 ? " is" : " are", " lost"));
  close();
}

void LogFile::add(std::string entry, int64_t iteration) {
  kept_bytes_ += entry.size();
  kept_.push_back({std::move(entry), iteration});
  refused_entries_ += refusal_ != 0;
  if (refusal_ != 0)
    forget_oldest();
  else if (kept_bytes_ >= kBatchBytes)
    flush();
}

void LogFile::flush() {
  try {
    open();
    write_all();
  } catch (const std::system_error& refusal) {
    return refused(refusal.code().value());
  }
  strict_ = strict_ && options_.descriptor >= 0 && size_bytes_ == 0;
  if (refusal_ == 0) return;
  const int64_t late = refused_entries_ - all_lost_;
  say(message(options_.path, ": is written again: ", counted(late, options_.noun), " that waited ",
              late == 1 ? "is" : "are", " in it, ",
              all_lost_ == 0 ? "none is" : counted(all_lost_, options_.noun) + " before are",
              " lost"));
  refusal_ = 0;
  refused_entries_ = all_lost_ = 0;
}

// A file that was replaced or truncated meanwhile to make room gets only complete entries.
void LogFile::open() {
  if (fd_ >= 0) return;
  if (options_.descriptor >= 0) {
    fd_ = options_.descriptor;
    return;
  }
  const std::filesystem::path folder = std::filesystem::path(options_.path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  if (!prepared_ && options_.prepare) {
    const Lock lock(options_);  // what is there is read and cut by one trainer
    head_ = options_.prepare();
  }
  open_locked();
  prepared_ = true;
  struct stat about {};
  if (::fstat(fd_, &about) != 0) fail();
  if (S_ISREG(about.st_mode) && about.st_size != size_bytes_) {
    kept_bytes_ += std::exchange(done_bytes_, 0);
    size_bytes_ = about.st_size;
  }
  if (about.st_size == 0 && head_.empty()) head_ = options_.head;
}

// A lock that is lost while a file is reopened is waited for like room on a disk.
void LogFile::open_locked() {
  // A FIFO without a reader, or a full one, is treated like a full disk: it is not waited for.
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  fd_ = ::open(options_.path.c_str(), kFlags, 0666);
  if (fd_ < 0) fail();
  if (!options_.exclusive || takes_lock(fd_)) return;
  close();
  if (!prepared_) refuse(options_.path);
  errno = EAGAIN;
  fail();
}

void LogFile::close() noexcept {
  if (fd_ >= 0 && options_.descriptor < 0) ::close(fd_);
  fd_ = -1;
}

void LogFile::write_all() {
  while (!head_.empty()) head_.erase(0, write(head_));
  if (!options_.gap) lost_ = 0;
  while (!kept_.empty() || lost_ > 0) consume(write(next_batch()));
}

// Returns how many bytes were written. Errors: std::system_error.
size_t LogFile::write(const std::string& bytes) {
  ssize_t n = 0;
  do {
    n = ::write(fd_, bytes.data(), bytes.size());
  } while (n < 0 && errno == EINTR);
  if (n == 0) errno = EIO;  // neither written nor refused.
  if (n <= 0) fail();
  size_bytes_ += n;
  return static_cast<size_t>(n);
}

std::string LogFile::next_batch() {
  if (lost_ > 0 && done_bytes_ == 0) {
    gap_lost_ = std::exchange(lost_, 0);
    kept_.push_front({options_.gap(gap_lost_, lost_iteration_), 0});
    kept_bytes_ += kept_.front().text.size();
  }
  std::string batch;
  for (const Entry& entry : kept_) {
    batch.append(entry.text, batch.empty() ? done_bytes_ : 0);
    if (batch.size() >= kBatchBytes || lost_ > 0) break;
  }
  return batch;
}

void LogFile::consume(size_t bytes) {
  kept_bytes_ -= bytes;
  done_bytes_ += bytes;
  while (!kept_.empty() && done_bytes_ >= kept_.front().text.size()) {
    done_bytes_ -= kept_.front().text.size();
    kept_.pop_front();
    gap_lost_ = 0;
  }
}

void LogFile::refused(int error) {
  close();  // a file that was removed to make room frees it only when closed.
  if (strict_ && !may_pass(error)) {
    refusal_ = error;
    throw std::system_error(error, std::generic_category(), options_.path);
  }
  strict_ = false;
  if (refusal_ == 0) {
    refused_entries_ = static_cast<int64_t>(kept_.size());
    say(message(options_.path, ": ", words(error), ": ", options_.noun, "s are kept in memory, ",
                options_.most_kept_bytes >> 10,
                " KiB at most, and tried again; training continues"));
  }
  refusal_ = error;
  forget_oldest();
}

void LogFile::forget_oldest() {
  while (kept_bytes_ > options_.most_kept_bytes && kept_.size() > 1) {
    // The first may have been written in part; its rest follows when possible.
    const auto oldest = kept_.begin() + (done_bytes_ > 0 ? 1 : 0);
    kept_bytes_ -= oldest->text.size();
    if (oldest == kept_.begin() && gap_lost_ > 0) {
      lost_ += std::exchange(gap_lost_, 0);
    } else {
      if (all_lost_++ == 0)
        say(message(options_.path, ": ", words(refusal_), ": ", options_.most_kept_bytes >> 10,
                    " KiB wait: from here on the oldest ", options_.noun, "s are lost"));
      ++lost_;
      lost_iteration_ = oldest->iteration;
    }
    kept_.erase(oldest);
  }
}

void LogFile::fail() const {
  throw std::system_error(errno, std::generic_category(), options_.path);
}

void LogFile::say(const std::string& line) const {
  if (options_.say) options_.say(line);
}

}  // namespace trainer
