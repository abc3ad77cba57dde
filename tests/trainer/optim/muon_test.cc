// Muon against torch.optim.Muon and Megatron's definition: whole models step by step, matrices in
// bf16; its products against the formula; how matrices are assigned to ranks. In every layout:
// data_parallel_test.cc, layout_test.cc, reshard_test.cc.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/engine/ranks.h"
#include "tests/trainer/ops/numeric.h"
#include "tests/trainer/optim/muon_golden.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/number.h"
#include "trainer/optim/muon.h"
#include "trainer/parallel/matrix_packing.h"

namespace {

using namespace trainer;
using namespace golden;
using numeric::Heap;
using numeric::Values;

class MuonGolden : public testing::TestWithParam<MuonCase> {};

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
    if (spec.role == Role::qkv_bias)
      continue;  // Of key biases, whose gradient is 0, Adam makes
                 // steps out of rounding: ModelTest looks at them.
    EXPECT_EQ(view.states.size(), is_matrix(spec) ? 1u : 2u) << spec.name;
    // The iteration multiplies what is small in a gradient by up to 4 a step, rounding included:
    // 1e-6 of the gradient becomes 1e-3 of the step, and the step is about 1e-3 of the weight.
    EXPECT_LE(relative_error(view.main.as<float>(), golden.at(at + "final." + spec.name)), 1e-5)
        << spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Definitions, MuonGolden, testing::ValuesIn(muon_cases()),
                         [](const testing::TestParamInfo<MuonCase>& info) {
                           return std::string(info.param.name);
                         });

/// A qkv weight of 2 groups with 2 query heads of 3 rows each.
constexpr int64_t kQuery = 6, kKey = 3, kGroups = 2, kColumns = 7;
constexpr int64_t kQkvRows = kGroups * (kQuery + 2 * kKey);

