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

/// The files, and what they say. A file is a header line and a line "KEY|HEX|MICROSECONDS" for each
/// product; it only grows, and the first line of a key counts, so that processes which time the
/// same product at once end with one choice. Lines that a killed process has not finished are
/// skipped. A file that cannot be read or written costs the time of choosing again, and no more.
/// State: one thread.
class GemmChoices {
 public:
  /// Reads `paths`; where several know a key, the first of them decides. A file with another header
  /// (another library or device) counts as empty and is replaced by the first add().
  GemmChoices(std::vector<std::string> paths, std::string header);

  /// Null where no file knows `key`.
  const GemmChoice* find(const std::string& key) const;

  /// Takes up what was timed just now, but where a file has got a key from another process
  /// meanwhile, that choice. Afterwards every file knows every key of `timed`.
  void add(const std::map<std::string, GemmChoice>& timed);

 private:
  std::vector<std::string> paths_;
  std::string header_;
  std::map<std::string, GemmChoice> choices_;
};

}  // namespace ops::cuda
