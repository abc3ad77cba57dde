// Collectives over NCCL, a process for each GPU: every operation against its formula, the compute
// stream and the Comm's stream synchronized by Marks, the same inside a captured graph,
// reproducible bits. Runs on all GPUs of the machine (at most 8), is skipped with fewer than two.
//
// SPDX-License-Identifier: MIT
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/trainer/engine/rank_processes.h"
#include "trainer/comm/nccl.h"
#include "trainer/ops/arena.h"
#include "trainer/ops/cuda/cuda.h"
#include "trainer/ops/number.h"

namespace {

using comm::Reduce;
using ops::DType;
using ops::Tensor;

int gpus() {
  static const int count =
      std::min(8, ranks::in_a_process([] { return ops::cuda::device_count(); }));
  return count;
}

/// Whether NVLink connects this machine's GPUs: only then do they have atomics on each other.
bool linked() {
  static const bool all =
      ranks::in_a_process([] {
        int least = 1;
        for (int a = 0; a < gpus(); ++a) {
          for (int b = 0, atomics = 0; b < gpus(); ++b) {
            if (a == b) continue;
            cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, a, b);
            least = std::min(least, atomics);
          }
        }
        return least;
      }) == 1;
  return all;
}

/// One rank: its GPU, a Comm of all, and a block of memory that they share, in which tensors lie at
/// the same places.
struct Rank {
  Rank(int rank, rendezvous::Store& store, bool copy_engines, bool one_algorithm = false,
       int64_t sum_bytes = comm::kSumBytes)
      : ops(ops::cuda::make_cuda_ops({.device_index = rank, .tune = false})),
        comm(comm::make_nccl_comm({.id = copy_engines ? "copies" : "nccl",
                                   .rank = rank,
                                   .size = gpus(),
                                   .device_index = rank,
                                   .one_algorithm = one_algorithm,
                                   .least_shared_bytes = 1,
                                   .sum_bytes = sum_bytes,
                                   .timeout = std::chrono::seconds(60)},
                                  store)),
        block(static_cast<std::byte*>(ops->allocate(kBlock))) {
    if (!copy_engines) return;
    EXPECT_TRUE(comm->share_memory({block, DType::u8, ops::Device::cuda, {kBlock}}));
  }
  ~Rank() {
    ops->synchronize();
    comm.reset();
    ops->release(block);
  }
  Tensor tensor(DType dtype, int64_t n) {
    const Tensor out(block + used, dtype, ops::Device::cuda, {n});
    used += ops::align_up(out.bytes());
    EXPECT_LE(used, kBlock);
    return out;
  }
  void put(const Tensor& t, const std::function<float(int64_t)>& value) {
    std::vector<uint8_t> host(static_cast<size_t>(t.bytes()));
    const Tensor view(host.data(), t.dtype, ops::Device::cpu, {t.elements()});
    for (int64_t i = 0; i < t.elements(); ++i) ops::store(view, i, value(i));
    ops->upload(t, host.data());
    ops->synchronize();
  }
  std::vector<float> get(const Tensor& t) {
    ops->follow(comm->mark());
    std::vector<uint8_t> host(static_cast<size_t>(t.bytes()));
    ops->download(host.data(), t);
    ops->synchronize();
    const Tensor view(host.data(), t.dtype, ops::Device::cpu, {t.elements()});
    std::vector<float> out;
    for (int64_t i = 0; i < t.elements(); ++i) out.push_back(ops::load(view, i));
    return out;
  }
  std::unique_ptr<ops::Ops> ops;
  std::unique_ptr<comm::Comm> comm;
  static constexpr int64_t kBlock = int64_t{1} << 30;
  std::byte* block;
  int64_t used = 0;
};

