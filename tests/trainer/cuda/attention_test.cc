// CUDA attention against its CPU twin: cuDNN's road and the plain one, head sizes 64, 80, 96, 128
// and odd ones, grouped heads, masks, dropout, rotary embedding, decoding.
// SPDX-License-Identifier: MIT
#include "tests/trainer/cuda/pair.h"

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
    both(&Ops::attention_forward, [&](int i) {
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
    // Both sides go on from the same out, stats and dout.
    take_from_gpu(out);
    take_from_gpu(stats);
    sides[1]->upload(workspace_[1], poison_.data());
    const Twin dout = random(model(), {c.length, c.batch, c.heads * c.channels}),
               dqkv = empty(model(), {c.length, c.batch, row(c)});
    both(&Ops::attention_backward, [&](int i) {
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
  /// A workspace for either direction that holds NaNs: what an operation reads there it wrote.
  void poison_workspace(const AttentionBackward& call) {
    workspace_ = empty(DType::u8, {sides[1]->workspace_bytes(call)});
    poison_.assign(static_cast<size_t>(workspace_[1].bytes()), 0xff);
    sides[1]->set_workspace(workspace_[1]);
  }
  void take_from_gpu(const Twin& t) {
    const Twin wide = empty(DType::f32, {t[1].elements()});
    sides[1]->copy({.dst = wide[1], .src = t[1].flat()});
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

// One law for both devices and both roads: the mask follows from sample, head, query and key.
TEST_P(CudaAttention, DropoutIsTheTwins) {
  check({.length = 96, .batch = 2, .heads = 4, .groups = 2, .channels = 32}, 0.2f);
  check({.length = 200, .batch = 2, .heads = 3, .groups = 3, .channels = 64}, 0.1f);
  check({.length = 77, .batch = 3, .heads = 2, .groups = 1, .channels = 80}, 0.5f);
  check({.length = 130, .batch = 1, .heads = 2, .groups = 2, .channels = 128}, 0.1f);
  check({.length = 600, .batch = 1, .heads = 1, .groups = 1, .channels = 64}, 0.1f);
  check({.length = 100, .batch = 2, .heads = 2, .groups = 2, .channels = 64, .causal = false},
        0.1f);
  check({.length = 40, .batch = 2, .heads = 2, .groups = 2, .channels = 12}, 0.1f);
}
TEST_P(CudaAttention, DropoutOfDocumentsApart) {
  check({.length = 96, .batch = 2, .heads = 4, .groups = 2, .channels = 32, .first_key = true},
        0.2f);
}

// The samples of a batch and the heads of a rank may be split at will: each half draws the mask
// that it has in the whole.
TEST_P(CudaAttention, DropoutOfAHalfIsTheWholes) {
  if (model() == DType::f32) GTEST_SKIP() << "the plain road's products sum in another order";
  const Case whole{.length = 160, .batch = 4, .heads = 4, .groups = 4, .channels = 64};
  const Twin s = state({.iteration = 9});
  const Twin qkv = random(model(), {whole.length, whole.batch, row(whole)});
  const Twin out = empty(model(), {whole.length, whole.batch, whole.heads * whole.channels}),
             half = empty(model(), {whole.length, whole.batch, whole.heads * whole.channels / 2}),
             part = empty(model(), {whole.length, whole.batch, row(whole) / 2});
  Dropout drop{.p = 0.2f,
               .seed = 3,
               .site = dropout_site(1, DropoutKind::attention_probabilities),
               .state = s[1]};
  sides[1]->attention_forward(
      {.shape = shape_of(whole), .out = out[1], .qkv = qkv[1], .dropout = drop});
  const std::vector<uint8_t> all = bytes(out[1]), packed = bytes(qkv[1]);
  const auto unit_bytes = static_cast<size_t>(size_bytes(model()));
  const size_t head = static_cast<size_t>(whole.channels) * unit_bytes;
  const auto rows = static_cast<size_t>(whole.length * whole.batch);
  for (size_t first : {size_t{0}, size_t{2}}) {  // heads first and first + 1 alone
    std::vector<uint8_t> mine(rows * 6 * head);
    for (size_t r = 0; r < rows; ++r)
      std::copy_n(&packed[(r * 12 + first * 3) * head], 6 * head, &mine[r * 6 * head]);
    sides[1]->upload(part[1], mine.data());
    drop.first_head = static_cast<int64_t>(first);
    Case c = whole;
    c.heads = c.groups = 2;
    sides[1]->attention_forward(
        {.shape = shape_of(c), .out = half[1], .qkv = part[1], .dropout = drop});
    const std::vector<uint8_t> got = bytes(half[1]);
    for (size_t r = 0; r < rows; ++r) {
      ASSERT_EQ(std::memcmp(&got[r * 2 * head], &all[(r * 4 + first) * head], 2 * head), 0)
          << "row " << r << ", heads from " << first;
    }
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
    sides[1]->attention_forward(
        {.shape = shape_of(c), .out = out[1], .stats = stats[1], .qkv = qkv[1]});
    sides[1]->attention_backward({.shape = shape_of(c),
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
      both(&Ops::rotary, [&](int i) {
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
  const int64_t capacity = 40, cached = 20;
  const Twin keys = random(model(), {capacity, c.batch, c.groups * c.channels});
  const Twin values = random(model(), {capacity, c.batch, c.groups * c.channels});
  const Twin qkv = random(model(), {c.length, c.batch, row(c)}),
             out = empty(model(), {c.length, c.batch, c.heads * c.channels});
  both(&Ops::attention_decode, [&](int i) {
    return AttentionDecode{.shape = shape_of(c),
                           .out = out[i],
                           .qkv = qkv[i],
                           .key_cache = keys[i],
                           .value_cache = values[i],
                           .cached = cached};
  });
  expect_close("out", out, 1.01, 0.1, 64);
  expect_close("keys", keys, 0, 0, 0);
  expect_close("values", values, 0, 0, 0);
}

}  // namespace
