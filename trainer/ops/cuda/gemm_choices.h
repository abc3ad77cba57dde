// Algorithms that timing has chosen, in files that outlive the process: the same product then gives
// the same bits in every run that shares a file, on every rank. Not here: products and timing
// (gemm.h); what an algorithm is, apart from its bytes.
// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ops::cuda {

/// The algorithm that one product uses.
struct GemmChoice {
  std::string algorithm;   ///< The bytes of a cublasLtMatmulAlgo_t.
  float microseconds = 0;  ///< What timing measured, > 0.

  bool operator==(const GemmChoice&) const = default;
};

/// The files and their entries. A file has a line "KIND|KEY|HEX|MICROSECONDS" for each product; it
/// only grows, and the first line of a key counts, so that processes that time the same product at
/// once end with one choice. Unfinished lines of killed processes are skipped. Without a usable
/// file, timing is repeated, and runs may choose differently and so differ in their bits. Not
/// thread-safe.
class GemmChoices {
 public:
  /// Reads `paths`; where several have a key, the first of them counts and is added to the others.
  /// `kind` names library and device; choices for other kinds are in the same files and are
  /// ignored.
  GemmChoices(std::vector<std::string> paths, std::string kind);

  /// Null where no file has `key`.
  const GemmChoice* find(const std::string& key) const;

  /// Adds the choices just timed, except that a key which another process has added to a file
  /// meanwhile keeps that choice; also loads all other new choices of the files. Afterwards every
  /// file has every key of `timed`.
  void add(const std::map<std::string, GemmChoice>& timed);

 private:
  std::vector<std::string> paths_;
  std::string kind_;
  std::map<std::string, GemmChoice> choices_;
};

}  // namespace ops::cuda