/// One matrix, its states and update() over them.
class OneMatrix {
 public:
  OneMatrix(ops::Ops& ops, Heap& heap, const MuonOptions& muon, std::vector<int64_t> shape,
            Role role = Role::fc1_weight)
      : ops_(ops),
        layout_({{.spec = {.name = "matrix", .role = role, .layer = 0, .shape = shape},
                  .shape = shape}},
                false, 1, Matrices::apart),
        state_(heap.state({})) {
    options_.kind = OptimizerKind::muon;
    options_.muon = muon;
    const auto flat = [&] {
      FlatMemory memory(layout_, share_, FlatMemory::Hold::whole, 1);
      memory.place(
          heap.floats({memory.elements()}, Values(static_cast<size_t>(memory.elements()), 0)));
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
  MuonOptions torch = kTorchMuon, megatron;
  torch.scale = MuonScale::shape_scaling;
  torch.extra_scale = 1;
  torch.product_dtype = DType::bf16;
  // Both round to bf16 after every product, and the same sums nearly always to the same number. But
  // torch rounds the matrix before it takes its norm, and the norm, and the quotient.
  const struct {
    const char* name;
    MuonOptions options;
    double allowed;
  } definitions[] = {{"torch", torch, 0.03}, {"megatron", megatron, 0.01}};
  for (const auto& [rows, columns] : {std::pair(16, 48), {48, 16}, {20, 36}, {9, 34}}) {
    const std::string at = "bf16_" + std::to_string(rows) + "x" + std::to_string(columns) + ".";
    const std::vector<float>& start = golden.at(at + "start");
    for (const auto& [name, options, allowed] : definitions) {
      SCOPED_TRACE(at + name);
      OneMatrix matrix(ops_, heap_, options, {rows, columns});
      matrix.set(matrix.flats().main, start.data());
      matrix.state().grad_multiplier = 1;
      for (size_t step = 0; step < 3; ++step) {
        matrix.set(matrix.flats().grad, golden.at(at + "grads").data() + step * start.size());
        matrix.step(0.02f, 0.1f);
      }
      EXPECT_LE(error(matrix.main(), golden.at(at + name), start), allowed);
    }
  }
}

TEST_F(MuonMatrices, QueriesKeysAndValuesAreThreeMatrices) {
  MuonOptions options;
  options.query_rows = kQuery;
  options.key_rows = kKey;
  const Values grad = numeric::random_values(size_t(kQkvRows * kColumns), 3);
  const std::vector<float> values(grad.begin(), grad.end());
  OneMatrix packed(ops_, heap_, options, {kQkvRows, kColumns}, Role::qkv_weight);
  packed.set(packed.flats().grad, values.data());
  packed.state().grad_multiplier = 0.5f;
  packed.step(0.1f, 0);
  const struct {
    int64_t first, rows;
  } parts[] = {{0, kQuery}, {kQuery, kKey}, {kQuery + kKey, kKey}};
  for (const auto& place : parts) {
    const int64_t first = place.first, rows = place.rows;
    const auto each_row = [&](const auto& body) {
      for (int64_t r = 0; r < kGroups * rows; ++r)
        body(r, r / rows * (kQuery + 2 * kKey) + first + r % rows);
    };
    std::vector<float> part(size_t(kGroups * rows * kColumns));
    each_row([&](int64_t r, int64_t of) {
      std::copy_n(values.begin() + of * kColumns, kColumns, part.begin() + r * kColumns);
    });
    OneMatrix alone(ops_, heap_, options, {kGroups * rows, kColumns});
    alone.set(alone.flats().grad, part.data());
    alone.state().grad_multiplier = 0.5f;
    alone.step(0.1f, 0);
    each_row([&](int64_t r, int64_t of) {
      for (int64_t c = 0; c < kColumns; ++c)
        EXPECT_EQ(packed.main().as<float>()[of * kColumns + c],
                  alone.main().as<float>()[r * kColumns + c])
            << first << ": " << r << ", " << c;
    });
  }
  options.split_qkv = false;
  OneMatrix whole(ops_, heap_, options, {kQkvRows, kColumns}, Role::qkv_weight),
      plain(ops_, heap_, options, {kQkvRows, kColumns});
  for (OneMatrix* m : {&whole, &plain}) {
    m->set(m->flats().grad, values.data());
    m->state().grad_multiplier = 0.5f;
    m->step(0.1f, 0);
  }
  EXPECT_EQ(numeric::read(whole.main()), numeric::read(plain.main()));
  EXPECT_NE(numeric::read(whole.main()), numeric::read(packed.main()));
}

TEST_F(MuonMatrices, SkippedStepsChangeNothing) {
  const Values grad = numeric::random_values(6 * 5, 4);
  const std::vector<float> values(grad.begin(), grad.end());
  OneMatrix matrix(ops_, heap_, {}, {6, 5});
  matrix.set(matrix.flats().main, values.data());
  std::vector<float> bad(values);
  bad[7] = std::nanf("");
  matrix.set(matrix.flats().grad, bad.data());
  matrix.state().skip = 1;
  matrix.step(0.1f, 0.1f);
  EXPECT_EQ(numeric::read(matrix.main()), Values(values.begin(), values.end()));
  for (const double x : numeric::read(matrix.flats().states[2].tensor())) EXPECT_EQ(x, 0);
}

// Inputs far from those that the iteration is made for: zeros, one direction, one column.
TEST_F(MuonMatrices, PoorMatricesGiveFiniteSteps) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    MuonOptions options;
    options.product_dtype = dtype;
    const auto largest = [&](std::vector<int64_t> shape, const std::vector<float>& grad) {
      OneMatrix matrix(ops_, heap_, options, shape);
      matrix.set(matrix.flats().grad, grad.data());
      matrix.state().grad_multiplier = 1;
      matrix.step(1, 0);
      double most = 0;
      for (const double x : numeric::read(matrix.main())) {
        EXPECT_TRUE(std::isfinite(x));
        most = std::max(most, std::abs(x));
      }
      return most;
    };
    EXPECT_EQ(largest({8, 6}, std::vector<float>(48, 0)), 0);
    // u v^T / (|u| |v|) with a singular value near 1 (0.7 to 1.2 after "quintic"), times sqrt(8).
    EXPECT_NEAR(largest({8, 6}, std::vector<float>(48, 3e-12f)), 0, 1);
    EXPECT_NEAR(largest({8, 6}, std::vector<float>(48, 1e9f)), std::sqrt(8.0 / 48), 0.15);
    EXPECT_NEAR(largest({1, 4}, {5, 0, 0, 0}), 2, 0.6);
    EXPECT_NEAR(largest({4, 1}, {0, 0, 5, 0}), 2, 0.6);
  }
}

