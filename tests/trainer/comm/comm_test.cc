// Collectives over TCP between threads: every operation in every dtype against its formula,
// reproducible bits, messages both ways, and what happens when ranks disagree.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "tests/trainer/engine/ranks.h"
#include "trainer/comm/host_queue.h"
#include "trainer/comm/mesh.h"
#include "trainer/comm/reduction.h"
#include "trainer/ops/number.h"
#include "trainer/rendezvous/wire.h"

namespace {

using comm::Reduce;
using ops::DType;
using ops::Tensor;
using testing::HasSubstr;
using trainer::Groups;

/// Element i of rank r, exact in every float dtype.
float value(int rank, int64_t i) { return static_cast<float>((rank + 1) * 3 + i % 17 - 8) / 4; }

struct Bytes {
  Bytes(DType dtype, int64_t elements)
      : data(static_cast<size_t>(elements * ops::size_bytes(dtype))),
        tensor(data.data(), dtype, ops::Device::cpu, {elements}) {}
  std::vector<uint8_t> data;
  Tensor tensor;
};

class Sizes : public testing::TestWithParam<std::tuple<int, int64_t, DType>> {};

TEST_P(Sizes, EveryCollectiveEqualsItsFormula) {
  const int world = std::get<0>(GetParam());
  const int64_t n = std::get<1>(GetParam());
  const DType dtype = std::get<2>(GetParam());
  ranks::run_ranks(world, 1, 1, [=](Groups groups) {
    comm::Comm& c = *groups.data;
    const int rank = c.rank(), size = c.size();
    EXPECT_EQ(size, world);
    const auto expect = [&](const Tensor& t, int64_t i, float wanted, const char* what) {
      ASSERT_EQ(ops::load(t, i), wanted) << what << " rank " << rank << " element " << i;
    };
    const auto sum = [&](int64_t i) {
      float total = 0;
      for (int r = 0; r < size; ++r) total += value(r, i);
      return total;
    };
    Bytes x(dtype, n);
    for (Reduce reduce : {Reduce::sum, Reduce::max, Reduce::mean}) {
      for (int64_t i = 0; i < n; ++i) ops::store(x.tensor, i, value(rank, i));
      c.all_reduce(x.tensor, reduce);
      ops::Mark mark = c.mark();
      mark.wait_on_host(mark);
      for (int64_t i = 0; i < n; ++i) {
        Bytes one(dtype, 1);  // rounds the mean as the dtype does
        ops::store(one.tensor, 0, sum(i) / static_cast<float>(size));
        expect(x.tensor, i,
               reduce == Reduce::sum   ? sum(i)
               : reduce == Reduce::max ? value(size - 1, i)
                                       : ops::load(one.tensor, 0),
               "all_reduce");
      }
    }
    // reduce_scatter into its own slice, then all_gather in place: an all_reduce again.
    Bytes whole(dtype, n * size);
    for (int64_t i = 0; i < n * size; ++i) ops::store(whole.tensor, i, value(rank, i));
    const Tensor mine = whole.tensor.slice(n * rank, n);
    c.reduce_scatter(mine, whole.tensor, Reduce::sum);
    c.all_gather(whole.tensor, mine);
    Bytes apart(dtype, n), gathered(dtype, n * size);
    for (int64_t i = 0; i < n; ++i) ops::store(apart.tensor, i, value(rank, i));
    c.all_gather(gathered.tensor, apart.tensor);
    c.broadcast(x.tensor, size - 1);
    c.barrier();
    for (int64_t i = 0; i < n * size; ++i) {
      expect(whole.tensor, i, sum(i), "reduce_scatter and all_gather");
      expect(gathered.tensor, i, value(static_cast<int>(i / n), i % n), "all_gather");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Comm, Sizes,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values<int64_t>(1, 7, 70'000),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)));

TEST(Comm, IntegersAreAddedAndCompared) {
  ranks::run_ranks(3, 1, 1, [](Groups groups) {
    comm::Comm& c = *groups.world;
    std::vector<int32_t> a{c.rank(), -c.rank(), 1 << 20};
    std::vector<int64_t> b{int64_t{1} << (40 + c.rank())};
    std::vector<uint8_t> d{static_cast<uint8_t>(c.rank() == 1)};
    c.all_reduce({a.data(), DType::i32, ops::Device::cpu, {3}}, Reduce::sum);
    c.all_reduce({b.data(), DType::i64, ops::Device::cpu, {1}}, Reduce::sum);
    c.all_reduce({d.data(), DType::u8, ops::Device::cpu, {1}}, Reduce::max);
    c.barrier();
    EXPECT_EQ(a, (std::vector<int32_t>{3, -3, 3 << 20}));
    EXPECT_EQ(b[0], int64_t{7} << 40);
    EXPECT_EQ(d[0], 1);
  });
}

TEST(Comm, AReductionsBitsAreThoseOfRankOrderAndRepeat) {
  constexpr int kWorld = 4;
  constexpr int64_t kElements = 300'001;
  std::vector<std::vector<float>> input(kWorld, std::vector<float>(kElements));
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (auto& x : input)
    for (float& v : x) v = normal(random) * std::exp(4 * normal(random));
  std::vector<const void*> parts;
  for (const auto& x : input) parts.push_back(x.data());
  std::vector<float> wanted(kElements);
  comm::reduce_parts(wanted.data(), parts, kElements, DType::f32, Reduce::mean);
  for (int run = 0; run < 2; ++run)
    ranks::run_ranks(kWorld, 1, 1, [&](Groups groups) {
      std::vector<float> x = input[static_cast<size_t>(groups.world->rank())];
      groups.world->all_reduce({x.data(), DType::f32, ops::Device::cpu, {kElements}}, Reduce::mean);
      groups.world->barrier();
      EXPECT_EQ(x, wanted);
    });
}

TEST(Comm, MessagesPassBothWaysInOneGroup) {
  ranks::run_ranks(4, 1, 4, [](Groups groups) {
    comm::Comm& c = *groups.pipeline;
    const int next = (c.rank() + 1) % 4, previous = (c.rank() + 3) % 4;
    std::vector<float> out(200'000, static_cast<float>(c.rank())), in(200'000);
    const Tensor from(in.data(), DType::f32, ops::Device::cpu, {200'000});
    const Tensor to(out.data(), DType::f32, ops::Device::cpu, {200'000});
    for (int round = 0; round < 3; ++round) {
      c.group_begin();
      c.send(to, next);
      c.receive(from, previous);
      c.group_end();
      c.barrier();
      EXPECT_EQ(in.front(), static_cast<float>(previous));
      EXPECT_EQ(in.back(), static_cast<float>(previous));
    }
    // Two messages to one rank arrive in order, without a group.
    if (c.rank() == 0) {
      c.send(to.slice(0, 10), 1);
      c.send(to.slice(0, 20), 1);
    } else if (c.rank() == 1) {
      c.receive(from.slice(0, 10), 0);
      c.receive(from.slice(0, 20), 0);
    }
    c.barrier();
  });
}

TEST(Comm, GroupsHoldTheRanksOfTheTopology) {
  ranks::run_ranks(8, 2, 2, [](Groups groups) {
    const trainer::Topology& t = groups.topology;
    EXPECT_EQ(groups.tensor->rank(), t.tensor_rank);
    EXPECT_EQ(groups.data->rank(), t.data_rank);
    EXPECT_EQ(groups.pipeline->rank(), t.pipeline_rank);
    EXPECT_EQ(groups.world->rank(), t.rank());
    EXPECT_EQ(groups.embedding->size(), 2);
    const auto gathered = [&](comm::Comm& c) {
      std::vector<int32_t> all(static_cast<size_t>(c.size()));
      int32_t own = t.rank();
      c.all_gather({all.data(), DType::i32, ops::Device::cpu, {c.size()}},
                   {&own, DType::i32, ops::Device::cpu, {1}});
      c.barrier();
      return all;
    };
    EXPECT_EQ(gathered(*groups.tensor), t.tensor_group());
    EXPECT_EQ(gathered(*groups.data), t.data_group());
    EXPECT_EQ(gathered(*groups.pipeline), t.pipeline_group());
  });
}

TEST(Comm, WorkRunsWhileTheHostGoesOn) {
  ranks::run_ranks(2, 1, 1, [](Groups groups) {
    comm::Comm& c = *groups.world;
    float x = 1;
    const Tensor t(&x, DType::f32, ops::Device::cpu, {1});
    if (c.rank() == 1) {
      float y = 0;
      groups.data->receive({&y, DType::f32, ops::Device::cpu, {1}}, 0);
      groups.data->barrier();
      c.all_reduce(t, Reduce::sum);
    } else {
      // Rank 1 enters the reduction only after our message: the call must not wait.
      c.all_reduce(t, Reduce::sum);
      groups.data->send(t, 1);
      groups.data->barrier();
    }
    c.barrier();
    EXPECT_EQ(x, 2);
  });
}

std::string failure(int world, const std::function<void(comm::Comm&)>& body) {
  try {
    ranks::run_ranks(ranks::Options{.world = world, .timeout = std::chrono::milliseconds(2000)},
                     [&](Groups groups) { body(*groups.world); });
  } catch (const ops::DeviceError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Comm, AnotherShapeNamesBothRanks) {
  const std::string message = failure(2, [](comm::Comm& c) {
    std::vector<float> x(200);
    c.all_reduce({x.data(), DType::f32, ops::Device::cpu, {c.rank() == 0 ? 200 : 100}},
                 Reduce::sum);
    c.barrier();
  });
  EXPECT_THAT(message, HasSubstr("ranks do different things"));
  EXPECT_THAT(message, HasSubstr("rank 0"));
  EXPECT_THAT(message, HasSubstr("rank 1"));
  EXPECT_THAT(message, HasSubstr("all-reduce of 200 fp32"));
  EXPECT_THAT(message, HasSubstr("all-reduce of 100 fp32"));
}

TEST(Comm, ASkippedCollectiveNamesBothRanks) {
  const std::string message = failure(3, [](comm::Comm& c) {
    std::vector<float> x(8);
    const Tensor t(x.data(), DType::f32, ops::Device::cpu, {8});
    if (c.rank() != 2) c.all_reduce(t, Reduce::sum);
    c.broadcast(t, 0);
    c.barrier();
  });
  EXPECT_THAT(message, HasSubstr("all-reduce of 8 fp32 (number 1)"));
  EXPECT_THAT(message, HasSubstr("broadcast of 8 fp32 (number 1)"));
}

TEST(Comm, AMessageOfAnotherSizeIsRefused) {
  const std::string message = failure(2, [](comm::Comm& c) {
    std::vector<float> x(64);
    const Tensor t(x.data(), DType::f32, ops::Device::cpu, {64});
    if (c.rank() == 0) c.send(t, 1);
    if (c.rank() == 1) c.receive(t.slice(0, 32), 0);
    c.barrier();
  });
  EXPECT_THAT(message, HasSubstr("ranks do different things"));
}

TEST(Comm, ARankThatNeverCallsIsNamed) {
  const std::string message = failure(2, [](comm::Comm& c) {
    if (c.rank() == 0) c.barrier();
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  });
  EXPECT_THAT(message, HasSubstr("barrier"));
  EXPECT_THAT(message, HasSubstr("rank 1: no answer within 2 s"));
}

TEST(Comm, ARankThatLeavesIsNamed) {
  std::string message;
  failure(2, [&](comm::Comm& c) {
    if (c.rank() == 1) throw ops::DeviceError("left");
    try {
      c.barrier();
    } catch (const ops::DeviceError& error) {
      message = error.what();
    }
  });
  EXPECT_THAT(message, HasSubstr("rank 1: connection lost"));
}

/// Why making the group's Comm fails, on each of two ranks; `change` changes the options.
std::vector<std::string> refusals(const std::function<void(comm::TcpOptions&)>& change,
                                  rendezvous::Store& store) {
  std::vector<std::string> out(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      comm::TcpOptions options{.rank = rank, .size = 2, .timeout = std::chrono::milliseconds(1000)};
      change(options);
      try {
        comm::make_tcp_comm(options, store)->barrier();
      } catch (const ops::DeviceError& error) {
        out[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  return out;
}

TEST(Comm, APeerWithAnotherSecretIsRefused) {
  rendezvous::MemoryStore store;
  const std::vector<std::string> told =
      refusals([](comm::TcpOptions& o) { o.secret = o.rank == 0 ? "right" : "wrong"; }, store);
  EXPECT_THAT(told[0], HasSubstr("rank 1: no connection within 1 s"));
  EXPECT_THAT(told[1], HasSubstr("rank 0: no connection within 1 s: it has another secret"));
}

// However many strangers connect first, none takes the place of a rank.
TEST(Comm, StrangersAtTheRanksPortsChangeNothing) {
  for (const char first : {'\0', 'g', '\1'}) {
    std::atomic<bool> done = false;
    rendezvous::MemoryStore store;
    std::thread stranger([&] {
      // It knows where rank 0 listens, and connects before rank 1.
      const std::string place = store.get("link/world/0", std::chrono::seconds(20));
      rendezvous::Unpacker in(place);
      const std::string address = in.text();
      const int port = static_cast<int>(in.number());
      std::vector<rendezvous::Socket> sockets;
      std::string why, bytes = first == '\1' ? "gristmill link 1" : "";
      bytes.resize(first == '\0' ? 0 : 500, first);
      for (int n = 0; n < 200; ++n) {
        const auto soon = rendezvous::Clock::now() + std::chrono::milliseconds(200);
        sockets.push_back(rendezvous::connect_to(address, port, soon, why));
        if (sockets.back()) send(sockets.back().fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      }
      store.set("strangers are there", "");
      while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
    const std::vector<std::string> told = refusals(
        [&](comm::TcpOptions& o) {
          o.timeout = std::chrono::seconds(20);
          if (o.rank == 1) store.get("strangers are there", std::chrono::seconds(20));
        },
        store);
    done = true;
    stranger.join();
    EXPECT_EQ(told[0] + told[1], "") << static_cast<int>(first);
  }
}

// An impostor that has taken rank 0's place in the Store's list of ports.
TEST(Comm, AnImpostorInAPeersPlaceIsRefused) {
  rendezvous::MemoryStore store;
  rendezvous::Listener door{rendezvous::listen_on("127.0.0.1", 0)};
  store.set("link/world/0", rendezvous::Packer().text("127.0.0.1").number(door.port()).take());
  std::atomic<bool> done = false;
  std::thread impostor([&] {
    std::vector<rendezvous::Socket> sockets;
    const std::string welcome(48, 'w');
    while (!done) {
      rendezvous::Socket socket = door.take();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (socket) send(socket.fd(), welcome.data(), welcome.size(), MSG_NOSIGNAL);
      if (socket) sockets.push_back(std::move(socket));
    }
  });
  std::string told;
  try {
    comm::make_tcp_comm({.rank = 1, .size = 2, .timeout = std::chrono::milliseconds(500)}, store);
  } catch (const ops::DeviceError& error) {
    told = error.what();
  }
  done = true;
  impostor.join();
  EXPECT_THAT(told,
              HasSubstr("rank 0: no connection within 0 s: it does not know this job's secret"));
}

/// Two ends of a Mesh of two.
std::pair<comm::Mesh, comm::Mesh> two_ends() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  std::vector<rendezvous::Socket> a(2), b(2);
  a[1] = rendezvous::Socket(ends[0]);
  b[0] = rendezvous::Socket(ends[1]);
  return {comm::Mesh(std::move(a)), comm::Mesh(std::move(b))};
}

TEST(Mesh, SlotsArriveInAnyOrderOfExpectationAndLargeOnesBothWaysAtOnce) {
  auto [a, b] = two_ends();
  const std::chrono::milliseconds soon(20'000);
  std::vector<char> from_a(3 << 20, 'a'), from_b(2 << 20, 'b'), at_a(2 << 20), at_b(3 << 20);
  char one = '1', two = '2', first = 0, second = 0;
  std::thread other([&, &b = b] {
    const comm::Mesh::Message out = b.send(0, 1, from_b.data(), from_b.size());
    b.wait(b.receive(0, 16, &first, 1), soon);
    const comm::Mesh::Message large = b.receive(0, 2, at_b.data(), at_b.size());
    b.wait(b.receive(0, 16, &second, 1), soon);
    b.wait(large, soon);
    b.wait(out, soon);
  });
  a.send(1, 16, &one, 1);
  a.send(1, 2, from_a.data(), from_a.size());
  const comm::Mesh::Message last = a.send(1, 16, &two, 1);
  a.wait(a.receive(1, 1, at_a.data(), at_a.size()), soon);
  a.wait(last, soon);
  other.join();
  EXPECT_EQ(at_a, from_b);
  EXPECT_EQ(at_b, from_a);
  EXPECT_EQ(std::string({first, second}), "12");
}

TEST(Mesh, AnotherLengthASilentPeerAndOneThatIsGoneAreErrorsOfThatPeer) {
  const auto told = [](const std::function<void(comm::Mesh&, comm::Mesh&)>& body) {
    auto [a, b] = two_ends();
    try {
      body(a, b);
    } catch (const comm::MeshError& error) {
      EXPECT_EQ(error.peer, 1);
      // No further call is possible: the memory of unfinished messages may be gone.
      char byte = 0;
      EXPECT_THROW(a.send(1, 1, &byte, 1), comm::MeshError);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  char bytes[8] = {};
  const std::chrono::milliseconds soon(20'000);
  EXPECT_EQ(told([&](comm::Mesh& a, comm::Mesh& b) {
              b.send(0, 1, bytes, 8);
              a.wait(a.receive(1, 1, bytes, 4), soon);
            }),
            "a message of 8 bytes, where 4 are expected");
  EXPECT_EQ(told([&](comm::Mesh& a, comm::Mesh&) {
              a.wait(a.receive(1, 1, bytes, 4), std::chrono::milliseconds(50));
            }),
            "no answer within 0 s");
  EXPECT_EQ(told([&](comm::Mesh& a, comm::Mesh& b) {
              { const comm::Mesh gone = std::move(b); }
              a.wait(a.receive(1, 1, bytes, 4), soon);
            }),
            "connection lost: closed by the peer");
}

TEST(Comm, SizesThatDoNotFitAreRefusedBeforeAnythingIsSent) {
  ranks::run_ranks(2, 1, 1, [](Groups groups) {
    std::vector<float> x(9);
    const Tensor whole(x.data(), DType::f32, ops::Device::cpu, {9});
    EXPECT_THROW(groups.world->all_gather(whole, whole.slice(0, 4)), ops::ShapeError);
    EXPECT_THROW(groups.world->reduce_scatter(whole.slice(0, 4), whole, Reduce::sum),
                 ops::ShapeError);
    EXPECT_THROW(groups.world->broadcast(whole, 2), ops::ShapeError);
    EXPECT_THROW(groups.world->send(whole, groups.world->rank()), ops::ShapeError);
  });
}

TEST(Reduction, MeanOfIntegersIsRefused) {
  int32_t x = 1;
  const void* parts[] = {&x};
  EXPECT_THROW(comm::reduce_parts(&x, parts, 1, DType::i32, Reduce::mean), ops::ShapeError);
}

TEST(HostQueue, AFailureReachesWhoeverWaits) {
  comm::HostQueue queue;
  int ran = 0;
  queue.add([&] { ++ran; });
  queue.add([] { throw ops::DeviceError("broken"); });
  EXPECT_THROW(queue.wait(), ops::DeviceError);
  EXPECT_THROW(queue.add([&] { ++ran; }), ops::DeviceError);
  EXPECT_EQ(ran, 1);
}

}  // namespace
