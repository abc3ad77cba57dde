// SPDX-License-Identifier: MIT
// What the tests of this room share: a folder that disappears, whole files as strings, hexadecimal
// text as bytes.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace indexed {

class ScratchFolder {
 public:
  /// In memory where the system has such a place: tests that write thousands of files should not
  /// wait for a disk.
  ScratchFolder() {
    const std::filesystem::path memory = "/dev/shm";
    const bool usable = ::access(memory.c_str(), W_OK) == 0;
    std::string name =
        ((usable ? memory : std::filesystem::temp_directory_path()) / "indexed_test.XXXXXX")
            .string();
    path_ = ::mkdtemp(name.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }

  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  const std::string& path() const { return path_; }
  size_t num_files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

inline std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_whole(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Bytes of hexadecimal digits; spaces are skipped.
inline std::string from_hex(std::string_view digits) {
  std::string out;
  int half = -1;
  for (const char c : digits) {
    if (c == ' ') continue;
    const int value = c <= '9' ? c - '0' : c - 'a' + 10;
    if (half < 0) {
      half = value;
    } else {
      out += static_cast<char>(half * 16 + value);
      half = -1;
    }
  }
  return out;
}

}  // namespace indexed
