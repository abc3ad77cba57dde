// CPU: attention in blocks of queries, softmax over all keys of a block at once. A task owns one
// (sample, key/value group) and handles its query heads and blocks in order, so the order of sums
// is fixed.
// Source: Vaswani et al. 2017, equation 1; Dao et al. 2022 (FlashAttention), appendix B.2, for the
// gradient by row sums of dout * out; Su et al. 2021 (RoFormer), equation 34, for rotary.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstring>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/dropout.h"
#include "trainer/ops/cpu/gemm.h"
#include "trainer/ops/cpu/rows.h"
#include "trainer/ops/launch.h"

namespace ops::cpu {
namespace {

constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyBlock = 256;
constexpr int64_t kRowPiece = 32;

/// Addresses inside packed qkv and out for sample b.
struct Layout {
  int64_t seq, batch, heads, groups, per_group, channels, row, out_row;

  Layout(const AttentionShape& s, const Tensor& qkv)
      : seq(qkv.shape[0]),
        batch(qkv.shape[1]),
        heads(s.num_attention_heads),
        groups(s.num_query_groups),
        per_group(heads / groups),
        channels(s.kv_channels),
        row(batch * qkv.shape[2]),
        out_row(batch * heads * channels) {}

  int64_t sample(int64_t b) const { return b * (row / batch); }
  int64_t query(int64_t b, int64_t head) const {
    return sample(b) + (head / per_group * (per_group + 2) + head % per_group) * channels;
  }
  int64_t key(int64_t b, int64_t group) const {
    return sample(b) + (group * (per_group + 2) + per_group) * channels;
  }
  int64_t value(int64_t b, int64_t group) const { return key(b, group) + channels; }
  int64_t out(int64_t b, int64_t head) const { return (b * heads + head) * channels; }
};

/// The keys that query s of sample b may see: the first, and one past the last.
struct Range {
  int64_t begin, end;
};
Range visible(const AttentionForward& a, const Layout& l, int64_t s, int64_t b) {
  const int64_t begin = a.first_key ? a.first_key.as<int32_t>()[s * l.batch + b] : 0;
  return {begin, a.shape.causal ? s + 1 : l.seq};
}

/// scores (rows, keys) = scale * q k^T for queries s0 .. s0 + rows - 1 of one head.
void scores(float* out, const float* q, const float* k, const Layout& l, int64_t rows, int64_t keys,
            float scale) {
  multiply({.m = rows,
            .n = keys,
            .k = l.channels,
            .a = {q, l.row},
            .b = Matrix{k, l.row}.transposed(),
            .c = out,
            .c_row = keys,
            .alpha = scale});
}

/// Of one thread.
int64_t scratch_floats(int64_t keys, bool backward) {
  return kQueryBlock * keys * (backward ? 3 : 1);
}

}  // namespace

void launch(CpuOps& cpu, const AttentionForward& a) {
  const Layout l(a.shape, a.qkv);
  const DropoutMask mask(a.dropout);
  const int64_t scratch = scratch_floats(l.seq, false);
  float* all = reinterpret_cast<float*>(cpu.workspace(cpu.concurrency() * scratch * 4));
  const float* qkv = a.qkv.as<float>();
  cpu.parallel(l.batch * l.heads, [&](int64_t task) {
    const int64_t b = task / l.heads, head = task % l.heads, group = head / l.per_group;
    float* p = all + tbb::this_task_arena::current_thread_index() * scratch;
    if (l.batch * l.heads == 1) p = all;
    for (int64_t s0 = 0; s0 < l.seq; s0 += kQueryBlock) {
      const int64_t rows = std::min(kQueryBlock, l.seq - s0);
      const int64_t keys = a.shape.causal ? s0 + rows : l.seq;
      scores(p, qkv + l.query(b, head) + s0 * l.row, qkv + l.key(b, group), l, rows, keys,
             a.shape.softmax_scale);
      for (int64_t s = s0; s < s0 + rows; ++s) {
        float* row = p + (s - s0) * keys;
        const Range range = visible(a, l, s, b);
        const int64_t seen = range.end - range.begin;
        const float top = row_max(row + range.begin, seen);
        const double sum = row_exp_sum(row + range.begin, row + range.begin, seen, top);
        const float inverse = static_cast<float>(1.0 / sum);
        std::fill(row, row + range.begin, 0.0f);
        std::fill(row + range.end, row + keys, 0.0f);
        row_scale(row + range.begin, seen, inverse);
        mask.apply(row, keys, s, b, head);
        if (a.stats)
          a.stats.as<float>()[(b * l.heads + head) * l.seq + s] =
              top + static_cast<float>(std::log(sum));
      }
      cpu::multiply({.m = rows,
                     .n = l.channels,
                     .k = keys,
                     .a = {p, keys},
                     .b = {qkv + l.value(b, group), l.row},
                     .c = a.out.as<float>() + l.out(b, head) + s0 * l.out_row,
                     .c_row = l.out_row});
    }
  });
}

namespace {

/// One query block of one head: writes dq, adds into dk and dv. `p`, `dp` and `dropped` hold rows *
/// keys floats.
struct BackwardBlock {
  const AttentionBackward& a;
  const AttentionForward& forward;
  const Layout& l;
  const DropoutMask& mask;
  float *p, *dropped, *dp;