TEST(MuonPolynomials, CycleOrStayAtTheLast) {
  using C = MuonCoefficients;
  EXPECT_EQ(coefficients(C::simple, 4), coefficients(C::simple, 0));
  EXPECT_EQ(coefficients(C::quintic, 5), coefficients(C::quintic, 0));
  EXPECT_NE(coefficients(C::quintic, 4), coefficients(C::quintic, 0));
  EXPECT_EQ(coefficients(C::polar_express, 9), coefficients(C::polar_express, 7));
  EXPECT_EQ(coefficients(C::polar_express, 7), (std::array{1.875f, -1.25f, 0.375f}));
  EXPECT_EQ(coefficients(C::cans, 8), coefficients(C::cans, 4));
  EXPECT_EQ(coefficients(C::aol, 4), coefficients(C::aol, 0));
  // Each leaves singular values that are not tiny near 1. "aol" is made for another norm: beyond
  // 0.87 of Frobenius' it turns them around, here as in Megatron.
  for (const auto& [kind, steps] : {std::pair(C::simple, 5),
                                    {C::quintic, 5},
                                    {C::polar_express, 8},
                                    {C::cans, 8},
                                    {C::aol, 4}}) {
    for (double x = 0.02; x <= (kind == C::aol ? 0.87 : 1.0); x += 0.01) {
      double y = x;
      for (int i = 0; i < steps; ++i) {
        const auto [a, b, c] = coefficients(kind, i);
        y = double(a) * y + double(b) * std::pow(y, 3) + double(c) * std::pow(y, 5);
      }
      EXPECT_NEAR(y, 1, 0.5) << int(kind) << " of " << x;
    }
  }
}

TEST(MuonScales, AreThoseOfTheirNames) {
  MuonOptions options;
  EXPECT_FLOAT_EQ(muon_scale(options, 16, 64), 8);
  EXPECT_FLOAT_EQ(muon_scale(options, 64, 16), 8);
  options.scale = MuonScale::unit_rms_norm;
  EXPECT_FLOAT_EQ(muon_scale(options, 16, 64), 0.5f);
  EXPECT_FLOAT_EQ(muon_scale(options, 64, 16), 2);
  options.scale = MuonScale::shape_scaling;
  options.extra_scale = 0.25f;
  EXPECT_FLOAT_EQ(muon_scale(options, 16, 64), 0.25f);
  EXPECT_FLOAT_EQ(muon_scale(options, 64, 16), 0.5f);
}

