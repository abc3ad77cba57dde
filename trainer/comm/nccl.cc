// NcclComm: each call is NCCL's, on its own stream. Marks are events from a ring, like CudaOps', so
// that the two streams synchronise without the host, captured or not. Not here: detecting that a
// peer is lost while the device waits for it (rendezvous/control.h: the process then ends, and the
// driver destroys the stream).
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/nccl.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

#include "trainer/comm/peer_copies.h"
#include "trainer/ops/cuda/cuda_check.h"

namespace comm {
namespace {

using ops::DeviceError;
using ops::DType;

/// As many as Mark guarantees.
constexpr size_t kMarks = 1024;

void wait_for_event(const Mark& mark) {
  CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(mark.event)));
}

ncclDataType_t type_of(const Tensor& t) {
  switch (t.dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
      return ncclUint8;
  }
  return ncclUint8;
}

/// Must be called before the first communicator, when NCCL reads its environment.
void set_environment(bool one_algorithm) {
  static std::once_flag once;
  std::call_once(once, [&] {
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (!one_algorithm) return;
    setenv("NCCL_ALGO", "Ring", 0);
    setenv("NCCL_PROTO", "Simple", 0);
  });
}

class NcclComm final : public Comm {
 public:
  NcclComm(const NcclOptions& options, rendezvous::Store& store);
  ~NcclComm() override;

  int rank() const noexcept override { return options_.rank; }
  int size() const noexcept override { return options_.size; }
  std::string describe() const override {
    return options_.name + ", rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
           (copies_ != nullptr ? ", copy engines and nccl" : ", nccl");
  }
  bool share_memory(const Tensor& memory) override;
  void all_reduce(Tensor x, Reduce reduce) override {
    const bool even = x.elements() % size() == 0;
    if (even && summable(x, reduce) && by_copies(x, x.bytes() / size()))
      return copy("all-reduce", x, [&] { copies_->all_reduce(x, scale_of(reduce)); });
    check(ncclAllReduce(x.data, x.data, count(x), type_of(x), operation(x, reduce), comm_, stream_),
          "ncclAllReduce", x);
  }
  void reduce_scatter(Tensor dst, Tensor src, Reduce reduce) override {
    expect_shares(src, dst);
    if (summable(src, reduce) && by_copies(src, dst.bytes()))
      return copy("reduce-scatter", src,
                  [&] { copies_->reduce_scatter(dst, src, scale_of(reduce)); });
    check(ncclReduceScatter(src.data, dst.data, count(dst), type_of(dst), operation(dst, reduce),
                            comm_, stream_),
          "ncclReduceScatter", src);
  }
  void all_gather(Tensor dst, Tensor src) override {
    expect_shares(dst, src);
    if (by_copies(dst, src.bytes()))
      return copy("all-gather", dst, [&] { copies_->all_gather(dst, src); });
    check(ncclAllGather(src.data, dst.data, count(src), type_of(src), comm_, stream_),
          "ncclAllGather", dst);
  }
  void broadcast(Tensor x, int root) override {
    expect_rank(root);
    check(ncclBroadcast(x.data, x.data, count(x), type_of(x), root, comm_, stream_),
          "ncclBroadcast", x);
  }
  void send(Tensor x, int to) override {
    expect_peer(to);
    check(ncclSend(x.data, count(x), type_of(x), to, comm_, stream_), "ncclSend", x);
  }
  void receive(Tensor x, int from) override {
    expect_peer(from);
    check(ncclRecv(x.data, count(x), type_of(x), from, comm_, stream_), "ncclRecv", x);
  }
  void barrier() override {
    const Tensor token(token_, DType::i32, ops::Device::cuda, {1});
    all_reduce(token, Reduce::max);
    CUDA_CHECK(cudaStreamSynchronize(stream_));
  }
  void group_begin() override {
    ++groups_;
    check(ncclGroupStart(), "ncclGroupStart", {});
  }
  void group_end() override {
    --groups_;
    check(ncclGroupEnd(), "ncclGroupEnd", {});
  }
  Mark mark() override;
  void follow(const Mark& mark) override;

 private:
  static size_t count(const Tensor& t) { return static_cast<size_t>(t.elements()); }
  ncclRedOp_t operation(const Tensor& x, Reduce reduce) const;
  void queued(const char* call, const Tensor& tensor) const {
    if (options_.rank_status != nullptr)
      options_.rank_status->queued(options_.name + " " + call + " of " + tensor.describe());
  }
  /// Whether sum_shares() makes that reduction.
  static bool summable(const Tensor& x, Reduce reduce) noexcept {
    return reduce != Reduce::max &&
           (x.dtype == DType::f32 || x.dtype == DType::bf16 || x.dtype == DType::f16);
  }
  bool by_copies(const Tensor& whole, int64_t share_bytes) const noexcept {
    return copies_ != nullptr && groups_ == 0 && copies_->pays(whole, share_bytes);
  }
  template <class Queue>
  void copy(const char* call, const Tensor& whole, const Queue& queue) {
    try {
      queue();
    } catch (...) {
      failed_ = true;
      throw;
    }
    queued(call, whole);
  }
  float scale_of(Reduce reduce) const noexcept {
    return reduce == Reduce::mean ? 1.0f / static_cast<float>(size()) : 1.0f;
  }
  void check(ncclResult_t status, const char* call, const Tensor& tensor);
  bool close_copies(bool broken) noexcept;
  void expect_rank(int rank) const;
  void expect_peer(int rank) const;
  void expect_shares(const Tensor& whole, const Tensor& share) const;

