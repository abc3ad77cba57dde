// CudaOps' device side: construction and destruction, memory, scratch, order, capture. Not here:
// kernels. One compute stream; marks are events from a ring; a captured step is an executable
// graph kept to the end. Scratch memory belongs to whichever operation was queued last, which is
// safe because one stream runs them in order. Follows ops.h.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/cuda_ops.h"

#include <cudnn.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "trainer/ops/cuda/dgelu_gemm.h"
#include "trainer/ops/cuda/gemm.h"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/cuda/sdpa.h"

namespace ops::cuda {
namespace {

constexpr size_t kMarks = 1024 + 8;  // a Mark is valid until 1024 more were made
constexpr int64_t kSmallestBlock = int64_t{2} << 20;

void wait_for_event(const Mark& mark) {
  CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(mark.event)));
}

std::string dotted(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Refuses a GPU that none of this program's code runs on; else returns its capability and which
// code runs. Also has the driver load a kernel, which fails for PTX of a CUDA newer than the
// driver's.
std::string check_code(Capability gpu, const std::string& place) {
  const std::vector<GpuCode> code = own_gpu_code();
  if (const std::string refusal = gpu_refusal(gpu, code); !refusal.empty())
    throw DeviceError(place + refusal);
  if (const cudaError_t status = code_of_kernels().status; status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw DeviceError(place + "the driver does not take this program's code (" + describe(code) +
                      "): " + cudaGetErrorString(status));
  }
  const GpuCode* taken = code_for(code, gpu);
  std::string note = text(gpu);
  if (!taken->real) note += ", compiled by the driver from PTX of " + text(taken->capability);
  if (gpu != kTestedCapability)
    note += "; tested on " + text(kTestedCapability) + " alone, no card of this kind was tried";
  return note;
}

/// As many queues of the device as there can be, since a stream that waits for another rank holds
/// up those that share its queue. Megatron's scripts ask for one, which orders Megatron's own
/// kernels. The driver reads it when it starts.
void ask_for_queues() {
  static const int once = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  static_cast<void>(once);
}

}  // namespace

CudaOps::CudaOps(const CudaOptions& options)
    : device_index_(options.device_index), host_memory_(device_index_) {
  ask_for_queues();
  CUDA_CHECK(cudaSetDevice(device_index_));
  cudaDeviceProp device{};
  CUDA_CHECK(cudaGetDeviceProperties(&device, device_index_));
  device_name_ = device.name;
  identity_.assign(device.uuid.bytes, sizeof device.uuid.bytes);
  const Capability own{device.major, device.minor};
  code_note_ =
      check_code(own, "cuda: device " + std::to_string(device_index_) + ": " + device_name_ + ": ");
  multiprocessors_ = device.multiProcessorCount;
  shared_bytes_per_block_ = static_cast<int>(device.sharedMemPerBlockOptin);
  if (options.as != Capability{})
    shared_bytes_per_block_ =
        std::min(shared_bytes_per_block_, ops::shared_bytes_per_block(options.as));
  capability_ = options.as == Capability{} ? own : options.as;
  fuses_dgelu_ = dgelu_gemm_runs_on(own) && (options.as == Capability{} || options.as == own);
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  events_.resize(2 * kMarks);
  for (cudaEvent_t& event : events_)
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  waits_ = std::make_unique<StreamWaitTimer>();
  gemm_ = std::make_unique<Gemm>(options, device_name_);
  sdpa_ = std::make_unique<Sdpa>();
}

CudaOps::~CudaOps() {
  cudaStreamSynchronize(stream_);
  for (cudaGraphExec_t graph : graphs_)
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  sdpa_.reset();
  gemm_.reset();
  cudaFree(own_workspace_);
  for (void* block : outgrown_) cudaFree(block);
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
  if (copy_stream_ != nullptr) {
    cudaStreamSynchronize(copy_stream_);
    cudaEventDestroy(copied_);
    cudaStreamDestroy(copy_stream_);
  }
  cudaStreamDestroy(stream_);
}

