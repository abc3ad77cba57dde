// PeerCopies between simulated GPUs (simulated_cuda.h): calls in random order and of random sizes,
// with random delays in every stream, against what they say; who shares memory and who does not.
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/peer_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/trainer/comm/simulated_cuda.h"
#include "trainer/ops/cuda/sum_shares.h"

namespace ops::cuda {

// Of fp32 alone, which is all that this program sums.
void sum_shares(void* out, const SharesOfRanks& shares, float scale, DType, int64_t elements,
                cudaStream_t stream) {
  simulated_cuda::queue(stream, [=] {
    for (int64_t i = 0; i < elements; ++i) {
      float sum = 0;
      for (int rank = 0; rank < shares.ranks; ++rank)
        sum += static_cast<const float*>(shares.of[rank])[i];
      static_cast<float*>(out)[i] = scale * sum;
    }
  });
}

}  // namespace ops::cuda

namespace {

using comm::PeerCopies;
using ops::DType;
using ops::Tensor;
using simulated_cuda::Gpu;

constexpr int64_t kBlock = int64_t{4} << 20;
/// Of each part of a sum.
constexpr int64_t kPartElements = 256;

cudaStream_t new_stream() {
  cudaStream_t out = nullptr;
  cudaStreamCreateWithPriority(&out, cudaStreamNonBlocking, 0);
  return out;
}

/// Work queued on `waits` from now on comes after what is queued on `other`.
void follow(cudaStream_t waits, cudaStream_t other) {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  ASSERT_EQ(cudaEventRecord(event, other), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(waits, event, 0), cudaSuccess);
  cudaEventDestroy(event);
}

/// One of the ranks, which are threads.
struct Rank {
  Rank(int number, int ranks, rendezvous::Store& store, const Gpu& gpu, unsigned seed,
       std::chrono::milliseconds meeting_timeout = std::chrono::seconds(20)) {
    simulated_cuda::use(number, gpu, seed * 64 + static_cast<unsigned>(number));
    void* start = nullptr;
    EXPECT_EQ(cudaMalloc(&start, kBlock), cudaSuccess);
    block = static_cast<std::byte*>(start);
    compute = new_stream();
    transfers = new_stream();
    copies = PeerCopies::open({.id = "group",
                               .rank = number,
                               .size = ranks,
                               .least_bytes = 1,
                               .sum_bytes = 2 * (ranks - 1) * kPartElements * 4,
                               .timeout = std::chrono::seconds(60),
                               .meeting_timeout = meeting_timeout},
                              store, {block, DType::u8, ops::Device::cuda, {kBlock}}, transfers);
  }
  ~Rank() {
    if (copies != nullptr) copies->close();
    copies.reset();
    cudaFree(block);
    EXPECT_EQ(simulated_cuda::allocated_bytes(), 0U);
    simulated_cuda::forget();
  }
  Tensor tensor(int64_t elements) {
    const Tensor out(block + used, DType::f32, ops::Device::cuda, {elements});
    used += (elements * 4 + 255) / 256 * 256;
    EXPECT_LE(used, kBlock);
    return out;
  }
  std::byte* block = nullptr;
  int64_t used = 0;
  cudaStream_t compute = nullptr, transfers = nullptr;
  std::unique_ptr<PeerCopies> copies;
};

void on_ranks(int ranks, const std::function<void(int rank, rendezvous::Store& store)>& body) {
  rendezvous::MemoryStore store;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank, store); });
}

/// What every rank's tensors hold, as the calls say: by rank and tensor.
using Values = std::vector<std::vector<std::vector<float>>>;

/// Random calls of all ranks, the same on each, since they draw the same numbers.
class Program {
 public:
  Program(Rank& rank, int number, int ranks, unsigned seed)
      : rank_(rank),
        number_(number),
        ranks_(ranks),
        random_(seed),
        values_(values(ranks)),
        apart_values_(values(ranks)) {
    for (int64_t share : {1, 64, 255, 256, 257, 512, 700, 1024, 1100}) {
      tensors_.push_back(rank.tensor(share * ranks));
      twins_.push_back(rank.tensor(share * ranks));
      apart_.push_back(rank.tensor(share));
    }
    for (auto& of_rank : values_) {
      for (const Tensor& t : tensors_) of_rank.emplace_back(static_cast<size_t>(t.elements()));
    }
    twin_values_ = values_[0];
    for (auto& of_rank : apart_values_) of_rank.resize(tensors_.size());
  }

