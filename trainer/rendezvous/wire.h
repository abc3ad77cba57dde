// The wire format of control connections: frames, fields, sockets. Not here: the meaning of frames
// (meeting.h, control.h). May include: the C++ library, POSIX. A frame is a length (4 bytes,
// little-endian, of what follows), a kind (1 byte), a payload.
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

/// Kinds of frames. The first four are for the rendezvous.
enum class FrameKind : uint8_t {
  hello = 1,  ///< rank to server: magic, nonce, proof.
  challenge,  ///< server: nonce, proof.
  claim,      ///< rank: Claim, proof.
  roster,     ///< server: all claims, proof.
  refusal,    ///< server, instead of the roster: a packed Refusal, proof.
  set,        ///< rank: key, value.
  get,        ///< rank: key; answered by `value` once a rank has set it.
  value,      ///< server: key, value.
  offer,      ///< rank: round, value.
  collected,  ///< server: round, all values in rank order.
  beat,       ///< rank: Status. Server: empty.
  failed,     ///< rank: whether a peer may be the cause, exit status, text.
  verdict,    ///< server: exit status, line to print.
  leave,      ///< rank: its work is done: exit status.
  all_left,   ///< server: that of all ranks is: the run is over.
  post,       ///< rank: to whom (-1: all others), topic, text. Server: from whom, topic, text.
  farewell,   ///< rank: it knows that the run is over, and will close its connection.
  over,       ///< server, instead of the roster: the run is over: exit status, proof.
  stop        ///< rank, instead of waiting for the roster: it was asked to stop: text.
};

/// One message on a connection.
struct Frame {
  FrameKind kind = FrameKind::beat;
  std::string payload;
};

/// Writes the fields of a payload, one after another.
class Packer {
 public:
  Packer& number(int64_t value);
  Packer& text(std::string_view value);
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

/// Reads the fields of a payload. Errors: ops::DeviceError for a payload that ends too early.
class Unpacker {
 public:
  explicit Unpacker(std::string_view payload) : rest_(payload) {}
  int64_t number();
  std::string text();

 private:
  std::string_view cut(size_t bytes);
  std::string_view rest_;
};

/// Owns a socket.
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
/// This end's numeric address, at which others reach this host.
std::string local_address(const Socket& connected);
/// The other end's numeric address.
std::string peer_address(const Socket& connected);
/// Connects; empty if nothing answers before `deadline`, and then `why` is the reason.
Socket connect_to(const std::string& address, int port, Clock::time_point deadline,
                  std::string& why);
/// The numeric addresses of a name or number; empty if it is unknown.
std::vector<std::string> addresses_of(const std::string& address);
/// Whether `address` is a loopback address.
bool is_loopback(const std::string& address);
/// This host's name, up to its first dot.
std::string host_name();

/// A listening socket that still works when the process has run out of descriptors: it keeps one in
/// reserve, with which it accepts a waiting connection and closes it, instead of leaving it
/// waiting.
class Listener {
 public:
  Listener() = default;
  explicit Listener(Socket listener);
  /// -1: closed, or never opened.
  int fd() const noexcept { return listener_.fd(); }
  explicit operator bool() const noexcept { return static_cast<bool>(listener_); }
  /// The port that it listens on.
  int port() const { return port_of(listener_); }
  /// The next waiting connection; empty if there is none, or no descriptor for it.
  Socket take() noexcept;
  void close() noexcept;

 private:
  Socket listener_, spare_;
};

/// Ends a connection whose other end has confirmed nothing for `limit`: its machine is gone.
void give_up_unconfirmed(const Socket& socket, std::chrono::milliseconds limit) noexcept;

/// Frames over one connection. One thread receives; any may send.
class FrameStream {
 public:
  explicit FrameStream(Socket socket) : socket_(std::move(socket)) {}
  int fd() const noexcept { return socket_.fd(); }
  /// Like the functions, for this connection.
  std::string local_address() const { return rendezvous::local_address(socket_); }
  std::string peer_address() const { return rendezvous::peer_address(socket_); }
  void close() noexcept { socket_.reset(); }
  /// Whether fill() or wait() have found that the peer closed.
  bool over() const noexcept { return over_; }

  /// Writes a frame; false if the peer has closed or accepts no byte for 10 s. A large frame may
  /// take longer in total. After false part of it may have been sent, and no further frame can be
  /// sent.
  bool send(FrameKind kind, std::string_view payload) noexcept;
  /// Receives what has arrived, without waiting, up to a frame of `limit` bytes and at most a
  /// quarter of a MiB at once; false if the peer has closed.
  bool fill(size_t limit);
  /// The next complete frame. Errors: ops::DeviceError for a length above `limit` bytes.
  std::optional<Frame> next(size_t limit);
  /// Waits for a frame until `deadline`; nothing if none came or the peer closed.
  std::optional<Frame> wait(Clock::time_point deadline, size_t limit);

 private:
  Socket socket_;
  std::string buffer_;
  bool over_ = false;
};

}  // namespace rendezvous
