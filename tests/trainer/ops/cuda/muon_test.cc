// CUDA momentum, matrices, products and updates of Muon against the CPU's.
// SPDX-License-Identifier: MIT
#include "tests/trainer/ops/cuda/pair.h"
#include "trainer/ops/ops.h"

namespace {

using namespace pair;

/// Rows of a matrix that are a part: all, and a part of each of some groups.
struct Rows {
  int64_t rows, columns;
  RowPart part;
};
const Rows kRows[] = {{48, 40, {0, 48, 48}},
                      {1, 300, {0, 1, 1}},
                      {7 * 12, 33, {8, 4, 12}},
                      {3 * 200, 257, {0, 128, 200}}};

class CudaMuon : public PairTest {
 protected:
  Twin state_of_step() {
    return state({.lr = 0.01f, .weight_decay = 0.1f, .grad_multiplier = 0.5f});
  }
};
ALL_DTYPES(CudaMuon);

TEST_P(CudaMuon, Momentum) {
  for (const int64_t n : {1, 1000, 123457}) {
    const Twin momentum = random(DType::f32, {n}), grad = random(model(), {n});
    const auto step = [&](const Twin& s) {
      both([&](int i) {
        return MuonMomentum{.momentum = momentum[i], .grad = grad[i], .state = s[i], .beta = 0.95f};
      });
    };
    step(state_of_step());
    expect_close("momentum", momentum, 2, 0, 2);
    const std::vector<uint8_t> before = bytes(momentum[1]);
    step(state({.skip = 1, .grad_multiplier = 1}));
    EXPECT_EQ(bytes(momentum[1]), before) << "a skipped step changes nothing";
  }
}

TEST_P(CudaMuon, MatrixOfSomeRows) {
  for (const Rows& r : kRows) {
    const Twin momentum = random(DType::f32, {r.rows, r.columns}),
               grad = random(model(), {r.rows, r.columns}), s = state_of_step();
    const int64_t part = r.part.rows_of(r.rows);
    for (const bool nesterov : {false, true}) {
      for (const bool transposed : {false, true}) {
        const Twin out =
            empty(DType::f32, {transposed ? r.columns : part, transposed ? part : r.columns});
        both([&](int i) {
          return MuonMatrix{.out = out[i],
                            .momentum = momentum[i],
                            .grad = nesterov ? grad[i] : Tensor(),
                            .state = s[i],
                            .part = r.part,
                            .transposed = transposed};
        });
        expect_close("matrix", out, 2, 0, 2);
      }
    }
  }
}

TEST_P(CudaMuon, Normalize) {
  if (model() == DType::f16) return;  // Products are fp32 or bf16.
  for (const float squares : {9.0f, 0.0f}) {
    const Twin x = random(DType::f32, {37, 65}, squares > 0 ? 1 : 1e-9),
               sum = floats(DType::f32, {1}, {squares}), out = empty(model(), {37, 65});
    both([&](int i) { return MuonNormalize{.out = out[i], .x = x[i], .sum_squares = sum[i]}; });
    // The CPU half is not rounded to bf16.
    expect_close("normalized", out, 2, 0, 1);
  }
}

TEST_P(CudaMuon, Products) {
  if (model() == DType::f16) return;
  struct Shape {
    int64_t m, n, k;
  };
  for (const Shape& x : {Shape{16, 16, 16}, Shape{64, 200, 72}, Shape{33, 17, 130}}) {
    for (int kind = 0; kind < 8; ++kind) {
      const bool ta = (kind & 1) != 0, tb = (kind & 2) != 0, adds = (kind & 4) != 0;
      const Twin a = random(model(), {ta ? x.k : x.m, ta ? x.m : x.k}, 0.2),
                 b = random(model(), {tb ? x.n : x.k, tb ? x.k : x.n}, 0.2),
                 c = random(model(), {x.m, x.n}), d = empty(model(), {x.m, x.n});
      const auto product = [&](const Twin& to) {
        both([&](int i) {
          return MatrixProduct{.d = to[i],
                               .a = a[i],
                               .b = b[i],
                               .c = adds ? c[i] : Tensor(),
                               .alpha = 1.5f,
                               .beta = adds ? -0.75f : 0.0f,
                               .transpose_a = ta,
                               .transpose_b = tb};
        });
      };
      product(d);
      expect_close("product", d, 2, 0, double(x.k));
      if (!adds) continue;
      product(c);
      EXPECT_EQ(bytes(c[1]), bytes(d[1])) << "in place";
    }
  }
}

TEST_P(CudaMuon, ProductOfOneMatrix) {
  if (model() == DType::f16) return;
  const Twin x = random(model(), {40, 120}, 0.1), gram = empty(model(), {40, 40}),
             other = empty(model(), {120, 120});
  both([&](int i) {
    return MatrixProduct{.d = gram[i], .a = x[i], .b = x[i], .transpose_b = true};
  });
  expect_close("x x^T", gram, 2, 0, 120);
  both([&](int i) {
    return MatrixProduct{.d = other[i], .a = x[i], .b = x[i], .transpose_a = true};
  });
  expect_close("x^T x", other, 2, 0, 40);
}

TEST_P(CudaMuon, Update) {
  for (const Rows& r : kRows) {
    const int64_t part = r.part.rows_of(r.rows);
    for (const bool transposed : {false, true}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Twin main = random(DType::f32, {r.rows, r.columns}), start = copy_of(main),
                   out = copy_of(floats(model(), {r.rows, r.columns},
                                        std::vector<float>(size_t(r.rows * r.columns), 7))),
                   direction = random(
                       dtype, {transposed ? r.columns : part, transposed ? part : r.columns});
        const bool apart = model() != DType::f32;
        const auto step = [&](const Twin& s) {
          both([&](int i) {
            return MuonUpdate{.model = apart ? out[i] : Tensor(),
                              .main = main[i],
                              .direction = direction[i],
                              .state = s[i],
                              .part = r.part,
                              .transposed = transposed,
                              .scale = 3};
          });
        };
        step(state_of_step());
        expect_close("main", main, 2, 0, 2);
        if (apart) expect_close("model", out, 2, 0, 2);
        EXPECT_NE(bytes(main[1]), bytes(start[1]));
        const std::vector<uint8_t> before = bytes(main[1]);
        step(state({.lr = 1, .skip = 1}));
        EXPECT_EQ(bytes(main[1]), before) << "a skipped step changes nothing";
      }
    }
  }
}

}  // namespace
