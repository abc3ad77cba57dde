// The operations around the layers: loss, initial values, gradient check, AdamW; memory; and that
// no result depends on the number of threads.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "tests/trainer/ops/numeric.h"
#include "trainer/ops/arena.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/number.h"
#include "trainer/ops/plan.h"

namespace {

using namespace ops;
using namespace numeric;

class StepOps : public testing::Test {
 protected:
  Heap heap;
  cpu::CpuOps ops{2};
};

// Known answers of the authors' library (Random123, kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  const Philox4 zero = philox({0, 0, 0, 0}, 0, 0);
  EXPECT_EQ(zero.x, 0x6627e8d5u);
  EXPECT_EQ(zero.y, 0xe169c58du);
  EXPECT_EQ(zero.z, 0xbc57ac4cu);
  EXPECT_EQ(zero.w, 0x9b00dbd8u);
  const uint32_t f = 0xffffffffu;
  const Philox4 ones = philox({f, f, f, f}, f, f);
  EXPECT_EQ(ones.x, 0x408f276du);
  EXPECT_EQ(ones.y, 0x41c83b0eu);
  EXPECT_EQ(ones.z, 0xa20bc7c6u);
  EXPECT_EQ(ones.w, 0x6d5451fdu);
}

TEST_F(StepOps, CrossEntropyWholeAndSplit) {
  constexpr int64_t kR = 5, kV = 12;
  StepState step;
  step.loss_scale = 8;
  const Tensor state = heap.state(step);
  const std::vector<Values> in = {random_values(kR * kV, 1, 3.0)};
  const std::vector<int> labels = {0, 11, 4, 7, 7};
  const Values weights = {0.25, 0.25, 0, 0.25, 0.25};
  const Function losses = [&](const std::vector<Values>& v) {
    Values loss(kR);
    for (size_t r = 0; r < kR; ++r) {
      double sum = 0;
      for (size_t c = 0; c < kV; ++c) sum += std::exp(v[0][r * kV + c]);
      loss[r] = std::log(sum) - v[0][r * kV + size_t(labels[r])];
    }
    return loss;
  };
  Values cotangent = weights;
  for (double& w : cotangent) w *= 8 * 0.5;
  const Values wanted = gradient(losses, in, 0, cotangent);

  Tensor logits = heap.floats({kR, kV}, in[0]), token_loss = heap.empty({kR});
  const Tensor ids = heap.integers({kR}, labels), row_weights = heap.floats({kR}, weights);
  ops.run(CrossEntropy{.logits = logits,
                       .labels = ids,
                       .row_weights = row_weights,
                       .token_loss = token_loss,
                       .state = state,
                       .factor = 0.5f});
  expect_close("loss", token_loss, losses(in), kV);
  expect_close("dlogits", logits, wanted, kV);

  // Two ranks of 6 columns.
  Tensor stats = heap.empty({2, kR, 3});
  Tensor half[2];
  for (int64_t rank = 0; rank < 2; ++rank) {
    half[rank] = heap.empty({kR, kV / 2});
    for (int64_t i = 0; i < kR * kV / 2; ++i)
      half[rank].as<float>()[i] = float(in[0][size_t(i / 6 * kV + rank * 6 + i % 6)]);
    ops.run(CrossEntropyStatistics{.stats = stats.slice(rank, 1).view({kR, 3}),
                                   .logits = half[rank],
                                   .labels = ids,
                                   .first_token = rank * 6});
  }
  for (int64_t rank = 0; rank < 2; ++rank) {
    Tensor loss = heap.empty({kR});
    ops.run(CrossEntropyGradient{.logits = half[rank],
                                 .stats = stats,
                                 .labels = ids,
                                 .row_weights = row_weights,
                                 .token_loss = loss,
                                 .state = state,
                                 .first_token = rank * 6,
                                 .factor = 0.5f});
    expect_close("split loss", loss, losses(in), kV);
    Values part(kR * 6);
    for (size_t i = 0; i < part.size(); ++i)
      part[i] = wanted[i / 6 * kV + size_t(rank) * 6 + i % 6];
    expect_close("split dlogits", half[rank], part, kV);
  }
}