  void run(int64_t b, int64_t head, int64_t s0) const {
    const int64_t group = head / l.per_group;
    const int64_t rows = std::min(kQueryBlock, l.seq - s0);
    const int64_t keys = a.shape.causal ? s0 + rows : l.seq;
    const float* qkv = a.qkv.as<float>();
    const float* q = qkv + l.query(b, head) + s0 * l.row;
    const float* k = qkv + l.key(b, group);
    const float* v = qkv + l.value(b, group);
    const float* dout = a.dout.as<float>() + l.out(b, head) + s0 * l.out_row;
    const float* out = a.out.as<float>() + l.out(b, head) + s0 * l.out_row;
    float* dqkv = a.dqkv.as<float>();
    scores(p, q, k, l, rows, keys, a.shape.softmax_scale);
    multiply({.m = rows,
              .n = keys,
              .k = l.channels,
              .a = {dout, l.out_row},
              .b = Matrix{v, l.row}.transposed(),
              .c = dp,
              .c_row = keys});
    for (int64_t s = s0; s < s0 + rows; ++s) probabilities(b, head, s, s0, keys, dout, out);
    // dv += dropped^T dout; dq = scale * ds k; dk += scale * ds^T q.
    multiply({.m = keys,
              .n = l.channels,
              .k = rows,
              .a = Matrix{dropped, keys}.transposed(),
              .b = {dout, l.out_row},
              .c = dqkv + l.value(b, group),
              .c_row = l.row,
              .add = true});
    multiply({.m = rows,
              .n = l.channels,
              .k = keys,
              .a = {dp, keys},
              .b = {k, l.row},
              .c = dqkv + l.query(b, head) + s0 * l.row,
              .c_row = l.row,
              .alpha = a.shape.softmax_scale});
    multiply({.m = keys,
              .n = l.channels,
              .k = rows,
              .a = Matrix{dp, keys}.transposed(),
              .b = {q, l.row},
              .c = dqkv + l.key(b, group),
              .c_row = l.row,
              .alpha = a.shape.softmax_scale,
              .add = true});
  }

