// See gemm_choices.h. Each file is read and extended under its own lock.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/gemm_choices.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

namespace ops::cuda {
namespace {

using Choices = std::map<std::string, GemmChoice>;

constexpr int kTries = 500;  // to get a lock, 10 ms apart

std::string to_hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

// False where `hex` is no whole number of bytes in hexadecimal.
bool from_hex(std::string_view hex, std::string& bytes) {
  if (hex.empty() || hex.size() % 2 != 0) return false;
  bytes.clear();
  for (size_t i = 0; i < hex.size(); i += 2) {
    const char pair[] = {hex[i], hex[i + 1], 0};
    if (!std::isxdigit(static_cast<unsigned char>(pair[0])) ||
        !std::isxdigit(static_cast<unsigned char>(pair[1])))
      return false;
    bytes += static_cast<char>(std::strtoul(pair, nullptr, 16));
  }
  return true;
}

std::string row_of(const std::string& kind, const std::string& key, const GemmChoice& choice) {
  std::ostringstream out;
  out.precision(9);
  out << kind << '|' << key << '|' << to_hex(choice.algorithm) << '|' << choice.microseconds
      << '\n';
  return out.str();
}

// The rows of one kind in a file's text.
Choices parse(const std::string& text, const std::string& kind) {
  Choices out;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    if (text.compare(begin, kind.size() + 1, kind + '|') != 0) continue;
    const size_t at = begin + kind.size() + 1;
    const std::string row = text.substr(at, end - at);
    const size_t first = row.find('|'), second = row.find('|', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    GemmChoice choice;
    char* rest = nullptr;
    choice.microseconds = std::strtof(row.c_str() + second + 1, &rest);
    if (*rest != 0 || !(choice.microseconds > 0)) continue;
    if (!from_hex(std::string_view(row).substr(first + 1, second - first - 1), choice.algorithm))
      continue;
    out.emplace(row.substr(0, first), std::move(choice));
  }
  return out;
}

// An open, locked file; one that cannot be opened reads as empty and discards what is written.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path)
      : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    // On a file system without locks, or when a stopped process holds the lock, there is a race in
    // which the last writer's rows come second.
    for (int tries = 0; fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) != 0; ++tries) {
      if (errno != EWOULDBLOCK || tries == kTries) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~LockedFile() {
    if (fd_ >= 0) close(fd_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  std::string text() const {
    std::string out;
    char block[1 << 16];
    for (ssize_t n;
         fd_ >= 0 && (n = pread(fd_, block, sizeof block, static_cast<off_t>(out.size()))) > 0;)
      out.append(block, static_cast<size_t>(n));
    return out;
  }
  void append(const std::string& text) const {
    if (fd_ < 0 || lseek(fd_, 0, SEEK_END) < 0) return;
    static_cast<void>(!write(fd_, text.data(), text.size()));
  }

 private:
  int fd_;
};

}  // namespace

GemmChoices::GemmChoices(std::vector<std::string> paths, std::string kind)
    : paths_(std::move(paths)), kind_(std::move(kind)) {
  add({});        // reads
  add(choices_);  // what only one file had
}

const GemmChoice* GemmChoices::find(const std::string& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() ? nullptr : &found->second;
}

void GemmChoices::add(const std::map<std::string, GemmChoice>& timed) {
  Choices agreed = timed, all;
  // The last file is the one that most processes share: its entries go to the others.
  for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) {
    const LockedFile file(*path);
    const std::string text = file.text();
    const Choices there = parse(text, kind_);
    std::string more;
    for (auto& [key, choice] : agreed) {
      const auto found = there.find(key);
      if (found != there.end())
        choice = found->second;
      else
        more += row_of(kind_, key, choice);
    }
    if (!more.empty()) file.append((text.empty() || text.back() == '\n' ? "" : "\n") + more);
    for (const auto& [key, choice] : there) all[key] = choice;
  }
  for (auto& [key, choice] : agreed) choices_[key] = std::move(choice);
  choices_.merge(all);
}

}  // namespace ops::cuda
