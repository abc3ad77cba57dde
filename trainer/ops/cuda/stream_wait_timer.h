// How long a stream of a GPU waits, measured by the GPU itself, inside a captured graph as well as
// outside. Not here: what the stream waits for (cuda_ops.cc). Included by ops/cuda only.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ops::cuda {

/// Two kernels of one thread around a wait, start() before it and stop() after it, read the GPU's
/// global timer; stop() adds the difference. A wait for something already done counts too, with the
/// microsecond or two between two such kernels. One stream at a time.
/// State: 16 bytes of device memory, 8 of host memory. Errors: DeviceError.
class StreamWaitTimer {
 public:
  StreamWaitTimer();
  ~StreamWaitTimer();
  StreamWaitTimer(const StreamWaitTimer&) = delete;
  StreamWaitTimer& operator=(const StreamWaitTimer&) = delete;

  void start(cudaStream_t stream);
  void stop(cudaStream_t stream);
  /// All waits so far, in seconds, of work that the host has waited for; does not touch the device.
  double seconds() const noexcept;

  /// Kept in device memory, in nanoseconds.
  struct Times {
    uint64_t since = 0, total = 0;
  };

 private:
  Times* times_ = nullptr;
  volatile uint64_t* published_ = nullptr;  ///< Times::total, in host memory.
};

}  // namespace ops::cuda
