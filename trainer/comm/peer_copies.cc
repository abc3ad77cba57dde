// PeerCopies: memory of other processes' GPUs through CUDA's handles, sent through the Store;
// meetings by values that a stream writes into the others' memory and waits for in its own, which
// takes neither the host nor a multiprocessor.
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/peer_copies.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "trainer/ops/cuda/cuda_check.h"
#include "trainer/ops/cuda/sum_shares.h"

namespace comm {
namespace {

using ops::DeviceError;

/// A smaller block of cudaMalloc may be part of one that other blocks are in, too, and a handle
/// names all of it.
constexpr size_t kOwnBlock = size_t{2} << 20;

/// Whether a call succeeded that may fail where something is not supported.
bool succeeds(cudaError_t status) {
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  return status == cudaSuccess;
}

using BatchMemOp = CUresult(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

/// Null where the driver has none.
BatchMemOp* batch_mem_op() {
  static BatchMemOp* const call = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const bool asked = succeeds(cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &function,
                                                                 12000, cudaEnableDefault, &found));
    return asked && found == cudaDriverEntryPointSuccess ? reinterpret_cast<BatchMemOp*>(function)
                                                         : nullptr;
  }();
  return call;
}

/// What a rank tells the others of itself.
struct Claim {
  /// The same for all processes of a host until it starts again; empty where the rank shares none.
  std::array<char, 40> host{};
  std::array<char, 32> bus{};     ///< Of the GPU,
  std::array<char, 256> model{};  ///< which decides where tensors lie.
  int64_t memory_bytes = 0;
};
/// What the others open: the memory of meetings, and what the ranks share.
struct Handles {
  cudaIpcMemHandle_t arrived{}, memory{};
};

/// What /proc says of this host's start; at most `most` bytes.
std::string boot_id(size_t most) {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.substr(0, most);
}

/// Whether the GPU on that bus is another one that this process sees, at the end of an NVLink:
/// PCIe has no atomics of its own.
bool linked(const char* bus) {
  int mine = 0, theirs = 0, reaches = 0, atomics = 0;
  return succeeds(cudaGetDevice(&mine)) && succeeds(cudaDeviceGetByPCIBusId(&theirs, bus)) &&
         mine != theirs && succeeds(cudaDeviceCanAccessPeer(&reaches, mine, theirs)) &&
         reaches != 0 &&
         succeeds(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, mine,
                                            theirs)) &&
         atomics != 0;
}

/// Whether the user has told NCCL not to let GPUs access each other's memory.
bool forbidden() {
  const char* const off = std::getenv("NCCL_P2P_DISABLE");
  const char* const level = std::getenv("NCCL_P2P_LEVEL");
  const std::string reach = level == nullptr ? "" : level;
  return (off != nullptr && std::atoi(off) != 0) || reach == "LOC" || reach == "0";
}

CUstreamBatchMemOpParams write_value(const uint32_t* where, uint32_t value) {
  CUstreamBatchMemOpParams out{};
  out.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  out.writeValue.address = reinterpret_cast<CUdeviceptr>(where);
  out.writeValue.value = value;
  return out;
}

CUstreamBatchMemOpParams wait_for_value(const uint32_t* where, uint32_t value) {
  CUstreamBatchMemOpParams out{};
  out.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  out.waitValue.address = reinterpret_cast<CUdeviceptr>(where);
  out.waitValue.value = value;
  out.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return out;
}

}  // namespace

/// Begins with the next rank, so that all links are used at all times.
template <class Work>
void PeerCopies::for_each_peer(const Work& work) const {
  for (int i = 1; i < group_.size; ++i) work((group_.rank + i) % group_.size);
}

/// Tells the others `mine`, and does `work` with what each of them tells.
template <class Told, class Work>
void PeerCopies::exchange(const std::string& what, const Told& mine, const Work& work) {
  const std::string key = group_.id + "/copies/" + what + "/";
  store_.set(key + std::to_string(group_.rank),
             {reinterpret_cast<const char*>(&mine), sizeof mine});
  for_each_peer([&](int rank) {
    const std::string bytes = store_.get(key + std::to_string(rank), group_.timeout);
    Told theirs{};
    if (bytes.size() == sizeof theirs) std::memcpy(&theirs, bytes.data(), bytes.size());
    work(rank, theirs);
  });
}

