// Server::Peer: one connection as the server sees it. Only server.cc and server_watch.cc include
// it.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>

#include "trainer/comm/server.h"

namespace comm {

/// See the room card.
struct Server::Peer {
  enum class State : uint8_t { stranger, challenged, ranked };

  explicit Peer(Socket socket) : stream(std::move(socket)) {}

  FrameStream stream;
  State state = State::stranger;
  bool trusted = false;  ///< Rank 0's own.
  bool left = false, closed = false;
  int rank = -1;
  std::string their_nonce, own_nonce;
  Clock::time_point since = Clock::now(), heard = since;
  Status status;
};

}  // namespace comm