float value(int rank, int64_t i) { return static_cast<float>((rank + 1) * 3 + i % 17 - 8) / 4; }

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    if (gpus() < 2) GTEST_SKIP() << "needs two GPUs, has " << gpus();
  }
  /// Both ways in one set of processes, which take seconds to start: `copies` says whether large
  /// transfers go by the copy engines, which needs NVLink.
  static void run_ranks(
      const std::function<void(int rank, rendezvous::Store& store, bool copies)>& body) {
    const bool both = linked();
    ranks::run_rank_processes(gpus(), 60, [&](int rank, rendezvous::Store& store) {
      body(rank, store, false);
      if (both) body(rank, store, true);
    });
  }
};

TEST_F(NcclTest, EveryCollectiveEqualsItsFormula) {
  run_ranks([](int rank, rendezvous::Store& store, bool copies) {
    Rank r(rank, store, copies);
    comm::Comm& c = *r.comm;
    const int size = c.size();
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (int64_t n : {1, 1000, 300'000}) {
        const auto sum = [&](int64_t i) {
          float total = 0;
          for (int q = 0; q < size; ++q) total += value(q, i);
          return total;
        };
        const auto expect = [&](const Tensor& t, const std::function<float(int64_t)>& wanted,
                                const char* what) {
          const std::vector<float> got = r.get(t);
          const float epsilon = dtype == DType::f32 ? 1e-6f : dtype == DType::f16 ? 1e-3f : 8e-3f;
          for (int64_t i = 0; i < t.elements(); ++i) {
            const float w = wanted(i);
            ASSERT_NEAR(got[static_cast<size_t>(i)], w,
                        epsilon * static_cast<float>(size) * std::max(1.0f, std::abs(w)))
                << what << ' ' << ops::name(dtype) << " rank " << rank << " element " << i;
          }
        };
        const Tensor x = r.tensor(dtype, n), whole = r.tensor(dtype, n * size);
        r.put(x, [&](int64_t i) { return value(rank, i); });
        c.all_reduce(x, Reduce::sum);
        expect(x, sum, "all_reduce");
        r.put(x, [&](int64_t i) { return value(rank, i); });
        c.all_reduce(x, Reduce::mean);
        expect(
            x, [&](int64_t i) { return sum(i) / static_cast<float>(size); }, "mean");
        r.put(x, [&](int64_t i) { return value(rank, i); });
        c.all_reduce(x, Reduce::max);
        expect(
            x, [&](int64_t i) { return value(size - 1, i); }, "max");
        c.broadcast(x, 0);
        r.put(whole, [&](int64_t i) { return value(rank, i); });
        const Tensor mine = whole.slice(n * rank, n);
        c.reduce_scatter(mine, whole, Reduce::sum);
        c.all_gather(whole, mine);
        expect(whole, sum, "reduce_scatter and all_gather");
        r.put(x, [&](int64_t i) { return value(rank, i); });
        const Tensor in = r.tensor(dtype, n);
        c.group_begin();
        c.send(x, (rank + 1) % size);
        c.receive(in, (rank + size - 1) % size);
        c.group_end();
        expect(
            in, [&](int64_t i) { return value((rank + size - 1) % size, i); }, "send");
      }
    }
    c.barrier();
  });
}

