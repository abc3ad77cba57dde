// The step of gpt_step.h, written out. Straight-line: the order below is the order on the device.
// SPDX-License-Identifier: MIT
#include "bench/step/gpt_step.h"

#include <cmath>
#include <cstring>
#include <random>

namespace bench {

using ops::Activation;
using ops::DropoutKind;
using ops::DType;
using ops::Ops;
using ops::Tensor;

GptStep::GptStep(Ops& ops, const GptShape& shape, DType dtype, float hidden_dropout,
                 float attention_dropout)
    : ops_(ops),
      shape_(shape),
      dtype_(dtype),
      hidden_dropout_(hidden_dropout),
      attention_dropout_(attention_dropout) {
  const int64_t s = shape.seq_length, b = shape.micro_batch_size, h = shape.hidden;
  const int64_t flat = shape.parameters();
  model_ = take(dtype, {flat});
  main_ = dtype == DType::f32 ? model_ : take(DType::f32, {flat});
  m_ = take(DType::f32, {flat});
  v_ = take(DType::f32, {flat});
  grad_ = take(DType::f32, {flat});
  state_ = take(DType::u8, {static_cast<int64_t>(sizeof(ops::StepState))});
  sum_ = take(DType::f32, {1});
  weights_ = cut(model_, true);
  grads_ = cut(grad_, false);
  tokens_ = take(DType::i32, {s, b});
  labels_ = take(DType::i32, {s * b});
  positions_ = take(DType::i32, {s, b});
  loss_mask_ = take(DType::f32, {s, b});
  row_weights_ = take(DType::f32, {s, b});
  token_loss_ = take(DType::f32, {s * b});
  x0_ = take(dtype, {s, b, h});
  for (int64_t l = 0; l < shape.layers; ++l) {
    Kept k;
    k.x1 = l == 0 ? x0_ : take(dtype, {s, b, h});
    k.y1 = take(dtype, {s, b, h});
    k.mean1 = take(DType::f32, {s, b});
    k.rstd1 = take(DType::f32, {s, b});
    k.qkv = take(dtype, {s, b, 3 * h});
    k.attention = take(dtype, {s, b, h});
    k.stats = take(DType::f32, {b, shape.heads, s});
    k.x2 = take(dtype, {s, b, h});
    k.y2 = take(dtype, {s, b, h});
    k.mean2 = take(DType::f32, {s, b});
    k.rstd2 = take(DType::f32, {s, b});
    k.pre = take(dtype, {s, b, 4 * h});
    k.activated = take(dtype, {s, b, 4 * h});
    kept_.push_back(k);
  }
  branch_ = take(dtype, {s, b, h});
  final_x_ = take(dtype, {s, b, h});
  final_y_ = take(dtype, {s, b, h});
  final_mean_ = take(DType::f32, {s, b});
  final_rstd_ = take(DType::f32, {s, b});
  logits_ = take(dtype, {shape.head_rows, shape.vocabulary});
  dresidual_ = take(dtype, {s, b, h});
  dbranch_ = hidden_dropout > 0 ? take(dtype, {s, b, h}) : Tensor();
  dy_ = take(dtype, {s, b, h});
  dwide_ = take(dtype, {s, b, 4 * h});
  dqkv_ = take(dtype, {s, b, 3 * h});
  reset();
}

GptStep::~GptStep() {
  ops_.synchronize();
  for (void* block : blocks_) ops_.release(block);
}

Tensor GptStep::take(DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t(nullptr, dtype, ops_.device(), shape);
  t.data = ops_.allocate(t.bytes());
  blocks_.push_back(t.data);
  bytes_ += t.bytes();
  return t;
}

GptStep::Weights GptStep::cut(const Tensor& flat, bool tell_decay) {
  const int64_t h = shape_.hidden;
  int64_t at = 0;
  const auto matrix = [&](int64_t rows, int64_t columns) {
    Tensor t = flat.slice(at, rows * columns).view({rows, columns});
    at += rows * columns;
    return t;
  };
  const auto vector = [&](int64_t count) {
    Tensor t = flat.slice(at, count);
    at += count;
    return t;
  };
  Weights w;
  w.layers.resize(static_cast<size_t>(shape_.layers));
  w.token_table = matrix(shape_.vocabulary, h);
  w.position_table = matrix(shape_.seq_length, h);
  for (Layer& l : w.layers) {
    l.qkv_weight = matrix(3 * h, h);
    l.proj_weight = matrix(h, h);
    l.fc1_weight = matrix(4 * h, h);
    l.fc2_weight = matrix(h, 4 * h);
  }
  if (tell_decay) decay_elements_ = at;
  for (Layer& l : w.layers) {
    l.norm1_weight = vector(h);
    l.norm1_bias = vector(h);
    l.qkv_bias = vector(3 * h);
    l.proj_bias = vector(h);
    l.norm2_weight = vector(h);
    l.norm2_bias = vector(h);
    l.fc1_bias = vector(4 * h);
    l.fc2_bias = vector(h);
  }
  w.final_weight = vector(h);
  w.final_bias = vector(h);
  return w;
}

void GptStep::reset() {
  const int64_t s = shape_.seq_length, b = shape_.micro_batch_size;
  ops_.run(ops::Fill{.dst = main_, .value = 0});
  ops_.run(ops::Fill{.dst = m_, .value = 0});
  ops_.run(ops::Fill{.dst = v_, .value = 0});
  ops_.run(ops::NormalFill{.out = main_.slice(0, decay_elements_),
                           .std = 0.02f,
                           .seed = 1,
                           .whole_columns = decay_elements_});
  if (main_.data != model_.data) ops_.run(ops::Copy{.dst = model_, .src = main_});
  for (const Weights& w : {weights_, cut(main_, false)}) {
    ops_.run(ops::Fill{.dst = w.final_weight, .value = 1});
    for (const Layer& l : w.layers) {
      ops_.run(ops::Fill{.dst = l.norm1_weight, .value = 1});
      ops_.run(ops::Fill{.dst = l.norm2_weight, .value = 1});
    }
  }
  std::mt19937 random(1);
  std::vector<int32_t> tokens(static_cast<size_t>(s * b)), labels(tokens.size()),
      positions(tokens.size());
  std::vector<float> mask(tokens.size(), 1.0f);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(random() % 50257);
    labels[i] = static_cast<int32_t>(random() % 50257);
    positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) / b);
  }
  ops::StepState fresh;
  ops_.upload(tokens_, tokens.data());
  ops_.upload(labels_, labels.data());
  ops_.upload(positions_, positions.data());
  ops_.upload(loss_mask_, mask.data());
  ops_.upload(state_, &fresh);
  ops_.synchronize();
}

