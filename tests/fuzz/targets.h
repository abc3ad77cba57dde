// SPDX-License-Identifier: MIT
// Every reader of foreign bytes as a function of bytes: libFuzzer calls them (fuzz_main.cc), and an
// ordinary test replays the kept inputs (replay_test.cc). A target may throw what a program prints
// as one line; any other exception, or a crash, is a finding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fuzz {

using Bytes = std::span<const uint8_t>;

/// One reader, and the mutator that keeps its inputs nearly valid.
struct Target {
  std::string_view name;
  void (*run)(Bytes);
  std::string (*mutate)(const std::string& input, uint64_t seed);  ///< null: libFuzzer's own
                                                                   ///< mutations only
};

/// All targets.
std::span<const Target> targets();

/// Those that need Apache Arrow; none in a build without it.
std::span<const Target> column_targets();

/// The target of this name, or nullptr.
const Target* find_target(std::string_view name);

/// Calls the target and catches the errors that readers promise (FormatError, ParseError,
/// system_error: all are std::runtime_error). Others pass through.
void run_target(const Target& target, Bytes input);

// --- files and folders ---------------------------------------------------------------------------

/// Files of a folder in one input. Each is a byte with the length of its name, the name, four bytes
/// with its size, and its bytes.
using Files = std::vector<std::pair<std::string, std::string>>;
std::string pack(const Files& files);
/// What pack() packed, up to the first damage; names that would leave the folder are skipped.
Files unpack(std::string_view packed);

/// A temporary folder with these files, in memory where /dev/shm exists; removed by the destructor.
class Folder {
 public:
  explicit Folder(const Files& files);
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// --- mutators (mutate.cc) ------------------------------------------------------------------------

/// A pickle with opcodes taken out, doubled, exchanged, put in, or their arguments changed.
std::string mutate_pickle(const std::string& input, uint64_t seed);
/// A zip archive whose members are changed and packed again with true checksums; at times one with
/// entries over one another, names that leave it, sizes of zip64.
std::string mutate_zip(const std::string& input, uint64_t seed);
/// A protocol buffer with fields taken out, doubled, exchanged, or changed, also those of the
/// messages in it.
std::string mutate_message(const std::string& input, uint64_t seed);
/// A JSON text with members and values taken out, doubled, exchanged, or replaced.
std::string mutate_json(const std::string& input, uint64_t seed);
/// One file of a packed folder changed by the mutator of its kind, or renamed, replaced, taken out.
std::string mutate_folder(const std::string& input, uint64_t seed);

/// Small valid inputs to start from (seeds.cc).
struct Seed {
  std::string target, name, bytes;
};
std::vector<Seed> seeds();

}  // namespace fuzz
