// The tables of gpus.h, and the messages made from them.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/gpus.h"

#include <algorithm>
#include <cctype>

namespace ops {
namespace {

constexpr Gpu kGpus[] = {
    {"v100-16gb", "NVIDIA V100 16 GB", {7, 0}, 16},
    {"v100-32gb", "NVIDIA V100 32 GB", {7, 0}, 32},
    {"t4", "NVIDIA T4", {7, 5}, 16, true},
    {"a30", "NVIDIA A30", {8, 0}, 24},
    {"a100-40gb", "NVIDIA A100 40 GB", {8, 0}, 40},
    {"a100-80gb", "NVIDIA A100 80 GB", {8, 0}, 80},
    {"a100-pcie-40gb", "NVIDIA A100 40 GB PCIe", {8, 0}, 40},
    {"a100-pcie-80gb", "NVIDIA A100 80 GB PCIe", {8, 0}, 80},
    {"a800-40gb", "NVIDIA A800 40 GB", {8, 0}, 40},
    {"a800-80gb", "NVIDIA A800 80 GB", {8, 0}, 80},
    {"a800-pcie-80gb", "NVIDIA A800 80 GB PCIe", {8, 0}, 80},
    {"a10", "NVIDIA A10", {8, 6}, 24, true},
    {"a40", "NVIDIA A40", {8, 6}, 48, true},
    {"a5000", "NVIDIA RTX A5000", {8, 6}, 24, true},
    {"a6000", "NVIDIA RTX A6000", {8, 6}, 48, true},
    {"rtx3090", "NVIDIA GeForce RTX 3090", {8, 6}, 24, false, false},
    {"l4", "NVIDIA L4", {8, 9}, 24, true},
    {"l20", "NVIDIA L20", {8, 9}, 48, true},
    {"l40", "NVIDIA L40", {8, 9}, 48, true},
    {"l40s", "NVIDIA L40S", {8, 9}, 48, true},
    {"rtx6000-ada", "NVIDIA RTX 6000 Ada", {8, 9}, 48, true},
    {"rtx4080", "NVIDIA GeForce RTX 4080", {8, 9}, 16, false, false},
    {"rtx4090", "NVIDIA GeForce RTX 4090", {8, 9}, 24, false, false},
    {"h100-80gb", "NVIDIA H100 80 GB", {9, 0}, 80},
    {"h100-pcie", "NVIDIA H100 PCIe", {9, 0}, 80},
    {"h100-nvl", "NVIDIA H100 NVL", {9, 0}, 94},
    {"h800", "NVIDIA H800", {9, 0}, 80},
    {"h800-pcie", "NVIDIA H800 PCIe", {9, 0}, 80},
    {"h800-nvl", "NVIDIA H800 NVL", {9, 0}, 94},
    {"h20", "NVIDIA H20", {9, 0}, 96},
    {"h20-3e", "NVIDIA H20-3e", {9, 0}, 141},
    {"gh200-96gb", "NVIDIA GH200 96 GB", {9, 0}, 96},
    {"gh200-144gb", "NVIDIA GH200 144 GB", {9, 0}, 144},
    {"h200", "NVIDIA H200", {9, 0}, 141},
    {"h200-nvl", "NVIDIA H200 NVL", {9, 0}, 141},
    {"b200", "NVIDIA B200", {10, 0}, 180},
    {"gb200", "NVIDIA GB200", {10, 0}, 186},
    {"b300", "NVIDIA B300", {10, 3}, 268},  // 288 times 10^9 bytes
    {"rtx5090", "NVIDIA GeForce RTX 5090", {12, 0}, 32, false, false},
    {"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell", {12, 0}, 96},
};

std::string number(const GpuCode& code) {
  return text(code.capability) + (code.feature != 0 ? std::string(1, code.feature) : "");
}

// "8.0, 8.6 and 9.0a": of the pieces with machine code (`real`), or of those with PTX.
std::string list_of(std::span<const GpuCode> code, bool real) {
  std::vector<std::string> names;
  for (const GpuCode& c : code)
    if (c.real == real) names.push_back(number(c));
  std::string out;
  for (size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return out;
}

bool fits(const GpuCode& code, Capability gpu) noexcept {
  const Capability c = code.capability;
  if (code.feature == 'a') return c == gpu;
  if (code.real || code.feature == 'f') return c.major == gpu.major && c.minor <= gpu.minor;
  return c <= gpu;
}

std::string dotted(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// One name of the list: digits, perhaps a letter, perhaps "-real" or "-virtual".
void parse_one(std::string_view name, std::vector<GpuCode>& out) {
  const size_t dash = std::min(name.find('-'), name.size());
  const std::string_view kind = name.substr(dash);
  std::string_view digits = name.substr(0, dash);
  GpuCode code;
  if (!digits.empty() && (digits.back() == 'a' || digits.back() == 'f')) {
    code.feature = digits.back();
    digits.remove_suffix(1);
  }
  if (digits.size() < 2 || digits.size() > 3) return;
  int value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return;
    value = value * 10 + (c - '0');
  }
  code.capability = {value / 10, value % 10};
  for (const bool real : {true, false}) {
    if (kind == (real ? "-virtual" : "-real")) continue;
    code.real = real;
    out.push_back(code);
  }
}

}  // namespace

const char* const kNoPeerAccess =
    "the GPUs of this host do not reach each other's memory: what ranks exchange goes through the "
    "host's";

std::string text(Capability c) { return std::to_string(c.major) + "." + std::to_string(c.minor); }

int shared_bytes_per_block(Capability c) noexcept {
  constexpr int kKib = 1024;
  if (c.major == 9 || c.major == 10) return 227 * kKib;
  if (c == Capability{8, 0} || c == Capability{8, 7}) return 163 * kKib;
  return c.major < 8 ? 64 * kKib : 99 * kKib;
}

std::vector<GpuCode> parse_gpu_code(std::string_view list) {
  std::vector<GpuCode> out;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find_first_of("; ", begin), list.size());
    parse_one(list.substr(begin, end - begin), out);
    begin = end + 1;
  }
  return out;
}