template <typename Args>
void GptStep::call(const char* name, const Args& args) {
  if (collected_ != nullptr) {
    collected_->emplace_back(args);
    return;
  }
  ops_.run(args);
  if (seen_ != nullptr) (*seen_)(name, args);
}

std::vector<ops::AnyArgs> GptStep::calls() {
  std::vector<ops::AnyArgs> out;
  collected_ = &out;
  run();
  collected_ = nullptr;
  return out;
}

void GptStep::begin(int64_t iteration) {
  ops_.run(
      ops::BeginStep{.state = state_, .iteration = iteration, .lr = 1e-4f, .weight_decay = 0.1f});
}

void GptStep::run(const std::function<void(const char*, const ops::AnyArgs&)>& seen) {
  seen_ = seen ? &seen : nullptr;
  forward();
  head();
  backward();
  update();
  seen_ = nullptr;
}

ops::StepState GptStep::state() {
  ops::StepState out;
  ops_.download(&out, state_);
  ops_.synchronize();
  return out;
}

ops::Dropout GptStep::dropout(int64_t layer, DropoutKind kind) const {
  const float p =
      kind == DropoutKind::attention_probabilities ? attention_dropout_ : hidden_dropout_;
  if (p == 0) return {};
  return {.p = p, .seed = 1, .site = ops::dropout_site(layer, kind), .state = state_};
}

