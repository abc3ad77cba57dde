// The kernels of StreamWaitTimer. Lives here: nothing that computes. Bound by the launch: one
// thread, two reads of the global timer, and one word that is written to host memory without anyone
// waiting for it.
// Source: PTX ISA, %globaltimer (nanoseconds, the same for all multiprocessors of a GPU).
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/cuda/stream_wait_timer.h"

namespace ops::cuda {
namespace {

__device__ uint64_t nanoseconds() {
  uint64_t out = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(out));
  return out;
}

__global__ void start_kernel(StreamWaitTimer::Times* times) { times->since = nanoseconds(); }

__global__ void stop_kernel(StreamWaitTimer::Times* times, volatile uint64_t* published) {
  times->total += nanoseconds() - times->since;
  *published = times->total;
}

}  // namespace

StreamWaitTimer::StreamWaitTimer() {
  void* published = nullptr;
  CUDA_CHECK(cudaMalloc(&times_, sizeof(Times)));
  CUDA_CHECK(cudaMemset(times_, 0, sizeof(Times)));
  CUDA_CHECK(cudaStreamSynchronize(nullptr));  // other streams do not wait for it
  CUDA_CHECK(cudaMallocHost(&published, sizeof(uint64_t)));
  published_ = static_cast<volatile uint64_t*>(published);
  *published_ = 0;
}

StreamWaitTimer::~StreamWaitTimer() {
  cudaFree(times_);
  cudaFreeHost(const_cast<uint64_t*>(published_));
}

void StreamWaitTimer::start(cudaStream_t stream) {
  start_kernel<<<1, 1, 0, stream>>>(times_);
  CUDA_CHECK(cudaGetLastError());
}

void StreamWaitTimer::stop(cudaStream_t stream) {
  stop_kernel<<<1, 1, 0, stream>>>(times_, published_);
  CUDA_CHECK(cudaGetLastError());
}

double StreamWaitTimer::seconds() const noexcept { return static_cast<double>(*published_) * 1e-9; }

}  // namespace ops::cuda
