// SPDX-License-Identifier: MIT
// Weights of DeepSpeed's ZeRO stage 3, which are only in its optimizer's files: each data-parallel
// rank keeps a slice of every parameter, in fp32, concatenated in flat tensors. Here they are
// joined to whole parameters of one tensor-parallel rank, under the module's names.
// megatron_source.h interprets the names.
// Source: docs/format/megatron-checkpoint.5.md, "ZeRO"; deepspeed/utils/zero_to_fp32.py.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "convert/tensor_source.h"
#include "convert/torch_file.h"

namespace convert {

/// The tensor-parallel ranks of a stage-3 folder: "zero_pp_rank_0_mp_rank_01_model_states.pt"
/// exists for rank 1. 0 if `folder` is not of stage 3.
int64_t zero_tensor_ranks(const std::string& folder);

/// One tensor-parallel rank's parameters, fp32, by module name.
struct ZeroRank {
  std::shared_ptr<TorchFile> states;  ///< data rank 0's: args, iteration, param_shapes
  std::map<std::string, TensorSource> tensors;
};

/// Reads rank `tp` of a stage-3 folder.
/// Errors: std::system_error; indexed::FormatError "path: what: why" for a data rank that is
/// missing, slices that do not fill their parameter, frozen parameters, another stage.
ZeroRank read_zero_rank(const std::string& folder, int64_t tp, TorchFile::Checksums checksums);

}  // namespace convert