PeerCopies::~PeerCopies() {
  for (void* block : opened_) cudaIpcCloseMemHandle(block);
  for (int half = 0; half < kHalves; ++half) {
    if (pulled_[half] != nullptr) cudaEventDestroy(pulled_[half]);
    if (summed_[half] != nullptr) cudaEventDestroy(summed_[half]);
  }
  if (sums_ != nullptr) cudaStreamDestroy(sums_);
  if (staging_ != nullptr) cudaFree(staging_);
  if (arrived_ != nullptr) cudaFree(arrived_);
}

std::unique_ptr<PeerCopies> PeerCopies::open(const Group& group, rendezvous::Store& store,
                                             const Tensor& memory, cudaStream_t stream) {
  static_assert(kMostSharing == ops::cuda::kMostPeers);
  if (group.size < 2 || group.size > kMostSharing) return nullptr;
  std::unique_ptr<PeerCopies> out(new PeerCopies(group, store, memory, stream));
  // Every rank asks every question, so that none waits for an answer that is never given.
  if (!out->agree("linked", out->peers_are_linked())) return nullptr;
  const bool opened = out->open_peers();
  if (out->agree("opened", opened) && out->peers_write()) return out;
  out->close();
  return nullptr;
}

void PeerCopies::close() {
  CUDA_CHECK(cudaStreamSynchronize(stream_));
  for (void* block : opened_) cudaIpcCloseMemHandle(block);
  opened_.clear();
  agree("closed", true);
}

/// Whether all ranks answer that question with yes.
bool PeerCopies::agree(const std::string& question, bool mine) {
  const std::string key = group_.id + "/copies/" + question + "/";
  store_.set(key + std::to_string(group_.rank), mine ? "yes" : "no");
  bool all = mine;
  for_each_peer([&](int rank) {
    all = store_.get(key + std::to_string(rank), group_.timeout) == "yes" && all;
  });
  return all;
}

/// Whether all other ranks are on this host, on GPUs of this one's model that NVLink connects with
/// it. Takes no memory.
bool PeerCopies::peers_are_linked() {
  Claim mine{.memory_bytes = memory_.bytes()};
  bool all = !forbidden() && batch_mem_op() != nullptr &&
             mine.memory_bytes >= static_cast<int64_t>(kOwnBlock);
  if (all) {
    int device = 0;
    cudaDeviceProp about{};
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaGetDeviceProperties(&about, device));
    std::copy_n(about.name, mine.model.size() - 1, mine.model.begin());
    CUDA_CHECK(cudaDeviceGetPCIBusId(mine.bus.data(), static_cast<int>(mine.bus.size()), device));
    std::ranges::copy(boot_id(mine.host.size()), mine.host.begin());
  }
  shared_bytes_ = mine.memory_bytes;
  exchange("claims", mine, [&](int, const Claim& theirs) {
    // Another host's handle could name anything here.
    all = all && theirs.host[0] != 0 && theirs.host == mine.host && theirs.model == mine.model &&
          linked(theirs.bus.data());
    shared_bytes_ = std::min(shared_bytes_, theirs.memory_bytes);
  });
  return all;
}

/// Whether there was enough memory.
bool PeerCopies::allocate() {
  chunk_bytes_ = group_.sum_bytes / kHalves / (group_.size - 1) / 256 * 256;
  if (!succeeds(cudaMalloc(&arrived_, kOwnBlock)) ||
      !succeeds(cudaMalloc(&staging_, static_cast<size_t>(group_.sum_bytes))))
    return false;
  int priority = 0;
  CUDA_CHECK(cudaStreamGetPriority(stream_, &priority));
  CUDA_CHECK(cudaStreamCreateWithPriority(&sums_, cudaStreamNonBlocking, priority));
  for (int half = 0; half < kHalves; ++half) {
    CUDA_CHECK(cudaEventCreateWithFlags(&pulled_[half], cudaEventDisableTiming));
    CUDA_CHECK(cudaEventCreateWithFlags(&summed_[half], cudaEventDisableTiming));
  }
  return true;
}