// Where one rank's largest logit is e^1000 times another's, only the maximum over all ranks keeps
// every exponential finite and the small ones at nothing.
TEST_F(StepOps, SplitCrossEntropyTakesTheLargestLogitOfAllRanks) {
  const Tensor state = heap.state({}), ids = heap.integers({2}, {0, 1});
  const Tensor weights = heap.floats({2}, {0.5, 0.5});
  Tensor stats = heap.empty({2, 2, 3});
  Tensor half[2] = {heap.floats({2, 1}, {-1000, 0}), heap.floats({2, 1}, {0, -1000})};
  for (int64_t rank = 0; rank < 2; ++rank)
    ops.run(CrossEntropyStatistics{.stats = stats.slice(rank, 1).view({2, 3}),
                                   .logits = half[rank],
                                   .labels = ids,
                                   .first_token = rank});
  for (int64_t rank = 0; rank < 2; ++rank) {
    Tensor loss = heap.empty({2});
    ops.run(CrossEntropyGradient{.logits = half[rank],
                                 .stats = stats,
                                 .labels = ids,
                                 .row_weights = weights,
                                 .token_loss = loss,
                                 .state = state,
                                 .first_token = rank});
    EXPECT_EQ(read(loss), (Values{1000, 1000}));
    EXPECT_EQ(read(half[rank]), rank == 0 ? (Values{-0.5, 0.5}) : (Values{0.5, -0.5}));
  }
}

TEST_F(StepOps, CrossEntropyIgnoresLabelsOutsideTheVocabulary) {
  const Tensor state = heap.state({});
  Tensor logits = heap.floats({2, 3}, {1, 2, 3, 1, 2, 3}), loss = heap.empty({2});
  ops.run(CrossEntropy{.logits = logits,
                       .labels = heap.integers({2}, {-1, 3}),
                       .row_weights = heap.floats({2}, {1, 1}),
                       .token_loss = loss,
                       .state = state});
  for (double v : read(logits)) EXPECT_EQ(v, 0);
  for (double v : read(loss)) EXPECT_EQ(v, 0);
}

TEST_F(StepOps, LossWeightsAndAccumulation) {
  Tensor weights = heap.empty({2, 3});
  ops.run(
      LossWeights{.row_weights = weights, .loss_mask = heap.floats({2, 3}, {1, 0, 1, 1, 0, 1})});
  EXPECT_EQ(read(weights), (Values{0.25, 0, 0.25, 0.25, 0, 0.25}));
  Tensor state = heap.state({});
  ops.run(BeginStep{.state = state, .iteration = 4, .lr = 0.5f, .weight_decay = 0.1f});
  const Tensor losses = heap.floats({6}, {4, std::numeric_limits<double>::quiet_NaN(), 8, 0, 1, 4});
  ops.run(
      AccumulateLoss{.state = state, .row_weights = weights, .token_loss = losses, .factor = 0.5f});
  ops.run(
      AccumulateLoss{.state = state, .row_weights = weights, .token_loss = losses, .factor = 0.5f});
  EXPECT_EQ(static_cast<StepState*>(state.data)->loss,
            4.0f);  // masked rows do not matter, whatever they hold
  Tensor none = heap.empty({2});
  ops.run(LossWeights{.row_weights = none, .loss_mask = heap.floats({2}, {0, 0})});
  EXPECT_EQ(read(none), (Values{0, 0}));
}

