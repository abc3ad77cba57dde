// A fake driver: a libcuda.so.1 with the version and status that the environment gives
// (FAKE_DRIVER_VERSION, FAKE_DRIVER_STATUS), and nothing else. For program_test.cc.
//
// SPDX-License-Identifier: MIT
#include <cstdlib>

namespace {

int number(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 0 : std::atoi(value);
}

}  // namespace

extern "C" int cuDriverGetVersion(int* version) {
  *version = number("FAKE_DRIVER_VERSION");
  return 0;
}

extern "C" int cuInit(unsigned) { return number("FAKE_DRIVER_STATUS"); }
