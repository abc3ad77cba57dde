// Frames, fields and sockets.
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/wire.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "trainer/ops/tensor.h"

namespace comm {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const std::string& address, int port, int flags, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(address.empty() ? nullptr : address.c_str(),
                                 std::to_string(port).c_str(), &hints, &found);
  if (status != 0) why = address + ": " + gai_strerror(status);
  return {status == 0 ? found : nullptr, [](addrinfo* list) {
            if (list != nullptr) freeaddrinfo(list);
          }};
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  std::string out = text;
  // An IPv4 peer of a socket that takes both.
  if (out.starts_with("::ffff:")) out = out.substr(7);
  return out;
}

int left_ms(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

bool wait_for(int fd, short events, Clock::time_point deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  while (true) {
    const int ready = poll(&entry, 1, left_ms(deadline));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

}  // namespace

Packer& Packer::number(int64_t value) {
  for (int shift = 0; shift < 64; shift += 8)
    out_ += static_cast<char>(static_cast<uint64_t>(value) >> shift);
  return *this;
}

Packer& Packer::text(std::string_view value) {
  number(static_cast<int64_t>(value.size()));
  out_ += value;
  return *this;
}

std::string_view Unpacker::cut(size_t bytes) {
  if (bytes > rest_.size()) throw ops::DeviceError("comm: a control message ends too early");
  const std::string_view out = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return out;
}

int64_t Unpacker::number() {
  uint64_t value = 0;
  const std::string_view bytes = cut(8);
  for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return static_cast<int64_t>(value);
}

std::string Unpacker::text() {
  const int64_t bytes = number();
  return std::string(cut(bytes < 0 ? SIZE_MAX : static_cast<size_t>(bytes)));
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Socket::release() noexcept {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

void Socket::reset() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Socket listen_on(const std::string& address, int port) {
  std::string why;
  const Addresses list = resolve(address, port, AI_PASSIVE, why);
  int error = EADDRNOTAVAIL;
  // IPv6 first where no address is given: such a socket takes IPv4 too.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
      if (a->ai_family != family) continue;
      Socket s(socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol));
      const int on = 1, off = 0;
      if (!s) continue;
      setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (family == AF_INET6 && address.empty())
        setsockopt(s.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (bind(s.fd(), a->ai_addr, a->ai_addrlen) == 0 && listen(s.fd(), 1024) == 0) return s;
      error = errno;
    }
  }
  const std::string place =
      (address.empty() ? std::string("any interface") : address) + " port " + std::to_string(port);
  throw std::system_error(error, std::generic_category(), why.empty() ? place : why);
}

int port_of(const Socket& listener) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

std::string local_address(const Socket& connected) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (getsockname(connected.fd(), reinterpret_cast<sockaddr*>(&own), &length) != 0) return "";
  return numeric(reinterpret_cast<const sockaddr*>(&own), length);
}

Socket connect_to(const std::string& address, int port, Clock::time_point deadline,
                  std::string& why) {
  const Addresses list = resolve(address, port, 0, why);
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    Socket s(socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol));
    if (!s) continue;
    int error = connect(s.fd(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t length = sizeof error;
      if (!wait_for(s.fd(), POLLOUT, deadline))
        error = ETIMEDOUT;
      else
        getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    const int on = 1;
    setsockopt(s.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (error == 0) return s;
    why = address + " port " + std::to_string(port) + ": " + std::strerror(error);
  }
  return {};
}

bool is_loopback(const std::string& address) {
  std::string why;
  const Addresses list = resolve(address, 0, 0, why);
  if (!list) return false;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    const std::string text = numeric(a->ai_addr, a->ai_addrlen);
    if (!text.starts_with("127.") && text != "::1") return false;
  }
  return true;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const std::string whole = name;
  return whole.substr(0, whole.find('.'));
}

bool FrameStream::send(FrameKind kind, std::string_view payload) noexcept {
  std::string bytes;
  const uint32_t length = static_cast<uint32_t>(payload.size()) + 1;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(length >> shift);
  bytes += static_cast<char>(kind);
  bytes += payload;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(10);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t sent =
        ::send(fd(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      done += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd(), POLLOUT, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool FrameStream::fill() {
  char block[16384];
  while (true) {
    const ssize_t got = recv(fd(), block, sizeof block, MSG_DONTWAIT);
    if (got > 0) {
      buffer_.append(block, static_cast<size_t>(got));
      if (got < static_cast<ssize_t>(sizeof block)) return true;
    } else if (got == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
  }
}

std::optional<Frame> FrameStream::next(size_t limit) {
  if (buffer_.size() < 5) return std::nullopt;
  size_t length = 0;
  for (size_t i = 4; i-- > 0;) length = length << 8 | static_cast<uint8_t>(buffer_[i]);
  if (length < 1 || length > limit)
    throw ops::DeviceError("comm: a control message of " + std::to_string(length) + " bytes");
  if (buffer_.size() < 4 + length) return std::nullopt;
  Frame frame{static_cast<FrameKind>(buffer_[4]), buffer_.substr(5, length - 1)};
  buffer_.erase(0, 4 + length);
  return frame;
}

std::optional<Frame> FrameStream::wait(Clock::time_point deadline, size_t limit) {
  while (true) {
    if (std::optional<Frame> frame = next(limit)) return frame;
    if (!wait_for(fd(), POLLIN, deadline)) return std::nullopt;
    if (!fill()) return next(limit);
  }
}

}  // namespace comm
