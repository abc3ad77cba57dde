// See simulated_cuda.h. One lock orders events, values in memory and queues; copies and the host's
// work run without it.
//
// SPDX-License-Identifier: MIT
#include "tests/trainer/comm/simulated_cuda.h"

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace simulated_cuda {
namespace {

std::mutex mutex;
std::condition_variable changed;

/// No test's stream has work for so long.
constexpr std::chrono::seconds kForEver{60};

/// What is done once at a time and may wait: `ready` is asked under the lock, `work` runs without.
struct Operation {
  std::function<bool()> ready;
  std::function<void()> work;
  std::function<void()> done;  ///< Under the lock.
};
/// How far a captured stream has followed each other one.
using Seen = std::map<cudaStream_t, size_t>;
struct Capture;

}  // namespace
}  // namespace simulated_cuda

using simulated_cuda::Operation;

// CUDA's own names for what streams and events are.
struct CUstream_st {
  std::deque<Operation> operations;
  bool busy = false, ends = false, slow = false;
  std::mt19937 random;
  std::shared_ptr<simulated_cuda::Capture> capture;
  std::thread thread;
};
struct CUevent_st {
  std::shared_ptr<bool> reached;                     ///< Of the last record; null before the first.
  std::shared_ptr<simulated_cuda::Capture> capture;  ///< In which it was last recorded.
  size_t place = 0;                                  ///< Of the record in it.
  simulated_cuda::Seen seen;
};

namespace simulated_cuda {
namespace {

/// An operation that a graph repeats; `waits_for` and `reaches` are its marks.
struct Node {
  std::function<bool()> ready;
  std::function<void()> work, done;
  int64_t waits_for = -1, reaches = -1;
};
struct Capture {
  bool active = true;
  size_t marks = 0;
  std::map<cudaStream_t, std::vector<Node>> nodes;
  std::map<cudaStream_t, Seen> seen;
};

struct Device {
  Gpu gpu;
  std::mt19937 random;
  std::vector<cudaStream_t> streams;
  std::map<void*, size_t> blocks;
  size_t allocated = 0, most = 0;
};
std::map<int, Device> devices;
std::map<int64_t, std::shared_ptr<Capture>> graphs;
int64_t serial = 0;
thread_local int own = -1;

Device& device() { return devices.at(own); }

/// Some operations take long, most do not; in some streams many do.
void delay(std::mt19937& random, bool slow) {
  if (random() % (slow ? 2 : 32) == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
}

void run(cudaStream_t stream) {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] {
      return stream->ends || (!stream->operations.empty() && (!stream->operations.front().ready ||
                                                              stream->operations.front().ready()));
    });
    if (stream->ends) return;
    Operation next = std::move(stream->operations.front());
    stream->operations.pop_front();
    stream->busy = true;
    lock.unlock();
    delay(stream->random, stream->slow);
    if (next.work) next.work();
    lock.lock();
    if (next.done) next.done();
    stream->busy = false;
    changed.notify_all();
  }
}

/// Under the lock.
void put(cudaStream_t stream, Node node) {
  if (stream->capture) {
    Capture& capture = *stream->capture;
    capture.nodes[stream].push_back(std::move(node));
    capture.seen[stream][stream] = capture.nodes[stream].size();
    return;
  }
  stream->operations.push_back({std::move(node.ready), std::move(node.work), std::move(node.done)});
  changed.notify_all();
}

void follow(Seen& seen, const Seen& other) {
  for (const auto& [stream, place] : other) seen[stream] = std::max(seen[stream], place);
}

/// The marks that one replay of a graph has reached.
using Reached = std::vector<bool>;

