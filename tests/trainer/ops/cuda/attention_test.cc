// CUDA attention against the CPU's: cuDNN's and the plain one, head sizes 64, 80, 96, 128
// and odd ones, grouped heads, masks, dropout, rotary embedding, decoding.
// SPDX-License-Identifier: MIT
#include <utility>

#include "tests/trainer/ops/cuda/pair.h"

namespace {

using namespace pair;

struct Case {
  int64_t length, batch, heads, groups, channels;
  bool causal = true;
  bool first_key = false;
  int64_t document = 10;  ///< length of a document, with first_key.
};

class CudaAttention : public PairTest {
 protected:
  static AttentionShape shape_of(const Case& c) {
    return {.num_attention_heads = c.heads,
            .num_query_groups = c.groups,
            .kv_channels = c.channels,
            .softmax_scale = 1.0f / std::sqrt(static_cast<float>(c.channels)),
            .causal = c.causal};
  }
  static int64_t row(const Case& c) { return (c.heads + 2 * c.groups) * c.channels; }

  /// Attention of c.length new positions against `cached` ones, on both sides.
  struct Decoded {
    Twin keys, values, out;
  };
  Decoded decode(const Case& c, int64_t capacity, int64_t cached, int64_t window = 0) {
    const Decoded d{.keys = random(model(), {capacity, c.batch, c.groups * c.channels}),
                    .values = random(model(), {capacity, c.batch, c.groups * c.channels}),
                    .out = empty(model(), {c.length, c.batch, c.heads * c.channels})};
    const Twin qkv = random(model(), {c.length, c.batch, row(c)});
    both([&](int i) {
      return AttentionDecode{.shape = shape_of(c),
                             .out = d.out[i],
                             .qkv = qkv[i],
                             .key_cache = d.keys[i],
                             .value_cache = d.values[i],
                             .cached = cached,
                             .window = window};
    });
    return d;
  }

  void check(const Case& c, float p) {
    const std::string at = " S " + std::to_string(c.length) + " N " + std::to_string(c.heads) +
                           " G " + std::to_string(c.groups) + " D " + std::to_string(c.channels) +
                           " p " + std::to_string(p);
    const Twin s = state({.iteration = 9});
    const Twin qkv = random(model(), {c.length, c.batch, row(c)});
    const Twin out = empty(model(), {c.length, c.batch, c.heads * c.channels});
    const Twin stats = empty(DType::f32, {c.batch, c.heads, c.length});
    Twin first;
    if (c.first_key) {
      std::vector<int32_t> keys;
      for (int64_t i = 0; i < c.length * c.batch; ++i)
        keys.push_back(static_cast<int32_t>(i / c.batch / c.document * c.document));
      first = integers({c.length, c.batch}, keys);
    }
    const auto drop = [&](int i) {
      return Dropout{.p = p,
                     .seed = 3,
                     .site = dropout_site(1, DropoutKind::attention_probabilities),
                     .first_sample = 2,
                     .first_head = 1,
                     .state = s[i]};
    };
    poison_workspace({.shape = shape_of(c),
                      .dqkv = qkv[1],
                      .dout = out[1],
                      .out = out[1],
                      .stats = stats[1],
                      .qkv = qkv[1],
                      .first_key = first ? first[1] : Tensor(),
                      .dropout = drop(1)});
    both([&](int i) {
      return AttentionForward{.shape = shape_of(c),
                              .out = out[i],
                              .stats = stats[i],
                              .qkv = qkv[i],
                              .first_key = first ? first[i] : Tensor(),
                              .dropout = drop(i)};
    });
    const auto terms = static_cast<double>(c.length + c.channels);
    // Scores are sums of D products, off by 2^-24 * D at most; exp and log keep that.
    expect_close("stats" + at, stats, 0, 0, terms);
    // Probabilities are rounded to the model dtype before they meet v: u of each, so u of a sum of
    // magnitudes.
    expect_close("out" + at, out, 1.01, 1.5, terms);
    // Both sides continue from the same out, stats and dout.
    take_from_gpu(out);
    take_from_gpu(stats);
    sides[1]->upload(workspace_[1], poison_.data());
    const Twin dout = random(model(), {c.length, c.batch, c.heads * c.channels}),
               dqkv = empty(model(), {c.length, c.batch, row(c)});
    both([&](int i) {
      return AttentionBackward{.shape = shape_of(c),
                               .dqkv = dqkv[i],
                               .dout = dout[i],
                               .out = out[i],
                               .stats = stats[i],
                               .qkv = qkv[i],
                               .first_key = first ? first[i] : Tensor(),
                               .dropout = drop(i)};
    });
    // dS and P are rounded before the last products: each term of a sum is off by u, and the
    // largest element is at least a quarter of the sum of magnitudes of its terms at these sizes.
    expect_close("dqkv" + at, dqkv, 1.01, 4, 4 * terms);
    sides[1]->set_workspace({});
  }
  /// A workspace full of NaNs for either direction: an operation must read only what it wrote
  /// there.
  void poison_workspace(const AttentionBackward& call) {
    workspace_ = empty(DType::u8, {sides[1]->workspace_bytes(call)});
    poison_.assign(static_cast<size_t>(workspace_[1].bytes()), 0xff);
    sides[1]->set_workspace(workspace_[1]);
  }
  void take_from_gpu(const Twin& t) {
    const Twin wide = empty(DType::f32, {t[1].elements()});
    sides[1]->run(ops::Copy{.dst = wide[1], .src = t[1].flat()});
    sides[1]->download(t[0].data, wide[1]);
    sides[1]->synchronize();
  }

