// CUDA loss, gradient check, AdamW, initial values and memory operations against the CPU's; capture
// and replay.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <future>
#include <limits>

#include "tests/trainer/ops/cuda/pair.h"

namespace {

using namespace pair;

class CudaStep : public PairTest {
 protected:
  void expect_same_state(const Twin& s, double relative) {
    const StepState a = read_state(s, 0), b = read_state(s, 1);
    EXPECT_EQ(a.iteration, b.iteration);
    EXPECT_EQ(a.skip, b.skip);
    EXPECT_EQ(a.updates, b.updates);
    EXPECT_EQ(a.skipped_steps, b.skipped_steps);
    EXPECT_EQ(a.growth_tracker, b.growth_tracker);
    EXPECT_EQ(a.hysteresis_tracker, b.hysteresis_tracker);
    EXPECT_EQ(a.loss_scale, b.loss_scale);
    EXPECT_EQ(a.used_loss_scale, b.used_loss_scale);
    if (a.skip == 0) {
      EXPECT_NEAR(a.grad_norm, b.grad_norm, relative * a.grad_norm);
      EXPECT_NEAR(a.grad_multiplier, b.grad_multiplier, relative * a.grad_multiplier);
    }
    EXPECT_NEAR(a.bias_correction1, b.bias_correction1, 1e-6);
    EXPECT_NEAR(a.bias_correction2, b.bias_correction2, 1e-6);
    EXPECT_NEAR(a.loss, b.loss, relative * std::abs(a.loss));
  }
};
ALL_DTYPES(CudaStep);

TEST_P(CudaStep, CrossEntropy) {
  for (int64_t v : {64, 1000, 517, 50304, 120000}) {
    const int64_t rows = 9;
    const Twin logits = random(model(), {rows, v}, 3), kept = copy_of(logits);
    std::vector<int32_t> labels;
    for (int64_t r = 0; r < rows; ++r)
      labels.push_back(r == 4 ? -1 : static_cast<int32_t>(r * 7919 % v));
    const Twin label = integers({rows}, labels), weights = random(DType::f32, {rows}, 0.1, 1);
    const Twin loss = empty(DType::f32, {rows}), s = state({.loss_scale = 1024});
    for (bool backward : {false, true}) {
      both([&](int i) {
        return CrossEntropy{.logits = logits[i],
                            .labels = label[i],
                            .row_weights = weights[i],
                            .token_loss = loss[i],
                            .state = s[i],
                            .factor = 0.5f,
                            .backward = backward};
      });
      expect_close("loss V " + std::to_string(v), loss, 4, 0, 64);
      // The exponential is rounded to the model dtype, and the gradient again; the label's is close
      // to -1.
      expect_close("dlogits V " + std::to_string(v), logits, backward ? 2.2 : 0, 0,
                   backward ? 64 : 0);
    }

    // The same with the vocabulary in two parts, as two ranks would do it.
    if (v % 2 != 0) continue;
    const int64_t part = v / 2;
    const Twin stats = empty(DType::f32, {2, rows, 3}), split_loss = empty(DType::f32, {rows});
    for (int64_t rank = 0; rank < 2; ++rank) {
      const Twin half = random(model(), {rows, part}, 3);
      for (int side = 0; side < 2; ++side)
        for (int64_t r = 0; r < rows; ++r)
          sides[side]->run(
              ops::Copy{.dst = half[side].slice(r, 1).flat(),
                        .src = kept[side].slice(r, 1).flat().slice(rank * part, part)});
      both([&](int i) {
        return CrossEntropyStatistics{.stats = stats[i].slice(rank, 1).view({rows, 3}),
                                      .logits = half[i],
                                      .labels = label[i],
                                      .first_token = rank * part};
      });
      if (rank == 0) continue;
      expect_close("stats", stats, 4, 0, 64);
      both([&](int i) {
        return CrossEntropyGradient{.logits = half[i],
                                    .stats = stats[i],
                                    .labels = label[i],
                                    .row_weights = weights[i],
                                    .token_loss = split_loss[i],
                                    .state = s[i],
                                    .first_token = part,
                                    .factor = 0.5f};
      });
      expect_close("split loss", split_loss, 4, 0, 64);
      expect_close("split dlogits", half, 1.2, 0, 64);
    }
  }
}

TEST_P(CudaStep, LossWeightsAndAccumulation) {
  const int64_t rows = 5000;
  std::vector<float> values;
  for (int64_t i = 0; i < rows; ++i) values.push_back(i % 3 == 0 ? 0.0f : 1.0f);
  const Twin mask = floats(DType::f32, {rows, 1}, values), weights = empty(DType::f32, {rows, 1});
  const Twin losses = random(DType::f32, {rows, 1}, 1, 10), s = state({.loss = 2});
  both([&](int i) { return LossWeights{weights[i], mask[i]}; });
  expect_close("row_weights", weights, 2, 0, 0);
  both([&](int i) {
    return AccumulateLoss{
        .state = s[i], .row_weights = weights[i], .token_loss = losses[i], .factor = 0.25f};
  });
  expect_same_state(s, 1e-5);
  const Twin none =
      floats(DType::f32, {rows, 1}, std::vector<float>(static_cast<size_t>(rows), 0.0f));
  both([&](int i) { return LossWeights{weights[i], none[i]}; });
  expect_close("no weight at all", weights, 0, 0, 0);
}

TEST_P(CudaStep, SumSquaresSeesEveryElementAndEveryNan) {
  for (int64_t n : {1, 7, 4096, 1000003}) {
    const Twin x = random(model(), {n}), out = floats(DType::f32, {1}, {3.0f});
    both([&](int i) { return SumSquares{.out = out[i], .x = x[i], .accumulate = true}; });
    expect_close("sum", out, 0, 0, std::sqrt(static_cast<double>(n)));
  }
  const int64_t n = 100001;
  const Twin out = empty(DType::f32, {1}), count = empty(DType::i64, {1});
  for (float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (int64_t place : {int64_t{0}, n / 2, n - 1}) {
      std::vector<float> values(static_cast<size_t>(n), 0.5f);
      values[static_cast<size_t>(place)] = bad;
      const Twin x = floats(model(), {n}, values);
      sides[1]->run(ops::SumSquares{.out = out[1], .x = x[1], .accumulate = false});
      sides[1]->run(ops::CountNonfinite{.out = count[1], .x = x[1]});
      float sum = 0;
      int64_t found = 0;
      sides[1]->download(&sum, out[1]);
      sides[1]->download(&found, count[1]);
      sides[1]->synchronize();
      EXPECT_FALSE(std::isfinite(sum));
      EXPECT_EQ(found, 1);
    }
}

TEST_P(CudaStep, JudgeGradientsFollowsTheScaler) {
  const Twin s = state({.loss_scale = 4096, .growth_tracker = 1, .hysteresis_tracker = 2});
  const float inf = std::numeric_limits<float>::infinity();
  for (float q : {4.0f, 1e12f, inf, 9.0f, inf, inf, 0.0f, 25.0f, 1.0f, 1.0f, 1.0f}) {
    const Twin sum = floats(DType::f32, {1}, {q});
    both([&](int i) {
      return JudgeGradients{.state = s[i],
                            .sum_squares = sum[i],
                            .clip_grad = 1,
                            .dynamic = true,
                            .window = 3,
                            .hysteresis = 2};
    });
    expect_same_state(s, 1e-6);
  }
}

TEST_P(CudaStep, AdamCorrections) {
  for (const int64_t updates : {1, 2, 1000, 3000000}) {
    const Twin s = state({.updates = updates});
    both([&](int i) { return AdamCorrections{.state = s[i], .beta1 = 0.9f, .beta2 = 0.95f}; });
    expect_same_state(s, 1e-6);
    EXPECT_GT(read_state(s, 1).bias_correction1, 0);
  }
}

TEST_P(CudaStep, AdamW) {
  for (int64_t n : {5, 4096, 100003}) {
    for (DType moments : {DType::f32, DType::bf16}) {
      if (moments == DType::bf16 && model() == DType::f32) continue;
      const Twin main = random(DType::f32, {n}), m = random(moments, {n}, 0.01),
                 grad = random(DType::f32, {n});
      std::vector<float> squares(static_cast<size_t>(n), 0.02f);
      const Twin v = floats(moments, {n}, squares), out = empty(model(), {n});
      const Twin s = state({.iteration = 7,
                            .lr = 0.01f,
                            .weight_decay = 0.1f,
                            .grad_multiplier = 0.5f,
                            .updates = 3,
                            .bias_correction1 = 0.271f,
                            .bias_correction2 = 0.143f});
      if (moments == DType::bf16) {
        // The CPU halves hold real bf16 moments here: the rounding is part of what is compared.
        std::vector<uint8_t> raw_m = bytes(m[1]), raw_v = bytes(v[1]);
        Tensor host_m(raw_m.data(), DType::bf16, Device::cpu, {n}),
            host_v(raw_v.data(), DType::bf16, Device::cpu, {n});
        sides[0]->run(ops::AdamW{.main = main[0],
                                 .m = host_m,
                                 .v = host_v,
                                 .grad = grad[0],
                                 .state = s[0],
                                 .decay_elements = n / 2,
                                 .seed = 4,
                                 .first_element = 13});
        sides[1]->run(ops::AdamW{.model = out[1],
                                 .main = main[1],
                                 .m = m[1],
                                 .v = v[1],
                                 .grad = grad[1],
                                 .state = s[1],
                                 .decay_elements = n / 2,
                                 .seed = 4,
                                 .first_element = 13});
        expect_close("main", main, 2, 0, 8);
        const std::vector<uint8_t> got = bytes(m[1]);
        int64_t other = 0;
        for (size_t i = 0; i < got.size(); ++i) other += got[i] != raw_m[i];
        // The same draw; a sum that differs in its last fp32 bit rounds elsewhere once in 2^16.
        EXPECT_LE(other, 2 + n / 2000);
        continue;
      }
      const bool separate = model() != DType::f32;
      both([&](int i) {
        return AdamW{.model = separate && i == 1 ? out[i] : Tensor(),
                     .main = main[i],
                     .m = m[i],
                     .v = v[i],
                     .grad = grad[i],
                     .state = s[i],
                     .decay_elements = n / 2};
      });
      // Square root and quotient are approximate, 2 units each, of an update of 0.01 of main's
      // size.
      expect_close("main", main, 2, 0, 1);
      expect_close("m", m, 3, 0, 1);
      expect_close("v", v, 3, 0, 1);
      if (separate) {
        const Twin again = empty(model(), {n});
        sides[1]->run(ops::Copy{.dst = again[1], .src = main[1]});
        EXPECT_EQ(bytes(again[1]), bytes(out[1]));
      }
      // A skipped step changes nothing.
      const std::vector<uint8_t> before = bytes(main[1]);
      const Twin skip = state(
          {.lr = 1, .skip = 1, .grad_multiplier = 1, .bias_correction1 = 1, .bias_correction2 = 1});
      sides[1]->run(
          ops::AdamW{.main = main[1], .m = m[1], .v = v[1], .grad = grad[1], .state = skip[1]});
      EXPECT_EQ(before, bytes(main[1]));
    }
  }
}

TEST_P(CudaStep, FillCopyAddAndNormalFill) {
  const int64_t n = 10007;
  const Twin a = random(model(), {n}), wide = empty(DType::f32, {n}), narrow = empty(model(), {n});
  both([&](int i) { return Copy{wide[i], a[i]}; });
  expect_close("widened", wide, 0, 0, 0);
  both([&](int i) { return Add{wide[i], a[i], 0.3f}; });
  expect_close("added", wide, 2, 0, 0);
  both([&](int i) { return Copy{narrow[i], wide[i]}; });
  expect_close("rounded", narrow, 1.01, 0, 1);
  both([&](int i) { return Fill{narrow[i], 1.5f}; });
  expect_close("filled", narrow, 0, 0, 0);
  const Twin part = empty(model(), {31, 45});
  both([&](int i) {
    return NormalFill{.out = part[i],
                      .std = 0.02f,
                      .seed = 8,
                      .stream = 99,
                      .whole_columns = 101,
                      .first_row = 3,
                      .first_column = 7};
  });
  expect_close("normal", part, 1.5, 0, 1);
}

TEST_P(CudaStep, CaptureReplaysWithNewNumbers) {
  const Twin s = state({}), x = random(model(), {8, 2, 256}), y = empty(model(), {8, 2, 256}),
             w = random(model(), {256, 256});
  const auto work = [&] {
    sides[1]->run(ops::ResidualNormForward{.residual_out = y[1],
                                           .residual = x[1],
                                           .branch = x[1],
                                           .dropout = {.p = 0.5f, .seed = 1, .state = s[1]}});
    sides[1]->run(ops::LinearForward{.y = y[1], .x = x[1], .weight = w[1], .addend = y[1]});
  };
  std::vector<std::vector<uint8_t>> wanted;
  for (int64_t iteration : {1, 2, 3}) {
    sides[1]->run(ops::BeginStep{.state = s[1], .iteration = iteration, .lr = 1});
    work();
    wanted.push_back(bytes(y[1]));
  }
  EXPECT_NE(wanted[0], wanted[1]);
  ASSERT_TRUE(sides[1]->begin_capture());
  work();
  const int64_t captured = sides[1]->end_capture();
  ASSERT_GT(captured, 0);
  for (int64_t iteration : {1, 2, 3}) {
    sides[1]->run(ops::BeginStep{.state = s[1], .iteration = iteration, .lr = 1});
    sides[1]->replay(captured);
    EXPECT_EQ(wanted[static_cast<size_t>(iteration - 1)], bytes(y[1])) << "iteration " << iteration;
  }
  EXPECT_THROW(sides[1]->replay(captured + 1), DeviceError);
}

// A recording keeps its scratch memory, although a later operation needs more.
TEST_P(CudaStep, ARecordingOutlivesItsScratchMemory) {
  const int64_t columns = 1 << 16;  // 132 MiB of partial sums, a block of its own for the driver.
  const Twin dy = random(model(), {64, columns}), sums = empty(DType::f32, {columns}),
             wide = random(model(), {16, 4 * columns}), others = empty(DType::f32, {4 * columns});
  const auto sum = [&](const Twin& of, const Twin& into) {
    sides[1]->run(ops::LinearBackwardWeight{
        .dweight = {}, .dbias = into[1], .dy = of[1], .x = {}, .accumulate = false});
  };
  sum(dy, sums);
  const std::vector<uint8_t> wanted = bytes(sums[1]);
  ASSERT_TRUE(sides[1]->begin_capture());
  sum(dy, sums);
  const int64_t captured = sides[1]->end_capture();
  sum(wide, others);
  const std::vector<uint8_t> others_wanted = bytes(others[1]);
  sides[1]->run(ops::Fill{.dst = sums[1], .value = 0});
  sides[1]->replay(captured);
  EXPECT_EQ(bytes(sums[1]), wanted);
  sides[1]->forget(captured);
  sum(wide, others);
  EXPECT_EQ(bytes(others[1]), others_wanted);
}

// Large enough for huge pages, allocated by another thread while this one records.
TEST_P(CudaStep, LargeHostBlocksAreMadeByAnyThread) {
  if (model() != DType::f32) GTEST_SKIP() << "one dtype is enough";
  const int64_t count = (int64_t{65} << 20) / 4;
  const Twin x = random(model(), {8, 256}), y = empty(model(), {8, 256});
  ASSERT_TRUE(sides[1]->begin_capture());
  sides[1]->run(ops::Copy{.dst = y[1], .src = x[1]});
  void* block =
      std::async(std::launch::async, [&] { return sides[1]->allocate_host(count * 4); }).get();
  ASSERT_GT(sides[1]->end_capture(), 0);
  auto* numbers = static_cast<float*>(block);
  for (int64_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i % 1000);
  const Twin there = empty(DType::f32, {count});
  sides[1]->upload(there[1], numbers);
  sides[1]->synchronize();
  std::fill(numbers, numbers + count, 0.0f);
  sides[1]->download(numbers, there[1]);
  sides[1]->synchronize();
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) wrong += numbers[i] != static_cast<float>(i % 1000);
  EXPECT_EQ(wrong, 0);
  // A kernel reaches it too, as with state that is kept on the host.
  sides[1]->run(ops::Fill{Tensor(block, DType::f32, Device::cuda, {count}), 3.0f});
  sides[1]->synchronize();
  EXPECT_EQ(std::count(numbers, numbers + count, 3.0f), count);
  sides[1]->release_host(block);
}

TEST_P(CudaStep, RefusesWhatIsWrong) {
  const Twin x = random(model(), {4, 8}), w = random(model(), {8, 9}), y = empty(model(), {4, 8});
  EXPECT_THROW(sides[1]->run(ops::LinearForward{.y = y[1], .x = x[1], .weight = w[1]}), ShapeError);
  EXPECT_THROW(sides[1]->run(ops::ActivationForward{.y = y[1], .x = x[0]}), ShapeError);
  EXPECT_THROW(sides[1]->allocate(int64_t{1} << 46), DeviceError);
}

}  // namespace