  /// Fills everything, makes random calls, and checks everything. All of it is queued.
  void segment(int calls) {
    for (size_t i = 0; i < tensors_.size(); ++i) fill(i);
    start_transfers();
    size_t t = 0;
    for (int i = 0; i < calls; ++i) {
      // Often that of the call before.
      if (random_() % 2 == 0) t = random_() % tensors_.size();
      switch (random_() % 10) {
        case 0:
        case 1:
        case 2:
          reduce_scatter(t, random_() % 2 == 0);
          break;
        case 3:
        case 4:
        case 5:
        case 6:
          all_gather(t);
          break;
        case 7:
        case 8:
          all_reduce(t);
          break;
        case 9:  // its memory is used again at once
          end_transfers();
          if (random_() % 2 == 0)
            fill(t);
          else
            check(t);
          start_transfers();
          break;
      }
    }
    end_transfers();
    for (size_t i = 0; i < tensors_.size(); ++i) check(i);
  }

 private:
  static Values values(int ranks) { return Values(static_cast<size_t>(ranks)); }
  int64_t share(size_t t) const { return apart_[t].elements(); }
  void start_transfers() { follow(rank_.transfers, rank_.compute); }
  void end_transfers() { follow(rank_.compute, rank_.transfers); }

  void fill(size_t t) {
    const auto salt = static_cast<float>(random_() % 50);
    for (int rank = 0; rank < ranks_; ++rank)
      for (size_t i = 0; i < values_[static_cast<size_t>(rank)][t].size(); ++i)
        values_[static_cast<size_t>(rank)][t][i] =
            salt + static_cast<float>(rank) + static_cast<float>(i % 7);
    for (int rank = 0; rank < ranks_; ++rank)
      apart_values_[static_cast<size_t>(rank)][t].assign(static_cast<size_t>(share(t)),
                                                         salt + static_cast<float>(2 * rank));
    twin_values_[t].assign(values_[0][t].size(), salt);
    for (const auto& [to, from] : own(t))
      simulated_cuda::queue(rank_.compute, [to = to, from = from] {
        std::memcpy(to.data, from.data(), from.size() * 4);
      });
  }

  /// This rank's memory and what is to be in it.
  std::vector<std::pair<Tensor, std::vector<float>>> own(size_t t) const {
    const auto i = static_cast<size_t>(number_);
    return {{tensors_[t], values_[i][t]},
            {twins_[t], twin_values_[t]},
            {apart_[t], apart_values_[i][t]}};
  }

  void check(size_t t) {
    for (const auto& [got, wanted] : own(t))
      simulated_cuda::queue(rank_.compute, [got = got, wanted = wanted] {
        const auto* const values = static_cast<const float*>(got.data);
        const auto at = std::mismatch(wanted.begin(), wanted.end(), values).first - wanted.begin();
        if (at < got.elements())
          ADD_FAILURE() << "element " << at << " of " << got.elements() << ": " << values[at]
                        << ", not " << wanted[static_cast<size_t>(at)];
      });
  }

