// TimedOps: an Ops that hands every call to another and measures its time on the device. For the
// shares of a step that the trainer's own Engine queues, which is then not captured.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "trainer/ops/cuda/cuda_check.h"
#include "trainer/ops/cuda/cuda_ops.h"

namespace bench {

class TimedOps final : public ops::Ops {
 public:
  explicit TimedOps(ops::cuda::CudaOps& inner) : inner_(inner) {}

  ops::Device device() const override { return inner_.device(); }
  std::string describe() const override { return inner_.describe(); }
  std::string fp8_objection(ops::Fp8Scales scales) const override {
    return inner_.fp8_objection(scales);
  }
  bool quantizes_norms() const override { return inner_.quantizes_norms(); }
  int64_t free_bytes() const override { return inner_.free_bytes(); }
  void* allocate(int64_t bytes) override { return inner_.allocate(bytes); }
  void release(void* block) noexcept override { inner_.release(block); }
  void* allocate_host(int64_t bytes) override { return inner_.allocate_host(bytes); }
  void release_host(void* block) noexcept override { inner_.release_host(block); }
  void set_workspace(ops::Tensor workspace) override { inner_.set_workspace(workspace); }
  void prepare(std::span<const ops::AnyArgs> calls) override { inner_.prepare(calls); }
  ops::Mark mark() override { return inner_.mark(); }
  void follow(const ops::Mark& mark) override { inner_.follow(mark); }
  void wait(const ops::Mark& mark) override { inner_.wait(mark); }
  void synchronize() override { inner_.synchronize(); }
  void upload(ops::Tensor dst, const void* host) override { inner_.upload(dst, host); }
  void download(void* host, ops::Tensor src) override { inner_.download(host, src); }

  /// Forgets what was measured; measures from now on.
  void begin() {
    rows_.clear();
    measuring_ = true;
  }
  /// Milliseconds of each operation over `steps` steps, largest first.
  void print(int steps) {
    inner_.synchronize();
    struct Line {
      std::string name;
      double ms;
      Row row;
    };
    std::vector<Line> lines;
    double total = 0;
    for (auto& [name, row] : rows_) {
      double ms = 0;
      for (const auto& [begin, end] : row.events) {
        float one = 0;
        CUDA_CHECK(cudaEventElapsedTime(&one, begin, end));
        ms += static_cast<double>(one);
      }
      lines.push_back({name, ms / steps, row});
      total += ms / steps;
    }
    std::sort(lines.begin(), lines.end(), [](auto& a, auto& b) { return a.ms > b.ms; });
    std::printf("  all operations %.2f ms a step\n", total);
    for (const Line& line : lines)
      std::printf("  %8.3f ms %5.1f%%  %4zu calls  %6.0f TFLOP/s %6.2f TB/s  %s\n", line.ms,
                  100 * line.ms / total, line.row.events.size() / static_cast<size_t>(steps),
                  line.row.cost.flops / steps / line.ms / 1e9,
                  line.row.cost.bytes / steps / line.ms / 1e9, line.name.c_str());
  }

 private:
  struct Row {
    std::vector<std::pair<cudaEvent_t, cudaEvent_t>> events;
    ops::Cost cost;
  };

  void run_call(const ops::AnyCall& call) override {
    std::visit(
        [this](const auto* args) {
          if (!measuring_) return inner_.run(*args);
          Row& row = rows_[name_of(*args)];
          const ops::Cost cost = args->cost();
          row.cost.flops += cost.flops;
          row.cost.bytes += cost.bytes;
          std::pair<cudaEvent_t, cudaEvent_t> events;
          CUDA_CHECK(cudaEventCreate(&events.first));
          CUDA_CHECK(cudaEventCreate(&events.second));
          CUDA_CHECK(cudaEventRecord(events.first, inner_.stream()));
          inner_.run(*args);
          CUDA_CHECK(cudaEventRecord(events.second, inner_.stream()));
          row.events.push_back(events);
        },
        call);
  }
  int64_t scratch_of(const ops::AnyCall& call) override {
    return std::visit([this](const auto* args) { return inner_.workspace_bytes(*args); }, call);
  }

  template <class Args>
  static std::string name_of(const Args& args) {
    std::string name = args.kName;
    if constexpr (std::is_same_v<Args, ops::Fp8Product>)
      name += " " + std::to_string(args.a.rows()) + " x " + std::to_string(args.a.columns()) +
              " x " + std::to_string(args.b.rows()) + (args.fast_sums ? "" : ", fp32 sums");
    if constexpr (std::is_same_v<Args, ops::Quantize> ||
                  std::is_same_v<Args, ops::QuantizeInBlocks>)
      name += std::string(args.pre_activation                        ? ", slope"
                          : args.norm                                ? ", norm"
                          : args.activation != ops::Activation::none ? ", activation"
                                                                     : "") +
              (args.rows ? ", rows" : "") + (args.columns ? ", columns" : "") +
              (args.dbias ? ", bias" : "");
    if constexpr (std::is_same_v<Args, ops::ResidualNormForward>)
      if (!args.y && args.rstd) name += ", statistics";
    return name;
  }

  ops::cuda::CudaOps& inner_;
  std::map<std::string, Row> rows_;
  bool measuring_ = false;
};

}  // namespace bench
