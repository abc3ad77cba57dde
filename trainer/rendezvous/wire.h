// What goes over the control connections: frames, fields, sockets. Here: bytes in and out. Not
// here: what the frames mean (meeting.h, control.h). May include: the C++ library, POSIX.
// A frame is a length (4 bytes, little-endian, of what follows), a kind (1 byte), a payload.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rendezvous {

/// Kinds of frames. The first four are the meeting.
enum class FrameKind : uint8_t {
  hello = 1,  ///< rank to server: magic, nonce, proof.
  challenge,  ///< server: nonce, proof.
  claim,      ///< rank: Claim, proof.
  roster,     ///< server: all claims, proof.
  refusal,    ///< server, instead of the roster: text, proof.
  set,        ///< rank: key, value.
  get,        ///< rank: key; answered by `value` when some rank has set it.
  value,      ///< server: key, value.
  offer,      ///< rank: round, value.
  collected,  ///< server: round, all values in rank order.
  beat,       ///< rank: Status. Server: nothing in it.
  failed,     ///< rank: whether a peer may be the cause, exit status, text.
  verdict,    ///< server: exit status, line to print.
  leave,      ///< rank: its end is in order.
  all_left,   ///< server: everybody's is.
  post        ///< rank: to whom (-1: all others), topic, text. Server: from whom, topic, text.
};

/// What goes over a connection at once.
struct Frame {
  FrameKind kind = FrameKind::beat;
  std::string payload;
};

/// Fields of a payload, one after the other.
class Packer {
 public:
  Packer& number(int64_t value);
  Packer& text(std::string_view value);
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

/// The other way. Errors: ops::DeviceError for a payload that ends too early.
class Unpacker {
 public:
  explicit Unpacker(std::string_view payload) : rest_(payload) {}
  int64_t number();
  std::string text();

 private:
  std::string_view cut(size_t bytes);
  std::string_view rest_;
};

/// A socket that is closed with its owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { reset(); }
  int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept;
  void reset() noexcept;

 private:
  int fd_ = -1;
};

using Clock = std::chrono::steady_clock;

/// Listens on `address` (a name, a number, or empty for every interface), `port` (0: any).
/// Errors: std::system_error naming both.
Socket listen_on(const std::string& address, int port);
/// The port that a socket listens on.
int port_of(const Socket& listener);
/// This end's address as a number: by it others reach this host.
std::string local_address(const Socket& connected);
/// The other end's.
std::string peer_address(const Socket& connected);
/// Empty when nobody answers before `deadline`; then `why` is the reason.
Socket connect_to(const std::string& address, int port, Clock::time_point deadline,
                  std::string& why);
/// What a name or number stands for, as numbers; empty where nobody knows it.
std::vector<std::string> addresses_of(const std::string& address);
/// Whether `address` is the loopback of whoever asks.
bool is_loopback(const std::string& address);
/// This host's name, up to its first dot.
std::string host_name();

/// A listening socket that still works when the process has run out of descriptors: it holds one
/// back, with which it accepts a waiting connection and closes it, instead of leaving it waiting.
class Listener {
 public:
  Listener() = default;
  explicit Listener(Socket listener);
  /// -1: closed, or never opened.
  int fd() const noexcept { return listener_.fd(); }
  explicit operator bool() const noexcept { return static_cast<bool>(listener_); }
  /// The port that it listens on.
  int port() const { return port_of(listener_); }
  /// The next that waits; empty where nobody does, or where there is no descriptor for it.
  Socket take() noexcept;
  void close() noexcept;

 private:
  Socket listener_, spare_;
};

/// Frames over one connection. One thread receives; any may send.
class FrameStream {
 public:
  explicit FrameStream(Socket socket) : socket_(std::move(socket)) {}
  int fd() const noexcept { return socket_.fd(); }
  /// As the functions, of this connection.
  std::string local_address() const { return rendezvous::local_address(socket_); }
  std::string peer_address() const { return rendezvous::peer_address(socket_); }
  void close() noexcept { socket_.reset(); }
  /// The peer has closed, as far as fill() or wait() have seen.
  bool over() const noexcept { return over_; }

  /// Writes all of it; false when the peer is gone or takes not one byte for 10 s. A large frame
  /// may take longer in all. After false part of it may be out, and the peer can read no other.
  bool send(FrameKind kind, std::string_view payload) noexcept;
  /// Takes what has arrived, without waiting, up to a frame of `limit` bytes and at most a quarter
  /// of a MiB at once; false when the peer has closed.
  bool fill(size_t limit);
  /// The next whole frame. Errors: ops::DeviceError for a length above `limit` bytes.
  std::optional<Frame> next(size_t limit);
  /// Waits for a frame until `deadline`; nothing when none came or the peer closed.
  std::optional<Frame> wait(Clock::time_point deadline, size_t limit);

 private:
  Socket socket_;
  std::string buffer_;
  bool over_ = false;
};

}  // namespace rendezvous
