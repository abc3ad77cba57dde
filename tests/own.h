// What a test has for itself, whatever else runs on the host, another checkout's tests included: a
// folder, and ports.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tests {

/// A folder that goes with its owner.
class OwnFolder {
 public:
  OwnFolder() {
    std::string name = std::filesystem::temp_directory_path() / "gristmill_test.XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder " + name);
    path_ = name;
  }
  ~OwnFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The first of kOwnPorts ports that this process alone uses as long as it lives, of those below
/// what the system gives to connections of its own choice (32768 and up). A socket with a name that
/// is nowhere in the file system says so to others.
inline constexpr int kOwnPorts = 256;
inline int own_ports() {
  static const int first = [] {
    constexpr int kFirst = 20000, kBlocks = 49;
    for (int wait = 0; wait < 600; ++wait, ::usleep(100'000)) {
      for (int i = 0; i < kBlocks; ++i) {
        const int block = (::getpid() + i) % kBlocks;
        const int holder = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        const std::string text = "gristmill test ports " + std::to_string(block);
        std::memcpy(name.sun_path + 1, text.data(), text.size());
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
        if (::bind(holder, reinterpret_cast<const sockaddr*>(&name), size) == 0)
          return kFirst + block * kOwnPorts;
        ::close(holder);
      }
    }
    throw std::runtime_error("other tests hold all ports");
  }();
  return first;
}

}  // namespace tests