// fill, reduce, scale by a second fill-and-add: wrong immediately if either stream does not wait.
TEST_F(NcclTest, StreamsMeetByMarksCapturedOrNot) {
  run_ranks([](int rank, rendezvous::Store& store, bool copies) {
    Rank r(rank, store, copies);
    constexpr int64_t kElements = int64_t{32} << 20;
    const Tensor x = r.tensor(DType::f32, kElements), y = r.tensor(DType::f32, kElements);
    const float size = static_cast<float>(r.comm->size());
    const auto step = [&] {
      r.ops->run(ops::Fill{.dst = x, .value = static_cast<float>(rank + 1)});
      r.comm->follow(r.ops->mark());
      r.comm->all_reduce(x, Reduce::sum);
      r.ops->follow(r.comm->mark());
      r.ops->run(ops::Copy{.dst = y, .src = x});
      r.comm->follow(r.ops->mark());
      r.comm->all_reduce(y, Reduce::sum);
      r.ops->run(ops::Fill{.dst = x, .value = 1});
      r.ops->follow(r.comm->mark());
    };
    const auto check = [&](const char* what) {
      const std::vector<float> got = r.get(y);
      const float wanted = size * size * (size + 1) / 2;
      for (int64_t i = 0; i < kElements; i += 4097)
        ASSERT_EQ(got[static_cast<size_t>(i)], wanted) << what << ", element " << i;
    };
    step();
    check("eager");
    ASSERT_TRUE(r.ops->begin_capture());
    step();
    const int64_t graph = r.ops->end_capture();
    for (int i = 0; i < 5; ++i) {
      r.ops->run(ops::Fill{.dst = y, .value = 0});
      r.ops->replay(graph);
    }
    check("captured");
    r.ops->forget(graph);
    r.comm->barrier();
  });
}

// Rank 0 is late by a time that the host sets: the others' queues report it, rank 0's does not, and
// their own work between collectives is not counted.
TEST_F(NcclTest, QueuesTellHowLongTheyWaited) {
  run_ranks([](int rank, rendezvous::Store& store, bool copies) {
    constexpr std::chrono::milliseconds kLate(300);
    constexpr int kRounds = 3;
    Rank r(rank, store, copies);
    const Tensor x = r.tensor(DType::f32, 1'000'000), own = r.tensor(DType::f32, 64'000'000);
    const auto step = [&] {
      for (int i = 0; i < 50; ++i) r.ops->run(ops::Fill{.dst = own, .value = 1});
      r.comm->follow(r.ops->mark());
      r.comm->all_reduce(x, Reduce::mean);
      r.ops->follow(r.comm->mark());
    };
    const auto expect = [&](const char* what, const std::function<void()>& work) {
      const double before = *r.ops->seconds_waited();
      for (int i = 0; i < kRounds; ++i) {
        r.comm->barrier();
        if (rank == 0) std::this_thread::sleep_for(kLate);
        work();
        r.ops->synchronize();
      }
      const double waited = *r.ops->seconds_waited() - before;
      const double late = kRounds * std::chrono::duration<double>(kLate).count();
      EXPECT_GT(waited, rank == 0 ? 0 : 0.7 * late) << what;
      EXPECT_LT(waited, (rank == 0 ? 0.3 : 1.3) * late) << what;
    };
    r.ops->run(ops::Fill{.dst = x, .value = 1});
    step();
    r.ops->synchronize();
    expect("eager", step);
    ASSERT_TRUE(r.ops->begin_capture());
    step();
    const int64_t graph = r.ops->end_capture();
    expect("captured", [&] { r.ops->replay(graph); });
    r.ops->forget(graph);
    r.comm->barrier();
  });
}

TEST_F(NcclTest, BitsRepeat) {
  run_ranks([](int rank, rendezvous::Store& store, bool copies) {
    Rank r(rank, store, copies, !copies);
    const Tensor x = r.tensor(DType::f32, 1'000'008);
    std::mt19937 random(static_cast<unsigned>(rank));
    std::normal_distribution<float> normal;
    std::vector<float> first, input;
    for (int64_t i = 0; i < x.elements(); ++i) input.push_back(normal(random));
    for (int run = 0; run < 3; ++run) {
      r.put(x, [&](int64_t i) { return input[static_cast<size_t>(i)]; });
      r.comm->all_reduce(x, Reduce::mean);
      const std::vector<float> got = r.get(x);
      if (run == 0) first = got;
      EXPECT_EQ(std::memcmp(first.data(), got.data(), got.size() * sizeof(float)), 0);
    }
  });
}

