// Algorithms that timing has chosen, in files that outlive the process: the same product then gives
// the same bits in every run that shares a file, on every rank. Not here: products and timing
// (gemm.h); what an algorithm is, apart from its bytes.
// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ops::cuda {

/// What one product uses.
struct GemmChoice {
  std::string algorithm;   ///< The bytes of a cublasLtMatmulAlgo_t.
  float microseconds = 0;  ///< What timing measured, > 0.

  bool operator==(const GemmChoice&) const = default;
};

/// The files, and what they say. A file has a line "KIND|KEY|HEX|MICROSECONDS" for each product; it
/// only grows, and the first line of a key counts, so that processes which time the same product at
/// once end with one choice. Lines that a killed process has not finished are skipped. A file that
/// cannot be read or written costs the time of choosing again, and the bits that agreeing gives.
/// State: one thread.
class GemmChoices {
 public:
  /// Reads `paths`; where several know a key, the first of them decides, and all know it then.
  /// `kind` tells library and device: choices of others stand in the same files, unread.
  GemmChoices(std::vector<std::string> paths, std::string kind);

  /// Null where no file knows `key`.
  const GemmChoice* find(const std::string& key) const;

  /// Takes up what was timed just now, but where a file has got a key from another process
  /// meanwhile, that choice; and every other choice that the files have got. Afterwards every file
  /// knows every key of `timed`.
  void add(const std::map<std::string, GemmChoice>& timed);

 private:
  std::vector<std::string> paths_;
  std::string kind_;
  std::map<std::string, GemmChoice> choices_;
};

}  // namespace ops::cuda
