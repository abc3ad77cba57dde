// See calibration.h. Which operations are measured, and the rates that follow. Times are taken on
// the host, over replays of captured calls that last long enough (calibration_load.h).
//
// SPDX-License-Identifier: MIT
#include "trainer/session/calibration.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "tools/cli/text.h"
#include "trainer/planning/clock.h"
#include "trainer/session/calibration_load.h"
#include "trainer/session/calibration_work.h"

namespace trainer {
namespace {

using namespace calibration;
using cli::concat;

/// Rests before a burst, in lengths of it.
constexpr double kRests = 4;

class Calibration {
 public:
  Calibration(ops::Ops& ops, const CalibrationPlan& plan, Card& card)
      : ops_(ops), plan_(plan), card_(card), memory_(ops) {}
  void run();
  void choose(size_t share, size_t shares);

 private:
  using Call = std::function<void()>;
  /// Work to be measured: makes the operands, and returns the call.
  struct Item {
    double bytes;  ///< That a call reads and writes.
    std::function<Call(Operands&)> make;
    std::function<void(double seconds)> note;
  };
  void measure_start();
  void add_products();
  void add_fp8();
  void add_quantize(ops::Scaling scaling, int64_t rows, int64_t columns);
  void add_attention();
  void add_passes();
  void add_pass(const std::string& name, double bytes,
                std::function<std::function<void()>(Operands&)> make);
  double seconds_of(const std::vector<Call>& calls, double burst);
  void measure(Item& item, double burst);
  void measure_power_limit();
  void check_product(Operands& memory, const ProductShape& shape, ProductKind kind);
  float last_of(const Tensor& t);
  bool takes(double bytes) const { return bytes <= static_cast<double>(plan_.most_bytes); }