TEST(Products, EqualTheFormula) {
  Heap heap;
  ops::cpu::CpuOps cpu(2);
  constexpr int64_t kM = 9, kN = 70, kK = 33;
  for (int kind = 0; kind < 8; ++kind) {
    const bool ta = (kind & 1) != 0, tb = (kind & 2) != 0, adds = (kind & 4) != 0;
    const Values a = numeric::random_values(kM * kK, 1), b = numeric::random_values(kK * kN, 2),
                 c = numeric::random_values(kM * kN, 3);
    Values wanted(kM * kN);
    for (int64_t i = 0; i < kM; ++i) {
      for (int64_t j = 0; j < kN; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < kK; ++k)
          sum += a[size_t(ta ? k * kM + i : i * kK + k)] * b[size_t(tb ? j * kK + k : k * kN + j)];
        wanted[size_t(i * kN + j)] = 1.5 * sum + (adds ? -0.5 * c[size_t(i * kN + j)] : 0);
      }
    }
    const Tensor left = heap.floats({ta ? kK : kM, ta ? kM : kK}, a),
                 right = heap.floats({tb ? kN : kK, tb ? kK : kN}, b),
                 addend = heap.floats({kM, kN}, c), out = heap.empty({kM, kN});
    const auto product = [&](const Tensor& d, const Tensor& x, const Tensor& y, const Tensor& z) {
      cpu.run(ops::MatrixProduct{.d = d,
                                 .a = x,
                                 .b = y,
                                 .c = adds ? z : Tensor(),
                                 .alpha = 1.5f,
                                 .beta = adds ? -0.5f : 0.0f,
                                 .transpose_a = ta,
                                 .transpose_b = tb});
    };
    product(out, left, right, addend);
    numeric::expect_close("product", out, wanted, kK);
    // In bf16 the same numbers, rounded before and once after.
    const auto rounded = [&](const Tensor& t) {
      Tensor copy = heap.make(DType::bf16, {t.shape[0], t.shape[1]});
      for (int64_t i = 0; i < t.elements(); ++i) ops::store(copy, i, t.as<float>()[i]);
      for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] = ops::load(copy, i);
      return copy;
    };
    const Tensor x = rounded(left), y = rounded(right), z = rounded(addend);
    product(out, left, right, addend);
    product(z, x, y, z);
    for (int64_t i = 0; i < kM * kN; ++i)
      EXPECT_EQ(ops::load(z, i), ops::bf16_to_float(ops::float_to_bf16(out.as<float>()[i])));
  }
}

TEST(MuonTensorParallel, BlockwiseIsEachRanksPartAlone) {
  const Arrays start = read_golden("llama");
  EngineOptions options = options_for("llama");
  options.optimizer = OptimizerKind::muon;
  options.muon.momentum = 0;
  const ModelSpec spec = tiny("llama");
  ranks::run_ranks(2, 2, 1, [&](Groups groups) {
    ops::cpu::CpuOps ops(1);
    Engine engine(spec, options, ops, std::move(groups));
    engine.initialise();
    std::vector<std::vector<float>> before;
    for (const ParamView& view : engine.parameters()) before.push_back(values(engine, view.main));
    fill_batch(engine, start);
    engine.step(1, kM, 0.01f, 0.1f);
    MuonOptions muon = options.muon;
    muon.query_rows = spec.num_attention_heads / spec.num_query_groups * spec.kv_channels;
    muon.key_rows = spec.kv_channels;
    Heap heap;
    int compared = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const ParamView& view = engine.parameters()[i];
      if (!is_matrix(view.param->spec)) continue;
      EXPECT_NE(view.param->shape, view.param->spec.shape);
      OneMatrix alone(ops, heap, muon, view.param->shape, view.param->spec.role);
      alone.set(alone.flats().main, before[i].data());
      alone.set(alone.flats().grad, view.grad.as<float>());
      alone.state().grad_multiplier = engine.result().grad_multiplier;
      alone.step(0.01f, 0.1f);
      EXPECT_EQ(numeric::read(view.main), numeric::read(alone.main())) << view.param->spec.name;
      ++compared;
    }
    EXPECT_EQ(compared, 8);
  });
}

/// A model's parameters as `data` ranks lay them out.
FlatLayout layout_of(int64_t layers, int64_t data, Matrices matrices, int tensor = 1) {
  ModelSpec spec = family_defaults("llama");
  spec.num_layers = layers;
  spec.hidden_size = 512;
  spec.ffn_hidden_size = 1408;
  spec.num_attention_heads = 8;
  spec.num_query_groups = 2;
  spec.max_position_embeddings = 64;
  spec.vocab_size = spec.padded_vocab_size = 256;
  complete(spec);
  Place place = whole_model(spec);
  place.tensor_size = tensor;
  return FlatLayout(local_params(spec, place), true, data, matrices);
}

