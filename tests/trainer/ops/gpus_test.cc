// What can be decided without a GPU: which code runs on which card, the messages of refusals, the
// cards by name, and launch sizes that fit every card. Needs no CUDA.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/gpus.h"

#include <gmock/gmock.h>

#include <set>

#include "trainer/ops/cuda/norm_grid.h"

namespace ops {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr Capability kEvery[] = {{8, 0},  {8, 6},  {8, 7},  {8, 9},  {9, 0},
                                 {10, 0}, {10, 3}, {11, 0}, {12, 0}, {12, 1}};
// What ./bootstrap build and ./bootstrap package compile.
const char* const kBuilt = "80-virtual 90a-real";
const char* const kPackaged = "80-real;86-real;89-real;90a-real;100-real;120";

std::string taken(const char* list, Capability gpu) {
  const std::vector<GpuCode> code = parse_gpu_code(list);
  const GpuCode* found = code_for(code, gpu);
  return found == nullptr ? "none" : describe({found, 1});
}

TEST(GpuCode, IsReadAsCMakeMeansIt) {
  EXPECT_EQ(parse_gpu_code("80-virtual 90a-real"),
            (std::vector<GpuCode>{{{8, 0}, 0, false}, {{9, 0}, 'a', true}}));
  EXPECT_EQ(parse_gpu_code("120"), (std::vector<GpuCode>{{{12, 0}, 0, true}, {{12, 0}, 0, false}}));
  EXPECT_EQ(parse_gpu_code("100f-real;native;;x-real;1"),
            (std::vector<GpuCode>{{{10, 0}, 'f', true}}));
}

TEST(GpuCode, IsListedForVersion) {
  EXPECT_EQ(describe(parse_gpu_code(kBuilt)), "code for 9.0a; PTX of 8.0");
  EXPECT_EQ(describe(parse_gpu_code(kPackaged)),
            "code for 8.0, 8.6, 8.9, 9.0a, 10.0 and 12.0; PTX of 12.0");
  EXPECT_EQ(describe(parse_gpu_code("80-virtual")), "PTX of 8.0");
  EXPECT_EQ(describe(parse_gpu_code("90a-real")), "code for 9.0a");
  EXPECT_EQ(describe(parse_gpu_code("")), "no code");
}

TEST(GpuCode, TheDriverTakesWhatFits) {
  EXPECT_EQ(taken(kBuilt, {9, 0}), "code for 9.0a");
  for (const Capability gpu : kEvery) {
    if (gpu == Capability{9, 0}) continue;
    EXPECT_EQ(taken(kBuilt, gpu), "PTX of 8.0") << text(gpu);
  }
  EXPECT_EQ(taken(kPackaged, {8, 0}), "code for 8.0");
  EXPECT_EQ(taken(kPackaged, {8, 6}), "code for 8.6");
  EXPECT_EQ(taken(kPackaged, {8, 7}), "code for 8.6");
  EXPECT_EQ(taken(kPackaged, {8, 9}), "code for 8.9");
  EXPECT_EQ(taken(kPackaged, {9, 0}), "code for 9.0a");
  EXPECT_EQ(taken(kPackaged, {10, 3}), "code for 10.0");
  EXPECT_EQ(taken(kPackaged, {12, 1}), "code for 12.0");
  EXPECT_EQ(taken(kPackaged, {13, 0}), "PTX of 12.0");
  EXPECT_EQ(taken("80-virtual", {9, 0}), "PTX of 8.0");
  EXPECT_EQ(taken("86-virtual 80-real", {8, 6}), "code for 8.0");
  EXPECT_EQ(taken("90a-real", {10, 0}), "none");
  EXPECT_EQ(taken("90a-virtual", {10, 0}), "none");
  EXPECT_EQ(taken("90-real", {8, 9}), "none");
  EXPECT_EQ(taken("100f-real", {10, 3}), "code for 10.0f");
  EXPECT_EQ(taken("100f-virtual", {12, 0}), "none");
}

TEST(GpuRefusal, Fp8NeedsAdaAndScalesOfPartsHopper) {
  for (const Fp8Scales scales : {Fp8Scales::tensors, Fp8Scales::parts})
    EXPECT_EQ(fp8_refusal({8, 6}, scales),
              "compute capability 8.6 has no FP8: 8.9 (Ada) and newer have");
  for (const Capability gpu : {Capability{8, 9}, Capability{9, 0}, Capability{10, 0}})
    EXPECT_THAT(fp8_refusal(gpu, Fp8Scales::tensors), IsEmpty()) << text(gpu);
  EXPECT_THAT(fp8_refusal({9, 0}, Fp8Scales::parts), IsEmpty());
  for (const Capability gpu : {Capability{8, 9}, Capability{10, 0}, Capability{12, 0}})
    EXPECT_EQ(fp8_refusal(gpu, Fp8Scales::parts),
              "compute capability " + text(gpu) +
                  " has one scale a tensor (delayed, tensorwise): scales of rows and blocks need "
                  "9.0 (Hopper)");
}

TEST(GpuRefusal, NamesTheCapabilityAndTheReason) {
  const std::vector<GpuCode> built = parse_gpu_code(kBuilt);
  for (const Capability gpu : kEvery) EXPECT_THAT(gpu_refusal(gpu, built), IsEmpty()) << text(gpu);
  EXPECT_EQ(gpu_refusal({7, 0}, built),
            "compute capability 7.0, the oldest that the trainer runs on is 8.0 (A100, RTX 30): "
            "CUDA 13 makes no code for it, CUDA 12.9 was the last that did");
  EXPECT_EQ(gpu_refusal({7, 5}, built),
            "compute capability 7.5, the oldest that the trainer runs on is 8.0 (A100, RTX 30): it "
            "neither multiplies bf16 nor copies to shared memory by itself");
  EXPECT_EQ(gpu_refusal({8, 6}, parse_gpu_code("90a-real")),
            "compute capability 8.6, this build has code for 9.0a: build with "
            "-DCMAKE_CUDA_ARCHITECTURES=80-virtual, or with 86 in that list");
}

TEST(DriverRefusal, TellsAnOldOneFromOneThatDoesNotStart) {
  EXPECT_EQ(driver_refusal(12040, 13000, "insufficient"),
            "the NVIDIA driver is too old: it is for CUDA 12.4, this build needs one for CUDA 13.0 "
            "(580 or newer)");
  EXPECT_EQ(driver_refusal(13000, 13000, "system not yet initialized"),
            "the NVIDIA driver does not start: system not yet initialized");
  EXPECT_EQ(driver_refusal(0, 13000, "insufficient"), "there is no NVIDIA driver here");
}

TEST(Gpus, EveryCardHasItsFacts) {
  std::set<std::string_view> names;
  Capability last{};
  for (const Gpu& gpu : known_gpus()) {
    EXPECT_TRUE(names.insert(gpu.name).second) << gpu.name;
    EXPECT_GE(gpu.capability, last) << gpu.name;
    last = gpu.capability;
    EXPECT_EQ(find_gpu(gpu.name), &gpu);
    EXPECT_LT(usable_bytes(gpu), static_cast<int64_t>(gpu.memory_gib * 0x1p30) * 98 / 100);
    EXPECT_GT(usable_bytes(gpu), static_cast<int64_t>(gpu.memory_gib * 0x1p30) * 88 / 100)
        << gpu.name;
  }
  EXPECT_EQ(find_gpu("A100-40GB"), find_gpu("a100-40gb"));
  EXPECT_EQ(find_gpu("a100"), nullptr);
  EXPECT_EQ(find_gpu(""), nullptr);
  for (const char* name : {"a100-40gb", "a100-80gb", "l4", "l40s", "h100-80gb", "h200", "b200"}) {
    ASSERT_NE(find_gpu(name), nullptr) << name;
    EXPECT_TRUE(find_gpu(name)->peer_access) << name;
  }
  for (const char* name : {"rtx3090", "rtx4090", "rtx5090"}) {
    ASSERT_NE(find_gpu(name), nullptr) << name;
    EXPECT_FALSE(find_gpu(name)->peer_access) << name;
  }
}

// The backward pass of a norm wants more shared memory than most cards have, unless it takes fewer
// rows at once.
TEST(NormGrid, FitsTheSharedMemoryOfEveryCard) {
  for (const Capability gpu : kEvery) {
    const int limit = shared_bytes_per_block(gpu);
    for (int64_t hidden = 8; hidden <= 8192; hidden += 8) {
      const cuda::NormBackwardGrid grid = cuda::norm_backward_grid(hidden, 8, 100, limit);
      ASSERT_LE(grid.dynamic_bytes() + grid.static_bytes(), limit) << text(gpu) << " " << hidden;
      ASSERT_GE(grid.threads * 8, hidden);
      ASSERT_GE(grid.rows, 1);
      // The scratch memory is sized without the card's limit.
      ASSERT_EQ(grid.blocks, cuda::norm_backward_grid(hidden, 8, 100, 0).blocks);
    }
  }
}

TEST(NormGrid, IsOnHopperWhatWasMeasuredThere) {
  const int limit = shared_bytes_per_block({9, 0});
  EXPECT_EQ(cuda::norm_backward_grid(768, 8, 132, limit).rows, 4);
  EXPECT_EQ(cuda::norm_backward_grid(1024, 8, 132, limit).rows, 2);
  EXPECT_EQ(cuda::norm_backward_grid(4096, 8, 132, limit).rows, 4);
  EXPECT_EQ(cuda::norm_backward_grid(8192, 8, 132, limit).rows, 2);
  const int small = shared_bytes_per_block({8, 6});
  EXPECT_EQ(cuda::norm_backward_grid(768, 8, 132, small).rows, 4);
  EXPECT_EQ(cuda::norm_backward_grid(4096, 8, 132, small).rows, 2);
  EXPECT_EQ(cuda::norm_backward_grid(8192, 8, 132, small).rows, 1);
}

}  // namespace
}  // namespace ops
