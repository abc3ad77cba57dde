// FileRing: files from each rank to its partner, the rank of the same place on the next host, in a
// ring of all hosts. Here: sending and receiving at the same time. Not here: making the links
// (links.h), what the files are (checkpoint/memory_checkpoints.h). May include: ops/tensor.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/ops/tensor.h"
#include "trainer/rendezvous/wire.h"

namespace rendezvous {

/// A file to be sent.
struct OutgoingFile {
  int fd = -1;     ///< -1: there is none, and the partner empties its own.
  int after = -1;  ///< The received file, by number, that has to be complete before; -1: none.
};

/// One rank's links. State: one thread at a time.
class FileRing {
 public:
  /// Links to the rank that gets this one's files, and to the one whose files this one gets.
  FileRing(Socket next, Socket previous) : next_(std::move(next)), previous_(std::move(previous)) {}

  /// Sends `out` and receives as many files as `in` has, over what is in them, both in order. All
  /// ranks call it with the same `number`, which is higher each time. False if `given_up` has
  /// become true meanwhile: what the partner has not taken by then is dropped by its next exchange,
  /// and files of `in` may have some of the new bytes. Errors: ops::DeviceError for a partner that
  /// is gone; std::system_error for a file.
  bool exchange(int64_t number, const std::vector<OutgoingFile>& out, const std::vector<int>& in,
                const std::function<bool()>& given_up);

 private:
  struct Turn;
  bool fill(Turn& turn);
  void send(Turn& turn);
  void receive();
  bool take(Turn& turn);

  Socket next_, previous_;
  std::string sending_;  ///< Of a part that the partner has not taken yet, from sent_ on.
  size_t sent_ = 0;
  std::string received_;  ///< Room for one part.
  size_t had_ = 0;        ///< Bytes of it that have arrived.
};

}  // namespace rendezvous