std::string CudaOps::describe() const {
  int runtime = 0;
  CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  const auto cudnn = static_cast<int>(cudnnGetVersion());
  std::string out = device_name_ + " (" + code_note_ + "), CUDA " + dotted(runtime) + ", cuDNN " +
                    std::to_string(cudnn / 10000) + "." + std::to_string(cudnn % 10000 / 100);
  for (const std::string& way : attention_ways_)
    out += (way == *attention_ways_.begin() ? ", attention by " : " and by ") + way;
  return out;
}

int64_t CudaOps::free_bytes() const {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

void* CudaOps::allocate(int64_t bytes) {
  void* block = nullptr;
  const cudaError_t status =
      cudaMalloc(&block, static_cast<size_t>(std::max(bytes, kSmallestBlock)));
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw DeviceError("cuda: " + device_name_ + ": " + std::to_string(bytes) +
                      " bytes: " + cudaGetErrorString(status) + ", " +
                      std::to_string(free_bytes()) + " are free");
  }
  return block;
}

void CudaOps::release(void* block) noexcept { cudaFree(block); }

void* CudaOps::allocate_host(int64_t bytes) { return host_memory_.allocate(bytes); }

void CudaOps::release_host(void* block) noexcept { host_memory_.release(block); }

void CudaOps::run_call(const AnyCall& call) {
  std::visit([this]<class Args>(const Args* args) { Launch<CudaOps, Args>::run(*this, *args); },
             call);
}

int64_t CudaOps::scratch_of(const AnyCall& call) {
  return std::visit(
      [this]<class Args>(const Args* args) { return Launch<CudaOps, Args>::scratch(*this, *args); },
      call);
}

void CudaOps::set_workspace(Tensor workspace) {
  workspace_ = workspace;
  drop_own_workspace();
}

bool CudaOps::has_recordings() const noexcept {
  return std::ranges::any_of(graphs_, [](cudaGraphExec_t graph) { return graph != nullptr; });
}

void CudaOps::drop_own_workspace() {
  if (own_workspace_ == nullptr) return;
  synchronize();
  if (has_recordings())
    outgrown_.push_back(own_workspace_);
  else
    cudaFree(own_workspace_);
  own_workspace_ = nullptr;
  own_workspace_bytes_ = 0;
}

char* CudaOps::scratch(int64_t bytes) {
  if (workspace_ && workspace_.bytes() >= bytes) return static_cast<char*>(workspace_.data);
  if (own_workspace_bytes_ >= bytes) return static_cast<char*>(own_workspace_);
  if (capturing_)
    throw DeviceError("cuda: workspace: " + std::to_string(bytes) +
                      " bytes wanted during capture, " +
                      std::to_string(workspace_ ? workspace_.bytes() : 0) + " were given");
  drop_own_workspace();
  own_workspace_ = allocate(bytes);
  own_workspace_bytes_ = bytes;
  return static_cast<char*>(own_workspace_);
}

Mark CudaOps::mark() {
  // Recorded code uses other events than those that the host may wait for.
  cudaEvent_t event =
      capturing_ ? events_[kMarks + captured_serial_++ % kMarks] : events_[serial_ % kMarks];
  CUDA_CHECK(cudaEventRecord(event, stream_));
  if (capturing_) return {.event = event, .serial = 0, .wait_on_host = nullptr};
  return {.event = event, .serial = ++serial_, .wait_on_host = wait_for_event};
}

void CudaOps::follow(const Mark& mark) {
  if (mark.event == nullptr) return;
  const auto event = static_cast<cudaEvent_t>(mark.event);
  const bool of_comm = event != copied_;
  if (of_comm) waits_->start(stream_);
  CUDA_CHECK(cudaStreamWaitEvent(stream_, event, 0));
  if (of_comm) waits_->stop(stream_);
}

void CudaOps::wait(const Mark& mark) {
  if (mark.wait_on_host == nullptr) return;
  // The event of such an old mark no longer stands for its point: wait for all work instead.
  if (mark.wait_on_host == wait_for_event && mark.serial + kMarks <= serial_) return synchronize();
  mark.wait_on_host(mark);
}

void CudaOps::synchronize() { CUDA_CHECK(cudaStreamSynchronize(stream_)); }

