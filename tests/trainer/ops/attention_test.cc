// Rotary and attention: forward against float64, backward against central differences, decode
// against forward.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <tuple>

#include "tests/trainer/ops/numeric.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace {

using namespace ops;
using namespace numeric;

struct Case {
  int64_t seq, batch, heads, groups, channels;
  bool causal, documents;
  float p;
};

class Attention : public testing::TestWithParam<Case> {
 protected:
  Heap heap;
  cpu::CpuOps ops{2};
};

std::vector<int> first_keys(const Case& c) {
  std::vector<int> first(size_t(c.seq * c.batch), 0);
  for (int64_t s = 0; s < c.seq; ++s)
    for (int64_t b = 0; b < c.batch; ++b)
      first[size_t(s * c.batch + b)] = int(s / (3 + b) * (3 + b));
  return first;
}

/// out (S, B, N * D) of packed qkv.
Values attention(const Values& qkv, const Case& c, const Dropout& dropout) {
  const int64_t per_group = c.heads / c.groups, row = (c.heads + 2 * c.groups) * c.channels;
  const std::vector<int> first = first_keys(c);
  const auto at = [&](int64_t s, int64_t b, int64_t slot, int64_t d) {
    return qkv[size_t((s * c.batch + b) * row + slot * c.channels + d)];
  };
  Values out(size_t(c.seq * c.batch * c.heads * c.channels));
  for (int64_t s = 0; s < c.seq; ++s)
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t n = 0; n < c.heads; ++n) {
        const int64_t q_slot = n / per_group * (per_group + 2) + n % per_group;
        const int64_t k_slot = n / per_group * (per_group + 2) + per_group;
        const int64_t begin = c.documents ? first[size_t(s * c.batch + b)] : 0,
                      end = c.causal ? s + 1 : c.seq;
        Values p(size_t(end), 0.0);
        double sum = 0;
        for (int64_t k = begin; k < end; ++k) {
          double dot = 0;
          for (int64_t d = 0; d < c.channels; ++d) dot += at(s, b, q_slot, d) * at(k, b, k_slot, d);
          sum += p[size_t(k)] = std::exp(dot / std::sqrt(double(c.channels)));
        }
        for (int64_t k = begin; k < end; ++k)
          for (int64_t d = 0; d < c.channels; ++d)
            out[size_t(((s * c.batch + b) * c.heads + n) * c.channels + d)] +=
                p[size_t(k)] / sum * keep_factor(dropout, s, b, k, 3, dropout.first_head + n) *
                at(k, b, k_slot + 1, d);
      }
  return out;
}

