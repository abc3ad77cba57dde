// Mesh: messages between the ranks of a group, over a connection between every two of them. Here:
// bytes from memory to memory, all that have begun at once, on the thread that waits. Not here: how
// the connections came about (links.h), what the messages mean (tcp.h). May include: comm/.
// A message is a slot and a length (8 bytes each, little-endian), then its bytes.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "trainer/ops/tensor.h"
#include "trainer/rendezvous/wire.h"

namespace comm {

/// A message to or from `peer` did not get through.
struct MeshError : ops::DeviceError {
  MeshError(int peer_, const std::string& why) : DeviceError(why), peer(peer_) {}
  int peer;  ///< In the group.
};

/// See the room card. For one thread. After an error nothing more can be done with it.
class Mesh {
 public:
  /// A message that has begun. Its memory is in use until wait() has returned for it.
  struct Message {
    int peer = 0;
    bool out = false;
    uint64_t slot = 0, number = 0;
  };

  /// `links` of all ranks, in rank order; that of this rank is empty.
  explicit Mesh(std::vector<rendezvous::Socket> links);

  /// Messages of one slot arrive at a peer in the order in which they were begun. Both sides must
  /// name the same number of bytes. Errors: MeshError.
  Message send(int peer, uint64_t slot, const void* data, size_t bytes);
  Message receive(int peer, uint64_t slot, void* data, size_t bytes);
  /// Moves all messages that have begun until this one is done.
  /// Errors: MeshError naming a peer whose connection is lost, or the message's peer when nothing
  /// has come from it or gone to it for `timeout`.
  void wait(const Message& message, std::chrono::milliseconds timeout);

 private:
  /// Of a message: on its way out, or the room for it.
  struct Span {
    char* data = nullptr;
    size_t bytes = 0, done = 0;
  };
  struct Prefix {
    std::array<unsigned char, 16> bytes{};
    size_t done = 0;
  };
  struct Outgoing {
    Prefix prefix;
    Span span;
  };
  /// What is expected in one slot.
  struct Inbox {
    std::deque<Span> rooms;
    uint64_t begun = 0, done = 0;
  };
  struct Peer {
    rendezvous::Socket link;
    std::deque<Outgoing> out;
    uint64_t begun = 0, done = 0;
    std::map<uint64_t, Inbox> in;
    Prefix prefix;           ///< Of the message that arrives.
    Inbox* inbox = nullptr;  ///< Its slot's, once the prefix is whole.
    size_t rooms = 0;        ///< In all slots.
    rendezvous::Clock::time_point moved{};
  };

  Peer& peer_at(int peer);
  bool done(const Message& message);
  bool reads(const Peer& peer) const;
  bool move(int peer);
  bool write_some(int number, Peer& peer);
  bool read_some(int number, Peer& peer);
  bool take_prefix(int number, Peer& peer);
  size_t receive_into(int number, Peer& peer, void* data, size_t bytes);
  void poll_all(rendezvous::Clock::time_point deadline);
  [[noreturn]] void fail(int peer, const std::string& why);

  std::vector<Peer> peers_;
  bool broken_ = false;
};

}  // namespace comm