std::vector<double> CudaOps::timed(std::span<const std::function<void()>> parts) {
  struct Events {
    std::vector<cudaEvent_t> list;
    ~Events() {
      for (cudaEvent_t event : list) cudaEventDestroy(event);
    }
    void record(cudaStream_t stream) {
      list.push_back(nullptr);
      CUDA_CHECK(cudaEventCreate(&list.back()));
      CUDA_CHECK(cudaEventRecord(list.back(), stream));
    }
  } events;
  events.record(stream_);
  for (const std::function<void()>& part : parts) {
    part();
    events.record(stream_);
  }
  synchronize();
  std::vector<double> seconds;
  for (size_t i = 0; i < parts.size(); ++i) {
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, events.list[i], events.list[i + 1]));
    seconds.push_back(1e-3 * static_cast<double>(ms));
  }
  return seconds;
}

void CudaOps::upload(Tensor dst, const void* host) {
  if (dst.bytes() == 0) return;
  CUDA_CHECK(cudaMemcpyAsync(dst.data, host, static_cast<size_t>(dst.bytes()), cudaMemcpyDefault,
                             stream_));
}

void CudaOps::download(void* host, Tensor src) {
  if (src.bytes() == 0) return;
  CUDA_CHECK(cudaMemcpyAsync(host, src.data, static_cast<size_t>(src.bytes()), cudaMemcpyDefault,
                             stream_));
}

Mark CudaOps::download_beside(std::span<const HostCopy> copies) {
  if (copy_stream_ == nullptr) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming));
  }
  CUDA_CHECK(cudaStreamWaitEvent(copy_stream_, static_cast<cudaEvent_t>(mark().event), 0));
  for (const HostCopy& copy : copies)
    CUDA_CHECK(cudaMemcpyAsync(copy.host, copy.src.data, static_cast<size_t>(copy.src.bytes()),
                               cudaMemcpyDefault, copy_stream_));
  CUDA_CHECK(cudaEventRecord(copied_, copy_stream_));
  return {.event = copied_, .serial = ++serial_, .wait_on_host = wait_for_event};
}

bool CudaOps::begin_capture() {
  CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  capturing_ = true;
  return true;
}

int64_t CudaOps::end_capture() {
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExec_t executable = nullptr;
  // What was queued on a stream of high priority keeps it: transfers get the first free
  // multiprocessors.
  const cudaError_t status =
      cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(graph);
  CUDA_CHECK(status);
  graphs_.push_back(executable);
  return static_cast<int64_t>(graphs_.size());
}

void CudaOps::replay(int64_t captured) {
  if (captured < 1 || captured > static_cast<int64_t>(graphs_.size()))
    throw DeviceError("cuda: replay: captured step " + std::to_string(captured) + ": unknown");
  CUDA_CHECK(cudaGraphLaunch(graphs_[static_cast<size_t>(captured - 1)], stream_));
}

void CudaOps::forget(int64_t captured) {
  if (captured < 1 || captured > static_cast<int64_t>(graphs_.size())) return;
  cudaStreamSynchronize(stream_);
  cudaGraphExecDestroy(std::exchange(graphs_[static_cast<size_t>(captured - 1)], nullptr));
  if (has_recordings()) return;
  for (void* block : outgrown_) cudaFree(block);
  outgrown_.clear();
}

int device_count() noexcept {
  ask_for_queues();
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return count;
}

std::string product_name(int device_index) {
  cudaDeviceProp device{};
  CUDA_CHECK(cudaGetDeviceProperties(&device, device_index));
  return device.name;
}

std::string driver_objection() {
  int count = 0, driver = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  if (status == cudaSuccess || status == cudaErrorNoDevice || status == cudaErrorStubLibrary)
    return "";
  if (cudaDriverGetVersion(&driver) != cudaSuccess) static_cast<void>(cudaGetLastError());
  return driver_refusal(driver, cuda_release(), cudaGetErrorString(status));
}

std::vector<GpuCode> own_gpu_code() { return parse_gpu_code(GRISTMILL_GPU_CODE); }

int cuda_release() noexcept { return CUDART_VERSION; }

std::string peer_note() {
  const int count = device_count();
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      int reaches = 1;
      if (from != to) CUDA_CHECK(cudaDeviceCanAccessPeer(&reaches, from, to));
      if (reaches == 0) return kNoPeerAccess;
    }
  }
  return "";
}

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options) {
  return std::make_unique<CudaOps>(options);
}

}  // namespace ops::cuda
