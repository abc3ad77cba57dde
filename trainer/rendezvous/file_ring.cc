// A file goes in parts, each behind a header of five numbers: of the exchange, of the file, the
// file's bytes (-1: none), where the part begins, the part's bytes. A part is always sent whole,
// also after the exchange that it belongs to was given up, so the next one finds its beginning.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/file_ring.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace rendezvous {
namespace {

constexpr size_t kHeader = 5 * 8;
constexpr int64_t kPart = 1 << 20;
constexpr int kLook_ms = 100;

[[noreturn]] void refuse(int code) {
  throw std::system_error(code, std::generic_category(), "memory of checkpoints");
}

int64_t bytes_of(int fd) {
  struct stat about {};
  if (fd < 0) return -1;
  if (fstat(fd, &about) != 0) refuse(errno);
  return about.st_size;
}

void read_all(int fd, int64_t at, char* to, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got = pread(fd, to + done, static_cast<size_t>(bytes - done), at + done);
    if (got == 0 || (got < 0 && errno != EINTR)) refuse(got == 0 ? EIO : errno);
    done += std::max<ssize_t>(got, 0);
  }
}

void write_all(int fd, int64_t at, const char* from, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t put = pwrite(fd, from + done, static_cast<size_t>(bytes - done), at + done);
    if (put < 0 && errno != EINTR) refuse(errno);
    done += std::max<ssize_t>(put, 0);
  }
}

[[noreturn]] void gone(const char* which) {
  throw ops::DeviceError(std::string("comm: the connection to the same rank on the ") + which +
                         " host is closed");
}

}  // namespace

/// How far an exchange is.
struct FileRing::Turn {
  int64_t number;
  const std::vector<OutgoingFile>& out;
  const std::vector<int>& in;
  size_t out_done = 0, in_done = 0;  ///< Files.
  int64_t out_at = 0;                ///< Bytes of the file that is being sent.
};

/// Puts the next part to be sent together; false if none can be sent now.
bool FileRing::fill(Turn& turn) {
  if (turn.out_done == turn.out.size()) return false;
  const OutgoingFile& file = turn.out[turn.out_done];
  if (file.after >= static_cast<int>(turn.in_done)) return false;
  const int64_t whole = bytes_of(file.fd);
  const int64_t bytes = std::clamp<int64_t>(whole - turn.out_at, 0, kPart);
  sending_ = Packer()
                 .number(turn.number)
                 .number(static_cast<int64_t>(turn.out_done))
                 .number(whole)
                 .number(turn.out_at)
                 .number(bytes)
                 .take();
  sending_.resize(kHeader + static_cast<size_t>(bytes));
  sent_ = 0;
  if (bytes > 0) read_all(file.fd, turn.out_at, sending_.data() + kHeader, bytes);
  turn.out_at += bytes;
  if (turn.out_at >= whole) {
    ++turn.out_done;
    turn.out_at = 0;
  }
  return true;
}

void FileRing::send(Turn& turn) {
  while (sent_ < sending_.size() || fill(turn)) {
    const ssize_t put = ::send(next_.fd(), sending_.data() + sent_, sending_.size() - sent_,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (put < 0 && errno != EINTR) gone("next");
    sent_ += static_cast<size_t>(std::max<ssize_t>(put, 0));
    if (sent_ == sending_.size()) sending_.clear(), sent_ = 0;
  }
}

/// Takes a whole part out of what has arrived; false if there is none.
bool FileRing::take(Turn& turn) {
  if (had_ < kHeader) return false;
  Unpacker header(std::string_view(received_.data(), kHeader));
  const int64_t number = header.number(), index = header.number(), whole = header.number(),
                at = header.number(), bytes = header.number();
  if (number > turn.number || bytes < 0 || bytes > kPart || at < 0 ||
      at + bytes > std::max<int64_t>(whole, 0))
    throw ops::DeviceError("comm: a part of a file that is none");
  const size_t size = kHeader + static_cast<size_t>(bytes);
  if (had_ < size) return false;
  if (number == turn.number) {
    if (index != static_cast<int64_t>(turn.in_done) || turn.in_done >= turn.in.size())
      throw ops::DeviceError("comm: a file that was not asked for");
    const int fd = turn.in[turn.in_done];
    if (at == 0 && ftruncate(fd, std::max<int64_t>(whole, 0)) != 0) refuse(errno);
    write_all(fd, at, received_.data() + kHeader, bytes);
    if (at + bytes >= whole) ++turn.in_done;
  }
  std::memmove(received_.data(), received_.data() + size, had_ -= size);
  return true;
}

void FileRing::receive() {
  received_.resize(kHeader + static_cast<size_t>(kPart));
  const ssize_t got =
      recv(previous_.fd(), received_.data() + had_, received_.size() - had_, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
    gone("previous");
  had_ += static_cast<size_t>(std::max<ssize_t>(got, 0));
}

bool FileRing::exchange(int64_t number, const std::vector<OutgoingFile>& out,
                        const std::vector<int>& in, const std::function<bool()>& given_up) {
  Turn turn{.number = number, .out = out, .in = in};
  while (true) {
    while (turn.in_done < in.size() && take(turn)) continue;  // of what the last one received, too.
    send(turn);
    const bool all_sent = turn.out_done == out.size() && sending_.empty();
    if (all_sent && turn.in_done == in.size()) return true;
    if (given_up()) return false;
    pollfd entries[] = {
        {.fd = sending_.empty() ? -1 : next_.fd(), .events = POLLOUT, .revents = 0},
        {.fd = turn.in_done == in.size() ? -1 : previous_.fd(), .events = POLLIN, .revents = 0}};
    poll(entries, 2, kLook_ms);
    if (entries[1].revents != 0) receive();
  }
}

}  // namespace rendezvous
