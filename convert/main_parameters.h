// SPDX-License-Identifier: MIT
// The fp32 weights behind DeepSpeed's 16-bit models, where the data ranks divide them: ZeRO stages
// 1 and 2, and BF16_Optimizer. They are only in the optimizer's files beside the model's; each is
// given for the 16-bit weight that it takes the place of, with which it is compared as it is read.
// Not here: stage 3 (zero_source.h), and which of the model's weights there are.
// Source: docs/format/megatron-checkpoint.5.md, "ZeRO"; deepspeed/utils/zero_to_fp32.py.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert/megatron_source.h"
#include "convert/tensor_source.h"

namespace convert {

struct MainRank;  ///< what one rank of the model has

/// The main parameters of one checkpoint's folder. Its files are opened when the first 16-bit
/// weight is asked for, so that an fp32 model needs none of them.
class MainParameters {
 public:
  /// For the checkpoint in `folder`. Without options.prefer_main every weight stays what it is.
  MainParameters(std::string folder, const SourceOptions& options);

  /// The fp32 weight of parameter `name` in mp_rank_RR_model_states.pt, where it is `weight`. That
  /// itself if it is not of 16 bits, was frozen, or note() says why no main parameters are taken.
  /// Errors: std::system_error; indexed::FormatError "path: what: why" for an optimizer's files
  /// that are damaged, not all there, or do not fit the model; as the rows are read, for a weight
  /// that does not become `weight` when rounded.
  TensorSource of_rank(int64_t rank, const std::string& name, const TensorSource& weight);

  /// The same for parameter `name` of layer `layer` on tensor-parallel rank `tp`: a file of one
  /// layer, or a module that numbers its layers ("sequential.2.").
  TensorSource of_layer(int64_t layer, int64_t tp, const std::string& name,
                        const TensorSource& weight);

  /// Why 16-bit weights were given in the place of fp32 ones; empty if none were.
  const std::string& note() const noexcept { return note_; }

 private:
  using Found = std::pair<const MainRank*, std::string>;  ///< whose, and the name there

  bool has_main(const TensorSource& weight);
  void open();
  void index(const MainRank& rank);

  std::string folder_;
  SourceOptions options_;
  bool opened_ = false;
  std::string note_;
  std::map<int64_t, std::shared_ptr<const MainRank>> ranks_;  ///< by the number in mp_rank_RR
  std::map<std::string, std::vector<Found>> by_name_;         ///< in the order of ranks
};

}  // namespace convert
