// SPDX-License-Identifier: MIT
// Room: tools/extract. Output of text: JSON strings, a file or stdout, plain or as zstd; and the
// set of texts already seen. May include libindexed (OutputFile), tools/cli,
// zstd, POSIX.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libindexed/output_file.h"

struct ZSTD_CCtx_s;

namespace extract {

/// Appends `text`, which is UTF-8, as a JSON string. Only what JSON requires is escaped: the quote
/// and the backslash, \b \f \n \r \t, and the other characters below U+0020 as
/// \u00xx in lower case.
void append_json_string(std::string_view text, std::string& out);

/// A 128-bit hash of a text; different texts in practice never have the same.
struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};
Hash128 hash128(std::string_view text);

/// A set of hashes. Memory: 16 bytes per slot, with a third to two thirds of the slots used: 24 to
/// 48 bytes per text.
class HashSet {
 public:
  HashSet();
  /// True when `hash` was not in the set.
  bool insert(Hash128 hash);
  int64_t bytes() const { return static_cast<int64_t>(slots_.size() * sizeof(Hash128)); }

 private:
  void grow();
  std::vector<Hash128> slots_;
  size_t used_ = 0;
};

/// Where text goes, and whether it is compressed.
struct TextOutputOptions {
  std::string path = {};  ///< empty or "-": stdout; what cli::is_stream names is written as it is
  bool zstd = false;
  int zstd_level = 3;
  indexed::Existing existing = indexed::Existing::refuse;
};

/// Writes bytes in order to a file, which appears when it is complete, or to a stream.
class TextOutput {
 public:
  /// Errors: those of OutputFile; cli::UsageError for compressed bytes to a terminal.
  explicit TextOutput(const TextOutputOptions& options);
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;
  ~TextOutput();

  /// Errors: std::system_error with the path or "standard output".
  void write(std::string_view bytes);

  /// Ends the compressed frame and writes the file or stream to the disk, without giving a file its
  /// name.
  void prepare();

  /// prepare(), and gives a file its name.
  void finish();

 private:
  void write_packed(std::string_view bytes, bool end);
  void put(std::string_view bytes);

  std::optional<indexed::OutputFile> file_;
  int stream_ = 1;  ///< without a file: a descriptor, of stdout or of its own
  std::string name_ = "standard output";
  ZSTD_CCtx_s* zstd_ = nullptr;
  std::unique_ptr<char[]> packed_;
  size_t packed_capacity_ = 0;
  bool prepared_ = false;
};

}  // namespace extract