/// Exchanges handles. Whether this rank has opened those of all others.
bool PeerCopies::open_peers() {
  Handles mine;
  bool all = allocate() && succeeds(cudaIpcGetMemHandle(&mine.arrived, arrived_)) &&
             succeeds(cudaIpcGetMemHandle(&mine.memory, memory_.data));
  all = agree("allocated", all);
  their_arrived_.assign(static_cast<size_t>(group_.size), arrived_);
  their_memory_.assign(static_cast<size_t>(group_.size), static_cast<std::byte*>(memory_.data));
  const auto opened = [&](const cudaIpcMemHandle_t& handle) -> void* {
    void* block = nullptr;
    if (!succeeds(cudaIpcOpenMemHandle(&block, handle, cudaIpcMemLazyEnablePeerAccess)))
      return nullptr;
    opened_.push_back(block);
    return block;
  };
  exchange("handles", mine, [&](int rank, const Handles& theirs) {
    if (!all) return;
    const auto i = static_cast<size_t>(rank);
    their_arrived_[i] = static_cast<uint32_t*>(opened(theirs.arrived));
    their_memory_[i] = static_cast<std::byte*>(opened(theirs.memory));
    all = their_arrived_[i] != nullptr && their_memory_[i] != nullptr;
  });
  return all;
}

/// Whether a value that each rank writes into every other one's memory arrives, and whether the
/// streams can meet.
bool PeerCopies::peers_write() {
  const auto word = [](int from, int to) {
    return 0x5eed0000U + static_cast<uint32_t>(from * 256 + to);
  };
  const auto cleared = [&] {
    return succeeds(cudaMemset(arrived_, 0, kOwnBlock)) && succeeds(cudaDeviceSynchronize());
  };
  bool good = agree("cleared", cleared());
  for_each_peer([&](int rank) {
    const uint32_t value = word(group_.rank, rank);
    good = good && succeeds(cudaMemcpy(their_arrived_[static_cast<size_t>(rank)] + group_.rank,
                                       &value, sizeof value, cudaMemcpyDefault));
  });
  good = agree("sent", good && succeeds(cudaDeviceSynchronize()));
  std::array<uint32_t, ops::cuda::kMostPeers> got{};
  good = good && succeeds(cudaMemcpy(got.data(), arrived_, sizeof got, cudaMemcpyDeviceToHost));
  for_each_peer(
      [&](int rank) { good = good && got[static_cast<size_t>(rank)] == word(rank, group_.rank); });
  good = agree("cleared again", good && cleared());
  const bool queued = good && succeeds(queue_meeting(0, 1));
  const bool met = queued && streams_have_met();
  // Whatever is freed would wait for a stream that waits for ever.
  if (queued && !met) end_meeting();
  return agree("met", met);
}

/// Whether the stream comes to the end of what is queued within the time for a first meeting.
bool PeerCopies::streams_have_met() {
  const auto end = std::chrono::steady_clock::now() + group_.meeting_timeout;
  cudaError_t met = cudaStreamQuery(stream_);
  for (; met == cudaErrorNotReady && std::chrono::steady_clock::now() < end;
       met = cudaStreamQuery(stream_))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return succeeds(met);
}

/// Gives the stream what it waits for in the meeting of number 0 and token 1.
void PeerCopies::end_meeting() {
  std::array<uint32_t, ops::cuda::kMostPeers> tokens{};
  tokens.fill(1);
  CUDA_CHECK(cudaMemcpy(arrived_, tokens.data(), sizeof tokens, cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaStreamSynchronize(stream_));
}

/// From the block's start, in bytes; beyond its end if the tensor is not in it.
int64_t PeerCopies::place_of(const Tensor& tensor) const noexcept {
  const auto from = reinterpret_cast<uintptr_t>(memory_.data);
  const auto to = reinterpret_cast<uintptr_t>(tensor.data);
  return to < from ? shared_bytes_ : static_cast<int64_t>(to - from);
}

std::byte* PeerCopies::at(int rank, int64_t place) const noexcept {
  return their_memory_[static_cast<size_t>(rank)] + place;
}

bool PeerCopies::pays(const Tensor& whole, int64_t share_bytes) const noexcept {
  return share_bytes >= group_.least_bytes && place_of(whole) + whole.bytes() <= shared_bytes_;
}

/// Different for calls that do not belong together; never 0. FNV-1a of what describes a call.
uint32_t PeerCopies::token_of(Call call, int64_t place, const Tensor& whole) noexcept {
  uint32_t token = 2166136261U;
  for (const int64_t value :
       {static_cast<int64_t>(call), place, whole.bytes(), static_cast<int64_t>(whole.dtype)}) {
    for (int shift = 0; shift < 64; shift += 8)
      token = (token ^ static_cast<uint32_t>(value >> shift & 0xff)) * 16777619U;
  }
  return std::max(token, 1U);
}

/// See meet().
cudaError_t PeerCopies::queue_meeting(int number, uint32_t token) {
  const int row = number * group_.size;
  std::vector<CUstreamBatchMemOpParams> steps;
  for_each_peer([&](int rank) {
    steps.push_back(
        write_value(their_arrived_[static_cast<size_t>(rank)] + row + group_.rank, token));
  });
  for_each_peer([&](int rank) { steps.push_back(wait_for_value(arrived_ + row + rank, token)); });
  // For the next meeting of this number, to which no rank comes before this one has come to a
  // meeting of another number.
  for_each_peer([&](int rank) { steps.push_back(write_value(arrived_ + row + rank, 0)); });
  const CUresult status = batch_mem_op()(reinterpret_cast<CUstream>(stream_),
                                         static_cast<unsigned>(steps.size()), steps.data(), 0);
  return static_cast<cudaError_t>(status);  // both enumerations number these errors alike
}

/// Work queued later begins when all ranks have done what they queued before their meeting of this
/// number and token. The meetings of one call have different numbers, so that a rank that is
/// already in the next call is not taken for one that arrives at this one's.
void PeerCopies::meet(int number, uint32_t token) { CUDA_CHECK(queue_meeting(number, token)); }

void PeerCopies::copy(void* dst, const void* src, int64_t bytes) {
  CUDA_CHECK(
      cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_));
}