  /// Row s: p becomes the probabilities, dropped those after dropout, dp the gradient of the scaled
  /// scores.
  void probabilities(int64_t b, int64_t head, int64_t s, int64_t s0, int64_t keys,
                     const float* dout, const float* out) const {
    const int64_t at = (s - s0) * keys;
    const Range range = visible(forward, l, s, b);
    const float stat = a.stats.as<float>()[(b * l.heads + head) * l.seq + s];
    float* row = p + at;
    float* drow = dp + at;
    std::fill(row, row + range.begin, 0.0f);
    std::fill(row + range.end, row + keys, 0.0f);
    row_exp_sum(row + range.begin, row + range.begin, range.end - range.begin, stat);
    std::copy(row, row + keys, dropped + at);
    mask.apply(dropped + at, keys, s, b, head);
    mask.apply(drow, keys, s, b, head);
    double dot = 0;
    for (int64_t c = 0; c < l.channels; ++c)
      dot += dout[(s - s0) * l.out_row + c] * out[(s - s0) * l.out_row + c];
    const float row_dot = static_cast<float>(dot);
    for (int64_t k = 0; k < keys; ++k) drow[k] = row[k] * (drow[k] - row_dot);
  }
};

}  // namespace

void launch(CpuOps& cpu, const AttentionBackward& a) {
  const Layout l(a.shape, a.qkv);
  const DropoutMask mask(a.dropout);
  const AttentionForward forward{.shape = a.shape,
                                 .out = a.out,
                                 .stats = a.stats,
                                 .qkv = a.qkv,
                                 .first_key = a.first_key,
                                 .dropout = {}};
  const int64_t scratch = scratch_floats(l.seq, true);
  float* all = reinterpret_cast<float*>(cpu.workspace(cpu.concurrency() * scratch * 4));
  cpu.parallel(l.batch * l.groups, [&](int64_t task) {
    const int64_t b = task / l.groups, group = task % l.groups;
    float* p =
        all +
        (l.batch * l.groups == 1 ? 0 : tbb::this_task_arena::current_thread_index() * scratch);
    float* dropped = p + scratch / 3;
    float* dp = dropped + scratch / 3;
    for (int64_t s = 0; s < l.seq; ++s)
      std::fill_n(a.dqkv.as<float>() + l.key(b, group) + s * l.row, 2 * l.channels, 0.0f);
    const BackwardBlock block{a, forward, l, mask, p, dropped, dp};
    for (int64_t head = group * l.per_group; head < (group + 1) * l.per_group; ++head)
      for (int64_t s0 = 0; s0 < l.seq; s0 += kQueryBlock) block.run(b, head, s0);
  });
}

namespace {

/// Queries of one head over the cached keys and values, in blocks of keys with a running maximum
/// (Milakov and Gimelshein 2018).
struct DecodeBlock {
  /// With at most this many rows a product sums in another order, so a query is alone among them.
  static constexpr int64_t kFewRows = 3;
  static constexpr int64_t kMostRows = kQueryBlock + kFewRows;

  const AttentionDecode& a;
  const Layout& l;
  const float *k, *v;  ///< Of the head's group, at position 0.
  int64_t cache_row;
  int64_t b, head;

  /// The keys that query s sees: the first, and one past the last.
  Range visible(int64_t s) const {
    const int64_t end = a.cached + s + 1;
    return {a.window > 0 ? std::max<int64_t>(0, end - a.window) : 0, end};
  }
  float* out(int64_t s) const { return a.out.as<float>() + s * l.out_row + l.out(b, head); }

  /// Queries first .. first + rows - 1. Blocks of keys begin at `begin` and end with the last query
  /// that sees them; what a query does not see of a block adds zeros.
  void run(int64_t first, int64_t rows, int64_t begin) const {
    float p[kMostRows * kKeyBlock], top[kMostRows];
    double sum[kMostRows] = {};
    std::fill_n(top, rows, -INFINITY);
    for (int64_t r = 0; r < rows; ++r) std::fill_n(out(first + r), l.channels, 0.0f);
    const int64_t end = visible(first + rows - 1).end;
    for (int64_t t = begin; t < end; t += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, end - t);
      multiply({.m = rows,
                .n = keys,
                .k = l.channels,
                .a = {a.qkv.as<float>() + first * l.row + l.query(b, head), l.row},
                .b = Matrix{k + t * cache_row, cache_row}.transposed(),
                .c = p,
                .c_row = keys,
                .alpha = a.shape.softmax_scale});
      for (int64_t r = 0; r < rows; ++r) soften(p + r * keys, t, keys, first + r, top[r], sum[r]);
      multiply({.m = rows,
                .n = l.channels,
                .k = keys,
                .a = {p, keys},
                .b = {v + t * cache_row, cache_row},
                .c = out(first),
                .c_row = l.out_row,
                .add = true});
    }
    for (int64_t r = 0; r < rows; ++r)
      row_scale(out(first + r), l.channels, static_cast<float>(1.0 / sum[r]));
  }

  /// Scores of query s and the keys from t on become exp(score - top); top, sum and out follow.
  void soften(float* row, int64_t t, int64_t keys, int64_t s, float& top, double& sum) const {
    const Range range = visible(s);
    const int64_t begin = std::clamp<int64_t>(range.begin - t, 0, keys);
    const int64_t seen = std::clamp<int64_t>(range.end - t, begin, keys) - begin;
    std::fill(row, row + begin, 0.0f);
    std::fill(row + begin + seen, row + keys, 0.0f);
    if (seen == 0) return;
    const float higher = std::max(top, row_max(row + begin, seen));
    const float rescale = std::exp(top - higher);
    top = higher;
    sum = sum * rescale + row_exp_sum(row + begin, row + begin, seen, top);
    row_scale(out(s), l.channels, rescale);
  }
};

}  // namespace

