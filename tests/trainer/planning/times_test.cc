// Times of a card of round numbers, computed by hand: each bound on a product, attention, passes,
// collectives within a host and across hosts.
//
// SPDX-License-Identifier: MIT
#include "trainer/planning/times.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trainer {
namespace {

using ops::Transfer;

/// Without a table: 100 TFLOP/s for all products, 1 TB/s, operations of at least 10 us.
Card plain_card() {
  Card card;
  card.peak_tflops = 100;
  card.memory_tb_per_s = 1;
  card.launch_us = 10;
  card.fp32_share = 0.5;
  card.host_gb_per_s = 20;
  card.link_gb_per_s = 100;
  card.link_us = 3;
  card.network_gb_per_s = 40;
  card.network_us = 20;
  return card;
}

/// `seconds` to a millionth of itself.
void expect_seconds(double found, double seconds) { EXPECT_NEAR(found, seconds, 1e-6 * seconds); }

TEST(CardTimesTest, AProductIsBoundByItsSumsItsOperandsOrItsStart) {
  const Card card = plain_card();
  CardTimes times(card, false);
  // 2 * 8192^3 flops take longer than their operands.
  expect_seconds(times.product(ProductKind::forward, 8192, 8192, 8192), 2 * 549755813888.0 / 1e14);
  // FP8 twice as fast, as far as it reaches 85% of what 16 bits reach.
  expect_seconds(times.product(ProductKind::fp8, 8192, 8192, 8192), 549755813888.0 / 1e14 / 0.85);
  expect_seconds(times.product(ProductKind::fp8_weight, 8192, 8192, 8192),
                 549755813888.0 / 1e14 / 0.85);
  // Sums of 16 numbers: 2 bytes of each activation and weight.
  const double m = 65536, n = 4096, k = 16;
  expect_seconds(times.product(ProductKind::forward, 65536, 4096, 16),
                 (2 * m * (n + k) + 2 * n * k) / 1e12);
  // A gradient of the weight is read and written in fp32.
  expect_seconds(times.product(ProductKind::weight, 16, 16384, 16384),
                 (2 * 16 * 32768.0 + 8 * 16384.0 * 16384) / 1e12);
  expect_seconds(times.product(ProductKind::fp8_weight, 16, 16384, 16384),
                 (16 * 32768.0 + 8 * 16384.0 * 16384) / 1e12);
  expect_seconds(times.product(ProductKind::fp8, 65536, 4096, 16),
                 (m * (n + k) + 2 * n * k) / 1e12);
  expect_seconds(times.product(ProductKind::forward, 1, 1, 1), 10e-6);
}

TEST(CardTimesTest, TilesAndWavesLeaveMultiprocessorsIdle) {
  Card card = plain_card();
  card.multiprocessors = 100;
  CardTimes times(card, false);
  const auto share = [&](double m, double n, double k) {
    return 2 * m * n * k / 1e14 /
           times.product(ProductKind::forward, static_cast<int64_t>(m), static_cast<int64_t>(n),
                         static_cast<int64_t>(k));
  };
  const double start = 8192.0 / (8192 + 128);
  // 10 by 10 tiles of 128 by 256: one wave. One row of tiles more: 110 of 200, but at least 85%.
  EXPECT_NEAR(share(1280, 2560, 8192), start, 1e-6);
  EXPECT_NEAR(share(1408, 2560, 8192), 0.85 * start, 1e-6);
  EXPECT_NEAR(share(2432, 2560, 8192), 190.0 / 200 * start, 1e-6);
  // A tile that is half used.
  EXPECT_NEAR(share(1280 - 64, 2560, 8192), 1216.0 / 1280 * start, 1e-6);
  EXPECT_NEAR(share(1280, 2560 - 128, 8192), 2432.0 / 2560 * start, 1e-6);
  // 60 tiles of 100: no sum is split. 30: in three, at a loss of a tenth; but not below sums of
  // 1,024 terms.
  EXPECT_NEAR(share(1280, 1536, 8192), 0.6 * start, 1e-6);
  EXPECT_NEAR(share(1280, 768, 8192), 0.9 * 0.9 * start, 1e-6);
  EXPECT_NEAR(share(1280, 768, 2048), 0.3 * 2 * 0.9 * 2048 / (2048 + 128), 1e-6);
  EXPECT_NEAR(share(1280, 768, 1024), 0.3 * 1024 / (1024 + 128), 1e-6);
}

TEST(CardTimesTest, TheTableCountsByNearness) {
  Card card = plain_card();
  card.products = {{ProductKind::forward, 4096, 4096, 4096, 50},
                   {ProductKind::forward, 65536, 4096, 4096, 80},
                   {ProductKind::input, 4096, 4096, 4096, 25},
                   {ProductKind::weight, 4096, 4096, 4096, 20}};
  CardTimes times(card, false);
  const auto rate = [&](ProductKind kind, int64_t rows, int64_t outputs, int64_t inputs) {
    return 2e-12 * static_cast<double>(rows * outputs * inputs) /
           times.product(kind, rows, outputs, inputs);
  };
  EXPECT_NEAR(rate(ProductKind::forward, 4096, 4096, 4096), 50, 1e-3);
  EXPECT_NEAR(rate(ProductKind::forward, 65536, 4096, 4096), 80, 1e-3);
  // Two octaves from each, in the logarithm: the mean. One octave more of outputs or inputs
  // counts for both.
  EXPECT_NEAR(rate(ProductKind::forward, 16384, 4096, 4096), 65, 1e-6);
  EXPECT_NEAR(rate(ProductKind::forward, 16384, 8192, 4096), 65, 1e-6);
  // One and three octaves: squared distances of 1 and 9, weights of 81 to 1. With an octave of
  // inputs or outputs, 2 and 10: 25 to 1.
  EXPECT_NEAR(rate(ProductKind::forward, 8192, 4096, 4096), (81 * 50 + 80) / 82.0, 1e-4);
  EXPECT_NEAR(rate(ProductKind::forward, 8192, 4096, 2048), (25 * 50 + 80) / 26.0, 1e-4);
  EXPECT_NEAR(rate(ProductKind::forward, 8192, 2048, 4096), (25 * 50 + 80) / 26.0, 1e-4);
  // Kinds that were not measured: as the plain one, FP8 twice as fast with a loss.
  EXPECT_NEAR(rate(ProductKind::forward_activation, 4096, 4096, 4096), 50, 1e-3);
  EXPECT_NEAR(rate(ProductKind::input_slope, 4096, 4096, 4096), 25, 1e-3);
  EXPECT_NEAR(rate(ProductKind::fp8, 4096, 4096, 4096), 2 * 0.85 * 50, 1e-3);
  EXPECT_NEAR(rate(ProductKind::fp8_weight, 4096, 4096, 4096), 2 * 0.85 * 20, 1e-3);
  EXPECT_NEAR(rate(ProductKind::fp8_rows, 4096, 4096, 4096), 0.96 * 2 * 0.85 * 50, 1e-3);
  EXPECT_NEAR(rate(ProductKind::fp8_blocks_weight, 4096, 4096, 4096), 0.78 * 2 * 0.85 * 20, 1e-3);
}

// An FP8 product and the pass that rounds to FP8 are looked up by how their scales lie.
TEST(CardTimesTest, Fp8IsLookedUpByItsScales) {
  Card card = plain_card();
  card.power_limit = 0.6;
  const int64_t n = 4096;
  card.products = {
      {ProductKind::fp8, n, n, n, 10},        {ProductKind::fp8_weight, n, n, n, 20},
      {ProductKind::fp8_rows, n, n, n, 30},   {ProductKind::fp8_rows_weight, n, n, n, 40},
      {ProductKind::fp8_blocks, n, n, n, 50}, {ProductKind::fp8_blocks_weight, n, n, n, 60}};
  card.passes = {{"any", 64, 1}, {"quantize_in_rows", 64, 0.2}, {"quantize_in_blocks", 64, 0.4}};
  CardTimes times(card, false);
  const auto tensor = [](ops::DType dtype, int64_t rows, int64_t columns) {
    return ops::Tensor(nullptr, dtype, ops::Device::plan, {rows, columns});
  };
  const auto product = [&](ops::Scaling a, ops::Scaling b, ops::DType result) {
    const ops::Fp8Product call{.y = tensor(result, n, n),
                               .a = tensor(ops::DType::e4m3, n, n),
                               .b = tensor(ops::DType::e4m3, n, n),
                               .a_scale = {},
                               .b_scale = {},
                               .bias = {},
                               .addend = {},
                               .a_scaling = a,
                               .b_scaling = b};
    return times.time(&call);
  };
  const auto tflops = [&](ops::Scaling a, ops::Scaling b, ops::DType result) {
    return 2e-12 * n * n * n / product(a, b, result).seconds;
  };
  using ops::Scaling;
  const ops::DType model = ops::DType::bf16, gradient = ops::DType::f32;
  EXPECT_NEAR(tflops(Scaling::tensor, Scaling::tensor, model), 10, 1e-6);
  EXPECT_NEAR(tflops(Scaling::tensor, Scaling::tensor, gradient), 20, 1e-6);
  EXPECT_NEAR(tflops(Scaling::row, Scaling::row, model), 30, 1e-6);
  EXPECT_NEAR(tflops(Scaling::row, Scaling::row, gradient), 40, 1e-6);
  EXPECT_NEAR(tflops(Scaling::row_block, Scaling::square_block, model), 50, 1e-6);
  EXPECT_NEAR(tflops(Scaling::row_block, Scaling::row_block, gradient), 60, 1e-6);
  const ops::CallTime plain = product(Scaling::tensor, Scaling::tensor, model),
                      blocks = product(Scaling::row_block, Scaling::square_block, model);
  EXPECT_GT(blocks.energy / blocks.seconds, plain.energy / plain.seconds);

  for (const auto& [scaling, rate] : {std::pair{Scaling::row, 0.2}, {Scaling::row_block, 0.4}}) {
    const ops::QuantizeInBlocks pass{.rows = tensor(ops::DType::e4m3, n, n),
                                     .columns = {},
                                     .row_scale = {},
                                     .column_scale = {},
                                     .dbias = {},
                                     .x = tensor(model, n, n),
                                     .pre_activation = {},
                                     .scaling = scaling};
    expect_seconds(times.time(&pass).seconds, 10e-6 + pass.cost().bytes / (rate * 1e12));
  }
}

TEST(CardTimesTest, AttentionByTheNearestMeasurementsAndItsBlocks) {
  Card card = plain_card();
  CardTimes unmeasured(card, false);
  expect_seconds(unmeasured.attention(false, 64, 1024, 16, 4e12), 0.1);  // 40% of the peak
  expect_seconds(unmeasured.attention(true, 64, 1024, 16, 1), 10e-6);
  card.attention = {{64, 1024, 16, 30, 20}, {128, 1024, 16, 60, 50}};
  card.multiprocessors = 256;
  CardTimes times(card, false);
  // 16 heads of 8 blocks fill half of the multiprocessors; 64 heads fill all. Twice as many heads
  // change the weights, of which the nearest has almost all.
  EXPECT_NEAR(times.attention(false, 64, 1024, 16, 3e12), 0.2, 1e-6);
  EXPECT_NEAR(times.attention(true, 64, 1024, 16, 2e12), 0.2, 1e-6);
  EXPECT_NEAR(times.attention(false, 128, 1024, 16, 6e12), 0.2, 1e-6);
  // 64: distances 0.1 * 4 and 4 + 0.1 * 4.
  const double near = 1 / (0.4 * 0.4), far = 1 / (4.4 * 4.4);
  EXPECT_NEAR(times.attention(false, 64, 1024, 64, 1e12),
              1 / ((30 * near + 60 * far) / (near + far)), 1e-6);
  // An octave of length: distances 1 and 5.
  EXPECT_NEAR(times.attention(false, 64, 2048, 16, 1e12), 1 / ((30 + 60 / 25.0) / (1 + 1 / 25.0)),
              1e-6);
}

TEST(CardTimesTest, PassesByTheirOwnRowsElseByThoseOfAny) {
  Card card = plain_card();
  constexpr double kMib = 1 << 20;
  {
    CardTimes times(card, false);
    expect_seconds(times.pass("copy", 1e9), 10e-6 + 1e9 / 0.85e12);
    expect_seconds(times.pass("copy", 0), 10e-6);
  }
  card.passes = {{"copy", 16, 0.4}, {"copy", 64, 0.8}, {"any", 16, 0.2}};
  CardTimes times(card, false);
  const auto rate = [&](const char* operation, double mib) {
    return mib * kMib / (times.pass(operation, mib * kMib) - 10e-6) / 1e12;
  };
  EXPECT_NEAR(rate("copy", 16), 0.4, 1e-6);
  EXPECT_NEAR(rate("copy", 32), 0.6, 1e-6);  // in the logarithm of the size
  EXPECT_NEAR(rate("copy", 64), 0.8, 1e-6);
  EXPECT_NEAR(rate("copy", 1), 0.4, 1e-6);
  EXPECT_NEAR(rate("copy", 4096), 0.8, 1e-6);
  EXPECT_NEAR(rate("norm", 64), 0.2, 1e-6);
}

TEST(TransferSecondsTest, WithinAHost) {
  Card card = plain_card();
  const auto seconds = [&](Transfer kind, double bytes, int64_t ranks) {
    return transfer_seconds(card, kind, bytes, {.ranks = ranks, .per_host = ranks});
  };
  EXPECT_EQ(seconds(Transfer::all_reduce, 1e9, 1), 0);
  expect_seconds(seconds(Transfer::all_reduce, 1e9, 4), 3e-6 + 1.5 * 1e9 / 100e9);
  expect_seconds(seconds(Transfer::all_gather, 1e9, 4), 3e-6 + 0.75 * 1e9 / 100e9);
  expect_seconds(seconds(Transfer::reduce_scatter, 1e9, 4), 3e-6 + 0.75 * 1e9 / 100e9);
  expect_seconds(seconds(Transfer::send, 1e9, 2), 3e-6 + 1e9 / 100e9);
  // Measured: the group of the nearest size, in the logarithm, whatever was measured for others.
  card.transfers = {{Transfer::all_reduce, 2, 100, 10},
                    {Transfer::all_reduce, 8, 1, 20},
                    {Transfer::all_reduce, 8, 100, 80},
                    {Transfer::all_gather, 4, 100, 5}};
  const double bytes = 100 << 20;
  expect_seconds(seconds(Transfer::all_reduce, bytes, 2), 3e-6 + bytes / 10e9);
  expect_seconds(seconds(Transfer::all_reduce, bytes, 8), 3e-6 + 1.75 * bytes / 80e9);
  expect_seconds(seconds(Transfer::all_reduce, 10 << 20, 8), 3e-6 + 1.75 * (10 << 20) / 50e9);
  expect_seconds(seconds(Transfer::all_reduce, bytes, 6), 3e-6 + 2 * bytes * 5 / 6 / 80e9);
  expect_seconds(seconds(Transfer::all_reduce, bytes, 3), 3e-6 + 2 * bytes * 2 / 3 / 10e9);
  expect_seconds(seconds(Transfer::all_gather, bytes, 4), 3e-6 + 0.75 * bytes / 5e9);
  expect_seconds(seconds(Transfer::send, bytes, 2), 3e-6 + bytes / 100e9);
  // Smaller than any that was measured of the nearest group: another one's rate, or the smallest's.
  expect_seconds(seconds(Transfer::all_reduce, 1 << 20, 2), 3e-6 + (1 << 20) / 20e9);
  expect_seconds(seconds(Transfer::all_gather, 1 << 20, 4), 3e-6 + 0.75 * (1 << 20) / 5e9);
}

TEST(TransferSecondsTest, CopiesHaveRatesOfTheirOwn) {
  Card card = plain_card();
  card.transfers = {{Transfer::all_reduce, 2, 1, 10}, {Transfer::all_gather, 2, 1, 20}};
  card.copies = {{Transfer::all_reduce, 2, 1, 40}};
  const auto seconds = [&](Transfer kind, bool copied) {
    return transfer_seconds(card, kind, 1e9, {.ranks = 2, .per_host = 2, .copied = copied});
  };
  expect_seconds(seconds(Transfer::all_reduce, false), 3e-6 + 1e9 / 10e9);
  expect_seconds(seconds(Transfer::all_reduce, true), 3e-6 + 1e9 / 40e9);
  expect_seconds(seconds(Transfer::all_gather, true), 3e-6 + 0.5e9 / 20e9);
}

TEST(TransferSecondsTest, AcrossHosts) {
  const Card card = plain_card();
  const auto seconds = [&](GroupPlaceOnHosts place) {
    return transfer_seconds(card, Transfer::send, 1e9, place);
  };
  // One on each host: the network, shared. Several on each: the slower of network and link.
  expect_seconds(seconds({.ranks = 2, .per_host = 1}), 23e-6 + 1e9 / 40e9);
  expect_seconds(seconds({.ranks = 2, .per_host = 1, .sharing = 4}), 23e-6 + 1e9 / 10e9);
  expect_seconds(seconds({.ranks = 4, .per_host = 2, .sharing = 2}), 23e-6 + 1e9 / 20e9);
  Card fast = card;
  fast.network_gb_per_s = 400;
  expect_seconds(transfer_seconds(fast, Transfer::send, 1e9, {.ranks = 4, .per_host = 2}),
                 23e-6 + 1e9 / 100e9);
  expect_seconds(transfer_seconds(fast, Transfer::send, 1e9, {.ranks = 4, .per_host = 1}),
                 23e-6 + 1e9 / 400e9);
}

}  // namespace
}  // namespace trainer
