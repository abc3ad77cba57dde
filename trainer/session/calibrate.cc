// See calibrate.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/calibrate.h"

#include "tools/cli/flags.h"

namespace trainer {

int calibrate_here(const TrainConfig&, const std::string&, double, cli::Console&) {
  throw cli::UsageError("--calibrate needs a GPU, and this program was built without CUDA");
}

}  // namespace trainer
