// See host_memory.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/host_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "trainer/ops/cuda/cuda_check.h"

namespace ops::cuda {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kPage = 4096;
constexpr int64_t kLarge = int64_t{64} << 20;

// Every page of the block is there afterwards.
void fill(char* block, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(block, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  for (size_t at = 0; at < bytes; at += kPage) static_cast<volatile char*>(block)[at] = 0;
}

}  // namespace

void* HostMemory::map(size_t bytes) {
  const size_t mapped = bytes + kHugePage;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* block = static_cast<char*>(base);
  block += (kHugePage - reinterpret_cast<uintptr_t>(block) % kHugePage) % kHugePage;
  madvise(block, bytes, MADV_HUGEPAGE);
  fill(block, bytes);
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
  CUDA_CHECK(cudaSetDevice(device_index_));  // the calling thread may be new to CUDA
  if (bytes >= kLarge) {
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