void run_nodes(const std::vector<Node>& nodes, Reached& reached, unsigned seed) {
  std::mt19937 random(seed);
  const bool slow = random() % 4 == 0;
  std::unique_lock lock(mutex);
  for (const Node& node : nodes) {
    changed.wait(lock, [&] {
      return (node.waits_for < 0 || reached[static_cast<size_t>(node.waits_for)]) &&
             (!node.ready || node.ready());
    });
    lock.unlock();
    delay(random, slow);
    if (node.work) node.work();
    lock.lock();
    if (node.done) node.done();
    if (node.reaches >= 0) reached[static_cast<size_t>(node.reaches)] = true;
    changed.notify_all();
  }
}

std::vector<cudaStream_t> streams() {
  const std::lock_guard lock(mutex);
  return device().streams;
}

void wait_until_idle(const std::vector<cudaStream_t>& streams) {
  std::unique_lock lock(mutex);
  const bool idle = changed.wait_for(lock, kForEver, [&] {
    return std::ranges::all_of(
        streams, [](cudaStream_t s) { return s->ends || (s->operations.empty() && !s->busy); });
  });
  if (idle) return;
  std::fputs("simulated_cuda: the host waits for a stream that waits for ever\n", stderr);
  std::abort();
}

}  // namespace

void use(int rank, const Gpu& gpu, unsigned seed) {
  const std::lock_guard lock(mutex);
  own = rank;
  devices[rank] = {.gpu = gpu, .random = std::mt19937(seed), .streams = {}, .blocks = {}};
}

void forget() {
  std::vector<cudaStream_t> streams;
  {
    const std::lock_guard lock(mutex);
    streams = std::exchange(device().streams, {});
    for (cudaStream_t stream : streams) stream->ends = true;
    changed.notify_all();
  }
  for (cudaStream_t stream : streams) {
    stream->thread.join();
    delete stream;
  }
}

size_t allocated_bytes() {
  const std::lock_guard lock(mutex);
  return device().allocated;
}
size_t most_allocated_bytes() {
  const std::lock_guard lock(mutex);
  return device().most;
}

void queue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  put(stream, {.work = std::move(work)});
}

void begin_capture(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  stream->capture = std::make_shared<Capture>();
  stream->capture->seen[stream][stream] = 0;
}

cudaError_t end_capture(cudaStream_t stream, int64_t* graph) {
  const std::lock_guard lock(mutex);
  const std::shared_ptr<Capture> capture = stream->capture;
  capture->active = false;
  bool joined = true;
  for (const auto& [other, nodes] : capture->nodes) {
    joined = joined && capture->seen[stream][other] == nodes.size();
    other->capture = nullptr;
  }
  stream->capture = nullptr;
  graphs[*graph = ++serial] = capture;
  return joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

void replay(int64_t graph, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  const std::shared_ptr<Capture> capture = graphs.at(graph);
  const unsigned seed = static_cast<unsigned>(stream->random());
  put(stream, {.work = [capture, seed] {
        Reached reached(capture->marks, false);
        std::vector<std::jthread> threads;
        unsigned number = 0;
        for (const auto& [other, nodes] : capture->nodes)
          threads.emplace_back(
              [&reached, &nodes, s = seed + number++] { run_nodes(nodes, reached, s); });
      }});
}

}  // namespace simulated_cuda

using namespace simulated_cuda;

