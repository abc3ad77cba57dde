// See host_memory.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "trainer/ops/available_memory.h"
#include "trainer/ops/cuda/cuda_check.h"

namespace ops::cuda {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kPage = 4096;
constexpr size_t kFillers = 4;
constexpr int64_t kLarge = int64_t{64} << 20;

// Populates every page of the block, one huge page per call: during a call the kernel blocks other
// threads of this process that map memory, and a first step maps memory hundreds of times (with 64
// MiB per call such a step took 6.9 s).
void fill(char* block, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kHugePage) {
    const size_t piece = std::min(kHugePage, bytes - at);
#ifdef MADV_POPULATE_WRITE
    if (madvise(block + at, piece, MADV_POPULATE_WRITE) == 0) continue;
#endif
    for (size_t page = 0; page < piece; page += kPage)
      static_cast<volatile char*>(block)[at + page] = 0;
  }
}

// In several threads, because one clears only 2 to 4 GB/s and a save in the first minute waits for
// it.
void fill_in_threads(char* block, size_t bytes) {
  const size_t share = (bytes / kFillers / kHugePage + 1) * kHugePage;
  std::vector<std::jthread> fillers;
  for (size_t at = 0; at < bytes; at += share)
    fillers.emplace_back(fill, block + at, std::min(share, bytes - at));
}

}  // namespace

void* HostMemory::map(size_t bytes) {
  const size_t mapped = bytes + kHugePage;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* block = static_cast<char*>(base);
  block += (kHugePage - reinterpret_cast<uintptr_t>(block) % kHugePage) % kHugePage;
  madvise(block, bytes, MADV_HUGEPAGE);
  fill_in_threads(block, bytes);
  if (cudaHostRegister(block, bytes, cudaHostRegisterDefault) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    munmap(base, mapped);
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  mappings_[block] = {base, mapped};
  return block;
}

void* HostMemory::allocate(int64_t bytes) {
  CUDA_CHECK(cudaSetDevice(device_index_));  // the calling thread may not have used CUDA before
  // Filling pages beyond what is there kills the process, whereas the driver's own pinning returns
  // an error.
  if (bytes >= kLarge && bytes < available_host_bytes()) {
    if (void* block = map(static_cast<size_t>(bytes))) return block;
  }
  void* block = nullptr;
  CUDA_CHECK(cudaMallocHost(&block, static_cast<size_t>(std::max<int64_t>(bytes, 1))));
  return block;
}

void HostMemory::release(void* block) noexcept {
  Mapping mapping;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = mappings_.extract(block)) mapping = found.mapped();
  }
  if (mapping.base == nullptr) {
    cudaFreeHost(block);
    return;
  }
  cudaHostUnregister(block);
  munmap(mapping.base, mapping.bytes);
}

}  // namespace ops::cuda
