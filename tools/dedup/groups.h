// SPDX-License-Identifier: MIT
// Room: tools/dedup. Groups of documents that share keys, directly or through others. Keys are
// stored on disk; then each band's keys are sorted in parts that fit in memory. Memory: 4 bytes per
// document, and a fixed limit for sorting.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libindexed/scratch_file.h"

namespace dedup {

/// Documents joined into sets, each represented by its first document.
class Groups {
 public:
  explicit Groups(uint32_t documents);
  /// The first document of the set of `document`.
  uint32_t first_of(uint32_t document);
  void join(uint32_t a, uint32_t b);

 private:
  std::vector<uint32_t> parents_;  // each has a lower or equal number
};

/// The keys of all documents, one file per band.
class KeyStore {
 public:
  /// More documents than this are refused.
  static constexpr int64_t kMostDocuments = 0xFFFFFFFF;

  /// Creates unnamed files in the folder of `beside`. Errors: std::system_error.
  KeyStore(const std::string& beside, int64_t bands);

  /// Adds the next documents: `bands` keys each, one document after another.
  /// Errors: std::system_error (a full disk); std::runtime_error beyond kMostDocuments.
  void add(std::span<const uint64_t> keys);

  int64_t documents() const { return documents_; }

  /// Joins all documents that share a band's key. The result does not depend on `threads` or on
  /// `memory` (bytes, for all threads together). Errors: std::system_error.
  Groups group(int64_t threads, int64_t memory);

 private:
  std::vector<std::unique_ptr<indexed::ScratchFile>> files_;
  std::vector<uint64_t> column_;
  int64_t documents_ = 0;
};

}  // namespace dedup