std::string describe(std::span<const GpuCode> code) {
  const std::string real = list_of(code, true), ptx = list_of(code, false);
  if (real.empty() && ptx.empty()) return "no code";
  if (ptx.empty()) return "code for " + real;
  return (real.empty() ? "" : "code for " + real + "; ") + "PTX of " + ptx;
}

const GpuCode* code_for(std::span<const GpuCode> code, Capability gpu) noexcept {
  const GpuCode* best = nullptr;
  const auto better = [](const GpuCode& a, const GpuCode& b) {
    if (a.real != b.real) return a.real;
    if (a.capability != b.capability) return a.capability > b.capability;
    return a.feature == 'a' && b.feature != 'a';
  };
  for (const GpuCode& c : code)
    if (fits(c, gpu) && (best == nullptr || better(c, *best))) best = &c;
  return best;
}

std::string fp8_refusal(Capability capability, Fp8Scales scales) {
  constexpr Capability kHopper{9, 0};
  if (capability >= kFp8Capability && scales == Fp8Scales::parts && capability != kHopper)
    return "compute capability " + text(capability) +
           " has one scale a tensor (delayed, tensorwise): scales of rows and blocks need " +
           text(kHopper) + " (Hopper)";
  if (capability >= kFp8Capability) return {};
  return "compute capability " + text(capability) + " has no FP8: " + text(kFp8Capability) +
         " (Ada) and newer have";
}

std::string gpu_refusal(Capability gpu, std::span<const GpuCode> code) {
  const std::string what = "compute capability " + text(gpu);
  const std::string wanted = what + ", the oldest that the trainer runs on is " +
                             text(kOldestCapability) + " (A100, RTX 30): ";
  if (gpu < Capability{7, 5})
    return wanted + "CUDA 13 makes no code for it, CUDA 12.9 was the last that did";
  if (gpu < kOldestCapability)
    return wanted + "it neither multiplies bf16 nor copies to shared memory by itself";
  if (code_for(code, gpu) != nullptr) return "";
  return what + ", this build has " + describe(code) +
         ": build with -DCMAKE_CUDA_ARCHITECTURES=80-virtual, or with " +
         std::to_string(gpu.major * 10 + gpu.minor) + " in that list";
}

std::string driver_refusal(int driver, int needed, const std::string& why) {
  if (driver == 0) return "there is no NVIDIA driver here";
  if (driver / 1000 < needed / 1000) {
    const std::string least = needed / 1000 == 13 ? " (580 or newer)" : "";
    return "the NVIDIA driver is too old: it is for CUDA " + dotted(driver) +
           ", this build needs one for CUDA " + std::to_string(needed / 1000) + ".0" + least;
  }
  return "the NVIDIA driver does not start: " + why;
}

std::span<const Gpu> known_gpus() noexcept { return kGpus; }

const Gpu* find_gpu(std::string_view name) noexcept {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  const auto found = std::ranges::find_if(kGpus, [&](const Gpu& gpu) {
    return std::equal(name.begin(), name.end(), gpu.name.begin(), gpu.name.end(), same);
  });
  return found == std::end(kGpus) ? nullptr : found;
}

int64_t usable_bytes(const Gpu& gpu) noexcept {
  // The driver keeps up to 2%; a context and the libraries take some 500 MiB.
  const double gib = gpu.memory_gib * (gpu.ecc_in_band ? 15.0 / 16 : 1) * 0.98 - 0.5;
  return static_cast<int64_t>(gib * (int64_t{1} << 30));
}

}  // namespace ops
