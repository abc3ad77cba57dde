// Frames, fields and sockets.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/wire.h"

#include <fcntl.h>
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

namespace rendezvous {
namespace {

/// Bytes of a frame's length.
constexpr size_t kPrefix = 4;
/// Sending gives up if the peer accepts no byte for this long.
constexpr std::chrono::seconds kSendPatience{10};

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
  // An IPv4 peer of a dual-stack socket.
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
  // IPv6 first if no address is given: such a socket accepts IPv4 too.
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

std::string peer_address(const Socket& connected) {
  sockaddr_storage other{};
  socklen_t length = sizeof other;
  if (getpeername(connected.fd(), reinterpret_cast<sockaddr*>(&other), &length) != 0) return "";
  return numeric(reinterpret_cast<const sockaddr*>(&other), length);
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

std::vector<std::string> addresses_of(const std::string& address) {
  std::string why;
  const Addresses list = resolve(address, 0, 0, why);
  std::vector<std::string> out;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next)
    out.push_back(numeric(a->ai_addr, a->ai_addrlen));
  return out;
}

bool is_loopback(const std::string& address) {
  const std::vector<std::string> numbers = addresses_of(address);
  return !numbers.empty() && std::ranges::all_of(numbers, [](const std::string& text) {
    return text.starts_with("127.") || text == "::1";
  });
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const std::string whole = name;
  return whole.substr(0, whole.find('.'));
}

Listener::Listener(Socket listener)
    : listener_(std::move(listener)), spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

Socket Listener::take() noexcept {
  const auto next = [this] {
    return Socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  };
  Socket socket = next();
  if (socket || (errno != EMFILE && errno != ENFILE) || !spare_) return socket;
  spare_.reset();
  next().reset();
  spare_ = Socket(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return {};
}

void Listener::close() noexcept {
  listener_.reset();
  spare_.reset();
}

void give_up_unconfirmed(const Socket& socket, std::chrono::milliseconds limit) noexcept {
  const unsigned ms = static_cast<unsigned>(limit.count());
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

bool FrameStream::send(FrameKind kind, std::string_view payload) noexcept {
  std::string bytes;
  const uint32_t length = static_cast<uint32_t>(payload.size()) + 1;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(length >> shift);
  bytes += static_cast<char>(kind);
  bytes += payload;
  Clock::time_point last_taken = Clock::now();
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t sent =
        ::send(fd(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      done += static_cast<size_t>(sent);
      last_taken = Clock::now();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd(), POLLOUT, last_taken + kSendPatience)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool FrameStream::fill(size_t limit) {
  constexpr size_t kAtOnce = 256 << 10;
  char block[16384];
  for (size_t taken = 0; taken < kAtOnce && buffer_.size() < kPrefix + limit;) {
    const size_t room = std::min(sizeof block, kPrefix + limit - buffer_.size());
    const ssize_t got = recv(fd(), block, room, MSG_DONTWAIT);
    if (got > 0) {
      buffer_.append(block, static_cast<size_t>(got));
      taken += static_cast<size_t>(got);
      if (got < static_cast<ssize_t>(room)) return true;
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
      over_ = true;
      return false;
    } else if (errno != EINTR) {
      return true;
    }
  }
  return true;
}

std::optional<Frame> FrameStream::next(size_t limit) {
  if (buffer_.size() < kPrefix) return std::nullopt;
  size_t length = 0;
  for (size_t i = kPrefix; i-- > 0;) length = length << 8 | static_cast<uint8_t>(buffer_[i]);
  if (length < 1 || length > limit)
    throw ops::DeviceError("comm: a control message of " + std::to_string(length) + " bytes");
  if (buffer_.size() < kPrefix + length) return std::nullopt;
  Frame frame{static_cast<FrameKind>(buffer_[kPrefix]), buffer_.substr(kPrefix + 1, length - 1)};
  buffer_.erase(0, kPrefix + length);
  return frame;
}

std::optional<Frame> FrameStream::wait(Clock::time_point deadline, size_t limit) {
  while (true) {
    if (std::optional<Frame> frame = next(limit)) return frame;
    if (!wait_for(fd(), POLLIN, deadline)) return std::nullopt;
    if (!fill(limit)) return next(limit);
  }
}

}  // namespace rendezvous