TEST_P(Attention, ForwardAndBackward) {
  const Case c = GetParam();
  const int64_t row = (c.heads + 2 * c.groups) * c.channels;
  StepState step;
  step.iteration = 3;
  const Dropout dropout{.p = c.p,
                        .seed = 5,
                        .site = dropout_site(1, DropoutKind::attention_probabilities),
                        .first_sample = 9,
                        .first_head = 2,
                        .state = heap.state(step)};
  const AttentionShape shape{.num_attention_heads = c.heads,
                             .num_query_groups = c.groups,
                             .kv_channels = c.channels,
                             .softmax_scale = 1 / std::sqrt(float(c.channels)),
                             .causal = c.causal};
  const std::vector<Values> in = {random_values(size_t(c.seq * c.batch * row), 1)};
  const Tensor qkv = heap.floats({c.seq, c.batch, row}, in[0]);
  const Tensor first = c.documents ? heap.integers({c.seq, c.batch}, first_keys(c)) : Tensor();
  Tensor out = heap.empty({c.seq, c.batch, c.heads * c.channels}),
         stats = heap.empty({c.batch, c.heads, c.seq});
  ops.run(AttentionForward{.shape = shape,
                           .out = out,
                           .stats = stats,
                           .qkv = qkv,
                           .first_key = first,
                           .dropout = dropout});
  const Function f = [&](const std::vector<Values>& v) { return attention(v[0], c, dropout); };
  // A score's error 2^-24 * D becomes a relative error of exp; the sum over keys follows.
  expect_close("out", out, f(in), double(c.seq + c.channels));
  const Values cotangent = random_values(size_t(out.elements()), 2);
  Tensor dqkv = heap.empty({c.seq, c.batch, row});
  ops.run(AttentionBackward{.shape = shape,
                            .dqkv = dqkv,
                            .dout = heap.floats({c.seq, c.batch, c.heads * c.channels}, cotangent),
                            .out = out,
                            .stats = stats,
                            .qkv = qkv,
                            .first_key = first,
                            .dropout = dropout});
  if (c.seq <= 16) {
    expect_close("dqkv", dqkv, gradient(f, in, 0, cotangent), double(2 * c.seq + c.channels));
  } else {  // a full difference is too slow: along one random direction
    const Values direction = random_values(in[0].size(), 3, 0.1);
    double wanted = 0, got = 0, magnitude = 0;
    for (int sign : {1, -1}) {
      std::vector<Values> moved = in;
      for (size_t i = 0; i < moved[0].size(); ++i) moved[0][i] += sign * 1e-5 * direction[i];
      const Values y = f(moved);
      for (size_t i = 0; i < y.size(); ++i) wanted += sign * cotangent[i] * y[i] / 2e-5;
    }
    for (size_t i = 0; i < direction.size(); ++i) {
      got += direction[i] * dqkv.as<float>()[i];
      magnitude += std::abs(direction[i] * dqkv.as<float>()[i]);
    }
    EXPECT_NEAR(got, wanted, magnitude * double(2 * c.seq + c.channels + 16) * 0x1p-24);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Attention,
    testing::Values(Case{7, 2, 3, 3, 4, true, false, 0.0f}, Case{7, 2, 3, 3, 4, false, false, 0.0f},
                    Case{9, 1, 4, 2, 5, true, false, 0.25f}, Case{9, 2, 4, 1, 5, true, true, 0.0f},
                    Case{12, 2, 2, 2, 6, true, true, 0.25f}, Case{1, 1, 1, 1, 3, true, false, 0.0f},
                    Case{150, 2, 2, 1, 8, true, true, 0.1f}));

TEST(AttentionDecode, EqualsForwardPieceByPiece) {
  Heap heap;
  cpu::CpuOps ops(2);
  constexpr int64_t kS = 11, kB = 2, kN = 4, kG = 2, kD = 6, kRow = (kN + 2 * kG) * kD;
  const AttentionShape shape{
      .num_attention_heads = kN, .num_query_groups = kG, .kv_channels = kD, .softmax_scale = 0.4f};
  const Tensor qkv = heap.floats({kS, kB, kRow}, random_values(kS * kB * kRow, 1));
  Tensor whole = heap.empty({kS, kB, kN * kD});
  ops.run(AttentionForward{
      .shape = shape, .out = whole, .stats = {}, .qkv = qkv, .first_key = {}, .dropout = {}});
  Tensor keys = heap.empty({kS, kB, kG * kD}), values = heap.empty({kS, kB, kG * kD}),
         parts = heap.empty({kS, kB, kN * kD});
  int64_t cached = 0;
  for (int64_t count : {5, 1, 1, 4}) {
    ops.run(AttentionDecode{.shape = shape,
                            .out = parts.slice(cached, count),
                            .qkv = qkv.slice(cached, count),
                            .key_cache = keys,
                            .value_cache = values,
                            .cached = cached});
    cached += count;
  }
  expect_close("decode", parts, read(whole), kS + kD);
}

// A window hides the same keys from a cache as first_key does from a sequence.
TEST(AttentionDecode, SeesAWindow) {
  Heap heap;
  cpu::CpuOps ops(2);
  constexpr int64_t kS = 600, kD = 4, kRow = 3 * kD, kWindow = 261;  // more than a block of keys
  const AttentionShape shape{
      .num_attention_heads = 1, .num_query_groups = 1, .kv_channels = kD, .softmax_scale = 0.4f};
  const Tensor qkv = heap.floats({kS, 1, kRow}, random_values(kS * kRow, 1));
  std::vector<int> first_key(kS);
  for (int64_t s = 0; s < kS; ++s)
    first_key[size_t(s)] = static_cast<int>(std::max<int64_t>(0, s - kWindow + 1));
  const Tensor whole = heap.empty({kS, 1, kD}), parts = heap.empty({kS, 1, kD});
  ops.run(AttentionForward{.shape = shape,
                           .out = whole,
                           .stats = {},
                           .qkv = qkv,
                           .first_key = heap.integers({kS, 1}, first_key),
                           .dropout = {}});
  const Tensor keys = heap.empty({kS, 1, kD}), values = heap.empty({kS, 1, kD});
  for (const auto& [cached, count] : {std::pair<int64_t, int64_t>{0, 300}, {300, 1}, {301, 299}})
    ops.run(AttentionDecode{.shape = shape,
                            .out = parts.slice(cached, count),
                            .qkv = qkv.slice(cached, count),
                            .key_cache = keys,
                            .value_cache = values,
                            .cached = cached,
                            .window = kWindow});
  expect_close("decode", parts, read(whole), kWindow + kD);
}

TEST(Rotary, RotatesAndReturns) {
  Heap heap;
  cpu::CpuOps ops(1);
  constexpr int64_t kS = 4, kB = 2, kN = 4, kG = 2, kD = 6, kHalf = 2, kRow = (kN + 2 * kG) * kD;
  const Values in = random_values(kS * kB * kRow, 1);
  const std::vector<int> positions = {0, 3, 1, 2, 2, 1, 3, 0};
  Values cosine, sine;
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t i = 0; i < kHalf; ++i) {
      const double angle = double(t) * std::pow(10000.0, -double(i) / kHalf);
      cosine.push_back(std::cos(angle));
      sine.push_back(std::sin(angle));
    }
  for (bool interleaved : {false, true}) {
    Tensor qkv = heap.floats({kS, kB, kRow}, in);
    Rotary args{.qkv = qkv,
                .positions = heap.integers({kS, kB}, positions),
                .cosine = heap.floats({4, kHalf}, cosine),
                .sine = heap.floats({4, kHalf}, sine),
                .num_attention_heads = kN,
                .num_query_groups = kG,
                .interleaved = interleaved};
    ops.run(args);
    Values wanted = in;
    for (size_t r = 0; r < kS * kB; ++r)
      for (size_t head = 0; head < kN + 2 * kG; ++head) {
        if (head % 4 == 3) continue;  // per group: q q k v
        for (size_t i = 0; i < kHalf; ++i) {
          const size_t base = r * kRow + head * kD, a = base + (interleaved ? 2 * i : i),
                       b = base + (interleaved ? 2 * i + 1 : i + kHalf);
          const double c = cosine[size_t(positions[r]) * kHalf + i],
                       s = sine[size_t(positions[r]) * kHalf + i];
          wanted[a] = in[a] * c - in[b] * s;
          wanted[b] = in[b] * c + in[a] * s;
        }
      }
    expect_close("rotated", qkv, wanted, 2);
    args.inverse =
        true;  // the rotation is orthogonal, so its transpose, its gradient, is its inverse
    ops.run(args);
    expect_close("returned", qkv, in, 4);
  }
}

}  // namespace
