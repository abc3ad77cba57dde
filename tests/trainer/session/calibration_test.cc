// How a device is measured: what is repeated how often, what is left out, and what it takes. The
// device computes nothing: it counts, and sleeps where a test says how long a call takes; in the
// last test it is the CPU.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/session/auto_layout.h"

namespace trainer {
namespace {

using ops::DType;
using std::chrono::milliseconds;

/// An Ops that computes nothing.
class CountingOps final : public ops::Ops {
 public:
  milliseconds carrier{0};   ///< A call of Copy in the carrier's dtype, fp32.
  milliseconds measured{0};  ///< A call of Copy in bf16, which is what is measured.
  double burst_seconds = 0;  ///< Of what timed() runs; 0: as long as it takes.
  milliseconds waiting{0};   ///< A wait.
  bool captures = false;
  bool fp8 = false, scales_of_parts = true;

  int64_t fills = 0, waits = 0, replays = 0, most_bytes = 0, products = 0;
  int64_t blocks = 0;  ///< Allocated on the device.
  int64_t most_host_bytes = 0;
  int64_t in_a_row = 0;       ///< Measured calls since the carrier's last one,
  int64_t most_in_a_row = 0;  ///< and the most of them.
  struct Record {
    int64_t replays = 0;
    bool forgotten = false;
  };
  std::map<int64_t, Record> records;

  ops::Device device() const override { return ops::Device::cpu; }
  std::string describe() const override { return "a device that counts"; }
  std::string fp8_objection(ops::Fp8Scales scales) const override {
    return fp8 && (scales == ops::Fp8Scales::tensors || scales_of_parts) ? "" : "no FP8";
  }
  int64_t free_bytes() const override { return INT64_MAX; }
  void* allocate(int64_t bytes) override {
    void* block = std::malloc(static_cast<size_t>(bytes));  // never touched, so it takes no memory.
    ++blocks;
    bytes_ += bytes;
    most_bytes = std::max(most_bytes, bytes_);
    sizes_[block] = bytes;
    return block;
  }
  void release(void* block) noexcept override {
    bytes_ -= sizes_[block];
    sizes_.erase(block);
    std::free(block);
  }
  void* allocate_host(int64_t bytes) override {
    --blocks;
    most_host_bytes = std::max(most_host_bytes, bytes);
    return allocate(bytes);
  }
  void release_host(void* block) noexcept override { release(block); }
  ops::Mark mark() override { return {}; }
  void follow(const ops::Mark&) override {}
  void wait(const ops::Mark&) override {
    ++waits;
    std::this_thread::sleep_for(waiting);
  }
  void synchronize() override {}
  void upload(ops::Tensor, const void*) override {}
  /// The last element of the product that was asked for last.
  void download(void* host, ops::Tensor src) override {
    const size_t item = static_cast<size_t>(ops::size_bytes(src.dtype));  // bf16: the upper half.
    std::memcpy(static_cast<std::byte*>(host) + static_cast<size_t>(src.bytes()) - item,
                reinterpret_cast<const std::byte*>(&product_) + sizeof product_ - item, item);
  }
  std::vector<double> timed(std::span<const std::function<void()>> parts) override {
    std::vector<double> seconds = ops::Ops::timed(parts);
    if (burst_seconds > 0) std::ranges::fill(seconds, burst_seconds);
    return seconds;
  }
  bool begin_capture() override { return captures; }
  int64_t end_capture() override {
    const auto number = static_cast<int64_t>(records.size()) + 1;
    records[number] = {};
    return number;
  }
  void replay(int64_t captured) override {
    EXPECT_FALSE(records.at(captured).forgotten) << "replayed after it was forgotten";
    ++records.at(captured).replays;
    ++replays;
  }
  void forget(int64_t captured) override {
    if (captured > 0) records.at(captured).forgotten = true;
  }

 protected:
  void run_call(const ops::AnyCall& call) override {
    if (const auto* fill = std::get_if<const ops::Fill*>(&call)) {
      ++fills;
      filled_[(*fill)->dst.data] = (*fill)->value;
    }
    if (const auto* forward = std::get_if<const ops::LinearForward*>(&call))
      product_ = sum((*forward)->x, (*forward)->weight, (*forward)->x.columns()) +
                 filled_[(*forward)->bias.data];
    if (const auto* input = std::get_if<const ops::LinearBackwardInput*>(&call))
      product_ = sum((*input)->dy, (*input)->weight, (*input)->dy.columns());
    if (const auto* weight = std::get_if<const ops::LinearBackwardWeight*>(&call))
      if ((*weight)->x) product_ = sum((*weight)->x, (*weight)->dy, (*weight)->x.rows());
    products += std::holds_alternative<const ops::LinearForward*>(call) ||
                std::holds_alternative<const ops::LinearBackwardInput*>(call) ||
                std::holds_alternative<const ops::LinearBackwardWeight*>(call);
    const ops::Copy* const* copy = std::get_if<const ops::Copy*>(&call);
    const bool of_carrier = copy != nullptr && (*copy)->dst.dtype == DType::f32;
    if (copy != nullptr) std::this_thread::sleep_for(of_carrier ? carrier : measured);
    in_a_row = copy != nullptr && !of_carrier ? in_a_row + 1 : 0;
    most_in_a_row = std::max(most_in_a_row, in_a_row);
  }
  int64_t scratch_of(const ops::AnyCall&) override { return 0; }