  ops::Ops& ops_;
  const CalibrationPlan& plan_;
  Card& card_;
  OperandMemory memory_;
  std::vector<Item> items_;
};

float Calibration::last_of(const Tensor& t) {
  const Tensor last = t.flat().slice(t.elements() - 1, 1);
  void* host = ops_.allocate_host(last.bytes());
  ops_.download(host, last);
  ops_.synchronize();
  const float value = ops::load(Tensor(host, t.dtype, ops::Device::cpu, {1}), 0);
  ops_.release_host(host);
  return value;
}

/// Seconds of one of the calls, which are made in turn, at full clock: work of `burst` seconds
/// after a rest that keeps the mean power far below the card's limit.
double Calibration::seconds_of(const std::vector<Call>& calls_in_turn, double burst) {
  const auto turn = static_cast<int64_t>(calls_in_turn.size());
  double alone = 0;
  {
    Load load(ops_, [&] {
      for (const Call& call : calls_in_turn) call();
    });
    alone = after_rests(ops_, load, 0) / static_cast<double>(turn);
  }
  constexpr double kMostCalls = 512;
  const auto calls =
      static_cast<int64_t>(std::clamp(std::ceil(burst / std::max(alone, 1e-9)), 1.0, kMostCalls));
  Load load(ops_, [&] {
    for (int64_t i = 0; i < calls; ++i) calls_in_turn[static_cast<size_t>(i % turn)]();
  });
  return after_rests(ops_, load, kRests * burst) / static_cast<double>(calls);
}

/// Small calls have several sets of operands: in a step operands come from memory, not from a cache
/// that the previous call has filled.
void Calibration::measure(Item& item, double burst) {
  constexpr double kBeyondCaches = int64_t{256} << 20;
  constexpr double kMostSets = 32;
  Operands memory(ops_, memory_);
  std::vector<Call> calls;
  const auto sets = static_cast<int64_t>(std::clamp(kBeyondCaches / item.bytes, 1.0, kMostSets));
  for (int64_t i = 0; i < (plan_.beyond_caches ? sets : 1); ++i) calls.push_back(item.make(memory));
  item.note(seconds_of(calls, burst));
}

/// Sums of equal terms, which 16-bit values and fp32 sums represent exactly, or nearly so.
void Calibration::check_product(Operands& memory, const ProductShape& shape, ProductKind kind) {
  const Product product(memory, plan_.dtype, shape);
  if (kind != ProductKind::forward && kind != ProductKind::input && kind != ProductKind::weight)
    return;
  product.run(ops_, kind);
  float got = 0, wanted = 0;
  if (kind == ProductKind::forward) {
    got = last_of(product.y), wanted = 0.125f * static_cast<float>(shape.inputs);
  } else if (kind == ProductKind::input) {
    got = last_of(product.out), wanted = 0.125f * static_cast<float>(shape.outputs);
  } else {
    got = last_of(product.dweight), wanted = 0.25f * static_cast<float>(shape.rows);
  }
  if (std::abs(got - wanted) > 0.01f * wanted)
    throw DeviceError(concat("calibrate: ", name_of(kind), " of ", shape.rows, " by ",
                             shape.outputs, " by ", shape.inputs, ": an element is ", got,
                             ", expected ", wanted));
}

void Calibration::add_products() {
  struct Width {
    int64_t width;
    std::vector<int64_t> rows;
  };
  const std::vector<Width> widths = {
      {256, {1024}},   {768, {4096, 65536}},  {1024, {4096, 16384}},
      {1280, {16384}}, {1600, {4096, 16384}}, {2048, {1024, 2048, 16384}},
      {2560, {4096}},  {4096, {2048, 8192}},  {6144, {2048, 8192}}};
  const auto add = [&](ProductKind kind, ProductShape shape) {
    if (shape.rows > plan_.most_rows || shape.inputs > plan_.most_width * 4) return;
    const double bytes =
        4.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.inputs + shape.outputs);
    if (!takes(bytes)) return;
    const double operands = 2.0 * static_cast<double>(shape.rows * (shape.inputs + shape.outputs)) +
                            (kind == ProductKind::weight ? 8.0 : 2.0) *
                                static_cast<double>(shape.outputs * shape.inputs);
    items_.push_back(
        {.bytes = operands,
         .make = [this, kind, shape,
                  checked = false](Operands& memory) mutable -> std::function<void()> {
           if (!std::exchange(checked, true)) check_product(memory, shape, kind);
           auto product = std::make_shared<Product>(memory, plan_.dtype, shape);
           for (const Tensor& t : {product->x, product->weight, product->y, product->kept_inputs})
             memory.randomise(t);
           return [this, product, kind] { product->run(ops_, kind); };
         },
         .note =
             [this, kind, shape](double seconds) {
               const double flops = 2.0 * static_cast<double>(shape.rows) *
                                    static_cast<double>(shape.outputs) *
                                    static_cast<double>(shape.inputs);
               card_.products.push_back(
                   {kind, shape.rows, shape.outputs, shape.inputs, flops / seconds / 1e12});
             }});
  };
  for (const auto& [h, rows] : widths) {
    if (h > plan_.most_width) continue;
    for (const int64_t r : rows) {
      for (const ProductKind kind :
           {ProductKind::forward, ProductKind::input, ProductKind::weight}) {
        add(kind, {r, 3 * h, h});
        add(kind, {r, h, h});
        if (kind != ProductKind::forward) add(kind, {r, 4 * h, h});
        if (kind != ProductKind::input) add(kind, {r, h, 4 * h});
      }
      add(ProductKind::forward_activation, {r, 4 * h, h});
      add(ProductKind::input_slope, {r, h, 4 * h});
    }
  }
  constexpr int64_t kVocabulary = 50304, kHeadRows = 5248;  // 512 MiB of logits.
  for (const int64_t h : {768, 2048})
    for (const ProductKind kind : {ProductKind::forward, ProductKind::input, ProductKind::weight})
      if (h <= plan_.most_width) add(kind, {std::min(kHeadRows, plan_.most_rows), kVocabulary, h});
}

/// Products of FP8 operands, and the passes that round to them: with one scale, and where the
/// device has them with scales of rows and of blocks, which get fewer shapes.
void Calibration::add_fp8() {
  if (!ops_.fp8_objection(ops::Fp8Scales::tensors).empty()) return;
  const bool parts = ops_.fp8_objection(ops::Fp8Scales::parts).empty();
  const auto add = [&](ProductKind kind, ProductShape s) {
    if (s.rows > plan_.most_rows || s.inputs > plan_.most_width * 4) return;
    const bool gradient = of_weight(kind);
    const double result = static_cast<double>(s.outputs * (gradient ? s.inputs : s.rows)),
                 operands = static_cast<double>(s.rows * s.inputs) +
                            static_cast<double>(s.outputs * (gradient ? s.rows : s.inputs));
    if (!takes(8 * result + 4 * operands)) return;
    items_.push_back({.bytes = operands + (gradient ? 8 : 2) * result,
                      .make = [=, this](Operands& memory) -> Call {
                        const ops::Fp8Product call =
                            fp8_product(ops_, memory, plan_.dtype, kind, s);
                        return [this, call] { ops_.run(call); };
                      },
                      .note =
                          [=, this](double seconds) {
                            const double flops = 2.0 * static_cast<double>(s.rows) *
                                                 static_cast<double>(s.outputs) *
                                                 static_cast<double>(s.inputs);
                            card_.products.push_back(
                                {kind, s.rows, s.outputs, s.inputs, flops / seconds / 1e12});
                          }});
  };
  struct Width {
    int64_t width, rows;
    bool parts;
  };
  for (const Width& w : {Width{768, 65536, true}, Width{1280, 16384, false},
                         Width{2048, 16384, true}, Width{4096, 8192, true}}) {
    const int64_t h = w.width, r = w.rows;
    if (h > plan_.most_width) continue;
    for (const ProductKind kind : {ProductKind::fp8, ProductKind::fp8_weight})
      for (const auto& [outputs, inputs] : std::initializer_list<std::pair<int64_t, int64_t>>{
               {3 * h, h}, {h, h}, {4 * h, h}, {h, 4 * h}})
        add(kind, {r, outputs, inputs});
    add_quantize(ops::Scaling::tensor, r, h);
    if (!parts || !w.parts) continue;
    for (const ProductKind kind : {ProductKind::fp8_rows, ProductKind::fp8_rows_weight,
                                   ProductKind::fp8_blocks, ProductKind::fp8_blocks_weight}) {
      add(kind, {r, 4 * h, h});
      add(kind, {r, h, 4 * h});
    }
    add_quantize(ops::Scaling::row, r, h);
    add_quantize(ops::Scaling::row_block, r, h);
  }
}

/// The pass that rounds (rows, columns) to FP8, and its transpose.
void Calibration::add_quantize(ops::Scaling scaling, int64_t rows, int64_t columns) {
  if (rows > plan_.most_rows) return;
  const bool one_scale = scaling == ops::Scaling::tensor;
  const double reads = scaling == ops::Scaling::row ? 2 : 1;
  const double bytes = (2 + 2 * reads) * static_cast<double>(rows * columns);
  add_pass(one_scale ? ops::Quantize::kName : pass_name_of(scaling), bytes,
           [=, this](Operands& memory) -> Call {
             const RoundedOperand out = rounded(memory, scaling, rows, columns);
             const RoundedOperand turned = rounded(memory, scaling, columns, rows);
             const Tensor x = memory.take(plan_.dtype, {rows, columns}),
                          amax = memory.filled(DType::f32, {1}, 0);
             memory.randomise(x);
             if (one_scale)
               return [=, this] {
                 ops_.run(ops::Quantize{.rows = out.values,
                                        .columns = turned.values,
                                        .scale = out.scale,
                                        .amax = amax,
                                        .dbias = {},
                                        .x = x,
                                        .pre_activation = {}});
               };
             return [=, this] {
               ops_.run(ops::QuantizeInBlocks{.rows = out.values,
                                              .columns = turned.values,
                                              .row_scale = out.scale,
                                              .column_scale = turned.scale,
                                              .dbias = {},
                                              .x = x,
                                              .pre_activation = {},
                                              .scaling = scaling});
             };
           });
}

void Calibration::add_attention() {
  using Shape = AttentionSizes;
  for (const Shape s :
       {Shape{64, 256, 4}, Shape{64, 512, 512}, Shape{64, 1024, 768}, Shape{64, 2048, 128},
        Shape{64, 8192, 16}, Shape{80, 2048, 128}, Shape{80, 8192, 32}, Shape{96, 2048, 128},
        Shape{128, 512, 256}, Shape{128, 2048, 128}, Shape{128, 4096, 64}, Shape{128, 8192, 32}}) {
    if (s.length * s.heads * s.size > plan_.most_rows * plan_.most_width) continue;
    for (const bool backward : {false, true}) {
      const Attention like(plan_.dtype, s);
      items_.push_back(
          {.bytes = 4.0 * static_cast<double>(like.out_elements() * ops::size_bytes(plan_.dtype)),
           .make = [=, this](Operands& memory) -> std::function<void()> {
             auto attention = std::make_shared<Attention>(plan_.dtype, s);
             attention->take(memory);
             attention->run(ops_, false);
             return [this, attention, backward] { attention->run(ops_, backward); };
           },
           .note =
               [=, this](double seconds) {
                 const double rate = (backward ? 5 : 2) * like.product_flops() / seconds / 1e12;
                 if (backward)
                   card_.attention.back().backward_tflops = rate;
                 else
                   card_.attention.push_back({.head_size = s.size,
                                              .length = s.length,
                                              .heads = s.heads,
                                              .forward_tflops = rate});
               }});
    }
  }
}

void Calibration::add_pass(const std::string& name, double bytes,
                           std::function<std::function<void()>(Operands&)> make) {
  if (!takes(bytes)) return;
  items_.push_back(
      {.bytes = bytes, .make = std::move(make), .note = [this, name, bytes](double seconds) {
         const double left = std::max(seconds - card_.launch_us * 1e-6, 0.1 * seconds);
         card_.passes.push_back({name, bytes / (int64_t{1} << 20), bytes / left / 1e12});
       }});
}

void Calibration::add_passes() {
  for (const int64_t kib : {64, 1024, 4096, 16384, 65536, 262144, 1048576}) {
    const int64_t elements = kib * 1024 / 4;  // read and written, two bytes each.
    add_pass("any", static_cast<double>(kib * 1024), [=, this](Operands& memory) {
      const Tensor a = memory.filled(DType::bf16, {elements}, 1),
                   b = memory.filled(DType::bf16, {elements}, 1);
      return [=, this] { ops_.run(ops::Copy{.dst = a, .src = b}); };
    });
  }
  for (const auto& width : {std::pair<int64_t, int64_t>{768, 1024},
                            {1024, 4096},
                            {1024, 16384},
                            {2048, 16384},
                            {6144, 16384}}) {
    const int64_t h = width.first, rows = std::min<int64_t>(plan_.most_rows, width.second);
    if (h > plan_.most_width) continue;
    const auto norm = [=, this](Operands& memory, bool backward) -> std::function<void()> {
      const auto stream = [&] {
        const Tensor t = memory.take(plan_.dtype, {rows, 1, h});
        memory.randomise(t);
        return t;
      };
      const Tensor x = stream(), y = stream(), branch = stream(), out = stream();
      const Tensor weight = memory.filled(plan_.dtype, {h}, 1),
                   bias = memory.filled(plan_.dtype, {h}, 0);
      const Tensor mean = memory.filled(DType::f32, {rows, 1}, 0),
                   rstd = memory.filled(DType::f32, {rows, 1}, 1);
      if (!backward)
        return [=, this] {
          ops_.run(ops::ResidualNormForward{.y = y,
                                            .residual_out = out,
                                            .mean = mean,
                                            .rstd = rstd,
                                            .residual = x,
                                            .branch = branch,
                                            .branch_bias = {},
                                            .weight = weight,
                                            .bias = bias});
        };
      const Tensor dweight = memory.filled(DType::f32, {h}, 0),
                   dbias = memory.filled(DType::f32, {h}, 0),
                   dbranch_bias = memory.filled(DType::f32, {h}, 0);
      return [=, this] {
        ops_.run(ops::ResidualNormBackward{.dresidual = out,
                                           .dbranch = {},
                                           .dweight = dweight,
                                           .dbias = dbias,
                                           .dbranch_bias = dbranch_bias,
                                           .dy = y,
                                           .dresidual_out = branch,
                                           .x = x,
                                           .mean = mean,
                                           .rstd = rstd,
                                           .weight = weight});
      };
    };
    const double bytes = 4.0 * static_cast<double>(rows * h * ops::size_bytes(plan_.dtype));
    add_pass("residual_norm_forward", bytes, [=](Operands& memory) { return norm(memory, false); });
    add_pass("residual_norm_backward", bytes, [=](Operands& memory) { return norm(memory, true); });
    add_pass("bias_gradient", bytes / 4, [=, this](Operands& memory) {
      const Tensor dy = memory.take(plan_.dtype, {rows, h});
      memory.randomise(dy);
      const Tensor dbias = memory.filled(DType::f32, {h}, 0);
      return [=, this] {
        ops_.run(ops::LinearBackwardWeight{.dweight = {}, .dbias = dbias, .dy = dy, .x = {}});
      };
    });
  }
  const int64_t logits_rows = std::min<int64_t>(plan_.most_rows, 4096), vocabulary = 50304;
  add_pass("cross_entropy", 4.0 * static_cast<double>(logits_rows * vocabulary),
           [=, this](Operands& memory) {
             const Tensor logits = memory.take(plan_.dtype, {logits_rows, vocabulary});
             memory.randomise(logits);
             const Tensor labels = memory.take(DType::i32, {logits_rows});
             ops_.run(ops::Fill{
                 .dst = Tensor(labels.data, DType::f32, ops_.device(), {logits_rows}), .value = 0});
             const Tensor weights = memory.filled(DType::f32, {logits_rows}, 1e-4f),
                          loss = memory.filled(DType::f32, {logits_rows}, 0);
             const Tensor state = memory.state();
             return [=, this] {
               ops_.run(ops::CrossEntropy{.logits = logits,
                                          .labels = labels,
                                          .row_weights = weights,
                                          .token_loss = loss,
                                          .state = state,
                                          .factor = 1e-4f,
                                          .backward = true});
             };
           });
  for (const int64_t elements : {int64_t{1} << 20, int64_t{1} << 24, int64_t{1} << 27}) {
    if (elements > plan_.most_rows * plan_.most_width) continue;
    add_pass("adamw", 30.0 * static_cast<double>(elements), [=, this](Operands& memory) {
      const Tensor model = memory.filled(plan_.dtype, {elements}, 1),
                   main = memory.filled(DType::f32, {elements}, 1),
                   m = memory.filled(DType::f32, {elements}, 0),
                   v = memory.filled(DType::f32, {elements}, 0),
                   grad = memory.filled(DType::f32, {elements}, 0);
      const Tensor state = memory.state();
      return [=, this] {
        ops_.run(ops::AdamW{.model = model,
                            .main = main,
                            .m = m,
                            .v = v,
                            .grad = grad,
                            .state = state,
                            .decay_elements = elements});
      };
    });
    add_pass("sum_squares", 4.0 * static_cast<double>(elements), [=, this](Operands& memory) {
      const Tensor x = memory.filled(DType::f32, {elements}, 0.5f),
                   sum = memory.filled(DType::f32, {1}, 0);
      return [=, this] { ops_.run(ops::SumSquares{.out = sum, .x = x, .accumulate = false}); };
    });
  }
}

/// Seconds of the shortest call, repeated.
void Calibration::measure_start() {
  Operands memory(ops_, memory_);
  const Tensor one = memory.filled(DType::f32, {1}, 0);
  constexpr int kCalls = 256;
  Load load(ops_, [&] {
    for (int i = 0; i < kCalls; ++i) ops_.run(ops::Fill{.dst = one, .value = 1});
  });
  card_.launch_us = 1e6 * load.hold(0.01 * plan_.seconds) / kCalls;
}

void Calibration::run() {
  measure_start();
  add_products();
  add_fp8();
  add_attention();
  add_passes();
  // Three bursts an item, and a rest before each.
  const double burst = plan_.seconds / static_cast<double>(items_.size()) / (3 * (1 + kRests));
  for (size_t i = 0; i < items_.size(); ++i) {
    measure(items_[i], burst);
    if (plan_.progress)
      plan_.progress(static_cast<double>(i + 1) / static_cast<double>(items_.size()));
  }
  measure_power_limit();
}

void Calibration::choose(size_t share, size_t shares) {
  add_products();
  add_fp8();
  for (size_t i = share; i < items_.size(); i += shares) {
    Operands memory(ops_, memory_);
    items_[i].make(memory)();
  }
}

/// From a load like a layer's: how much slower it is when it is repeated without a rest. The limit
/// settles over seconds.
void Calibration::measure_power_limit() {
  Carrier carrier(ops_, plan_);
  Load load(ops_, [&] { carrier.queue(); });
  const double full = after_rests(ops_, load, 0.1 * plan_.limit_seconds);
  const double copies = std::min(full, carrier.copies(card_)), products = full - copies;
  load.hold(0.3 * plan_.limit_seconds);
  card_.power_limit = power_limit_of({.seconds = full,
                                      .clocked = products,
                                      .energy = power::kProduct * products + power::kPass * copies},
                                     load.hold(0.6 * plan_.limit_seconds));
}

}  // namespace

void calibrate(ops::Ops& ops, const CalibrationPlan& plan, Card& card) {
  card.products.clear();
  card.attention.clear();
  card.passes.clear();
  Calibration(ops, plan, card).run();
  card.measured = true;
}

void choose_algorithms(ops::Ops& ops, const CalibrationPlan& plan, int share, int shares) {
  Card unused;
  Calibration(ops, plan, unused).choose(static_cast<size_t>(share), static_cast<size_t>(shares));
}

}  // namespace trainer