void launch(CpuOps& cpu, const AttentionDecode& a) {
  const Layout l(a.shape, a.qkv);
  const int64_t cache_row = l.batch * l.groups * l.channels;
  const float* qkv = a.qkv.as<float>();
  float* keys = a.key_cache.as<float>();
  float* values = a.value_cache.as<float>();
  for (int64_t s = 0; s < l.seq; ++s)
    for (int64_t b = 0; b < l.batch; ++b)
      for (int64_t g = 0; g < l.groups; ++g) {
        const int64_t at = (a.cached + s) * cache_row + (b * l.groups + g) * l.channels;
        std::copy_n(qkv + s * l.row + l.key(b, g), l.channels, keys + at);
        std::copy_n(qkv + s * l.row + l.value(b, g), l.channels, values + at);
      }
  // The last block takes a few more queries rather than leave them alone.
  const bool few = l.seq <= DecodeBlock::kFewRows;
  const int64_t blocks =
      few ? 1
          : std::max<int64_t>(1, (l.seq - DecodeBlock::kFewRows + kQueryBlock - 1) / kQueryBlock);
  cpu.parallel(l.batch * l.heads * blocks, [&](int64_t task) {
    const int64_t block = task % blocks, head = task / blocks % l.heads,
                  b = task / blocks / l.heads;
    const int64_t kv = (b * l.groups + head / l.per_group) * l.channels;
    const DecodeBlock queries{a, l, keys + kv, values + kv, cache_row, b, head};
    if (few) {
      for (int64_t s = 0; s < l.seq; ++s) queries.run(s, 1, queries.visible(s).begin);
      return;
    }
    // Blocks of keys begin at multiples of their size, so no sum depends on which queries are
    // computed together.
    const int64_t first = block * kQueryBlock;
    const int64_t rows = block + 1 == blocks ? l.seq - first : kQueryBlock;
    queries.run(first, rows, queries.visible(first).begin / kKeyBlock * kKeyBlock);
  });
}

void launch(CpuOps& cpu, const Rotary& a) {
  const int64_t columns = a.qkv.shape[2];
  const int64_t per_group = a.num_attention_heads / a.num_query_groups + 2;
  const int64_t channels = columns / (per_group * a.num_query_groups);
  const int64_t half = a.cosine.shape[1];
  const int32_t* positions = a.positions.as<int32_t>();
  cpu.pieces(a.qkv.rows(), kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* cosine = a.cosine.as<float>() + positions[r] * half;
      const float* sine = a.sine.as<float>() + positions[r] * half;
      for (int64_t head = 0; head < per_group * a.num_query_groups; ++head) {
        if (head % per_group == per_group - 1) continue;  // v
        float* x = a.qkv.as<float>() + r * columns + head * channels;
        for (int64_t i = 0; i < half; ++i) {
          float& first = a.interleaved ? x[2 * i] : x[i];
          float& second = a.interleaved ? x[2 * i + 1] : x[i + half];
          const float s = a.inverse ? -sine[i] : sine[i];
          const float rotated = first * cosine[i] - second * s;
          second = second * cosine[i] + first * s;
          first = rotated;
        }
      }
    }
  });
}

int64_t scratch_bytes(CpuOps&, const Rotary&) { return 0; }
int64_t scratch_bytes(CpuOps& cpu, const AttentionForward& a) {
  return cpu.concurrency() * scratch_floats(a.qkv.shape[0], false) * 4;
}
int64_t scratch_bytes(CpuOps& cpu, const AttentionBackward& a) {
  return cpu.concurrency() * scratch_floats(a.qkv.shape[0], true) * 4;
}
int64_t scratch_bytes(CpuOps&, const AttentionDecode&) { return 0; }

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::AttentionForward>;
template struct ops::Launch<ops::cpu::CpuOps, ops::AttentionBackward>;
template struct ops::Launch<ops::cpu::CpuOps, ops::AttentionDecode>;
template struct ops::Launch<ops::cpu::CpuOps, ops::Rotary>;