 private:
  /// An element of a product of tensors that were filled.
  float sum(const ops::Tensor& a, const ops::Tensor& b, int64_t terms) {
    return filled_[a.data] * filled_[b.data] * static_cast<float>(terms);
  }

  int64_t bytes_ = 0;
  std::map<const void*, float> filled_;
  float product_ = 0;
  std::map<void*, int64_t> sizes_;
};

/// Only the smallest copy is measured, 64 KiB.
CalibrationPlan one_copy(double seconds) {
  return {.seconds = seconds,
          .limit_seconds = seconds,
          .dtype = DType::f32,
          .carrier_rows = 8,
          .carrier_width = 8,
          .most_rows = 512,
          .most_width = 64,
          .most_bytes = 64 << 10,
          .beyond_caches = false,
          .progress = {}};
}

Card measure(CountingOps& device, const CalibrationPlan& plan) {
  Card card = processor_card(1);
  calibrate(device, plan, card);
  return card;
}

// Loads: the shortest call; the copy, once to see how long it takes, and in bursts; the carrier, in
// bursts and held twice.
TEST(CalibrationTest, AWorkIsRepeatedAtLeastThreeTimes) {
  CountingOps device;
  device.waiting = milliseconds(21);  // so that the next batch is one repetition again.
  const Card card = measure(device, one_copy(0));
  ASSERT_EQ(card.passes.size(), 1u);
  EXPECT_EQ(device.waits, 3 * (1 + 3));
  constexpr int kCalls = 256, kFirst = 2;  // built, and once before the time counts.
  EXPECT_EQ(device.fills / kCalls, kFirst + 3);
}

// A wait for the device costs more than a short call, so it is waited for about every 20 ms.
TEST(CalibrationTest, ShortWorkIsWaitedForInBatches) {
  CountingOps device;
  device.captures = true;
  measure(device, one_copy(0.2));
  EXPECT_GT(device.replays, 20 * device.waits);
}

TEST(CalibrationTest, WhatADeviceCanRecordIsReplayedAndForgotten) {
  CountingOps device;
  device.captures = true;
  measure(device, one_copy(0.01));
  EXPECT_EQ(device.records.size(), 4u);
  for (const auto& [number, record] : device.records) {
    EXPECT_TRUE(record.forgotten) << number;
    EXPECT_GE(record.replays, 1 + 3) << number;
  }
}

// A burst has as many calls as fill its time, at least one, and rests before it.
TEST(CalibrationTest, ABurstIsAsLongAsPlannedAndRestsBeforeIt) {
  CountingOps device;
  device.burst_seconds = 3e-3;  // a call alone: 27 of them fill a burst.
  const auto begin = std::chrono::steady_clock::now();
  measure(device, one_copy(1.2));  // three bursts of 80 ms after 320 ms of rest.
  // Built, once, and three times: a call alone, then the burst.
  EXPECT_EQ(device.most_in_a_row, 5 * (1 + 27));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(3 * 320));
  CountingOps slow;
  slow.burst_seconds = 5e-3;
  measure(slow, one_copy(0));
  EXPECT_EQ(slow.most_in_a_row, 5 * (1 + 1));
}

// What takes longer when it is repeated without a rest is limited by its power; the rates are those
// of the bursts. Here a burst takes half of what the carrier's calls take at least.
TEST(CalibrationTest, TheLimitFollowsFromWhatALoadThatDoesNotRestLoses) {
  CountingOps device;
  device.carrier = milliseconds(4);  // three in a carrier.
  device.burst_seconds = 6e-3;
  const Card card = measure(device, one_copy(0));
  EXPECT_GT(card.power_limit, 0);
  EXPECT_LT(card.power_limit, 0.5);
  ASSERT_EQ(card.passes.size(), 1u);
  const double rate = (64 << 10) / 6e-3 / 1e12;
  EXPECT_NEAR(card.passes.front().tb_per_s, rate, 0.1 * rate);
  device.burst_seconds = 1e3;  // no load is slower than that.
  EXPECT_EQ(measure(device, one_copy(0)).power_limit, 0);
}

TEST(CalibrationTest, CopiesAreOfPowersOfTwoBytesUpToTheMost) {
  CountingOps device;
  CalibrationPlan plan = one_copy(0);
  plan.most_bytes = 16 << 20;
  std::vector<double> mib;
  for (const PassRate& pass : measure(device, plan).passes)
    if (pass.operation == "any") mib.push_back(pass.mib);
  EXPECT_THAT(mib, testing::ElementsAre(0.0625, 1, 4, 16));
}

// Products that would take more than the plan allows are left out, and copies of the operands that
// keep them out of caches are no more than caches need: the whole measurement fits into a card.
TEST(CalibrationTest, OperandsTakeNoMoreThanThePlanSays) {
  CountingOps device;
  device.fp8 = true;
  CalibrationPlan plan = one_copy(0);
  plan.most_rows = 1 << 14;
  plan.most_width = 2048;
  plan.most_bytes = int64_t{1} << 29;
  plan.beyond_caches = true;
  plan.dtype = DType::bf16;
  std::set<std::pair<int64_t, int64_t>> eight;  // outputs and inputs
  for (const ProductRate& p : measure(device, plan).products) {
    EXPECT_LE(p.rows, plan.most_rows);
    EXPECT_LE(p.inputs, 4 * plan.most_width);
    if (p.kind == ProductKind::fp8) eight.emplace(p.outputs, p.inputs);
  }
  // Eight bytes an element of the result, four an element of the operands: 529 MB of 537 for the
  // second; 872 MB would be those of (2048, 8192).
  EXPECT_THAT(eight, testing::ElementsAre(testing::Pair(1280, 1280), testing::Pair(1280, 5120),
                                          testing::Pair(2048, 2048)));
  // A product with all that it keeps takes more than its operands, and is checked on a second set;
  // some of it does not fit into what is left of the block.
  EXPECT_LT(device.most_bytes, 7 * plan.most_bytes / 2);
  EXPECT_LT(device.blocks, 1000) << "an allocation takes longer than a measurement";
  EXPECT_LT(device.most_host_bytes, 1024) << "and so does one of the host's memory";
}

// Shares of the products that several devices run once are all of them together, each but once.
TEST(CalibrationTest, AlgorithmsAreChosenInShares) {
  CalibrationPlan plan = one_copy(0);
  plan.most_rows = 4096;
  plan.most_width = 1024;
  plan.most_bytes = int64_t{1} << 30;
  const auto products = [&](int share, int shares) {
    CountingOps device;
    choose_algorithms(device, plan, share, shares);
    EXPECT_EQ(device.waits, 0) << "nothing is measured";
    return device.products;
  };
  const int64_t all = products(0, 1), first = products(0, 3), second = products(1, 3);
  EXPECT_GT(first, 0);
  EXPECT_GT(second, 0);
  EXPECT_EQ(first + second + products(2, 3), all);
  CountingOps device;
  const size_t measured = measure(device, plan).products.size();
  EXPECT_GT(measured, 10u);
  EXPECT_GE(all, static_cast<int64_t>(measured));
}

// FP8 is measured where the device has it: with one scale; and with those of rows and blocks, where
// the device has these too.
TEST(CalibrationTest, Fp8ByTheScalesThatTheDeviceHas) {
  CalibrationPlan plan = one_copy(0);
  plan.most_rows = 1 << 14;
  plan.most_width = 2048;
  plan.most_bytes = int64_t{1} << 30;
  plan.dtype = DType::bf16;
  const auto measured = [&](bool fp8, bool parts) {
    CountingOps device;
    device.fp8 = fp8;
    device.scales_of_parts = parts;
    const Card card = measure(device, plan);
    std::set<std::string> names;
    for (const ProductRate& p : card.products)
      if (in_fp8(p.kind)) names.insert(name_of(p.kind));
    for (const PassRate& p : card.passes)
      if (p.operation.starts_with("quantize")) names.insert(p.operation);
    return names;
  };
  using testing::UnorderedElementsAre;
  EXPECT_THAT(measured(false, false), testing::IsEmpty());
  EXPECT_THAT(measured(true, false), UnorderedElementsAre("fp8", "fp8_weight", "quantize"));
  EXPECT_THAT(measured(true, true),
              UnorderedElementsAre("fp8", "fp8_weight", "quantize", "fp8_rows", "fp8_rows_weight",
                                   "quantize_in_rows", "fp8_blocks", "fp8_blocks_weight",
                                   "quantize_in_blocks"));
}

// A device is measured through the interface that steps use; small sizes on the CPU.
TEST(CalibrationTest, MeasuresADevice) {
  ops::cpu::CpuOps ops(1);
  Card card = processor_card(1);
  card.watts = 1;
  const CalibrationPlan plan{.seconds = 0.2,
                             .limit_seconds = 0.2,
                             .dtype = DType::f32,
                             .carrier_rows = 64,
                             .carrier_width = 64,
                             .most_rows = 1024,
                             .most_width = 256,
                             .most_bytes = 20 << 20,
                             .beyond_caches = false};
  calibrate(ops, plan, card);
  EXPECT_EQ(card.products.size(), 12u);
  ASSERT_EQ(card.attention.size(), 1u);
  EXPECT_GT(card.attention.front().backward_tflops, 0);
  EXPECT_GE(card.passes.size(), 2u);
  EXPECT_GT(card.launch_us, 0);
  for (const ProductRate& p : card.products) {
    EXPECT_GT(p.tflops, 1e-5);
    EXPECT_LT(p.tflops, 10);
  }
  EXPECT_EQ(card_text(parse_card(card_text(card), "cpu.json")), card_text(card));
}

}  // namespace
}  // namespace trainer
