// Weights gathered as FP8: the same bits as without, in every ZeRO stage and layout, in less memory
// and with half of the bytes.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/trainer/engine/layout_run.h"

namespace {

using namespace layout_run;
using Recipe = Fp8Options::Recipe;

Layout gathered(Layout l) {
  l.fp8.param_gather = true;
  return l;
}

class Fp8Gather : public testing::TestWithParam<Layout> {};

TEST_P(Fp8Gather, ChangesNoBit) {
  Layout l = GetParam();
  l.evaluate_first = true;
  const Outcome wanted = run(l), got = run(gathered(l));
  expect_same_bits(got, wanted);
}

std::vector<Layout> layouts() {
  constexpr auto kDelayed = Recipe::delayed;
  const Fp8Options delayed{.format = Fp8Options::Format::hybrid, .recipe = kDelayed},
      short_history{.format = Fp8Options::Format::hybrid,
                    .recipe = kDelayed,
                    .history_length = 1,
                    .amax_choice = ops::AmaxChoice::most_recent},
      ends_plain{.format = Fp8Options::Format::hybrid,
                 .recipe = kDelayed,
                 .plain_layers_at_start = 1,
                 .plain_layers_at_end = 1},
      plain_weights{.format = Fp8Options::Format::hybrid, .weight_gradients = false},
      tensorwise{.format = Fp8Options::Format::e4m3, .recipe = Recipe::tensorwise},
      blockwise{.format = Fp8Options::Format::e4m3, .recipe = Recipe::blockwise},
      any_scale{.format = Fp8Options::Format::hybrid,
                .recipe = Recipe::blockwise,
                .margin = 1,
                .power_of_two = false};
  const Recompute full{Recompute::Granularity::full, Recompute::Method::uniform, 1};
  std::vector<Layout> all;
  for (const Fp8Options& fp8 : {delayed, tensorwise, blockwise}) {
    for (const int zero : {1, 2, 3}) {
      for (const bool overlap : {false, true}) {
        all.push_back({.data = 2, .zero = zero, .overlap = overlap, .fp8 = fp8});
        all.push_back({.family = "llama",
                       .tensor = 2,
                       .sequence = overlap,
                       .data = 2,
                       .zero = zero,
                       .overlap = overlap,
                       .fp8 = fp8});
      }
      all.push_back({.data = 3, .zero = zero, .fp8 = fp8});  // shares end within rows
      all.push_back({.recompute = full, .data = 4, .zero = zero, .overlap = true, .fp8 = fp8});
      all.push_back({.pipeline = 2, .data = 2, .zero = zero, .overlap = zero > 1, .fp8 = fp8});
      // Whole matrices in a share; in ZeRO 1 those of several layers in a bucket.
      all.push_back({.data = 2,
                     .zero = zero,
                     .overlap = zero == 1,
                     .fp8 = fp8,
                     .muon = MuonTensorMode::blockwise});
    }
  }
  for (const Fp8Options& fp8 : {short_history, ends_plain, plain_weights, any_scale})
    for (const int zero : {1, 3})
      all.push_back({.data = 3, .zero = zero, .overlap = zero == 3, .fp8 = fp8});
  all.push_back({.data = 3, .zero = 1, .fp8 = ends_plain, .muon = MuonTensorMode::blockwise});
  all.push_back({.pipeline = 2,
                 .schedule = ScheduleKind::interleaved,
                 .chunks = 2,
                 .data = 2,
                 .zero = 3,
                 .fp8 = delayed});
  // Main parameters apart from the model's, as with weights of 16 bits.
  for (const int zero : {1, 3})
    all.push_back({.data = 3, .zero = zero, .fp8 = delayed, .offload = true});
  all.push_back({.tensor = 2,
                 .pipeline = 2,
                 .schedule = ScheduleKind::zero_bubble,
                 .data = 2,
                 .zero = 1,
                 .fp8 = delayed});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Gather, testing::ValuesIn(layouts()));

// With many ranks several of them have parts of what a layer has beside its weights.
TEST(Fp8FlatMemory, EachPieceIsInItsOwnersShare) {
  ModelSpec spec = spec_of({});
  spec.hidden_size = 256;  // so that biases are longer than the shares of 1024 ranks
  spec.ffn_hidden_size = 1024;
  spec.kv_channels = 0;
  complete(spec);
  for (const int ranks : {2, 3, 64, 1024}) {
    SCOPED_TRACE(ranks);
    const FlatLayout layout(local_params(spec, whole_model(spec)), true, ranks);
    const Fp8Options options{.format = Fp8Options::Format::hybrid, .plain_layers_at_end = 1};
    std::vector<bool> gathered;
    for (const Slot& slot : layout.slots())
      gathered.push_back(fp8_linear(options, spec.num_layers, slot.param.spec).has_value());
    const Fp8Flat flat(layout, {0, ranks}, gathered, true);
    int64_t at = 0, pieces = 0;
    for (int b = 0; b < layout.num_buckets(); ++b) {
      const Bucket& bucket = layout.bucket(b);
      const bool covered = bucket.layer >= 0 && bucket.layer < spec.num_layers - 1;
      EXPECT_EQ(flat.holds(b), covered);
      const int64_t share = bucket.elements / ranks;
      int64_t before = at;
      for (const Fp8Flat::Piece& piece : flat.pieces(b)) {
        const int64_t begin = bucket.begin + piece.owner * share;
        EXPECT_GE(piece.range.first, begin);
        EXPECT_LE(piece.range.first + piece.range.count, begin + share);
        EXPECT_EQ(piece.at, at);
        at += piece.range.count;
        ++pieces;
      }
      for (const int i : bucket.slots)
        if (covered && !gathered[static_cast<size_t>(i)])
          before += (layout.slot(i).param.elements() + 127) / 128 * 128;
      EXPECT_EQ(before, at) << "bucket " << b;
    }
    EXPECT_EQ(pieces > spec.num_layers - 1, ranks == 1024);
  }
}

/// A GPU's run in bf16, planned.
struct Planned {
  int64_t bytes = 0;          ///< Of memory.
  double gathered_bytes = 0;  ///< In a step.
};
Planned planned(Layout l) {
  ModelSpec spec = spec_of(l);
  spec.hidden_size = 256;
  spec.ffn_hidden_size = 1024;
  spec.num_layers = 8;
  spec.kv_channels = 0;
  complete(spec);
  EngineOptions options = options_of(l);
  options.model_dtype = DType::bf16;
  options.max_microbatches = 2;
  const Setup setup(spec, options, make_topology(0, l.world(), l.tensor, l.pipeline));
  struct NoTimes final : ops::OperationTimes {
    ops::CallTime time(const ops::AnyCall&) override { return {.seconds = 1e-6}; }
  } times;
  Planned out{.bytes = plan_engine(setup, nullptr).total_bytes};
  const ops::Timeline timeline = plan_timeline(setup, times);
  for (const ops::Timeline::Entry& entry : timeline.entries())
    if (entry.transfer == ops::Transfer::all_gather || entry.transfer == ops::Transfer::broadcast)
      out.gathered_bytes += entry.amount;
  return out;
}

// 12 x 256 x 256 weights in each of 8 layers. What is not a linear's weight is less than a tenth of
// that here.
TEST(Fp8GatherPlan, HalfOfTheBytesAndNoCopyIn16Bits) {
  constexpr double kWeights = 8 * 12 * 256 * 256;
  for (const int zero : {1, 2, 3}) {
    for (const int data : {2, 8}) {
      SCOPED_TRACE(testing::Message() << "ZeRO " << zero << ", data " << data);
      Layout l{.data = data, .zero = zero, .fp8 = {.format = Fp8Options::Format::hybrid}};
      const Planned whole = planned(l), half = planned(gathered(l));
      EXPECT_NEAR(half.gathered_bytes / whole.gathered_bytes, 0.5, 0.02);
      const double less = static_cast<double>(whole.bytes - half.bytes);
      if (zero < 3) {
        EXPECT_NEAR(whole.gathered_bytes - half.gathered_bytes, kWeights, 0.005 * kWeights);
        EXPECT_NEAR(less, 2 * kWeights * (1 - 1.0 / data), 0.02 * kWeights);
      } else {  // two buffers of a layer, and of the largest weight its rows
        EXPECT_NEAR(less, 2 * kWeights / 8, 0.3 * kWeights / 8);
      }
    }
  }
}

}  // namespace
