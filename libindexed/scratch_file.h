// SPDX-License-Identifier: MIT
// ScratchFile: bytes that are kept on the output's disk until their place in the output is known.
// The file has no name, so nothing of it remains whatever happens. One thread.
// Not here: files that get a name (output_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace indexed {

/// Reads at `offset` until `into` is full or the file ends; returns how many bytes.
/// Errors: std::system_error naming `path`.
size_t read_at(int fd, int64_t offset, std::span<std::byte> into, const std::string& path);

/// Bytes appended to an unnamed file on the disk of the output, read back once at the end.
class ScratchFile {
 public:
  /// Errors: std::system_error.
  explicit ScratchFile(const std::string& beside);
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  /// Appends. Errors: std::system_error when the disk refuses.
  void write(std::span<const std::byte> bytes);

  /// Calls `use` with all bytes in order, a piece at a time.
  void read_all(const std::function<void(std::span<const std::byte>)>& use);

 private:
  void write_through(std::span<const std::byte> bytes);

  std::string beside_;
  int fd_;
  std::vector<std::byte> buffer_;
};

}  // namespace indexed