  const NcclOptions options_;
  rendezvous::Store& store_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<PeerCopies> copies_;
  void* token_ = nullptr;
  bool failed_ = false;
  int groups_ = 0;  ///< Begun and not ended.
  std::vector<cudaEvent_t> events_;
  uint64_t serial_ = 0;
};

NcclComm::NcclComm(const NcclOptions& options, rendezvous::Store& store)
    : options_(options), store_(store) {
  set_environment(options.one_algorithm);
  CUDA_CHECK(cudaSetDevice(options.device_index));
  ncclUniqueId id;
  const std::string key = "nccl/" + options.id;
  if (rank() == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId", {});
    store.set(key, std::string(id.internal, sizeof id.internal));
  } else {
    const std::string bytes = store.get(key, options.timeout);
    if (bytes.size() != sizeof id.internal)
      throw DeviceError("comm: " + describe() + ": the group's id has " +
                        std::to_string(bytes.size()) + " bytes");
    std::memcpy(id.internal, bytes.data(), bytes.size());
  }
  int lowest = 0, highest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest));
  events_.resize(kMarks);
  for (cudaEvent_t& event : events_)
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUDA_CHECK(cudaMalloc(&token_, sizeof(int32_t)));
  CUDA_CHECK(cudaMemset(token_, 0, sizeof(int32_t)));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (options.max_ctas > 0) {
    config.minCTAs = 1;
    config.maxCTAs = options.max_ctas;
  }
  config.commName = options_.name.c_str();
  check(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config), "ncclCommInitRankConfig", {});
}

bool NcclComm::share_memory(const Tensor& memory) {
  if (options_.one_algorithm) return false;
  copies_ = PeerCopies::open({.id = "nccl/" + options_.id,
                              .rank = rank(),
                              .size = size(),
                              .least_bytes = options_.least_shared_bytes,
                              .sum_bytes = options_.sum_bytes,
                              .timeout = options_.timeout},
                             store_, memory, stream_);
  return copies_ != nullptr;
}

/// Whether copies have come to their end. Otherwise a stream may wait for a rank that is gone, and
/// what is freed would wait for it: everything is left to the end of the process.
bool NcclComm::close_copies(bool broken) noexcept {
  try {
    if (!broken) copies_->close();
  } catch (const std::exception&) {
    broken = true;
  }
  if (broken) static_cast<void>(copies_.release());
  copies_.reset();
  return !broken;
}

NcclComm::~NcclComm() {
  // NCCL waits here for every graph that captured one of its calls: call Ops::forget first. A
  // collective that a peer never enters would block the stream forever.
  const bool broken = failed_ || std::uncaught_exceptions() > 0;
  if (copies_ != nullptr && !close_copies(broken)) return;
  if (comm_ != nullptr) {
    if (!broken) cudaStreamSynchronize(stream_);
    if (broken || ncclCommDestroy(comm_) != ncclSuccess) ncclCommAbort(comm_);
  }
  if (token_ != nullptr) cudaFree(token_);
  for (cudaEvent_t event : events_)
    if (event != nullptr) cudaEventDestroy(event);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void NcclComm::check(ncclResult_t status, const char* call, const Tensor& tensor) {
  ncclResult_t later = ncclSuccess;
  if (status == ncclSuccess && comm_ != nullptr) ncclCommGetAsyncError(comm_, &later);
  if (status == ncclSuccess && (later == ncclSuccess || later == ncclInProgress)) {
    if (tensor) queued(call, tensor);
    return;
  }
  failed_ = true;
  const char* last = ncclGetLastError(comm_);
  throw PeerError("comm: " + describe() + ": " + call +
                  (tensor ? " of " + tensor.describe() : std::string()) + ": " +
                  ncclGetErrorString(status == ncclSuccess ? later : status) +
                  (last != nullptr && *last != 0 ? std::string(": ") + last : std::string()));
}

ncclRedOp_t NcclComm::operation(const Tensor& x, Reduce reduce) const {
  if (reduce == Reduce::max) return ncclMax;
  if (reduce == Reduce::sum) return ncclSum;
  if (x.dtype == DType::i32 || x.dtype == DType::i64 || x.dtype == DType::u8)
    throw ops::ShapeError(std::string("comm: mean of ") + ops::name(x.dtype) +
                          ": a float expected");
  return ncclAvg;
}

void NcclComm::expect_rank(int rank) const {
  if (rank < 0 || rank >= size())
    throw ops::ShapeError("comm: " + describe() + ": no rank " + std::to_string(rank));
}

void NcclComm::expect_peer(int rank) const {
  expect_rank(rank);
  if (rank == options_.rank) throw ops::ShapeError("comm: " + describe() + ": a message to itself");
}

void NcclComm::expect_shares(const Tensor& whole, const Tensor& share) const {
  if (whole.elements() != share.elements() * size() || whole.dtype != share.dtype)
    throw ops::ShapeError("comm: " + describe() + ": " + whole.describe() + " is no " +
                          std::to_string(size()) + " of " + share.describe());
}

Mark NcclComm::mark() {
  cudaEvent_t event = events_[serial_ % kMarks];
  CUDA_CHECK(cudaEventRecord(event, stream_));
  return {.event = event, .serial = ++serial_, .wait_on_host = wait_for_event};
}

void NcclComm::follow(const Mark& mark) {
  if (mark.event == nullptr) return;
  CUDA_CHECK(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(mark.event), 0));
}

}  // namespace

std::unique_ptr<Comm> make_nccl_comm(const NcclOptions& options, rendezvous::Store& store) {
  return std::make_unique<NcclComm>(options, store);
}

}  // namespace comm