/// Copies of other ranks' memory are added in the order of the ranks, in fp32, and rounded once.
TEST_F(NcclTest, CopiesAreAddedInTheOrderOfRanks) {
  if (!linked()) GTEST_SKIP() << "needs NVLink";
  ranks::run_rank_processes(gpus(), 60, [](int rank, rendezvous::Store& store) {
    Rank r(rank, store, true, false, int64_t{8} << 20);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      // Several parts of a sum, and no multiple of what a thread adds.
      const int64_t n = (int64_t{17} << 20) / ops::size_bytes(dtype) + 3, size = r.comm->size();
      const Tensor x = r.tensor(dtype, n * size);
      const auto of = [](int64_t q, int64_t i) {
        return static_cast<float>((i * 40'503 + q * 7) % 65'521 - 30'000) *
               std::exp2(float(3 * q - 21));
      };
      r.put(x, [&](int64_t i) { return of(rank, i); });
      r.comm->follow(r.ops->mark());
      r.comm->all_reduce(x, Reduce::mean);
      const std::vector<float> got = r.get(x);
      int64_t wrong = 0;
      std::vector<uint8_t> word(4);
      const Tensor rounded(word.data(), dtype, ops::Device::cpu, {1});
      for (int64_t i = 0; i < x.elements(); i += 5) {
        float sum = 0;
        for (int64_t q = 0; q < size; ++q) {
          ops::store(rounded, 0, of(q, i));
          sum += ops::load(rounded, 0);
        }
        ops::store(rounded, 0, sum * (1.0f / static_cast<float>(size)));
        wrong += got[static_cast<size_t>(i)] != ops::load(rounded, 0);
      }
      EXPECT_EQ(wrong, 0) << ops::name(dtype);
    }
  });
}

/// Many calls in a row, by copies and by NCCL, that use what the ones before have written: beside
/// work that leaves their sums no multiprocessor, captured or not.
TEST_F(NcclTest, CallsOfCopiesHaveTheirEffectInOrder) {
  if (!linked()) GTEST_SKIP() << "needs NVLink";
  ranks::run_rank_processes(gpus(), 60, [](int rank, rendezvous::Store& store) {
    Rank r(rank, store, true);
    comm::Comm& c = *r.comm;
    const int64_t size = c.size(), share = (int64_t{9} << 20) + 5;
    const Tensor busy = r.tensor(DType::f32, int64_t{16} << 20);
    const Tensor x = r.tensor(DType::f32, share * size), y = r.tensor(DType::f32, share * size);
    const Tensor mine = x.slice(share * rank, share), apart = r.tensor(DType::f32, share);
    std::vector<Tensor> small;
    for (int i = 0; i < 40; ++i) small.push_back(r.tensor(DType::f32, 4 * size));
    const float all = static_cast<float>(size * (size + 1) / 2), n = static_cast<float>(size);
    const auto step = [&] {
      r.ops->run(ops::Fill{.dst = x, .value = static_cast<float>(rank + 1)});
      r.ops->run(ops::Fill{.dst = y, .value = static_cast<float>(rank + 1)});
      for (const Tensor& t : small)
        r.ops->run(ops::Fill{.dst = t, .value = static_cast<float>(rank + 1)});
      c.follow(r.ops->mark());
      for (int i = 0; i < 20; ++i) r.ops->run(ops::Fill{.dst = busy, .value = 1});
      c.reduce_scatter(mine, x, Reduce::sum);  // all
      c.all_gather(x, mine);
      c.reduce_scatter(apart, y, Reduce::sum);
      c.all_reduce(x, Reduce::mean);
      c.all_reduce(x, Reduce::sum);  // n * all
      for (const Tensor& t : small) c.reduce_scatter(t.slice(4 * rank, 4), t, Reduce::sum);
      c.all_reduce(x.slice(0, 1), Reduce::max);  // by NCCL
      c.reduce_scatter(mine, x, Reduce::mean);
      for (const Tensor& t : small) c.all_gather(t, t.slice(4 * rank, 4));
      c.all_gather(y, apart);
      c.all_reduce(y, Reduce::sum);  // n * all
      r.ops->follow(c.mark());
    };
    const auto check = [&](const char* what) {
      const auto expect = [&](const Tensor& t, float wanted, const char* name) {
        const std::vector<float> got = r.get(t);
        EXPECT_EQ(std::ranges::count(got, wanted), t.elements()) << what << ", " << name;
      };
      expect(mine, n * all, "mine");
      expect(apart, all, "apart");
      expect(y, n * all, "y");
      for (const Tensor& t : small) expect(t, all, "small");
    };
    for (const char* again : {"eager", "eager after a capture"}) {
      step();
      check(again);
      ASSERT_TRUE(r.ops->begin_capture());
      step();
      step();
      const int64_t graph = r.ops->end_capture();
      for (int i = 0; i < 3; ++i) r.ops->replay(graph);
      check("captured");
      r.ops->forget(graph);
    }
    c.barrier();
  });
}

/// Ranks that disagree about what they add wait; they do not add it.
TEST_F(NcclTest, CopiesOfDifferentTensorsWait) {
  if (!linked()) GTEST_SKIP() << "needs NVLink";
  ranks::run_rank_processes(gpus(), 20, [](int rank, rendezvous::Store& store) {
    Rank r(rank, store, true);
    const int64_t n = int64_t{1} << 20;
    const Tensor first = r.tensor(DType::f32, n), second = r.tensor(DType::f32, n);
    r.comm->all_reduce(first, Reduce::sum);
    r.comm->barrier();
    r.comm->all_reduce(rank == 0 ? second : first, Reduce::sum);
    const ops::Mark done = r.comm->mark();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_EQ(cudaEventQuery(static_cast<cudaEvent_t>(done.event)), cudaErrorNotReady);
    // Nothing that waits for the GPU would return.
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure());
  });
}

