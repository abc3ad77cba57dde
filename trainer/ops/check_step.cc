// Checks of the operations around the layers; costs and names of all.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/check.h"
#include "trainer/ops/expect.h"

namespace ops {

void check(const Fill& a, Device device) {
  Expect e("fill", device);
  e.that(bool(a.dst) && a.dst.device == device, "dst must be on this device");
  e.that(a.value == 0 || Expect::is_float(a.dst.dtype) || a.dst.dtype == DType::i32,
         "integers other than int32 can only be filled with 0");
}

void check(const Copy& a, Device device) {
  Expect e("copy", device);
  e.that(a.dst && a.src && a.dst.device == device && a.src.device == device,
         "dst and src must be on this device");
  e.that(a.dst.elements() == a.src.elements(), "dst and src must have equally many elements");
  e.that(a.dst.dtype == a.src.dtype ||
             (Expect::is_float(a.dst.dtype) && Expect::is_float(a.src.dtype)),
         "only float dtypes are converted");
}

void check(const Add& a, Device device) {
  Expect e("add", device);
  e.model_dtype("dst", a.dst);
  e.model_dtype("a", a.a);
  e.matrix("a", a.a.flat().view({a.a.elements(), 1}), a.a.dtype, a.dst.elements(), 1);
}

void check(const NormalFill& a, Device device) {
  Expect e("normal_fill", device);
  e.model_dtype("out", a.out);
  e.matrix("out", a.out, a.out.dtype, a.out.rows(), a.out.columns());
  e.that(a.first_column >= 0 && a.first_row >= 0 &&
             a.first_column + a.out.columns() <= a.whole_columns,
         "out must lie within whole_columns");
}

void check(const LossWeights& a, Device device) {
  Expect e("loss_weights", device);
  e.matrix("loss_mask", a.loss_mask, DType::f32, a.loss_mask.rows(), a.loss_mask.columns());
  e.like("row_weights", a.row_weights, a.loss_mask);
}

void check(const CrossEntropy& a, Device device) {
  Expect e("cross_entropy", device);
  e.rank("logits", a.logits, 2);
  e.model_dtype("logits", a.logits);
  e.shape("labels", a.labels, DType::i32, {a.logits.shape[0]});
  e.shape("token_loss", a.token_loss, DType::f32, {a.logits.shape[0]});
  if (!a.backward) return;
  e.shape("row_weights", a.row_weights, DType::f32, {a.logits.shape[0]});
  e.state("state", a.state);
}

void check(const CrossEntropyStatistics& a, Device device) {
  Expect e("cross_entropy_statistics", device);
  e.rank("logits", a.logits, 2);
  e.model_dtype("logits", a.logits);
  e.shape("labels", a.labels, DType::i32, {a.logits.shape[0]});
  e.shape("stats", a.stats, DType::f32, {a.logits.shape[0], 3});
}

void check(const CrossEntropyGradient& a, Device device) {
  Expect e("cross_entropy_gradient", device);
  e.rank("logits", a.logits, 2);
  e.model_dtype("logits", a.logits);
  e.shape("labels", a.labels, DType::i32, {a.logits.shape[0]});
  e.rank("stats", a.stats, 3);
  e.shape("stats", a.stats, DType::f32, {a.stats.shape[0], a.logits.shape[0], 3});
  e.shape("token_loss", a.token_loss, DType::f32, {a.logits.shape[0]});
  if (!a.backward) return;
  e.shape("row_weights", a.row_weights, DType::f32, {a.logits.shape[0]});
  e.state("state", a.state);
}

void check(const AccumulateLoss& a, Device device) {
  Expect e("accumulate_loss", device);
  e.state("state", a.state);
  e.matrix("row_weights", a.row_weights, DType::f32, a.row_weights.rows(), a.row_weights.columns());
  e.that(a.token_loss && a.token_loss.dtype == DType::f32 &&
             a.token_loss.elements() == a.row_weights.elements(),
         "token_loss must have as many fp32 elements as row_weights");
}

void check(const StepInputs& a, Device device) {
  Expect("begin_step", device).state("state", a.state);
}

void check(const SumSquares& a, Device device) {
  Expect e("sum_squares", device);
  e.shape("out", a.out, DType::f32, {1});
  e.model_dtype("x", a.x);
  e.that(a.x && a.x.device == device, "x must be on this device");
}

void check(const JudgeGradients& a, Device device) {
  Expect e("judge_gradients", device);
  e.state("state", a.state);
  e.shape("sum_squares", a.sum_squares, DType::f32, {1});
}

void check(const AdamW& a, Device device) {
  Expect e("adamw", device);
  const int64_t n = a.main.elements();
  e.shape("main", a.main, DType::f32, {n});
  for (const Tensor* moment : {&a.m, &a.v}) {
    e.that(moment->dtype == DType::f32 || moment->dtype == DType::bf16, "moments are fp32 or bf16");
    e.dims("m, v", *moment, {n});
  }
  e.model_dtype("grad", a.grad);
  e.dims("grad", a.grad, {n});
  if (a.model) e.dims("model", a.model, {n});
  e.state("state", a.state);
  e.that(a.decay_elements >= 0 && a.decay_elements <= n, "decay_elements out of range");
}

void check(const CountNonfinite& a, Device device) {
  Expect e("count_nonfinite", device);
  e.shape("out", a.out, DType::i64, {1});
  e.model_dtype("x", a.x);
}

namespace {

double bytes_of(std::initializer_list<const Tensor*> tensors) {
  double bytes = 0;
  for (const Tensor* t : tensors)
    if (*t) bytes += static_cast<double>(t->bytes());
  return bytes;
}
double count(const Tensor& t) { return static_cast<double>(t.elements()); }
double product_flops(const Tensor& x, const Tensor& weight) {
  return 2.0 * static_cast<double>(x.rows()) * count(weight);
}
/// Query-key pairs times heads times channels, of one product.
double attention_flops(const AttentionShape& shape, const Tensor& qkv) {
  const double s = static_cast<double>(qkv.shape[0]);
  const double pairs = shape.causal ? 0.5 * s * (s + 1) : s * s;
  return 2.0 * pairs *
         static_cast<double>(qkv.shape[1] * shape.num_attention_heads * shape.kv_channels);
}

struct CostOf {
  Cost operator()(const Fill& a) { return {0, bytes_of({&a.dst})}; }
  Cost operator()(const Copy& a) { return {0, bytes_of({&a.dst, &a.src})}; }
  Cost operator()(const Add& a) { return {count(a.dst), bytes_of({&a.dst, &a.dst, &a.a})}; }
  Cost operator()(const NormalFill& a) { return {100 * count(a.out), bytes_of({&a.out})}; }
  Cost operator()(const EmbeddingForward& a) {
    return {count(a.x), 2 * bytes_of({&a.x, &a.tokens})};
  }
  Cost operator()(const EmbeddingBackward& a) {
    return {2 * count(a.dx), 3 * bytes_of({&a.dx, &a.tokens})};
  }
  Cost operator()(const ResidualNormForward& a) {
    return {8 * count(a.residual),
            bytes_of({&a.y, &a.residual_out, &a.residual, &a.branch, &a.mean, &a.rstd})};
  }
  Cost operator()(const ResidualNormBackward& a) {
    return {16 * count(a.dresidual),
            bytes_of({&a.dresidual, &a.dbranch, &a.dy, &a.dresidual_out, &a.x, &a.mean, &a.rstd})};
  }
  Cost operator()(const LinearForward& a) {
    return {product_flops(a.x, a.weight),
            bytes_of({&a.y, &a.pre_activation, &a.x, &a.weight, &a.addend})};
  }
  Cost operator()(const LinearBackwardInput& a) {
    return {product_flops(a.dy, a.weight),
            bytes_of({&a.dx, &a.dy, &a.weight, &a.pre_activation, &a.addend})};
  }
  Cost operator()(const LinearBackwardWeight& a) {
    const Tensor none;
    const Tensor& again = a.accumulate ? a.dweight : none;
    return {a.dweight ? product_flops(a.dy, a.dweight) : count(a.dy),
            bytes_of({&a.dweight, &again, &a.dy, &a.x})};
  }
  Cost operator()(const ActivationForward& a) { return {10 * count(a.y), bytes_of({&a.y, &a.x})}; }
  Cost operator()(const ActivationBackward& a) {
    return {16 * count(a.dy), bytes_of({&a.dx, &a.dy, &a.x})};
  }
  Cost operator()(const Rotary& a) { return {3 * count(a.qkv), 2 * bytes_of({&a.qkv})}; }
  Cost operator()(const AttentionForward& a) {
    return {2 * attention_flops(a.shape, a.qkv), bytes_of({&a.out, &a.stats, &a.qkv})};
  }
  Cost operator()(const AttentionBackward& a) {
    return {5 * attention_flops(a.shape, a.qkv),
            bytes_of({&a.dqkv, &a.dout, &a.out, &a.stats, &a.qkv})};
  }
  Cost operator()(const AttentionDecode& a) {
    return {4 * count(a.out) * static_cast<double>(a.cached + a.qkv.shape[0]),
            bytes_of({&a.out, &a.qkv, &a.key_cache, &a.value_cache})};
  }
  Cost operator()(const LossWeights& a) {
    return {2 * count(a.loss_mask), 2 * bytes_of({&a.loss_mask})};
  }
  Cost operator()(const CrossEntropy& a) {
    return {8 * count(a.logits), (a.backward ? 2 : 1) * bytes_of({&a.logits})};
  }
  Cost operator()(const CrossEntropyStatistics& a) {
    return {4 * count(a.logits), bytes_of({&a.logits})};
  }
  Cost operator()(const CrossEntropyGradient& a) {
    return {4 * count(a.logits), 2 * bytes_of({&a.logits})};
  }
  Cost operator()(const AccumulateLoss& a) {
    return {2 * count(a.token_loss), 2 * bytes_of({&a.token_loss})};
  }
  Cost operator()(const StepInputs&) { return {}; }
  Cost operator()(const SumSquares& a) { return {2 * count(a.x), bytes_of({&a.x})}; }
  Cost operator()(const JudgeGradients&) { return {}; }
  Cost operator()(const AdamW& a) {
    return {16 * count(a.main),
            2 * bytes_of({&a.main, &a.m, &a.v}) + bytes_of({&a.grad, &a.model})};
  }
  Cost operator()(const CountNonfinite& a) { return {count(a.x), bytes_of({&a.x})}; }
};

}  // namespace

Cost cost(const AnyArgs& args) { return std::visit(CostOf{}, args); }

const char* name(const AnyArgs& args) noexcept {
  static constexpr const char* kNames[] = {"fill",
                                           "copy",
                                           "add",
                                           "normal_fill",
                                           "embedding_forward",
                                           "embedding_backward",
                                           "residual_norm_forward",
                                           "residual_norm_backward",
                                           "linear_forward",
                                           "linear_backward_input",
                                           "linear_backward_weight",
                                           "activation_forward",
                                           "activation_backward",
                                           "rotary",
                                           "attention_forward",
                                           "attention_backward",
                                           "attention_decode",
                                           "loss_weights",
                                           "cross_entropy",
                                           "cross_entropy_statistics",
                                           "cross_entropy_gradient",
                                           "accumulate_loss",
                                           "begin_step",
                                           "sum_squares",
                                           "judge_gradients",
                                           "adamw",
                                           "count_nonfinite"};
  static_assert(std::size(kNames) == std::variant_size_v<AnyArgs>);
  return kNames[args.index()];
}

}  // namespace ops
