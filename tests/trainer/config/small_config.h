// What the tests of flags share: a small configuration that is accepted, and what is said of one
// that is not.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "tools/cli/flags.h"
#include "trainer/config/flags.h"

namespace trainer {

/// Every required flag, and no other.
inline TrainConfig small_config() {
  TrainConfig config;
  config.num_layers = 2;
  config.hidden_size = 64;
  config.num_attention_heads = 4;
  config.seq_length = 32;
  config.micro_batch_size = 2;
  config.train_iters = 10;
  config.lr = 1e-3;
  config.data_path = {"d"};
  return config;
}

/// Why `config` is refused, where the command gave `given`; empty if it is accepted.
inline std::string error_of(TrainConfig config, int64_t world_size = 1, Given given = {}) {
  try {
    derive_and_check(config, given, world_size);
    return "";
  } catch (const cli::UsageError& error) {
    return error.what();
  }
}

}  // namespace trainer
