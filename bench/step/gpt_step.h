// One whole GPT-2 training step on one device, straight over Ops: forward, loss, backward, norm,
// clip, AdamW. For measurement: all memory is taken once, every sample is random tokens, and the
// calls are those of the trainer's model in the same order. Not here: timing (step.cc). Letters as
// in trainer/ops/operation.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/ops/ops.h"

namespace bench {

struct GptShape {
  const char* name = "";
  int64_t layers = 0, hidden = 0, heads = 0, seq_length = 0, micro_batch_size = 0;
  int64_t vocabulary = 50304;
  int64_t head_rows = 0;  ///< Rows of logits at once.
  /// For the engine alone: a family of families.h, its query groups and MLP width; 0: as many as
  /// heads, and 4 times hidden.
  const char* family = "gpt2";
  int64_t groups = 0, ffn = 0;

  int64_t tokens() const { return seq_length * micro_batch_size; }
  int64_t parameters() const {
    return layers * (12 * hidden * hidden + 13 * hidden) + (vocabulary + seq_length + 2) * hidden;
  }
  /// Floating point operations a token, attention counted causally ("half").
  double flops_per_token() const {
    return 6.0 * static_cast<double>(parameters()) +
           6.0 * static_cast<double>(layers * hidden * seq_length);
  }
};

class GptStep {
 public:
  /// Takes all memory of a step in `dtype` from `ops`. `ops` must outlive this.
  GptStep(ops::Ops& ops, const GptShape& shape, ops::DType dtype, float hidden_dropout,
          float attention_dropout);
  ~GptStep();
  GptStep(const GptStep&) = delete;
  GptStep& operator=(const GptStep&) = delete;

  /// Parameters as GPT-2 begins (normal 0.02), moments zero, the state fresh, the same tokens
  /// again.
  void reset();
  /// Every call of the step, with its memory: for workspace_bytes and prepare.
  std::vector<ops::AnyArgs> calls();
  /// Queues begin_step with this iteration's numbers; outside of a captured step.
  void begin(int64_t iteration);
  /// Queues everything after begin. `seen`, where given, is called after each operation with its
  /// name.
  void run(const std::function<void(const char*, const ops::AnyArgs&)>& seen = {});
  /// The state after all queued work is done. Blocks.
  ops::StepState state();
  int64_t bytes() const { return bytes_; }

 private:
  struct Layer {
    ops::Tensor norm1_weight, norm1_bias, qkv_weight, qkv_bias, proj_weight, proj_bias;
    ops::Tensor norm2_weight, norm2_bias, fc1_weight, fc1_bias, fc2_weight, fc2_bias;
  };
  struct Kept {
    ops::Tensor x1, y1, mean1, rstd1, qkv, attention, stats, x2, y2, mean2, rstd2, pre, activated;
  };
  struct Weights {
    ops::Tensor token_table, position_table, final_weight, final_bias;
    std::vector<Layer> layers;
  };

  ops::Tensor take(ops::DType dtype, std::initializer_list<int64_t> shape);
  Weights cut(const ops::Tensor& flat, bool tell_decay);
  template <typename Args>
  void call(const char* name, const Args& args);
  void forward();
  void head();
  void backward();
  void update();
  ops::Dropout dropout(int64_t layer, ops::DropoutKind kind) const;

  ops::Ops& ops_;
  GptShape shape_;
  ops::DType dtype_;
  float hidden_dropout_, attention_dropout_;
  int64_t bytes_ = 0;
  int64_t decay_elements_ = 0;
  std::vector<void*> blocks_;
  ops::Tensor model_, main_, m_, v_, grad_, state_, sum_;
  ops::Tensor tokens_, positions_, labels_, row_weights_, loss_mask_, token_loss_;
  ops::Tensor x0_, branch_, final_x_, final_y_, final_mean_, final_rstd_, logits_;
  ops::Tensor dresidual_, dbranch_, dy_, dwide_, dqkv_;
  Weights weights_, grads_;
  std::vector<Kept> kept_;
  std::vector<ops::AnyArgs>* collected_ = nullptr;
  const std::function<void(const char*, const ops::AnyArgs&)>* seen_ = nullptr;
};

}  // namespace bench
