// Server::Peer: the server's state of one connection. Only server.cc and server_watch.cc include
// it.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>

#include "trainer/rendezvous/server.h"

namespace rendezvous {

/// See the room card.
struct Server::Peer {
  /// A stranger has proved nothing. A challenged one knows the secret, unless it replays an
  /// overheard hello. A refused one only waits for the reason.
  enum class State : uint8_t { stranger, challenged, ranked, refused };

  explicit Peer(Socket socket) : stream(std::move(socket)) {}
  /// Of the next frame.
  size_t limit() const {
    if (state == State::ranked) return kRankLimit;
    return state == State::challenged ? kClaimLimit : kStrangerLimit;
  }

  FrameStream stream;
  State state = State::stranger;
  bool trusted = false;  ///< Rank 0's own.
  bool left = false, closed = false;
  bool reported = false;        ///< It has failed and said why.
  bool knows = false;           ///< That the run is over.
  int rank = -1, claimed = -1;  ///< Its rank, and the one that it wants to be.
  int host = -1;                ///< The number of its host, by what it says of itself.
  std::string their_nonce, own_nonce;
  Clock::time_point since = Clock::now(), heard = since;
  Status status;
};

}  // namespace rendezvous
