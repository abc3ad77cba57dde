// SPDX-License-Identifier: MIT
// Limits the memory and work for one foreign file: a budget that grows with the bytes read. The
// readers (pickle.h, zip_archive.h, torch_file.h and their callers) charge every allocation and
// every traversal to it. A small file can refer to the same large object a million times: the
// budget makes that an error before it takes all memory or hours of time.
// Units: a unit is one byte of memory or one step of work. One file, one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "libindexed/format.h"

namespace convert {

/// The budget of one file.
class Budget {
 public:
  explicit Budget(std::string path) : path_(std::move(path)) {}

  /// `bytes` bytes of the file were read as one item. Short items (opcodes, directory records) may
  /// become objects of many times their size; a long item is a string, which is copied a few times.
  void read(int64_t bytes) noexcept {
    const int64_t first = bytes < kShort ? bytes : kShort;
    allowed_ += kUnitsPerByte * first + kUnitsPerLongByte * (bytes - first);
  }

  /// Takes `units` from the budget; call it before allocating the memory or doing the work. Errors:
  /// indexed::FormatError naming the file if the budget is exceeded.
  void spend(int64_t units) {
    if (units <= allowed_ - spent_) {
      spent_ += units;
      return;
    }
    throw indexed::FormatError(path_ + ": asks for more memory or work than a file of its size " +
                               "may: hostile, or damaged");
  }

  int64_t spent() const noexcept { return spent_; }

 private:
  // Real checkpoints take 5 to 40 units per byte (tests/convert/hostile_test.cc checks this); the
  // densest stream of opcodes that makes nothing twice takes 80.
  static constexpr int64_t kUnitsPerByte = 128;
  static constexpr int64_t kUnitsPerLongByte = 4;
  static constexpr int64_t kShort = 64;
  static constexpr int64_t kEveryFile = int64_t{4} << 20;

  std::string path_;
  int64_t allowed_ = kEveryFile;
  int64_t spent_ = 0;
};

}  // namespace convert
