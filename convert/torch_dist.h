// SPDX-License-Identifier: MIT
// Megatron-core's distributed checkpoints (--ckpt-format torch_dist, its default since 2024). The
// pickle `.metadata` lists whole tensors, their chunks, and the place of each chunk, a torch.save
// file of its own inside a .distcp file; which ranks wrote them does not matter. Layers with equal
// shapes are stacked along a first dimension, and are split here. Names stay Megatron's:
// megatron_source.cc makes a model from them. Nothing is executed (pickle.h).
// Source: docs/format/megatron-checkpoint.5.md, "torch_dist"; torch/distributed/checkpoint/.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "convert/tensor_source.h"
#include "convert/torch_file.h"

namespace convert {

/// A checkpoint folder of this format, opened.
class TorchDist {
 public:
  /// Whether `folder` is one: it has `.metadata`, or .distcp files of an unfinished one.
  static bool is_at(const std::string& folder);

  /// Reads `.metadata`, maps the files it names, and opens the common state (common.pt, or the
  /// object common_state of newer ones).
  /// Errors: std::system_error; indexed::FormatError "path: what: why" for another sharded format,
  /// chunks that leave their tensor or their file, overlap, or do not fill the tensor.
  TorchDist(const std::string& folder, TorchFile::Checksums checksums);

  /// The model's whole tensors, one for each layer if layers were stacked: names as stored, with
  /// the layer's number inserted. Optimizer state, generators and extra state are left out. Chunks
  /// are opened, and their checksums compared, as they are read.
  const std::map<std::string, TensorSource>& tensors() const noexcept { return tensors_; }

  /// args, iteration, checkpoint_version: a dict; nothing when the folder has no common state.
  /// Valid as long as this.
  Value common() const noexcept { return common_; }

  /// Whether the optimizer's state is there, which is not read.
  bool has_optimizer() const noexcept { return has_optimizer_; }

 private:
  std::map<std::string, TensorSource> tensors_;
  std::unique_ptr<TorchFile> common_file_;
  Value common_;
  bool has_optimizer_ = false;
};

}  // namespace convert