void GptStep::forward() {
  const ops::AttentionShape attention{
      .num_attention_heads = shape_.heads,
      .num_query_groups = shape_.heads,
      .kv_channels = shape_.hidden / shape_.heads,
      .softmax_scale = 1.0f / std::sqrt(static_cast<float>(shape_.hidden / shape_.heads))};
  call<ops::EmbeddingForward>("embedding", {.x = x0_,
                                            .tokens = tokens_,
                                            .token_table = weights_.token_table,
                                            .positions = positions_,
                                            .position_table = weights_.position_table,
                                            .dropout = dropout(0, DropoutKind::embedding)});
  for (int64_t i = 0; i < shape_.layers; ++i) {
    const Layer& w = weights_.layers[static_cast<size_t>(i)];
    const Kept& k = kept_[static_cast<size_t>(i)];
    ops::ResidualNormForward norm{.y = k.y1,
                                  .mean = k.mean1,
                                  .rstd = k.rstd1,
                                  .residual = x0_,
                                  .weight = w.norm1_weight,
                                  .bias = w.norm1_bias};
    if (i > 0) {
      norm.residual = kept_[static_cast<size_t>(i - 1)].x2;
      norm.branch = branch_;
      norm.residual_out = k.x1;
      norm.dropout = dropout(i - 1, DropoutKind::mlp_output);
    }
    call("norm", norm);
    call<ops::LinearForward>("qkv",
                             {.y = k.qkv, .x = k.y1, .weight = w.qkv_weight, .bias = w.qkv_bias});
    call<ops::AttentionForward>("attention",
                                {.shape = attention,
                                 .out = k.attention,
                                 .stats = k.stats,
                                 .qkv = k.qkv,
                                 .dropout = dropout(i, DropoutKind::attention_probabilities)});
    call<ops::LinearForward>(
        "proj", {.y = branch_, .x = k.attention, .weight = w.proj_weight, .bias = w.proj_bias});
    call<ops::ResidualNormForward>("norm", {.y = k.y2,
                                            .residual_out = k.x2,
                                            .mean = k.mean2,
                                            .rstd = k.rstd2,
                                            .residual = k.x1,
                                            .branch = branch_,
                                            .weight = w.norm2_weight,
                                            .bias = w.norm2_bias,
                                            .dropout = dropout(i, DropoutKind::attention_output)});
    call<ops::LinearForward>("fc1", {.y = k.activated,
                                     .pre_activation = k.pre,
                                     .x = k.y2,
                                     .weight = w.fc1_weight,
                                     .bias = w.fc1_bias,
                                     .activation = Activation::gelu_tanh});
    call<ops::LinearForward>(
        "fc2", {.y = branch_, .x = k.activated, .weight = w.fc2_weight, .bias = w.fc2_bias});
  }
  call<ops::ResidualNormForward>("norm",
                                 {.y = final_y_,
                                  .residual_out = final_x_,
                                  .mean = final_mean_,
                                  .rstd = final_rstd_,
                                  .residual = kept_.back().x2,
                                  .branch = branch_,
                                  .weight = weights_.final_weight,
                                  .bias = weights_.final_bias,
                                  .dropout = dropout(shape_.layers - 1, DropoutKind::mlp_output)});
}

void GptStep::head() {
  const int64_t rows = shape_.tokens(), h = shape_.hidden;
  const Tensor y = final_y_.view({rows, h}), dy = dy_.view({rows, h});
  const Tensor weights = row_weights_.view({rows});
  call<ops::LossWeights>("loss", {.row_weights = row_weights_, .loss_mask = loss_mask_});
  for (int64_t at = 0; at < rows; at += shape_.head_rows) {
    const int64_t count = std::min(shape_.head_rows, rows - at);
    const Tensor logits = logits_.slice(0, count), part = y.slice(at, count);
    call<ops::LinearForward>("logits", {.y = logits, .x = part, .weight = weights_.token_table});
    call<ops::CrossEntropy>("cross entropy", {.logits = logits,
                                              .labels = labels_.slice(at, count),
                                              .row_weights = weights.slice(at, count),
                                              .token_loss = token_loss_.slice(at, count),
                                              .state = state_});
    call<ops::LinearBackwardInput>(
        "logits d", {.dx = dy.slice(at, count), .dy = logits, .weight = weights_.token_table});
    call<ops::LinearBackwardWeight>(
        "logits w", {.dweight = grads_.token_table, .dy = logits, .x = part, .accumulate = at > 0});
  }
  call<ops::AccumulateLoss>("loss",
                            {.state = state_, .row_weights = weights, .token_loss = token_loss_});
}