void PeerCopies::all_gather(const Tensor& dst, const Tensor& src) {
  const int64_t place = place_of(dst), bytes = src.bytes();
  const uint32_t token = token_of(Call::all_gather, place, dst);
  std::byte* const own = at(group_.rank, place + group_.rank * bytes);
  if (own != src.data) copy(own, src.data, bytes);
  meet(0, token);
  for_each_peer([&](int rank) {
    const int64_t share = place + rank * bytes;
    copy(at(group_.rank, share), at(rank, share), bytes);
  });
  meet(1, token);
}

/// dst (elements) = the ranks' elements at `place`, added.
void PeerCopies::pull_and_sum(void* dst, int64_t place, int64_t elements, ops::DType dtype,
                              float scale) {
  const int64_t width = ops::size_bytes(dtype), chunk = chunk_bytes_ / width;
  int half = 0;
  for (int64_t begin = 0; begin < elements; begin += chunk, half = 1 - half) {
    if (begin >= kHalves * chunk) CUDA_CHECK(cudaStreamWaitEvent(stream_, summed_[half]));
    const int64_t count = std::min(chunk, elements - begin), from = place + begin * width;
    ops::cuda::SharesOfRanks shares{.ranks = group_.size};
    std::byte* room = staging_ + half * (group_.size - 1) * chunk_bytes_;
    for_each_peer([&](int rank) {
      copy(room, at(rank, from), count * width);
      shares.of[static_cast<size_t>(rank)] = room;
      room += chunk_bytes_;
    });
    shares.of[static_cast<size_t>(group_.rank)] = at(group_.rank, from);
    CUDA_CHECK(cudaEventRecord(pulled_[half], stream_));
    CUDA_CHECK(cudaStreamWaitEvent(sums_, pulled_[half]));
    ops::cuda::sum_shares(static_cast<std::byte*>(dst) + begin * width, shares, scale, dtype, count,
                          sums_);
    CUDA_CHECK(cudaEventRecord(summed_[half], sums_));
  }
  CUDA_CHECK(cudaStreamWaitEvent(stream_, summed_[1 - half]));
}

void PeerCopies::reduce_scatter(const Tensor& dst, const Tensor& src, float scale) {
  const int64_t place = place_of(src);
  const uint32_t token = token_of(Call::reduce_scatter, place, src);
  meet(0, token);
  pull_and_sum(dst.data, place + group_.rank * dst.bytes(), dst.elements(), dst.dtype, scale);
  meet(1, token);
}

void PeerCopies::all_reduce(const Tensor& x, float scale) {
  const int64_t place = place_of(x), bytes = x.bytes() / group_.size;
  const uint32_t token = token_of(Call::all_reduce, place, x);
  const int64_t own = place + group_.rank * bytes;
  meet(0, token);
  pull_and_sum(at(group_.rank, own), own, x.elements() / group_.size, x.dtype, scale);
  meet(1, token);
  for_each_peer([&](int rank) {
    const int64_t share = place + rank * bytes;
    copy(at(group_.rank, share), at(rank, share), bytes);
  });
  meet(2, token);
}

}  // namespace comm
