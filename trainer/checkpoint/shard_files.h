// The files of one rank in a checkpoint: one of its weights and one of everything else, wherever
// they go. Not here: the folder that holds them (checkpoint_root.cc), memory that holds them
// (memory_checkpoints.h). May include: checkpoint/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"

namespace trainer {

/// What every file says of itself.
inline const std::map<std::string, std::string> kShardMetadata = {{"format", "pt"}};

/// What a rank writes, and where.
struct ShardWork {
  const std::vector<ShardSource>& shards;
  /// Opens a file for these tensors. Called once for each file, by the calling thread.
  std::function<std::unique_ptr<SafetensorsWriter>(const std::string& name,
                                                   std::vector<TensorEntry> tensors)>
      open;
  /// Whether another rank has failed; asked before each part.
  std::function<bool()> given_up;
  int threads = 1;  ///< With more, `given_up` is called by all of them.
};

/// rank_00003_model.safetensors.
std::string model_file_name(int rank);
/// rank_00003_optimizer.safetensors.
std::string optimizer_file_name(int rank);

/// Writes this rank's files and notes them, with their tensors and checksums, in `meta`.
/// Errors: std::system_error; GivenUp.
void write_shard_files(CheckpointMeta& meta, int rank, const ShardWork& work);

}  // namespace trainer
