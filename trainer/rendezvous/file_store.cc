// FileStore: a value is written under another name and renamed, so readers only see complete
// values.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

#include "trainer/ops/tensor.h"

namespace rendezvous {

std::string FileStore::path(const std::string& key) const {
  std::string name;
  for (const char c : key) name += c == '/' ? '+' : c;
  return folder_ + "/" + name;
}

void FileStore::set(const std::string& key, const std::string& value) {
  const std::string to = path(key), from = to + "." + std::to_string(getpid()) + ".tmp";
  const auto refuse = [&](const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
  };
  const int fd = open(from.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) refuse(from);
  const bool whole = write(fd, value.data(), value.size()) == static_cast<ssize_t>(value.size());
  const bool closed = close(fd) == 0;
  if (!whole || !closed) refuse(from);
  if (std::rename(from.c_str(), to.c_str()) != 0) refuse(to);
}

std::string FileStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    std::ifstream in(path(key), std::ios::binary);
    if (in) return std::string(std::istreambuf_iterator<char>(in), {});
    if (Clock::now() >= deadline)
      throw ops::DeviceError("comm: no rank has written " + path(key) + " within " +
                             std::to_string(timeout.count()) + " ms");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace rendezvous
