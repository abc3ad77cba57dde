// The loss of a chunk of rows, over the whole vocabulary or one rank's part. Not here: the loop
// over chunks (model/head.h). May include: operation.h, step_state.h. Letters and dtypes as in
// operation.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/operation.h"
#include "trainer/ops/step_state.h"

namespace ops {

/// row_weights = loss_mask / sum(loss_mask), or 0 where the sum is 0, so that a micro-batch's loss
/// is sum(row_weights * token_loss).
struct LossWeights {
  static constexpr const char* kName = "loss_weights";
  Tensor row_weights;  ///< (S, B) fp32, out.
  Tensor loss_mask;    ///< (S, B) fp32, 0 or 1 (any weight >= 0 works).

  void check(Device device) const {
    const Expect e(kName, device);
    e.matrix("loss_mask", loss_mask, DType::f32, loss_mask.rows(), loss_mask.columns());
    e.like("row_weights", row_weights, loss_mask);
  }
  Cost cost() const { return {2 * count(loss_mask), 2 * bytes_of({&loss_mask})}; }
};

/// Cross entropy of a chunk of rows over the whole vocabulary, forward and backward in one pass:
/// token_loss = logsumexp(logits) - logits[label];
/// logits <- (softmax(logits) - onehot(label)) * row_weight * loss_scale * factor, in place, unless
/// !backward.
struct CrossEntropy {
  static constexpr const char* kName = "cross_entropy";
  Tensor logits;  ///< (R, V) model dtype (fp32 when not backward is fine too), in place.
  Tensor labels;  ///< (R) int32, 0 .. V-1. A label outside of that gives loss 0 and gradient 0 for
                  ///< its row.
  Tensor row_weights;  ///< (R) fp32; needed with backward.
  Tensor token_loss;   ///< (R) fp32, out.
  Tensor state;        ///< StepState: loss_scale is read; needed with backward.
  float factor = 1;    ///< 1 / num_microbatches.
  bool backward = true;

  void check(Device device) const {
    const Expect e(kName, device);
    e.rank("logits", logits, 2);
    e.model_dtype("logits", logits);
    e.shape("labels", labels, DType::i32, {logits.shape[0]});
    e.shape("token_loss", token_loss, DType::f32, {logits.shape[0]});
    if (!backward) return;
    e.shape("row_weights", row_weights, DType::f32, {logits.shape[0]});
    e.state("state", state);
  }
  Cost cost() const { return {8 * count(logits), (backward ? 2 : 1) * bytes_of({&logits})}; }
};

/// First half of the above when the vocabulary is split: of this rank's columns the maximum, the
/// sum of exp(logit - maximum), and the label's logit (0 where another rank holds the label).
struct CrossEntropyStatistics {
  static constexpr const char* kName = "cross_entropy_statistics";
  Tensor stats;   ///< (R, 3) fp32, out: {maximum, sum, label logit}.
  Tensor logits;  ///< (R, V/tp) model dtype.
  Tensor labels;  ///< (R) int32, ids of the whole vocabulary.
  int64_t first_token = 0;

  void check(Device device) const {
    const Expect e(kName, device);
    e.rank("logits", logits, 2);
    e.model_dtype("logits", logits);
    e.shape("labels", labels, DType::i32, {logits.shape[0]});
    e.shape("stats", stats, DType::f32, {logits.shape[0], 3});
  }
  Cost cost() const { return {4 * count(logits), bytes_of({&logits})}; }
};

/// Second half, after an all-gather of stats: combines them in rank order.
struct CrossEntropyGradient {
  static constexpr const char* kName = "cross_entropy_gradient";
  Tensor logits;                                  ///< (R, V/tp) model dtype, in place.
  Tensor stats;                                   ///< (tp, R, 3) fp32.
  Tensor labels, row_weights, token_loss, state;  ///< As CrossEntropy.
  int64_t first_token = 0;
  float factor = 1;
  bool backward = true;

  void check(Device device) const {
    const Expect e(kName, device);
    e.rank("logits", logits, 2);
    e.model_dtype("logits", logits);
    e.shape("labels", labels, DType::i32, {logits.shape[0]});
    e.rank("stats", stats, 3);
    e.shape("stats", stats, DType::f32, {stats.shape[0], logits.shape[0], 3});
    e.shape("token_loss", token_loss, DType::f32, {logits.shape[0]});
    if (!backward) return;
    e.shape("row_weights", row_weights, DType::f32, {logits.shape[0]});
    e.state("state", state);
  }
  Cost cost() const { return {4 * count(logits), 2 * bytes_of({&logits})}; }
};

/// state.loss += factor * sum(row_weights * token_loss), summed in fixed order.
struct AccumulateLoss {
  static constexpr const char* kName = "accumulate_loss";
  Tensor state;
  Tensor row_weights, token_loss;  ///< Equal numbers of fp32 elements.
  float factor = 1;

  void check(Device device) const {
    const Expect e(kName, device);
    e.state("state", state);
    e.matrix("row_weights", row_weights, DType::f32, row_weights.rows(), row_weights.columns());
    e.that(token_loss && token_loss.dtype == DType::f32 &&
               token_loss.elements() == row_weights.elements(),
           "token_loss must have as many fp32 elements as row_weights");
  }
  Cost cost() const { return {2 * count(token_loss), 2 * bytes_of({&token_loss})}; }
};

using LossOperations =
    Family<LossWeights, CrossEntropy, CrossEntropyStatistics, CrossEntropyGradient, AccumulateLoss>;

}  // namespace ops