// Bus bandwidth as NCCL's own tests define it; printed, and only its order is checked.
TEST_F(NcclTest, BandwidthIsThatOfTheLinks) {
  run_ranks([](int rank, rendezvous::Store& store, bool copies) {
    Rank r(rank, store, copies);
    const int64_t n = int64_t{64} << 20;
    const Tensor x = r.tensor(DType::bf16, n);
    r.ops->run(ops::Fill{.dst = x, .value = 0});
    r.comm->follow(r.ops->mark());
    const double size = r.comm->size();
    const auto time = [&](const char* what, double factor, const std::function<void()>& work) {
      for (int i = 0; i < 3; ++i) work();
      r.comm->barrier();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < 20; ++i) work();
      r.comm->barrier();
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 20;
      const double rate = factor * static_cast<double>(x.bytes()) / seconds / 1e9;
      if (rank == 0)
        std::printf("%s of 128 MiB on %.0f GPUs%s: %.0f GB/s bus\n", what, size,
                    copies ? " by copy engines" : "", rate);
      EXPECT_GT(rate, 5);
    };
    time("all-reduce", 2 * (size - 1) / size, [&] { r.comm->all_reduce(x, Reduce::sum); });
    const Tensor mine = x.slice(n / r.comm->size() * rank, n / r.comm->size());
    time("reduce-scatter", (size - 1) / size,
         [&] { r.comm->reduce_scatter(mine, x, Reduce::sum); });
    time("all-gather", (size - 1) / size, [&] { r.comm->all_gather(x, mine); });
  });
}

TEST_F(NcclTest, SizesThatDoNotFitAreRefused) {
  run_ranks([](int rank, rendezvous::Store& store, bool copies) {
    Rank r(rank, store, copies);
    const Tensor x = r.tensor(DType::f32, 9 * r.comm->size() + 1);
    EXPECT_THROW(r.comm->all_gather(x, x.slice(0, 9)), ops::ShapeError);
    EXPECT_THROW(r.comm->broadcast(x, r.comm->size()), ops::ShapeError);
    EXPECT_THROW(r.comm->send(x, rank), ops::ShapeError);
    r.comm->barrier();
  });
}

}  // namespace