 private:
  Twin workspace_;
  std::vector<uint8_t> poison_;
};
ALL_DTYPES(CudaAttention);

TEST_P(CudaAttention, HeadSizes) {
  for (int64_t d : {64, 80, 96, 128})
    check({.length = 192, .batch = 2, .heads = 3, .groups = 3, .channels = d}, 0);
}
TEST_P(CudaAttention, OddSizes) {
  check({.length = 77, .batch = 3, .heads = 2, .groups = 2, .channels = 64}, 0);
  check({.length = 33, .batch = 1, .heads = 2, .groups = 2, .channels = 12}, 0);
  check({.length = 1, .batch = 2, .heads = 2, .groups = 2, .channels = 16}, 0);
}
TEST_P(CudaAttention, GroupedHeads) {
  check({.length = 128, .batch = 2, .heads = 6, .groups = 2, .channels = 64}, 0);
  check({.length = 96, .batch = 1, .heads = 4, .groups = 1, .channels = 128}, 0);
}
TEST_P(CudaAttention, NotCausal) {
  check({.length = 100, .batch = 2, .heads = 2, .groups = 2, .channels = 64, .causal = false}, 0);
}
TEST_P(CudaAttention, DocumentsApart) {
  check({.length = 192, .batch = 2, .heads = 2, .groups = 2, .channels = 64, .first_key = true}, 0);
  check({.length = 77, .batch = 3, .heads = 2, .groups = 1, .channels = 128, .first_key = true}, 0);
  // Documents longer than a tile, so that whole tiles of keys are hidden.
  check({.length = 700,
         .batch = 1,
         .heads = 1,
         .groups = 1,
         .channels = 64,
         .first_key = true,
         .document = 190},
        0);
  check({.length = 96, .batch = 2, .heads = 2, .groups = 1, .channels = 32, .first_key = true}, 0);
}

// Plain attention has the CPU's mask: fp32, head sizes that cuDNN does not support, separate
// documents.
TEST_P(CudaAttention, DropoutOfThePlainRoadIsTheTwins) {
  check({.length = 40, .batch = 2, .heads = 2, .groups = 2, .channels = 12}, 0.1f);
  check({.length = 96, .batch = 2, .heads = 4, .groups = 2, .channels = 32, .first_key = true},
        0.2f);
  if (model() != DType::f32) return;
  check({.length = 200, .batch = 2, .heads = 3, .groups = 3, .channels = 64}, 0.1f);
  check({.length = 77, .batch = 3, .heads = 2, .groups = 1, .channels = 80}, 0.5f);
}

// cuDNN draws its own mask. With q = 0 all probabilities of row s are 1/(s+1), and with v = 1 the
// output is the share of kept keys times 1/(1-p): mean 1, variance p/(1-p)/(s+1). Backward must use
// the same mask: dv of a head is the sum over queries of the same dropped probabilities.
TEST_P(CudaAttention, DropoutOfCudnnHasItsMomentsAndTheSameMaskBothWays) {
  if (model() == DType::f32) GTEST_SKIP() << "fp32 goes the plain road";
  const Case c{.length = 256, .batch = 4, .heads = 4, .groups = 4, .channels = 64, .causal = false};
  const float p = 0.25f;
  const Twin s = state({.iteration = 9});
  std::vector<float> values(static_cast<size_t>(c.length * c.batch * row(c)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int64_t>(i) / c.channels % 3 == 2 ? 1.0f : 0.0f;
  const Twin qkv = floats(model(), {c.length, c.batch, row(c)}, values);
  const Twin out = empty(model(), {c.length, c.batch, c.heads * c.channels}),
             again = empty(model(), {c.length, c.batch, c.heads * c.channels});
  const Twin stats = empty(DType::f32, {c.batch, c.heads, c.length}),
             dqkv = empty(model(), {c.length, c.batch, row(c)});
  const Dropout drop{.p = p, .seed = 3, .site = 77, .state = s[1]};
  sides[1]->run(ops::AttentionForward{
      .shape = shape_of(c), .out = out[1], .stats = stats[1], .qkv = qkv[1], .dropout = drop});
  sides[1]->run(ops::AttentionForward{
      .shape = shape_of(c), .out = again[1], .stats = stats[1], .qkv = qkv[1], .dropout = drop});
  EXPECT_EQ(bytes(out[1]), bytes(again[1])) << "the same seed, another mask";
  const StepState next{.iteration = 10};
  sides[1]->upload(s[1], &next);
  sides[1]->run(ops::AttentionForward{
      .shape = shape_of(c), .out = again[1], .stats = stats[1], .qkv = qkv[1], .dropout = drop});
  EXPECT_NE(bytes(out[1]), bytes(again[1])) << "another iteration, the same mask";
  const StepState back{.iteration = 9};
  sides[1]->upload(s[1], &back);
  take_from_gpu(out);
  const auto* o = static_cast<const float*>(out[0].data);
  double mean = 0, square = 0;
  const int64_t rows = c.length * c.batch * c.heads;
  std::vector<double> kept(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    kept[static_cast<size_t>(i)] = o[i * c.channels];
    mean += o[i * c.channels];
    square += std::pow(o[i * c.channels] - 1.0, 2);
  }
  mean /= static_cast<double>(rows);
  square /= static_cast<double>(rows);
  const double variance = p / (1 - p) / static_cast<double>(c.length);
  EXPECT_NEAR(mean, 1, 6 * std::sqrt(variance / static_cast<double>(rows)) + u());
  EXPECT_NEAR(square, variance, 0.15 * variance);  // 4096 rows: the estimate's deviation is 2.2%
  // dout = 1: the sum over keys of dv equals the sum over queries of out, mask by mask.
  const Twin dout = floats(model(), {c.length, c.batch, c.heads * c.channels},
                           std::vector<float>(static_cast<size_t>(out[0].elements()), 1.0f));
  sides[1]->run(ops::AttentionBackward{.shape = shape_of(c),
                                       .dqkv = dqkv[1],
                                       .dout = dout[1],
                                       .out = out[1],
                                       .stats = stats[1],
                                       .qkv = qkv[1],
                                       .dropout = drop});
  take_from_gpu(dqkv);
  const auto* d = static_cast<const float*>(dqkv[0].data);
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t n = 0; n < c.heads; ++n) {
      double of_out = 0, of_dv = 0;
      for (int64_t t = 0; t < c.length; ++t) {
        of_out += o[((t * c.batch + b) * c.heads + n) * c.channels];
        of_dv += d[(t * c.batch + b) * row(c) + (n * 3 + 2) * c.channels];
      }
      // Sums of 256 numbers near 1, each rounded to the model dtype.
      EXPECT_NEAR(of_out, of_dv, 256 * u()) << "sample " << b << " head " << n;
    }
}

TEST_P(CudaAttention, TheSameBitsEveryTime) {
  const Case c{.length = 512, .batch = 4, .heads = 4, .groups = 4, .channels = 64};
  const Twin qkv = random(model(), {c.length, c.batch, row(c)}),
             dout = random(model(), {c.length, c.batch, 256});
  const Twin out = empty(model(), {c.length, c.batch, 256}),
             stats = empty(DType::f32, {c.batch, c.heads, c.length});
  std::vector<uint8_t> first;
  for (int time = 0; time < 4; ++time) {
    const Twin dqkv = empty(model(), {c.length, c.batch, row(c)});
    sides[1]->run(ops::AttentionForward{
        .shape = shape_of(c), .out = out[1], .stats = stats[1], .qkv = qkv[1]});
    sides[1]->run(ops::AttentionBackward{.shape = shape_of(c),
                                         .dqkv = dqkv[1],
                                         .dout = dout[1],
                                         .out = out[1],
                                         .stats = stats[1],
                                         .qkv = qkv[1]});
    if (time == 0) first = bytes(dqkv[1]);
    EXPECT_EQ(first, bytes(dqkv[1]));
  }
}

TEST_P(CudaAttention, Rotary) {
  for (bool interleaved : {false, true}) {
    const Case c{.length = 12, .batch = 2, .heads = 4, .groups = 2, .channels = 24};
    const int64_t half = 8;
    std::vector<float> cosine, sine;
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < c.length * half; ++i) {
      cosine.push_back(std::cos(0.1f * static_cast<float>(i)));
      sine.push_back(std::sin(0.1f * static_cast<float>(i)));
    }
    for (int64_t i = 0; i < c.length * c.batch; ++i)
      positions.push_back(static_cast<int32_t>(i / c.batch));
    const Twin cos = floats(DType::f32, {c.length, half}, cosine),
               sin = floats(DType::f32, {c.length, half}, sine);
    const Twin at = integers({c.length, c.batch}, positions);
    for (bool inverse : {false, true}) {
      const Twin qkv = random(model(), {c.length, c.batch, row(c)});
      both([&](int i) {
        return Rotary{.qkv = qkv[i],
                      .positions = at[i],
                      .cosine = cos[i],
                      .sine = sin[i],
                      .num_attention_heads = c.heads,
                      .num_query_groups = c.groups,
                      .interleaved = interleaved,
                      .inverse = inverse};
      });
      expect_close("qkv", qkv, 1.01, 0, 2);
    }
  }
}

TEST_P(CudaAttention, Decode) {
  const Case c{.length = 3, .batch = 2, .heads = 4, .groups = 2, .channels = 32};
  const Decoded d = decode(c, 40, 20);
  expect_close("out", d.out, 1.01, 0.1, 64);
  expect_close("keys", d.keys, 0, 0, 0);
  expect_close("values", d.values, 0, 0, 0);
  for (const int64_t window : {1, 21, 22, 100})
    expect_close("window " + std::to_string(window), decode(c, 40, 20, window).out, 1.01, 0.1, 64);
}

// More keys than scores fit into shared memory; more queries than one launch handles.
TEST_P(CudaAttention, DecodeBeyondSharedMemory) {
  const std::unique_ptr<Ops> small = cuda::make_cuda_ops({.tune = false, .as = {8, 6}});
  Ops* own = std::exchange(sides[1], small.get());
  const Case c{.length = 710, .batch = 1, .heads = 4, .groups = 2, .channels = 8};
  const int64_t capacity = 24800;
  expect_close("out", decode(c, capacity, 24000).out, 1.01, 0.1, static_cast<double>(capacity));
  sides[1] = own;
}

}  // namespace
