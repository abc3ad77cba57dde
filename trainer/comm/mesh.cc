// Mesh: while waiting for one message, progresses all messages that can move, in both directions
// and with all peers. A message that is not expected yet stays in its socket.
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/mesh.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace comm {
namespace {

void put(unsigned char* to, uint64_t value) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<unsigned char>(value >> (8 * i));
}

uint64_t get(const unsigned char* from) {
  uint64_t value = 0;
  for (int i = 8; i-- > 0;) value = value << 8 | from[i];
  return value;
}

}  // namespace

Mesh::Mesh(std::vector<rendezvous::Socket> links) : peers_(links.size()) {
  for (size_t i = 0; i < links.size(); ++i) {
    const int on = 1;
    if (links[i]) setsockopt(links[i].fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peers_[i].link = std::move(links[i]);
  }
}

Mesh::Peer& Mesh::peer_at(int peer) {
  if (broken_) fail(peer, "connection lost before");
  return peers_[static_cast<size_t>(peer)];
}

Mesh::Message Mesh::send(int peer, uint64_t slot, const void* data, size_t bytes) {
  Peer& p = peer_at(peer);
  Outgoing& one = p.out.emplace_back();
  put(one.prefix.bytes.data(), slot);
  put(one.prefix.bytes.data() + 8, bytes);
  one.span = {.data = const_cast<char*>(static_cast<const char*>(data)), .bytes = bytes};
  const Message message{.peer = peer, .out = true, .slot = slot, .number = ++p.begun};
  if (p.out.size() == 1) write_some(peer, p);
  return message;
}

Mesh::Message Mesh::receive(int peer, uint64_t slot, void* data, size_t bytes) {
  Peer& p = peer_at(peer);
  Inbox& inbox = p.in[slot];
  inbox.rooms.push_back({.data = static_cast<char*>(data), .bytes = bytes});
  ++p.rooms;
  return {.peer = peer, .out = false, .slot = slot, .number = ++inbox.begun};
}

bool Mesh::done(const Message& message) {
  Peer& peer = peers_[static_cast<size_t>(message.peer)];
  return (message.out ? peer.done : peer.in[message.slot].done) >= message.number;
}

void Mesh::wait(const Message& message, std::chrono::milliseconds timeout) {
  const rendezvous::Clock::time_point start = rendezvous::Clock::now();
  bool moved = true;
  for (Peer& peer = peer_at(message.peer); !done(message);) {
    const rendezvous::Clock::time_point deadline = std::max(start, peer.moved) + timeout;
    if (!moved && rendezvous::Clock::now() >= deadline)
      fail(message.peer, "no answer within " + std::to_string(timeout.count() / 1000) + " s");
    if (!moved) poll_all(deadline);
    moved = false;
    for (size_t i = 0; i < peers_.size(); ++i) moved = move(static_cast<int>(i)) || moved;
  }
}

/// Whether an expected message of this peer can be received.
bool Mesh::reads(const Peer& peer) const {
  if (peer.inbox != nullptr) return !peer.inbox->rooms.empty();
  return peer.rooms > 0 && peer.prefix.done < peer.prefix.bytes.size();
}

void Mesh::poll_all(rendezvous::Clock::time_point deadline) {
  std::vector<pollfd> entries;
  for (const Peer& peer : peers_) {
    const int events = (peer.out.empty() ? 0 : POLLOUT) | (reads(peer) ? POLLIN : 0);
    if (events != 0)
      entries.push_back({.fd = peer.link.fd(), .events = static_cast<short>(events), .revents = 0});
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - rendezvous::Clock::now()).count();
  poll(entries.data(), entries.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
}

bool Mesh::move(int number) {
  Peer& peer = peers_[static_cast<size_t>(number)];
  bool moved = false;
  if (!peer.out.empty()) moved = write_some(number, peer);
  while (reads(peer) && read_some(number, peer)) moved = true;
  if (moved) peer.moved = rendezvous::Clock::now();
  return moved;
}

bool Mesh::write_some(int number, Peer& peer) {
  bool moved = false;
  while (!peer.out.empty()) {
    Outgoing& one = peer.out.front();
    iovec parts[] = {
        {.iov_base = one.prefix.bytes.data() + one.prefix.done,
         .iov_len = one.prefix.bytes.size() - one.prefix.done},
        {.iov_base = one.span.data + one.span.done, .iov_len = one.span.bytes - one.span.done}};
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = 2;
    const ssize_t sent = sendmsg(peer.link.fd(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return moved;
    if (sent < 0) fail(number, std::string("connection lost: ") + std::strerror(errno));
    moved = true;
    const size_t of_prefix = std::min(static_cast<size_t>(sent), parts[0].iov_len);
    one.prefix.done += of_prefix;
    one.span.done += static_cast<size_t>(sent) - of_prefix;
    if (one.prefix.done < one.prefix.bytes.size() || one.span.done < one.span.bytes) continue;
    peer.out.pop_front();
    ++peer.done;
  }
  return moved;
}

/// How many bytes were received; 0: none yet.
size_t Mesh::receive_into(int number, Peer& peer, void* data, size_t bytes) {
  while (true) {
    const ssize_t got = recv(peer.link.fd(), data, bytes, MSG_DONTWAIT);
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0) fail(number, "connection lost: closed by the peer");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) fail(number, std::string("connection lost: ") + std::strerror(errno));
  }
}

bool Mesh::take_prefix(int number, Peer& peer) {
  Prefix& prefix = peer.prefix;
  const size_t got = receive_into(number, peer, prefix.bytes.data() + prefix.done,
                                  prefix.bytes.size() - prefix.done);
  prefix.done += got;
  if (prefix.done == prefix.bytes.size()) peer.inbox = &peer.in[get(prefix.bytes.data())];
  return got > 0;
}

bool Mesh::read_some(int number, Peer& peer) {
  if (peer.inbox == nullptr) return take_prefix(number, peer);
  Span& room = peer.inbox->rooms.front();
  const uint64_t bytes = get(peer.prefix.bytes.data() + 8);
  if (bytes != room.bytes)
    fail(number, "a message of " + std::to_string(bytes) + " bytes, where " +
                     std::to_string(room.bytes) + " are expected");
  const size_t left = room.bytes - room.done;
  const size_t got = left == 0 ? 0 : receive_into(number, peer, room.data + room.done, left);
  room.done += got;
  if (room.done < room.bytes) return got > 0;
  peer.inbox->rooms.pop_front();
  ++peer.inbox->done;
  --peer.rooms;
  peer.inbox = nullptr;
  peer.prefix = {};
  return true;
}

void Mesh::fail(int peer, const std::string& why) {
  broken_ = true;
  throw MeshError(peer, why);
}

}  // namespace comm