  /// Refills what has become too large to be exact.
  void keep_small(size_t t) {
    const bool large = std::ranges::any_of(values_, [&](const auto& of_rank) {
      return std::ranges::any_of(of_rank[t], [](float x) { return x > 100'000; });
    });
    if (!large) return;
    end_transfers();
    fill(t);
    start_transfers();
  }

  float sum(size_t t, int64_t i) const {
    float total = 0;
    for (const auto& of_rank : values_) total += of_rank[t][static_cast<size_t>(i)];
    return total;
  }

  void reduce_scatter(size_t t, bool in_place) {
    keep_small(t);
    const int64_t n = share(t);
    const Tensor own = tensors_[t].slice(number_ * n, n);
    rank_.copies->reduce_scatter(in_place ? own : apart_[t], tensors_[t], 1);
    for (int rank = 0; rank < ranks_; ++rank) {
      std::vector<float> sums;
      for (int64_t i = 0; i < n; ++i) sums.push_back(sum(t, rank * n + i));
      const auto r = static_cast<size_t>(rank);
      // In place, a rank's own part of its own tensor changes, which no other's sum has in it.
      if (in_place)
        std::ranges::copy(sums, values_[r][t].begin() + rank * n);
      else
        apart_values_[r][t] = std::move(sums);
    }
  }

  /// In place, of the shares apart, of these into the twin, or of the twin's shares.
  void all_gather(size_t t) {
    const auto way = random_() % 4;
    const int64_t n = share(t);
    const auto own = [&](const Tensor& whole) { return whole.slice(number_ * n, n); };
    rank_.copies->all_gather(way == 2 ? twins_[t] : tensors_[t], way == 0   ? own(tensors_[t])
                                                                 : way == 3 ? own(twins_[t])
                                                                            : apart_[t]);
    for (int from = 0; from < ranks_; ++from) {
      const auto r = static_cast<size_t>(from);
      std::vector<float> part = apart_values_[r][t];
      if (way == 0 || way == 3) {
        const std::vector<float>& sent = way == 0 ? values_[r][t] : twin_values_[t];
        part.assign(sent.begin() + from * n, sent.begin() + (from + 1) * n);
      }
      if (way == 2) std::ranges::copy(part, twin_values_[t].begin() + from * n);
      if (way != 2)
        for (auto& of_rank : values_) std::ranges::copy(part, of_rank[t].begin() + from * n);
    }
  }

  void all_reduce(size_t t) {
    keep_small(t);
    rank_.copies->all_reduce(tensors_[t], 1);
    for (int64_t i = 0; i < tensors_[t].elements(); ++i) {
      const float total = sum(t, i);
      for (auto& of_rank : values_) of_rank[t][static_cast<size_t>(i)] = total;
    }
  }

  Rank& rank_;
  const int number_, ranks_;
  std::mt19937 random_;
  std::vector<Tensor> tensors_, twins_, apart_;
  Values values_;
  std::vector<std::vector<float>> twin_values_;  ///< The same on all ranks.
  Values apart_values_;
};

unsigned from_environment(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::atoi(text));
}

// COPIES_SEEDS: as many; COPIES_SEED: from this one on.
TEST(PeerCopies, CallsDoWhatTheySayInOrder) {
  const unsigned first = from_environment("COPIES_SEED", 1),
                 seeds = from_environment("COPIES_SEEDS", 8);
  for (unsigned seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(seed);
    const int ranks = 2 + static_cast<int>(seed % 3);
    on_ranks(ranks, [&](int number, rendezvous::Store& store) {
      Rank rank(number, ranks, store, {}, seed);
      ASSERT_NE(rank.copies, nullptr);
      Program program(rank, number, ranks, seed);
      for (int i = 0; i < 4; ++i) {
        const bool captured = i % 2 == 1;
        if (captured) simulated_cuda::begin_capture(rank.compute);
        program.segment(40);
        if (!captured) continue;
        int64_t graph = 0;
        EXPECT_EQ(simulated_cuda::end_capture(rank.compute, &graph), cudaSuccess);
        for (int again = 0; again < 2; ++again) simulated_cuda::replay(graph, rank.compute);
      }
      cudaStreamSynchronize(rank.compute);
    });
    if (HasFailure()) return;
  }
}

TEST(PeerCopies, ManyCallsInARow) {
  constexpr int kRanks = 3, kTensors = 100;
  on_ranks(kRanks, [&](int number, rendezvous::Store& store) {
    Rank rank(number, kRanks, store, {}, 1);
    ASSERT_NE(rank.copies, nullptr);
    std::vector<Tensor> tensors;
    for (int i = 0; i < kTensors; ++i) tensors.push_back(rank.tensor(300 * kRanks));
    simulated_cuda::queue(rank.compute, [&] {
      for (const Tensor& t : tensors)
        std::fill_n(static_cast<float*>(t.data), t.elements(), static_cast<float>(number + 1));
    });
    follow(rank.transfers, rank.compute);
    for (const Tensor& t : tensors) rank.copies->reduce_scatter(t.slice(300 * number, 300), t, 0.5);
    follow(rank.compute, rank.transfers);
    cudaStreamSynchronize(rank.compute);
    for (const Tensor& t : tensors) {
      const auto* const own = static_cast<const float*>(t.data) + 300 * number;
      EXPECT_EQ(std::count(own, own + 300, 3.0f), 300);
    }
  });
}

// Calls that differ in kind, place, size or type.
TEST(PeerCopies, CallsThatDoNotBelongTogetherWait) {
  using Call = std::function<void(PeerCopies&, const Tensor&)>;
  const auto halves = [](const Tensor& x) { return x.slice(0, x.elements() / 2); };
  const Call usual = [](PeerCopies& c, const Tensor& x) { c.all_reduce(x, 1); };
  const std::vector<std::pair<const char*, Call>> others = {
      {"kind", [&](PeerCopies& c, const Tensor& x) { c.reduce_scatter(halves(x), x, 1); }},
      {"place",
       [](PeerCopies& c, const Tensor& x) {
         Tensor moved = x;
         moved.data = static_cast<std::byte*>(x.data) + 4096;
         c.all_reduce(moved, 1);
       }},
      {"size", [&](PeerCopies& c, const Tensor& x) { c.all_reduce(halves(x), 1); }},
      {"type", [](PeerCopies& c, const Tensor& x) {
         Tensor shorts = x;
         shorts.dtype = DType::bf16;
         shorts.shape[0] *= 2;
         c.all_reduce(shorts, 1);
       }}};
  for (const auto& [what, other] : others) {
    SCOPED_TRACE(what);
    on_ranks(2, [&, &other = other](int number, rendezvous::Store& store) {
      auto rank = std::make_unique<Rank>(number, 2, store, Gpu{}, 1);
      ASSERT_NE(rank->copies, nullptr);
      const Tensor x = rank->tensor(512);
      (number == 0 ? other : usual)(*rank->copies, x);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_EQ(cudaStreamQuery(rank->transfers), cudaErrorNotReady);
      simulated_cuda::forget();
      static_cast<void>(rank->copies.release());
      static_cast<void>(rank.release());
    });
  }
}

/// Opens on three ranks of which the last has another GPU. How many have opened, and the most
/// memory that the first one took beyond its own block.
struct Opened {
  int ranks = 0;
  size_t bytes = 0;
};
Opened open_beside(const Gpu& last,
                   std::chrono::milliseconds meeting_timeout = std::chrono::seconds(20)) {
  Opened out;
  std::mutex mutex;
  on_ranks(3, [&](int number, rendezvous::Store& store) {
    Rank rank(number, 3, store, number == 2 ? last : Gpu{}, 1, meeting_timeout);
    const std::lock_guard lock(mutex);
    out.ranks += rank.copies != nullptr;
    if (number == 0) out.bytes = simulated_cuda::most_allocated_bytes() - size_t{kBlock};
  });
  return out;
}

TEST(PeerCopies, AllOrNoneShareTheirMemory) {
  EXPECT_EQ(open_beside({}).ranks, 3);
  EXPECT_GT(open_beside({}).bytes, 0U);
  // Known before memory is taken.
  for (const Gpu& gpu : {Gpu{.model = "Another"}, Gpu{.linked = false}}) {
    EXPECT_EQ(open_beside(gpu).ranks, 0);
    EXPECT_EQ(open_beside(gpu).bytes, 0U);
  }
  EXPECT_EQ(open_beside({.opens_handles = false}).ranks, 0);
  EXPECT_EQ(open_beside({.free_bytes = size_t{kBlock} + (size_t{2} << 20)}).ranks, 0);
  // The others have queued a meeting that the last one does not come to.
  EXPECT_EQ(open_beside({.batch_operations = 0}, std::chrono::seconds(1)).ranks, 0);
}

// What the driver says is not taken for a fault of the hardware.
TEST(PeerCopies, AnErrorOfTheDriverIsItsOwn) {
  on_ranks(2, [&](int number, rendezvous::Store& store) {
    auto rank = std::make_unique<Rank>(number, 2, store, Gpu{.batch_operations = 1}, 1);
    ASSERT_NE(rank->copies, nullptr);
    const Tensor x = rank->tensor(512);
    try {
      rank->copies->all_reduce(x, 1);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ops::DeviceFault&) {
      ADD_FAILURE() << "a fault";
    } catch (const ops::DeviceError&) {
    }
    simulated_cuda::forget();
    static_cast<void>(rank->copies.release());
    static_cast<void>(rank.release());
  });
}

}  // namespace
