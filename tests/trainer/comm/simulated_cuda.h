// The part of CUDA that comm/peer_copies.cc calls, carried out by threads of the host: the ranks of
// one process each have a "GPU", streams run beside each other with random delays, events and
// waits for values in memory order them, and work can be captured. So the order in which GPUs meet
// is tested where there is none. A program that contains simulated_cuda.cc calls it in place of
// CUDA's runtime. Memory is the host's. Not here: how long anything takes on a GPU.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace simulated_cuda {

/// One rank's GPU.
struct Gpu {
  std::string model = "Simulated";
  bool linked = true;         ///< By NVLink to those that are, too.
  bool opens_handles = true;  ///< Of other ranks' memory.
  int batch_operations = -1;  ///< How many succeed before all fail; -1: all.
  int batch_status = 700;     ///< What a failing one returns, a CUresult.
  size_t free_bytes = size_t{1} << 40;
};

/// The calling thread's GPU, whose number is `rank`. Streams run until forget().
void use(int rank, const Gpu& gpu, unsigned seed);
/// Ends the streams of the calling thread's GPU; what still waits is dropped.
void forget();
/// Bytes that are allocated on it now, and the most that were at a time.
size_t allocated_bytes();
size_t most_allocated_bytes();

/// Queues the host's work on a stream.
void queue(cudaStream_t stream, std::function<void()> work);
/// Captures what is queued on `stream`, and on those that follow it, until end_capture.
void begin_capture(cudaStream_t stream);
/// Ends the capture; `graph` gets its number. Errors: cudaErrorStreamCaptureUnjoined, as CUDA's.
cudaError_t end_capture(cudaStream_t stream, int64_t* graph);
/// Queues recorded work.
void replay(int64_t graph, cudaStream_t stream);

}  // namespace simulated_cuda
