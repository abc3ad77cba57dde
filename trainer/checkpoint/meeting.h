// Meeting: coordinates the ranks that write one checkpoint, by letters: each tells rank 0 what it
// has written, or why it could not, and rank 0 tells all how the save ended. It uses no collective,
// so it works while training continues; and it reads nothing from the folder, so a failing disk, or
// one that shows a file late, does not hide a rank's result. Not here: writing shards
// (checkpoint_root.cc). May include: checkpoint/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"

namespace trainer {

/// This rank stops writing because another one has failed.
class GivenUp : public std::runtime_error {
 public:
  GivenUp() : runtime_error("given up by another rank") {}
};

/// One rank's side of one save.
class Meeting {
 public:
  Meeting(int64_t save, const WriterPlace& place);

  /// Whether some rank has failed, so that writing can stop. Does not wait; on rank 0 it also tells
  /// the others.
  bool given_up();

  /// Rank 0: adds the files and tensors of all other ranks to `meta`, which has its own.
  /// `failure`: why this rank failed, or empty. Waits for every rank, so that none is still writing
  /// when it returns or throws. Errors: std::runtime_error with the first failed rank's name and
  /// reason, or if one does not report within the patience.
  void gather(CheckpointMeta& meta, const std::string& failure);

  /// Rank 0, after gather(): every one of `writers` writes `record`. Returns when all have. Errors:
  /// as gather().
  void hand_out(const std::string& record, const std::vector<int>& writers);

  /// Rank 0: tells all how the save ended; empty: it is complete. Only the first call counts.
  void tell(const std::string& failure);
  /// Rank 0: the same, and throws.
  [[noreturn]] void drop(const std::string& failure);

  /// Other ranks: tells rank 0 what is written, or why not, and waits for the result. Errors:
  /// std::runtime_error with the reason if the save was dropped. `write`: for the record that rank
  /// 0 hands out.
  void report_and_wait(const CheckpointMeta& meta, const std::string& failure,
                       const std::function<void(const std::string& record)>& write = {});

  /// "rank 3 (n07, GPU 1)".
  std::string name(int rank) const;

 private:
  void receive(std::chrono::milliseconds wait);
  void wait_for_all(const char* what);
  void answer(const std::function<void(const std::string& record)>& write);
  int missing() const;

  int64_t save_;
  const WriterPlace& place_;
  std::vector<std::optional<std::string>> words_;  ///< Rank 0: each rank's letter, once it has
                                                   ///< arrived.
  std::string failure_;                            ///< The first failure.
  std::optional<std::string> verdict_;
  /// Other ranks: the record to be written, once all its parts have arrived.
  std::optional<std::string> record_;
  std::string part_;
};

}  // namespace trainer
