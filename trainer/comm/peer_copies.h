// PeerCopies: sums and gathers among the GPUs of one host by their copy engines. A transfer takes
// no multiprocessor from the products beside it; only the sum of what arrived does, and that is
// bound by memory. Not here: transfers that are small or leave the host (nccl.cc). Included by
// nccl.cc only.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/rendezvous/store.h"

namespace comm {

/// One group's. Every rank makes the same calls in the same order, with tensors that lie in the
/// shared block, each at the same place on all ranks: calls that differ in kind, place, size or
/// type wait for ever, instead of adding what does not belong together. All work is queued on
/// `stream`, captured or not.
class PeerCopies {
 public:
  /// Who shares the memory, and from which size on.
  struct Group {
    std::string id;  ///< Unique in the job.
    int rank = 0, size = 1;
    int64_t least_bytes = 0;              ///< The smallest share that is transferred so.
    int64_t sum_bytes = kSumBytes;        ///< Memory for sums.
    std::chrono::milliseconds timeout{};  ///< For a rank that does not answer.
    /// For the streams' first meeting: it takes microseconds, and loading what it needs seconds.
    std::chrono::milliseconds meeting_timeout = std::chrono::seconds(20);
  };
  /// `memory`: a block of cudaMalloc from its start, in which this rank's tensors lie. Null on all
  /// ranks, unless every rank reaches every other one's memory over NVLink, their GPUs are of one
  /// kind, and all have memory for sums. Errors: DeviceError where a rank does not appear in the
  /// Store.
  static std::unique_ptr<PeerCopies> open(const Group& group, rendezvous::Store& store,
                                          const Tensor& memory, cudaStream_t stream);
  ~PeerCopies();
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;

  /// Returns when no rank accesses another's memory any more, which may be freed then. All ranks
  /// call it, after their last transfer.
  void close();

  /// Whether a transfer of shares of `share_bytes` bytes of `whole` can and should go this way.
  bool pays(const Tensor& whole, int64_t share_bytes) const noexcept;

  /// As in Comm; `scale` is 1 for a sum, 1 / size for a mean.
  void all_gather(const Tensor& dst, const Tensor& src);
  void reduce_scatter(const Tensor& dst, const Tensor& src, float scale);
  /// x has a multiple of size elements.
  void all_reduce(const Tensor& x, float scale);

 private:
  /// What is pulled for sums has two halves: one is summed while the other is filled.
  static constexpr int kHalves = 2;
  enum class Call : uint8_t { all_gather = 1, reduce_scatter, all_reduce };

  PeerCopies(const Group& group, rendezvous::Store& store, const Tensor& memory,
             cudaStream_t stream)
      : group_(group), store_(store), memory_(memory), stream_(stream) {}
  bool peers_are_linked();
  bool allocate();
  bool open_peers();
  bool peers_write();
  bool streams_have_met();
  void end_meeting();
  bool agree(const std::string& question, bool mine);
  int64_t place_of(const Tensor& tensor) const noexcept;
  std::byte* at(int rank, int64_t place) const noexcept;
  cudaError_t queue_meeting(int number, uint32_t token);
  void meet(int number, uint32_t token);
  void copy(void* dst, const void* src, int64_t bytes);
  void pull_and_sum(void* dst, int64_t place, int64_t elements, ops::DType dtype, float scale);
  template <class Work>
  void for_each_peer(const Work& work) const;
  template <class Told, class Work>
  void exchange(const std::string& what, const Told& mine, const Work& work);
  static uint32_t token_of(Call call, int64_t place, const Tensor& whole) noexcept;

  const Group group_;
  rendezvous::Store& store_;
  const Tensor memory_;
  int64_t shared_bytes_ = 0;  ///< The smallest block's: what lies beyond is not shared.
  cudaStream_t stream_;
  uint32_t* arrived_ = nullptr;  ///< By meeting and rank: the token of one that has arrived, or 0.
  std::byte* staging_ = nullptr;
  int64_t chunk_bytes_ = 0;      ///< Of each peer, in each half of staging_.
  cudaStream_t sums_ = nullptr;  ///< Where sums are made while stream_ pulls the next chunk.
  cudaEvent_t pulled_[kHalves] = {}, summed_[kHalves] = {};
  std::vector<uint32_t*> their_arrived_;  ///< By rank; this rank's own among them.
  std::vector<std::byte*> their_memory_;
  std::vector<void*> opened_;
};

}  // namespace comm
