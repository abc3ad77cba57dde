// Facts about NVIDIA's GPUs: what a compute capability supports, which code runs on it, how much
// memory each card has, and the messages that refuse a card or a driver. Here: what can be decided
// without a GPU and without CUDA. Not here: the GPU of this machine (ops/cuda), what a run would
// need (session/dry_run.h). May include: the C++ library. Memory in bytes where the name says so.
// Source: the data sheets of the cards; CUDA C++ Programming Guide, "Compute Capabilities".
// SPDX-License-Identifier: MIT
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ops {

/// NVIDIA's compute capability: 8.0 is an A100.
struct Capability {
  int major = 0, minor = 0;

  auto operator<=>(const Capability&) const = default;
};
std::string text(Capability capability);

/// The oldest that every operation runs on: bf16, and copies to shared memory without registers.
constexpr Capability kOldestCapability{8, 0};
/// The one that tests and benchmarks run on; for others the code is only compiled.
constexpr Capability kTestedCapability{9, 0};

/// The oldest that multiplies FP8 numbers.
constexpr Capability kFp8Capability{8, 9};
/// Which scales FP8 operands have: one a tensor, or one for each row or block.
enum class Fp8Scales : uint8_t { tensors, parts };
/// Why a GPU cannot multiply FP8 numbers with such scales; empty where it can. Source: cuBLASLt's
/// list of scaling modes, where those of rows and of 128 by 128 blocks are Hopper's alone.
std::string fp8_refusal(Capability capability, Fp8Scales scales);
/// Ops::quantizes_norms of a GPU, and of plans without a device. The kernels that do it give the
/// same bits, but no faster step on an H200: bench/fp8.md.
constexpr bool kGpusQuantizeNorms = false;

/// The most shared memory that one block may request; for an unknown capability, the smallest of
/// all.
int shared_bytes_per_block(Capability capability) noexcept;

/// One piece of GPU code in a program, as CMAKE_CUDA_ARCHITECTURES names it: "90a-real".
struct GpuCode {
  Capability capability;
  char feature = 0;   ///< 'a': for this capability alone; 'f': for its family; 0: neither.
  bool real = false;  ///< Machine code; else PTX, which the driver compiles.

  bool operator==(const GpuCode&) const = default;
};

/// Parses a list of names separated by blanks or semicolons; one without "-real" or "-virtual" is
/// both. Names that are not numbers ("native") are skipped.
std::vector<GpuCode> parse_gpu_code(std::string_view list);

/// "code for 8.0 and 9.0a; PTX of 8.0": for --version.
std::string describe(std::span<const GpuCode> code);

/// The code that the driver picks for a GPU: matching machine code before PTX, the newest first.
/// Null where nothing fits.
const GpuCode* code_for(std::span<const GpuCode> code, Capability capability) noexcept;

/// Why a GPU cannot be used by a build with this code: its capability, and the reason. Empty where
/// it can.
std::string gpu_refusal(Capability capability, std::span<const GpuCode> code);

/// Why this driver cannot be used. Versions as CUDA numbers them: 13000 is 13.0, 0 no driver. `why`
/// is the driver's own message, for when the version is not the reason.
std::string driver_refusal(int driver_version, int needed_version, const std::string& why);

/// A card by name.
struct Gpu {
  std::string_view name;     ///< As --gpu takes it: "a100-40gb".
  std::string_view product;  ///< "NVIDIA A100 40 GB".
  Capability capability;
  double memory_gib = 0;     ///< From the data sheet.
  bool ecc_in_band = false;  ///< Whether ECC takes a sixteenth of it.
  bool peer_access = true;   ///< Whether cards of one host can read each other's memory.
};

/// Every card that --gpu knows, the oldest capability first.
std::span<const Gpu> known_gpus() noexcept;
/// Null where no card has the name.
const Gpu* find_gpu(std::string_view name) noexcept;
/// What a run can use of a card's memory: all but ECC bits, the driver's part and a CUDA context.
int64_t usable_bytes(const Gpu& gpu) noexcept;

/// The note for hosts whose cards cannot access each other's memory.
extern const char* const kNoPeerAccess;

}  // namespace ops
