// The connections between the writers of a checkpoint, for tests without a rendezvous: a pair of
// sockets between rank 0 and each other rank, made before the ranks start. Ranks may be threads or
// processes.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"

namespace trainer {

/// See the room card. Outlives all writers of its process.
class WriterLinks {
 public:
  explicit WriterLinks(int world) : pairs_(static_cast<size_t>(world)) {
    for (Pair& pair : pairs_)
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.ends), 0);
  }
  ~WriterLinks() {
    for (const Pair& pair : pairs_) {
      ::close(pair.ends[0]);
      ::close(pair.ends[1]);
    }
  }
  WriterLinks(const WriterLinks&) = delete;
  WriterLinks& operator=(const WriterLinks&) = delete;

  /// Rank `rank`'s end of the connections.
  WriterPlace place(int rank, std::chrono::seconds patience) const {
    WriterPlace place{.rank = rank, .world = static_cast<int>(pairs_.size()), .patience = patience};
    place.post = [this, rank](int to, int64_t save, const std::string& text) {
      std::string bytes(sizeof save, '\0');
      std::memcpy(bytes.data(), &save, sizeof save);
      bytes += text;
      for (int other = 0; other < static_cast<int>(pairs_.size()); ++other)
        if (other != rank && (to < 0 || to == other)) {
          EXPECT_EQ(::send(end(rank, other), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                    static_cast<ssize_t>(bytes.size()));
        }
    };
    const auto box = std::make_shared<std::map<int64_t, std::vector<WriterLetter>>>();
    place.letters = [this, rank, box](int64_t save, std::chrono::milliseconds wait) {
      receive(rank, wait, *box);
      return std::exchange((*box)[save], {});
    };
    return place;
  }

 private:
  struct Pair {
    int ends[2] = {-1, -1};  ///< Rank 0's, and the other's.
  };

  int end(int rank, int other) const {
    return pairs_[static_cast<size_t>(rank + other)].ends[rank == 0 ? 0 : 1];
  }

  // A waiting message, or the first that arrives within `wait`.
  void receive(int rank, std::chrono::milliseconds wait,
               std::map<int64_t, std::vector<WriterLetter>>& box) const {
    std::vector<pollfd> entries;
    std::vector<int> from;
    for (int other = 0; other < static_cast<int>(pairs_.size()); ++other) {
      if (other == rank || (rank > 0 && other > 0)) continue;
      entries.push_back({.fd = end(rank, other), .events = POLLIN, .revents = 0});
      from.push_back(other);
    }
    ::poll(entries.data(), entries.size(), static_cast<int>(wait.count()));
    std::string bytes(size_t{1} << 20, '\0');
    for (size_t i = 0; i < entries.size(); ++i) {
      ssize_t got = 0;
      while ((got = ::recv(entries[i].fd, bytes.data(), bytes.size(), MSG_DONTWAIT)) >
             static_cast<ssize_t>(sizeof(int64_t))) {
        int64_t save = 0;
        std::memcpy(&save, bytes.data(), sizeof save);
        const size_t length = static_cast<size_t>(got) - sizeof save;
        box[save].push_back({from[i], bytes.substr(sizeof save, length)});
      }
    }
  }

  std::vector<Pair> pairs_;
};

}  // namespace trainer
