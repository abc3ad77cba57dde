// A ring of hosts, each a thread: files of every size reach the next one, go on around the ring,
// and an exchange that was given up leaves nothing in the next one's way.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "trainer/rendezvous/file_ring.h"

namespace rendezvous {
namespace {

const auto kNever = [] { return false; };

/// An unnamed file with these bytes, or with `size` random ones.
int file_of(const std::string& bytes) {
  const int fd = memfd_create("file_ring_test", MFD_CLOEXEC);
  EXPECT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return fd;
}
std::string noise(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string out(size, '\0');
  for (char& byte : out) byte = static_cast<char>(random());
  return out;
}
std::string content(int fd) {
  struct stat about {};
  fstat(fd, &about);
  std::string out(static_cast<size_t>(about.st_size), '\0');
  EXPECT_EQ(pread(fd, out.data(), out.size(), 0), about.st_size);
  return out;
}

/// The links of a ring, by host.
std::vector<FileRing> ring_of(int hosts) {
  std::vector<Socket> next(static_cast<size_t>(hosts)), previous(static_cast<size_t>(hosts));
  for (size_t host = 0; host < next.size(); ++host) {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    next[host] = Socket(pair[0]);
    previous[(host + 1) % next.size()] = Socket(pair[1]);
  }
  std::vector<FileRing> out;
  for (size_t host = 0; host < next.size(); ++host)
    out.emplace_back(std::move(next[host]), std::move(previous[host]));
  return out;
}

template <class Work>
void on_each(std::vector<FileRing>& ring, Work work) {
  std::vector<std::thread> threads;
  for (size_t host = 0; host < ring.size(); ++host)
    threads.emplace_back([&, host] { work(ring[host], static_cast<int>(host)); });
  for (std::thread& thread : threads) thread.join();
}

TEST(FileRing, FilesOfEverySizeReachTheNextHost) {
  const std::vector<size_t> sizes = {0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5'000'001};
  for (const int hosts : {2, 3}) {
    std::vector<FileRing> ring = ring_of(hosts);
    on_each(ring, [&](FileRing& links, int host) {
      for (int64_t number = 1; number < 3; ++number) {
        const auto seed = [&](int of, size_t i) {
          return static_cast<unsigned>(of * 100 + static_cast<int>(number) * 10) +
                 static_cast<unsigned>(i);
        };
        std::vector<OutgoingFile> out;
        std::vector<int> in;
        for (size_t i = 0; i < sizes.size(); ++i) {
          out.push_back({.fd = file_of(noise(sizes[i], seed(host, i)))});
          in.push_back(file_of(noise(2'000'000, 1)));  // of an older one
        }
        out.push_back({.fd = -1});
        in.push_back(file_of("of an older one"));
        EXPECT_TRUE(links.exchange(number, out, in, kNever));
        for (size_t i = 0; i < sizes.size(); ++i)
          EXPECT_TRUE(content(in[i]) == noise(sizes[i], seed((host + hosts - 1) % hosts, i)))
              << sizes[i];
        EXPECT_EQ(content(in.back()), "");
        for (const OutgoingFile& file : out) close(file.fd);
        for (const int fd : in) close(fd);
      }
    });
  }
}

// Host 0's file goes around to all, each passing on what it has received.
TEST(FileRing, AFileGoesAroundTheRing) {
  std::vector<FileRing> ring = ring_of(4);
  const std::string bytes = noise(3'000'000, 7);
  on_each(ring, [&](FileRing& links, int host) {
    const int fd = host == 0 ? file_of(bytes) : file_of("");
    std::vector<OutgoingFile> out;
    if (host < 3) out.push_back({.fd = fd, .after = host == 0 ? -1 : 0});
    const std::vector<int> in = host == 0 ? std::vector<int>{} : std::vector<int>{fd};
    EXPECT_TRUE(links.exchange(1, out, in, kNever));
    EXPECT_TRUE(content(fd) == bytes) << host;
    close(fd);
  });
}

// One host never takes part in the first exchange, which the other gives up in the middle of a
// part: both get the second one's bytes.
TEST(FileRing, WhatWasGivenUpIsNotInTheNextOnesWay) {
  std::vector<FileRing> ring = ring_of(2);
  const std::string old = noise(20'000'000, 1);
  const auto now = [](int host) { return noise(2'500'000, 10 + static_cast<unsigned>(host)); };
  std::atomic<int> ready = 0;
  on_each(ring, [&](FileRing& links, int host) {
    if (host == 0) {
      const int out = file_of(old), in = file_of("");
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_FALSE(links.exchange(1, {{.fd = out}}, {in}, [&] {
        return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(300);
      }));
      close(out);
      close(in);
    }
    for (++ready; ready < 2;) std::this_thread::yield();
    const int out = file_of(now(host)), in = file_of("");
    EXPECT_TRUE(links.exchange(2, {{.fd = out}}, {in}, kNever));
    EXPECT_TRUE(content(in) == now(1 - host)) << host;
    close(out);
    close(in);
  });
}

TEST(FileRing, APartnerThatIsGoneIsNamed) {
  for (const bool sends : {true, false}) {
    std::vector<FileRing> ring = ring_of(2);
    { const FileRing gone = std::move(ring[1]); }
    const int fd = file_of(noise(10, 1));
    std::vector<OutgoingFile> out;
    if (sends) out.push_back({.fd = fd});
    try {
      ring[0].exchange(1, out, sends ? std::vector<int>{} : std::vector<int>{fd}, kNever);
      ADD_FAILURE() << "not noticed";
    } catch (const ops::DeviceError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(sends ? "on the next host is closed"
                                                         : "on the previous host is closed"));
    }
    close(fd);
  }
}

// What is no part, or is one of a later exchange, is refused before a byte is written.
TEST(FileRing, WhatIsNoPartIsRefused) {
  const std::vector<std::vector<int64_t>> headers = {
      {2, 0, 5, 0, 5},  // of a later exchange
      {1, 1, 5, 0, 5},  // another file
      {1, 0, 5, 0, 6},  // beyond the file's end
      {1, 0, 5, -1, 5}, {1, 0, 5, 0, -1}, {1, 0, int64_t{1} << 40, 0, (1 << 20) + 1}};
  for (const std::vector<int64_t>& header : headers) {
    int pair[2], unused[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, unused), 0);
    FileRing links{Socket(unused[0]), Socket(pair[0])};
    Packer packer;
    for (const int64_t value : header) packer.number(value);
    const std::string bytes = packer.take() + "12345678";
    ASSERT_EQ(write(pair[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    const int fd = file_of("as before");
    EXPECT_THROW(links.exchange(1, {}, {fd}, kNever), ops::DeviceError);
    EXPECT_EQ(content(fd), "as before");
    close(fd);
    close(pair[1]);
    close(unused[1]);
  }
}

}  // namespace
}  // namespace rendezvous
