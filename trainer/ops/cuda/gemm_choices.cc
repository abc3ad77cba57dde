// See gemm_choices.h. Files are read and extended under a lock of their own.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/gemm_choices.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

namespace ops::cuda {
namespace {

using Choices = std::map<std::string, GemmChoice>;

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

std::string row_of(const std::string& key, const GemmChoice& choice) {
  std::ostringstream out;
  out.precision(9);
  out << key << '|' << to_hex(choice.algorithm) << '|' << choice.microseconds << '\n';
  return out.str();
}

// The rows of a file's text; nothing where its header is another.
Choices parse(const std::string& text, const std::string& header) {
  Choices out;
  if (text.compare(0, header.size() + 1, header + '\n') != 0) return out;
  size_t begin = header.size() + 1;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string row = text.substr(begin, end - begin);
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

// An open file under its lock; whole() is false where there is none to be had.
class LockedFile {
 public:
  LockedFile(const std::string& path, bool writes)
      : fd_(open(path.c_str(), (writes ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0644)) {
    // A file system without locks leaves a race in which the last writer's rows come second.
    if (fd_ >= 0) static_cast<void>(flock(fd_, writes ? LOCK_EX : LOCK_SH));
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
  void cut() const {
    if (fd_ >= 0) static_cast<void>(!ftruncate(fd_, 0));
  }
  void append(const std::string& text) const {
    if (fd_ < 0 || lseek(fd_, 0, SEEK_END) < 0) return;
    static_cast<void>(!write(fd_, text.data(), text.size()));
  }

 private:
  int fd_;
};

}  // namespace

GemmChoices::GemmChoices(std::vector<std::string> paths, std::string header)
    : paths_(std::move(paths)), header_(std::move(header)) {
  for (const std::string& path : paths_) {
    for (auto& [key, choice] : parse(LockedFile(path, false).text(), header_))
      choices_.emplace(key, std::move(choice));
  }
}

const GemmChoice* GemmChoices::find(const std::string& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() ? nullptr : &found->second;
}

void GemmChoices::add(const std::map<std::string, GemmChoice>& timed) {
  Choices agreed = timed;
  // The last file is the one that most processes share: what it knows goes to the others.
  for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) {
    const LockedFile file(*path, true);
    std::string text = file.text(), more;
    if (text.compare(0, header_.size() + 1, header_ + '\n') != 0) {
      file.cut();
      text = more = header_ + '\n';
    } else if (text.back() != '\n') {
      more = '\n';
    }
    const Choices there = parse(text, header_);
    for (auto& [key, choice] : agreed) {
      const auto found = there.find(key);
      if (found != there.end())
        choice = found->second;
      else
        more += row_of(key, choice);
    }
    if (!more.empty()) file.append(more);
  }
  for (auto& [key, choice] : agreed) choices_[key] = std::move(choice);
}

}  // namespace ops::cuda
