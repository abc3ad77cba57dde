// SPDX-License-Identifier: MIT
// The entry points of libFuzzer, for the target that FUZZ_TARGET names. With FUZZ_SEEDS=FOLDER the
// program writes the first inputs of all targets there, prints their names and ends.
// tests/fuzz/run does both.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/targets.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

const fuzz::Target* target = nullptr;

void write_seeds(const std::string& folder) {
  for (const fuzz::Seed& seed : fuzz::seeds()) {
    std::filesystem::create_directories(folder + "/" + seed.target);
    std::ofstream(folder + "/" + seed.target + "/" + seed.name, std::ios::binary) << seed.bytes;
  }
  for (const fuzz::Target& one : fuzz::targets())
    std::printf("%s\n", std::string(one.name).c_str());
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (const char* folder = std::getenv("FUZZ_SEEDS")) {
    write_seeds(folder);
    std::exit(0);
  }
  const char* name = std::getenv("FUZZ_TARGET");
  target = name == nullptr ? nullptr : fuzz::find_target(name);
  if (target == nullptr) {
    std::fprintf(stderr, "FUZZ_TARGET names no target\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::run_target(*target, {data, size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  if (target->mutate == nullptr || seed % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string changed = target->mutate({reinterpret_cast<const char*>(data), size}, seed);
  if (changed.empty() || changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