void GptStep::backward() {
  const int64_t h = shape_.hidden;
  const ops::AttentionShape attention{
      .num_attention_heads = shape_.heads,
      .num_query_groups = shape_.heads,
      .kv_channels = h / shape_.heads,
      .softmax_scale = 1.0f / std::sqrt(static_cast<float>(h / shape_.heads))};
  const auto norm = [&](ops::ResidualNormBackward a, const Tensor& before, ops::Dropout drop) {
    a.dresidual = dresidual_;
    a.dy = dy_;
    a.dbranch = drop.p > 0 ? dbranch_ : Tensor();
    a.accumulate = false;
    a.dropout = drop;
    a.dbranch_bias = before;
    call("norm d", a);
  };
  const auto weight = [&](const char* name, const Tensor& dweight, const Tensor& dbias,
                          const Tensor& dy, const Tensor& x) {
    call<ops::LinearBackwardWeight>(
        name, {.dweight = dweight, .dbias = dbias, .dy = dy, .x = x, .accumulate = false});
  };
  const auto input = [&](const char* name, const Tensor& dx, const Tensor& dy, const Tensor& w) {
    call<ops::LinearBackwardInput>(name, {.dx = dx, .dy = dy, .weight = w});
  };
  const Tensor& dout = hidden_dropout_ > 0 ? dbranch_ : dresidual_;
  norm({.dweight = grads_.final_weight,
        .dbias = grads_.final_bias,
        .x = final_x_,
        .mean = final_mean_,
        .rstd = final_rstd_,
        .weight = weights_.final_weight},
       grads_.layers.back().fc2_bias, dropout(shape_.layers - 1, DropoutKind::mlp_output));
  for (int64_t i = shape_.layers - 1; i >= 0; --i) {
    const Layer &w = weights_.layers[static_cast<size_t>(i)],
                &g = grads_.layers[static_cast<size_t>(i)];
    const Kept& k = kept_[static_cast<size_t>(i)];
    weight("fc2 w", g.fc2_weight, {}, dout, k.activated);
    call<ops::LinearBackwardInput>("fc2 d", {.dx = dwide_,
                                             .dy = dout,
                                             .weight = w.fc2_weight,
                                             .pre_activation = k.pre,
                                             .activation = Activation::gelu_tanh,
                                             .dbias = g.fc1_bias,
                                             .accumulate_bias = false});
    weight("fc1 w", g.fc1_weight, {}, dwide_, k.y2);
    input("fc1 d", dy_, dwide_, w.fc1_weight);
    norm({.dweight = g.norm2_weight,
          .dbias = g.norm2_bias,
          .dresidual_out = dresidual_,
          .x = k.x2,
          .mean = k.mean2,
          .rstd = k.rstd2,
          .weight = w.norm2_weight},
         g.proj_bias, dropout(i, DropoutKind::attention_output));
    weight("proj w", g.proj_weight, {}, dout, k.attention);
    input("proj d", dy_, dout, w.proj_weight);
    call<ops::AttentionBackward>("attention d",
                                 {.shape = attention,
                                  .dqkv = dqkv_,
                                  .dout = dy_,
                                  .out = k.attention,
                                  .stats = k.stats,
                                  .qkv = k.qkv,
                                  .dropout = dropout(i, DropoutKind::attention_probabilities)});
    weight("qkv w", g.qkv_weight, g.qkv_bias, dqkv_, k.y1);
    input("qkv d", dy_, dqkv_, w.qkv_weight);
    const bool first = i == 0;
    norm({.dweight = g.norm1_weight,
          .dbias = g.norm1_bias,
          .dresidual_out = dresidual_,
          .x = k.x1,
          .mean = k.mean1,
          .rstd = k.rstd1,
          .weight = w.norm1_weight},
         first ? Tensor() : grads_.layers[static_cast<size_t>(i - 1)].fc2_bias,
         first ? ops::Dropout() : dropout(i - 1, DropoutKind::mlp_output));
  }
  call<ops::EmbeddingBackward>("embedding d", {.dx = dresidual_,
                                               .tokens = tokens_,
                                               .dtoken_table = grads_.token_table,
                                               .positions = positions_,
                                               .dposition_table = grads_.position_table,
                                               .accumulate_tokens = true,
                                               .accumulate_positions = false,
                                               .dropout = dropout(0, DropoutKind::embedding)});
}

void GptStep::update() {
  call<ops::SumSquares>("grad norm", {.out = sum_, .x = grad_, .accumulate = false});
  call<ops::JudgeGradients>("grad norm", {.state = state_, .sum_squares = sum_, .clip_grad = 1.0f});
  call<ops::AdamW>("adamw", {.model = main_.data == model_.data ? Tensor() : model_,
                             .main = main_,
                             .m = m_,
                             .v = v_,
                             .grad = grad_,
                             .state = state_,
                             .decay_elements = decay_elements_,
                             .beta2 = 0.95f});
}

}  // namespace bench