namespace {

/// An operation of the driver's batch: all under the lock, in order.
CUresult batch(CUstream stream, unsigned count, CUstreamBatchMemOpParams* params, unsigned) {
  const std::lock_guard lock(mutex);
  Gpu& gpu = device().gpu;
  if (gpu.batch_operations == 0) return static_cast<CUresult>(gpu.batch_status);
  if (gpu.batch_operations > 0) --gpu.batch_operations;
  for (unsigned i = 0; i < count; ++i) {
    const CUstreamBatchMemOpParams p = params[i];
    auto* const where = reinterpret_cast<uint32_t*>(p.writeValue.address);
    const uint32_t value = p.writeValue.value;
    if (p.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
      put(stream, {.done = [where, value] { *where = value; }});
    else
      put(stream, {.ready = [where, value] { return *where == value; }});
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "simulated"; }
cudaError_t cudaGetDevice(int* out) {
  *out = own;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int number) {
  const std::lock_guard lock(mutex);
  *out = {};
  const std::string& model = devices.at(number).gpu.model;
  std::copy_n(model.data(), std::min(model.size(), sizeof out->name - 1), out->name);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* out, int, int number) {
  const std::string text = std::to_string(number);
  std::memcpy(out, text.c_str(), text.size() + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* out, const char* text) {
  *out = std::atoi(text);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* out, int, int) {
  *out = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* out, cudaDeviceP2PAttr, int a, int b) {
  const std::lock_guard lock(mutex);
  *out = devices.at(a).gpu.linked && devices.at(b).gpu.linked;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** out, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *out = reinterpret_cast<void*>(batch);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** out, size_t bytes) {
  const std::lock_guard lock(mutex);
  Device& d = device();
  if (d.allocated + bytes > d.gpu.free_bytes) return cudaErrorMemoryAllocation;
  *out = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  std::memset(*out, 0xcd, bytes);
  d.blocks[*out] = bytes;
  d.allocated += bytes;
  d.most = std::max(d.most, d.allocated);
  return cudaSuccess;
}
cudaError_t cudaFree(void* block) {
  if (block == nullptr) return cudaSuccess;
  wait_until_idle(streams());
  const std::lock_guard lock(mutex);
  Device& d = device();
  d.allocated -= d.blocks.at(block);
  d.blocks.erase(block);
  std::free(block);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* block, int value, size_t bytes) {
  const std::lock_guard lock(mutex);
  std::memset(block, value, bytes);
  changed.notify_all();
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind) {
  const std::lock_guard lock(mutex);
  std::memcpy(dst, src, bytes);
  changed.notify_all();
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  queue(stream, [=] { std::memcpy(dst, src, bytes); });
  return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* block) {
  std::memcpy(out, &block, sizeof block);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle, unsigned) {
  std::memcpy(out, &handle, sizeof *out);
  const std::lock_guard lock(mutex);
  return device().gpu.opens_handles ? cudaSuccess : cudaErrorMapBufferObjectFailed;
}
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaSuccess; }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int) {
  const std::lock_guard lock(mutex);
  auto* const stream = new CUstream_st;
  stream->random.seed(static_cast<unsigned>(device().random()));
  stream->slow = stream->random() % 4 == 0;
  stream->thread = std::thread(run, stream);
  device().streams.push_back(*out = stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(mutex);
    std::erase(device().streams, stream);
  }
  wait_until_idle({stream});
  {
    const std::lock_guard lock(mutex);
    stream->ends = true;
    changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t, int* out) {
  *out = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  return stream->operations.empty() && !stream->busy ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  wait_until_idle({stream});
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  wait_until_idle(streams());
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) {
  *out = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  event->capture = stream->capture;
  if (stream->capture) {
    event->place = stream->capture->marks++;
    put(stream, {.reaches = static_cast<int64_t>(event->place)});
    event->seen = stream->capture->seen[stream];
    return cudaSuccess;
  }
  event->reached = std::make_shared<bool>(false);
  put(stream, {.done = [reached = event->reached] { *reached = true; }});
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(mutex);
  if (event->capture) {
    if (!event->capture->active) return cudaErrorCapturedEvent;
    if (stream->capture && stream->capture != event->capture) return cudaErrorStreamCaptureMerge;
    stream->capture = event->capture;
    put(stream, {.waits_for = static_cast<int64_t>(event->place)});
    follow(stream->capture->seen[stream], event->seen);
    return cudaSuccess;
  }
  if (!event->reached) return cudaSuccess;
  if (stream->capture) return cudaErrorStreamCaptureIsolation;
  put(stream, {.ready = [reached = event->reached] { return *reached; }});
  return cudaSuccess;
}
}
