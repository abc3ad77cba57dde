// Muon against torch.optim.Muon and Megatron's definition: whole models step by step, matrices in
// bf16; its operations against the formulas; what does not depend on a layout.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/trainer/model_golden.h"
#include "tests/trainer/numeric.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/number.h"
#include "trainer/optim/muon.h"

namespace {

using namespace trainer;
using namespace golden;
using numeric::Heap;
using numeric::Values;

/// A run of the goldens.
struct Case {
  const char* name;
  const char* family;
  MuonOptions muon;
};
constexpr MuonOptions kTorch{.momentum = 0.95f,
                             .nesterov = true,
                             .split_qkv = false,
                             .coefficients = MuonCoefficients::simple,
                             .extra_scale = 0.2f,
                             .product_dtype = DType::f32};
constexpr MuonOptions kMegatron{.product_dtype = DType::f32};

std::vector<Case> cases() {
  MuonOptions original = kTorch, rms = kMegatron, shape = kMegatron;
  original.momentum = 0.9f;
  original.nesterov = false;
  original.scale = MuonScale::shape_scaling;
  original.extra_scale = 1;
  rms.scale = MuonScale::unit_rms_norm;
  rms.nesterov = true;
  shape.scale = MuonScale::shape_scaling;
  shape.split_qkv = false;
  return {{"torch_gpt2", "gpt2", kTorch},
          {"torch_llama", "llama", original},
          {"megatron_gpt2", "gpt2", kMegatron},
          {"megatron_llama", "llama", rms},
          {"megatron_gpt_neox", "gpt_neox", shape}};
}

class MuonGolden : public testing::TestWithParam<Case> {};

TEST_P(MuonGolden, FiveStepsOfAWholeModel) {
  const auto& [name, family, muon] = GetParam();
  const Arrays start = read_golden(family), golden = read_golden("muon");
  const std::string at = std::string(name) + ".";
  EngineOptions options = options_for(family);
  options.optimizer = OptimizerKind::muon;
  options.muon = muon;
  ops::cpu::CpuOps ops(2);
  Engine engine(tiny(family), options, ops);
  ASSERT_NO_FATAL_FAILURE(load_weights(engine, start));
  const std::vector<float>& losses = golden.at(at + "loss");
  for (size_t step = 0; step < losses.size(); ++step) {
    fill_batch(engine, start);
    engine.step(static_cast<int64_t>(step) + 1, kM, 1e-3f * static_cast<float>(1 + step % 3), 0.1f);
    EXPECT_NEAR(engine.result().loss, losses[step], 1e-5 * losses[step]) << "step " << step;
    EXPECT_NEAR(engine.result().grad_norm, golden.at(at + "norm")[step],
                3e-5 * golden.at(at + "norm")[step])
        << "step " << step;
  }
  for (const ParamView& view : engine.parameters()) {
    const ParamSpec& spec = view.param->spec;
    if (spec.role == Role::qkv_bias) continue;  // Of key biases, whose gradient is 0, Adam makes
                                                // steps out of rounding: ModelTest looks at them.
    EXPECT_EQ(view.states.size(), is_matrix(spec) ? 1u : 2u) << spec.name;
    // The iteration multiplies what is small in a gradient by up to 4 a step, rounding included:
    // 1e-6 of the gradient becomes 1e-3 of the step, and the step is about 1e-3 of the weight.
    EXPECT_LE(relative_error(view.main.as<float>(), golden.at(at + "final." + spec.name)), 1e-5)
        << spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Definitions, MuonGolden, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(info.param.name);
                         });

/// One matrix, its states and update() over them.
class OneMatrix {
 public:
  OneMatrix(ops::Ops& ops, Heap& heap, const MuonOptions& muon, std::vector<int64_t> shape)
      : ops_(ops),
        layout_({{.spec = {.name = "fc1", .role = Role::fc1_weight, .layer = 0, .shape = shape},
                  .shape = shape}},
                false, 1, Matrices::apart),
        state_(heap.state({})) {
    options_.kind = OptimizerKind::muon;
    options_.muon = muon;
    const auto flat = [&] {
      FlatMemory memory(layout_, share_, FlatMemory::Hold::whole, 1);
      memory.place(heap.floats({memory.elements()},
                               Values(static_cast<size_t>(memory.elements()), 0)));
      return memory;
    };
    flats_.model = flats_.main = flat();
    flats_.grad = flat();
    for (int i = 0; i < 3; ++i) flats_.states.push_back(flat());
    pool_memory_ = heap.make(DType::u8, {1 << 20});
  }

  void set(const FlatMemory& flat, const float* values) {
    const Tensor tensor = flat.whole(layout_.slots()[0]);
    std::copy_n(values, tensor.elements(), tensor.as<float>());
  }
  const Flats& flats() const { return flats_; }
  Tensor main() const { return flats_.main.whole(layout_.slots()[0]); }
  ops::StepState& state() { return *static_cast<ops::StepState*>(state_.data); }

  void step(float lr, float decay) {
    state().lr = lr;
    state().weight_decay = decay;
    ++state().updates;
    const std::unique_ptr<comm::Comm> solo = comm::make_solo_comm();
    ops::Pool pool(pool_memory_);
    update({.ops = ops_,
            .pool = pool,
            .tensor = *solo,
            .layout = layout_,
            .share = share_,
            .flats = flats_,
            .options = options_,
            .state = state_});
    EXPECT_TRUE(pool.empty());
  }

 private:
  ops::Ops& ops_;
  const Share share_;
  FlatLayout layout_;
  Flats flats_;
  OptimizerOptions options_;
  Tensor state_, pool_memory_;
};

class MuonMatrices : public testing::Test {
 protected:
  /// The largest element of got - wanted over the largest step that an element made.
  double error(const Tensor& got, const std::vector<float>& wanted,
               const std::vector<float>& start) {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      largest = std::max(largest, std::abs(double(wanted[i]) - double(start[i])));
      difference = std::max(difference, std::abs(double(got.as<float>()[i]) - double(wanted[i])));
    }
    return difference / largest;
  }

  ops::cpu::CpuOps ops_{2};
  Heap heap_;
};

TEST_F(MuonMatrices, EqualTorchAndMegatronInBf16) {
  const Arrays golden = read_golden("muon");
  MuonOptions torch = kTorch, megatron;
  torch.scale = MuonScale::shape_scaling;
  torch.extra_scale = 1;
  torch.product_dtype = DType::bf16;
  for (const auto& [rows, columns] : {std::pair(16, 48), {48, 16}, {20, 36}, {9, 34}}) {
    const std::string at = "bf16_" + std::to_string(rows) + "x" + std::to_string(columns) + ".";
    const std::vector<float>& start = golden.at(at + "start");
    for (const auto& [name, options] : {std::pair("torch", torch), {"megatron", megatron}}) {
      SCOPED_TRACE(at + name);
      OneMatrix matrix(ops_, heap_, options, {rows, columns});
      matrix.set(matrix.flats().main, start.data());
      matrix.state().grad_multiplier = 1;
      for (size_t step = 0; step < 3; ++step) {
        matrix.set(matrix.flats().grad, golden.at(at + "grads").data() + step * start.size());
        matrix.step(0.02f, 0.1f);
      }
      EXPECT_LE(error(matrix.main(), golden.at(at + name), start), 0.02);
    }
  }
}

}  // namespace