TEST(Packing, NoMatrixLiesInTwoShares) {
  for (const int64_t data : {2, 3, 8, 64}) {
    for (const Matrices matrices : {Matrices::packed, Matrices::packed_by_layers}) {
      const FlatLayout layout = layout_of(12, data, matrices);
      int64_t end = 0;
      for (const Bucket& bucket : layout.buckets()) {
        EXPECT_EQ(bucket.begin, end);
        EXPECT_EQ(bucket.elements % (data * FlatLayout::kGranule), 0);
        end = bucket.begin + bucket.elements;
        EXPECT_TRUE(bucket.layers == 1 || matrices == Matrices::packed);
      }
      EXPECT_EQ(layout.elements(), end);
      std::vector<std::pair<int64_t, int64_t>> places;
      for (const Slot& slot : layout.slots()) {
        EXPECT_EQ(slot.offset % FlatLayout::kGranule, 0);
        places.emplace_back(slot.offset, slot.offset + slot.param.elements());
        const Bucket& bucket = layout.buckets()[size_t(slot.bucket)];
        EXPECT_EQ(bucket.matrices, is_matrix(slot.param.spec)) << slot.param.spec.name;
        if (!bucket.matrices) continue;
        int64_t holders = 0;
        for (int rank = 0; rank < data; ++rank) {
          const Range range = layout.in_share(slot, {rank, int(data)});
          if (range.count == 0) continue;
          EXPECT_EQ(range, (Range{0, slot.param.elements()})) << slot.param.spec.name;
          ++holders;
        }
        EXPECT_EQ(holders, 1) << slot.param.spec.name;
      }
      std::sort(places.begin(), places.end());
      for (size_t i = 1; i < places.size(); ++i)
        EXPECT_LE(places[i - 1].second, places[i].first) << "two parameters overlap";
    }
  }
}

TEST(Packing, RanksHaveEqualWorkAndLittlePadding) {
  for (const int64_t data : {2, 4, 8, 16}) {
    for (const Matrices matrices : {Matrices::packed, Matrices::packed_by_layers}) {
      const FlatLayout layout = layout_of(32, data, matrices);
      std::vector<double> cost(size_t(data), 0);
      int64_t whole = 0, packed = 0;
      for (const Slot& slot : layout.slots()) {
        if (!is_matrix(slot.param.spec)) continue;
        whole += slot.param.elements();
        for (int rank = 0; rank < data; ++rank)
          if (layout.in_share(slot, {rank, int(data)}).count > 0)
            cost[size_t(rank)] += orthogonalisation_cost(slot.param.shape[0], slot.param.shape[1]);
      }
      for (const Bucket& bucket : layout.buckets()) {
        if (bucket.matrices) {
          packed += bucket.elements;
          EXPECT_LE(bucket.layers, data / 2) << "fewer would do: gradients leave late";
        }
      }
      const double most = *std::max_element(cost.begin(), cost.end());
      const double mean = std::accumulate(cost.begin(), cost.end(), 0.0) / double(data);
      EXPECT_LE(most, 1.34 * mean) << data;  // The bound of "the largest first" is 4/3.
      EXPECT_TRUE(packed <= whole + whole / 20 || matrices == Matrices::packed_by_layers) << data;
    }
  }
}

TEST(Packing, GoesTheLargestFirstToTheRankWithTheLeast) {
  const std::vector<MatrixItem> items = {{10, 5}, {10, 9}, {30, 9}, {10, 1}, {10, 3}};
  std::vector<double> load = {0, 0, 7};
  const MatrixPacking packing = pack_matrices(items, load);
  EXPECT_EQ(packing.rank, (std::vector<int>{2, 1, 0, 2, 2}));
  EXPECT_EQ(packing.offset, (std::vector<int64_t>{0, 0, 0, 20, 10}));
  EXPECT_EQ(packing.share_elements, 30);
  EXPECT_EQ(load, (std::vector<double>{9, 9, 16}));
}

}  // namespace
