// Mesh: messages between the ranks of a group, over a connection between every two of them. Here:
// moving bytes from memory to memory, for all started messages at once, on the waiting thread. Not
// here: making the connections (links.h), the meaning of messages (tcp.h). May include: comm/. A
// message is a slot and a length (8 bytes each, little-endian), then its bytes.
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

/// See the room card. One thread. Unusable after an error.
class Mesh {
 public:
  /// A started message. Its memory is in use until wait() has returned for it.
  struct Message {
    int peer = 0;
    bool out = false;
    uint64_t slot = 0, number = 0;
  };

  /// `links` to all ranks, in rank order; this rank's own is empty.
  explicit Mesh(std::vector<rendezvous::Socket> links);

  /// Messages of one slot arrive at a peer in the order in which they were started. Both sides must
  /// give the same number of bytes. Errors: MeshError.
  Message send(int peer, uint64_t slot, const void* data, size_t bytes);
  Message receive(int peer, uint64_t slot, void* data, size_t bytes);
  /// Moves all started messages until this one is done. Errors: MeshError naming a peer whose
  /// connection is lost, or the message's peer if no byte was exchanged with it for `timeout`.
  void wait(const Message& message, std::chrono::milliseconds timeout);

 private:
  /// The bytes of a message to be sent, or the memory for a received one.
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
  /// The messages expected in one slot.
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
    Inbox* inbox = nullptr;  ///< Its slot's, once the prefix is complete.
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