TEST_F(StepOps, NormalFillHasTheRightLawAndDependsOnPositionAlone) {
  constexpr int64_t kRows = 300, kColumns = 500;
  Tensor whole = heap.empty({kRows, kColumns});
  ops.run(NormalFill{.out = whole, .std = 2, .seed = 3, .stream = 9, .whole_columns = kColumns});
  double mean = 0, square = 0, fourth = 0;
  for (double v : read(whole)) {
    mean += v, square += v * v, fourth += v * v * v * v;
  }
  const double n = kRows * kColumns;
  EXPECT_NEAR(mean / n, 0, 5 * 2 / std::sqrt(n));
  EXPECT_NEAR(square / n, 4, 5 * 4 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 48, 5 * 16 * std::sqrt(96 / n));  // variance of x^4 is 96 for N(0, 1)
  Tensor part = heap.empty({20, 33});
  ops.run(NormalFill{.out = part,
                     .std = 2,
                     .seed = 3,
                     .stream = 9,
                     .whole_columns = kColumns,
                     .first_row = 7,
                     .first_column = 101});
  for (int64_t r = 0; r < 20; ++r)
    for (int64_t c = 0; c < 33; ++c)
      ASSERT_EQ(part.as<float>()[r * 33 + c], whole.as<float>()[(7 + r) * kColumns + 101 + c]);
}

TEST_F(StepOps, SumSquaresAndNonfinite) {
  const Values x = random_values(100001, 1);
  double wanted = 0;
  for (double v : x) wanted += v * v;
  Tensor t = heap.floats({100001}, x), out = heap.floats({1}, {3.0});
  ops.run(SumSquares{.out = out, .x = t, .accumulate = true});
  EXPECT_NEAR(*out.as<float>(), wanted + 3, wanted * 0x1p-23);
  t.as<float>()[77777] = std::numeric_limits<float>::infinity();
  t.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  ops.run(SumSquares{.out = out, .x = t, .accumulate = false});
  EXPECT_FALSE(std::isfinite(*out.as<float>()));
  Tensor count = heap.make(DType::i64, {1});
  ops.run(CountNonfinite{.out = count, .x = t});
  EXPECT_EQ(*count.as<int64_t>(), 2);
}

TEST_F(StepOps, SumSquaresOfSixteenBits) {
  const Values x = random_values(70001, 5);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor t = heap.make(dtype, {70001}), out = heap.empty({1});
    double wanted = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      store(t, static_cast<int64_t>(i), static_cast<float>(x[i]));
      const double stored = load(t, static_cast<int64_t>(i));
      wanted += stored * stored;
    }
    ops.run(SumSquares{.out = out, .x = t, .accumulate = false});
    EXPECT_NEAR(*out.as<float>(), wanted, wanted * 0x1p-23);
  }
}

// The scaler as Megatron-LM's grad_scaler.py moves it: hysteresis 2, window 3.
TEST_F(StepOps, JudgementClipsSkipsAndScales) {
  StepState start;
  start.loss_scale = 1024;
  start.hysteresis_tracker = 2;
  Tensor state = heap.state(start), sum = heap.empty({1});
  StepState& s = *static_cast<StepState*>(state.data);
  const JudgeGradients args{.state = state,
                            .sum_squares = sum,
                            .clip_grad = 1,
                            .dynamic = true,
                            .window = 3,
                            .hysteresis = 2};
  *sum.as<float>() = 16.0f * 1024 * 1024;
  ops.run(args);
  EXPECT_EQ(s.skip, 0);
  EXPECT_FLOAT_EQ(s.grad_norm, 4);
  EXPECT_FLOAT_EQ(s.grad_multiplier, 1 / 1024.0f / (4 + 1e-6f));
  EXPECT_EQ(s.updates, 1);
  ops.run(AdamCorrections{.state = state, .beta1 = 0.9f, .beta2 = 0.999f});
  EXPECT_FLOAT_EQ(s.bias_correction1, 0.1f);
  EXPECT_FLOAT_EQ(s.bias_correction2, 1.0f - 0.999f);  // of the rounded beta, as the moments use it
  *sum.as<float>() = std::numeric_limits<float>::infinity();
  ops.run(args);  // first bad one: hysteresis 2 -> 1
  EXPECT_EQ(s.skip, 1);
  EXPECT_EQ(s.loss_scale, 1024);
  ops.run(args);
  EXPECT_EQ(s.loss_scale, 512);
  ops.run(args);  // hysteresis is used up: every bad step halves
  EXPECT_EQ(s.loss_scale, 256);
  EXPECT_EQ(s.updates, 1);
  EXPECT_EQ(s.skipped_steps, 3);
  *sum.as<float>() = 1;
  for (int i = 0; i < 3; ++i) ops.run(args);
  EXPECT_EQ(s.loss_scale, 512);
  EXPECT_EQ(s.used_loss_scale, 256);
  EXPECT_EQ(s.hysteresis_tracker, 2);
  EXPECT_FLOAT_EQ(s.grad_multiplier, 1 / 256.0f);  // below the limit: only unscaled
}

TEST_F(StepOps, TheLossScaleHasAFloorAndMayBeFixed) {
  StepState start;
  start.loss_scale = 6;
  start.hysteresis_tracker = 1;
  Tensor state = heap.state(start), sum = heap.floats({1}, {0});
  StepState& s = *static_cast<StepState*>(state.data);
  JudgeGradients args{.state = state,
                      .sum_squares = sum,
                      .dynamic = true,
                      .backoff = 0.5f,
                      .min_scale = 2,
                      .window = 2,
                      .hysteresis = 2};
  const auto after = [&](float sum_of_squares) {
    *sum.as<float>() = sum_of_squares;
    ops.run(args);
    return s.loss_scale;
  };
  const float bad = std::numeric_limits<float>::infinity();
  EXPECT_EQ(after(bad), 3);
  EXPECT_EQ(after(bad), 2) << "not half of 3";
  EXPECT_EQ(after(bad), 2);
  EXPECT_EQ(after(1), 2);
  EXPECT_EQ(after(bad), 2);  // begins to count anew
  EXPECT_EQ(s.growth_tracker, 0);
  EXPECT_EQ(after(1), 2);
  EXPECT_EQ(after(1), 4);
  EXPECT_EQ(after(bad), 4) << "one bad step is forgiven after growth";
  args.dynamic = false;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(after(bad), 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(after(1), 4);
  EXPECT_EQ(s.skipped_steps, 8);
}

TEST_F(StepOps, AdamWEqualsTheFormula) {
  constexpr int64_t kN = 40, kDecay = 24;
  const Values p0 = random_values(kN, 1);
  Tensor main = heap.floats({kN}, p0), m = heap.floats({kN}, Values(kN, 0)),
         v = heap.floats({kN}, Values(kN, 0)), model = heap.make(DType::bf16, {kN}),
         sum = heap.floats({1}, {1.0}), state = heap.state({});
  Values p = p0, mm(kN, 0.0), vv(kN, 0.0);
  for (int step = 1; step <= 5; ++step) {
    const Values g = random_values(kN, uint32_t(10 + step));
    ops.run(BeginStep{.state = state, .iteration = step, .lr = 0.01f, .weight_decay = 0.1f});
    ops.run(JudgeGradients{.state = state, .sum_squares = sum, .clip_grad = 0});
    ops.run(AdamCorrections{.state = state});
    ops.run(AdamW{.model = model,
                  .main = main,
                  .m = m,
                  .v = v,
                  .grad = heap.floats({kN}, g),
                  .state = state,
                  .decay_elements = kDecay});
    for (size_t i = 0; i < kN; ++i) {
      mm[i] = 0.9 * mm[i] + 0.1 * g[i];
      vv[i] = 0.999 * vv[i] + 0.001 * g[i] * g[i];
      p[i] -= 0.01 * (mm[i] / (1 - std::pow(0.9, step)) /
                          (std::sqrt(vv[i] / (1 - std::pow(0.999, step))) + 1e-8) +
                      (i < kDecay ? 0.1 : 0.0) * p[i]);
    }
  }
  expect_close("main", main, p, 5);
  for (int64_t i = 0; i < kN; ++i)
    EXPECT_EQ(load(model, i), bf16_to_float(float_to_bf16(main.as<float>()[i])));
  static_cast<StepState*>(state.data)->skip = 1;
  const Values before = read(main);
  ops.run(AdamW{.model = model, .main = main, .m = m, .v = v, .grad = main, .state = state});
  EXPECT_EQ(read(main), before);
}

TEST_F(StepOps, StochasticRoundingIsUnbiased) {
  constexpr int64_t kN = 1 << 16;
  // v stays at one value between two bf16 numbers: the mean of the rounded ones must be it.
  Tensor main = heap.floats({kN}, Values(kN, 0)), grad = heap.floats({kN}, Values(kN, 1.0)),
         m = heap.floats({kN}, Values(kN, 0)), v = heap.make(DType::bf16, {kN}),
         sum = heap.floats({1}, {1.0}), state = heap.state({});
  ops.run(Fill{.dst = v, .value = 0});
  ops.run(BeginStep{.state = state, .iteration = 1});
  ops.run(JudgeGradients{.state = state, .sum_squares = sum, .clip_grad = 0});
  ops.run(AdamW{
      .model = {}, .main = main, .m = m, .v = v, .grad = grad, .state = state, .beta2 = 0.999f});
  double mean = 0;
  for (int64_t i = 0; i < kN; ++i) mean += load(v, i) / kN;
  const double exact = 1.0f - 0.999f, ulp = 0x1p-17;  // bf16 spacing in [2^-10, 2^-9)
  EXPECT_NEAR(mean, exact, 5 * ulp / 2 / std::sqrt(double(kN)));
}

TEST(Number, HalfConversionsRoundToNearestEven) {
  EXPECT_EQ(float_to_f16(1.0f), 0x3C00);
  EXPECT_EQ(float_to_f16(65504.0f), 0x7BFF);
  EXPECT_EQ(float_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_f16(0x1p-24f), 1);
  EXPECT_EQ(float_to_f16(0x1p-25f), 0);
  EXPECT_EQ(float_to_f16(0x1.8p-24f), 2);
  for (uint32_t h = 0; h < 0x7C01; ++h) {
    EXPECT_EQ(float_to_f16(f16_to_float(uint16_t(h))), h);
    EXPECT_EQ(float_to_f16(-f16_to_float(uint16_t(h))), h | 0x8000);
  }
  EXPECT_EQ(float_to_bf16(0x1.01p0f), 0x3F80);  // a tie goes to even
  EXPECT_EQ(float_to_bf16(0x1.03p0f), 0x3F82);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Memory, PoolPlansWhatItThenUses) {
  const auto use = [](Pool& pool) {
    std::vector<const void*> addresses;
    {
      PoolTensor a = pool.take("a", DType::f32, {1000}), b = pool.take("b", DType::f32, {10}),
                 c = pool.take("c", DType::bf16, {4000});
      a.reset();
      const PoolTensor d = pool.take("d", DType::f32, {500}),
                       e = pool.take("e", DType::f32, {2000});
      addresses = {b->data, c->data, d->data, e->data};
    }
    EXPECT_TRUE(pool.empty());
    return addresses;
  };
  Pool plan;
  const std::vector<const void*> planned = use(plan);
  cpu::CpuOps ops(1);
  Arena arena(ops, plan.peak_bytes());
  Tensor block = arena.cut("pool", DType::u8, {plan.peak_bytes()});
  Pool pool(block);
  const std::vector<const void*> real = use(pool);
  for (size_t i = 0; i < real.size(); ++i)
    EXPECT_EQ(static_cast<const std::byte*>(real[i]) - static_cast<const std::byte*>(block.data),
              int64_t(reinterpret_cast<uintptr_t>(planned[i])) - kPlanBase);
  EXPECT_EQ(pool.peak_bytes(), plan.peak_bytes());
  EXPECT_THROW(pool.take("too much", DType::u8, {plan.peak_bytes() + 1}), DeviceError);
  EXPECT_THROW(arena.cut("more", DType::u8, {1}), DeviceError);
}

/// First fit as it is defined: the lowest offset at which nothing overlaps.
int64_t first_fit(const std::map<int64_t, int64_t>& allocated, int64_t bytes) {
  int64_t offset = 0;
  for (const auto& [begin, size] : allocated) {
    if (begin - offset >= bytes) break;
    offset = begin + size;
  }
  return offset;
}

TEST(Memory, EveryTensorIsAtTheLowestOffsetThatFits) {
  std::mt19937 chance(5);
  for (int round = 0; round < 20; ++round) {
    Pool pool;
    std::vector<PoolTensor> tensors;
    std::map<int64_t, int64_t> allocated;
    int64_t peak = 0, used = 0;
    const auto offset_of = [](const PoolTensor& t) {
      return static_cast<int64_t>(reinterpret_cast<uintptr_t>(t->data)) - kPlanBase;
    };
    for (int step = 0; step < 600; ++step) {
      // First more and more tensors, then fewer and fewer.
      if (chance() % 600 >= static_cast<uint32_t>(step) || tensors.empty()) {
        const int64_t elements = chance() % 8 == 0 ? 0 : 1 + chance() % 3000;
        const int64_t bytes = align_up(std::max<int64_t>(elements, 1) * 2);
        const int64_t expected = first_fit(allocated, bytes);
        tensors.push_back(pool.take(step % 2 ? "a" : "b", DType::bf16, {elements}));
        ASSERT_EQ(offset_of(tensors.back()), expected) << round << ", " << step;
        allocated[expected] = bytes;
        used += bytes;
        peak = std::max(peak, expected + bytes);
      } else {
        std::swap(tensors[chance() % tensors.size()], tensors.back());
        const auto at = allocated.find(offset_of(tensors.back()));
        used -= at->second;
        allocated.erase(at);
        tensors.pop_back();
      }
      ASSERT_EQ(pool.used_bytes(), used);
      ASSERT_EQ(pool.peak_bytes(), peak);
    }
    tensors.clear();
    EXPECT_TRUE(pool.empty());
    EXPECT_EQ(offset_of(pool.take("a", DType::f32, {1})), 0);
  }
}

TEST(Memory, PoolTensorsGiveThemselvesBackOnce) {
  Pool pool;
  PoolTensor a = pool.take("a", DType::f32, {100});
  const void* first = a->data;
  {
    const PoolTensor view = PoolTensor::borrow(a);
    EXPECT_TRUE(view.borrowed());
    EXPECT_EQ(view->data, first);
  }
  EXPECT_FALSE(pool.empty());  // A borrowed one frees nothing.
  PoolTensor moved = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_FALSE(moved.borrowed());
  a.reset();
  EXPECT_FALSE(pool.empty());
  moved = pool.take("b", DType::f32, {100});  // b is allocated before a is freed.
  EXPECT_NE(moved->data, first);
  const PoolTensor again = pool.take("c", DType::f32, {100});
  EXPECT_EQ(again->data, first);
  moved = PoolTensor();
  EXPECT_EQ(pool.used_bytes(), kAlignment * 2);
}

TEST_F(StepOps, ChecksRefuseWrongShapes) {
  Tensor x = heap.empty({4, 3}), w = heap.empty({5, 2}), y = heap.empty({4, 5});
  EXPECT_THROW(ops.run(LinearForward{
                   .y = y, .pre_activation = {}, .x = x, .weight = w, .bias = {}, .addend = {}}),
               ShapeError);
  w = heap.empty({5, 3});
  EXPECT_NO_THROW(ops.run(
      LinearForward{.y = y, .pre_activation = {}, .x = x, .weight = w, .bias = {}, .addend = {}}));
  Tensor ids = heap.integers({4}, {0, 0, 0, 0});
  EXPECT_THROW(ops.run(LinearForward{
                   .y = y, .pre_activation = {}, .x = ids, .weight = w, .bias = {}, .addend = {}}),
               ShapeError);
}

/// Runs operations of every kind at sizes that are cut into many pieces; returns all results as
/// bytes.
std::vector<std::byte> run_all(int threads) {
  cpu::CpuOps ops(threads);
  Heap heap;
  constexpr int64_t kS = 130, kB = 3, kH = 96, kR = kS * kB, kV = 777;
  std::vector<Tensor> results;
  const auto empty = [&](std::initializer_list<int64_t> shape) {
    return results.emplace_back(heap.floats(
               shape,
               Values(size_t(Tensor(nullptr, DType::f32, Device::cpu, shape).elements()), 0))),
           results.back();
  };
  const Tensor state = heap.state({});
  const Dropout dropout{.p = 0.1f, .seed = 1, .site = 2, .state = state};
  const Tensor x = heap.floats({kS, kB, kH}, random_values(kR * kH, 1)),
               w = heap.floats({kV, kH}, random_values(kV * kH, 2, 0.1));
  Tensor y = empty({kR, kV}), dx = empty({kS, kB, kH}), dw = empty({kV, kH}), db = empty({kV});
  ops.run(
      LinearForward{.y = y, .pre_activation = {}, .x = x, .weight = w, .bias = {}, .addend = {}});
  ops.run(LinearBackwardInput{
      .dx = dx, .dy = y, .weight = w, .pre_activation = {}, .dbias = {}, .addend = {}});
  ops.run(LinearBackwardWeight{.dweight = dw, .dbias = db, .dy = y, .x = x, .accumulate = false});
  std::vector<int> ids(kR);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int(i * 31 % kV);
  Tensor embedded = empty({kS, kB, kH}), dtable = empty({kV, kH});
  ops.run(EmbeddingForward{.x = embedded,
                           .tokens = heap.integers({kS, kB}, ids),
                           .token_table = w,
                           .positions = {},
                           .position_table = {},
                           .dropout = dropout});
  ops.run(EmbeddingBackward{.dx = dx,
                            .tokens = heap.integers({kS, kB}, ids),
                            .dtoken_table = dtable,
                            .positions = {},
                            .dposition_table = {},
                            .dropout = dropout});
  const AttentionShape shape{
      .num_attention_heads = 4, .num_query_groups = 2, .kv_channels = 12, .softmax_scale = 0.3f};
  Tensor out = empty({kS, kB, 48}), stats = empty({kB, 4, kS}), dqkv = empty({kS, kB, kH});
  ops.run(AttentionForward{
      .shape = shape, .out = out, .stats = stats, .qkv = x, .first_key = {}, .dropout = dropout});
  ops.run(AttentionBackward{.shape = shape,
                            .dqkv = dqkv,
                            .dout = out,
                            .out = out,
                            .stats = stats,
                            .qkv = x,
                            .first_key = {},
                            .dropout = dropout});
  Tensor normed = empty({kS, kB, kH}), sum = empty({kS, kB, kH}), mean = empty({kS, kB}),
         rstd = empty({kS, kB}), dweight = empty({kH}), dbias = empty({kH});
  const Tensor scale = heap.floats({kH}, random_values(kH, 8));
  ops.run(ResidualNormForward{.y = normed,
                              .residual_out = sum,
                              .mean = mean,
                              .rstd = rstd,
                              .residual = x,
                              .branch = embedded,
                              .branch_bias = {},
                              .weight = scale,
                              .bias = scale,
                              .dropout = dropout});
  ops.run(ResidualNormBackward{.dresidual = dx,
                               .dbranch = {},
                               .dweight = dweight,
                               .dbias = dbias,
                               .dbranch_bias = empty({kH}),
                               .dy = normed,
                               .dresidual_out = dx,
                               .x = sum,
                               .mean = mean,
                               .rstd = rstd,
                               .weight = scale,
                               .dropout = dropout});
  Tensor square = empty({1}), loss = empty({kR});
  ops.run(SumSquares{.out = square, .x = y, .accumulate = false});
  ops.run(CrossEntropy{.logits = y,
                       .labels = heap.integers({kR}, ids),
                       .row_weights = loss,
                       .token_loss = loss,
                       .state = state});
  Tensor drawn = empty({kV, kH});
  ops.run(NormalFill{.out = drawn, .std = 1, .whole_columns = kH});
  std::vector<std::byte> bytes;
  for (const Tensor& t : results)
    bytes.insert(bytes.end(), static_cast<std::byte*>(t.data),
                 static_cast<std::byte*>(t.data) + t.bytes());
  return bytes;
}

TEST(Threads, NumberOfThreadsChangesNoBit) {
  const std::vector<std::byte> one = run_all(1);
  EXPECT_EQ(one, run_all(2));
  EXPECT_EQ(one, run_all(7));
  EXPECT_EQ(one, run_all(7));
}

}  // namespace
