// Layouts over NCCL, a process for each GPU, against one GPU: losses of steps queued call by call
// and replayed as graphs, and the curve of a hundred, fp32 and bf16; two runs bit for bit; memory
// as planned. Cases that need more GPUs than there are are skipped.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/trainer/engine/rank_processes.h"
#include "trainer/comm/nccl.h"
#include "trainer/engine/engine.h"
#include "trainer/ops/cuda/cuda.h"
#include "trainer/ops/philox.h"

namespace {

using namespace trainer;

constexpr int64_t kS = 128, kB = 2, kM = 4;
constexpr int kClose = 12;   ///< Steps whose rounding has not grown yet: four batches, in turns.
constexpr int kSteps = 112;  ///< The others learn label = (5 token + 3) mod 1000, never the same.

struct Layout {
  std::string family = "gpt2";
  int tensor = 1, pipeline = 1;
  bool sequence = false;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int chunks = 1;
  int data = 1;
  int stage = 0;         ///< Of ZeRO; gradients and weights are then sent during the computation.
  bool overlap = false;  ///< So too without ZeRO.
  bool copy_engines = true;
  bool offload = false;
  Fp8Options fp8 = {};
  std::optional<MuonTensorMode> muon = {};
  int gpus() const { return tensor * pipeline * data; }
  /// At 1e-3, without a warm-up, a gpt2's loss jumps once before step kClose. The order of a sum
  /// decides in which step and how far: in FP8 two orders are up to 0.3 apart.
  float learning_rate() const { return fp8.on() ? 2e-4f : 1e-3f; }
};

std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << l.family << ", tensor " << l.tensor << (l.sequence ? " + sequence" : "")
             << ", pipeline " << l.pipeline << ", schedule " << int(l.schedule) << ", chunks "
             << l.chunks << ", data " << l.data << ", ZeRO " << l.stage
             << (l.overlap ? ", overlapped" : "") << (l.copy_engines ? "" : ", no copy engines")
             << (l.offload ? ", state on the host" : "") << (l.fp8.on() ? ", fp8" : "")
             << (l.muon ? ", muon " + std::to_string(int(*l.muon)) : "");
}

int gpus() {
  static const int count = ranks::in_a_process([] { return ops::cuda::device_count(); });
  return count;
}

ModelSpec spec_of(const Layout& l) {
  const bool post = l.family == "opt_post";
  ModelSpec spec = family_defaults(post ? "opt" : l.family);
  spec.post_norm = post;
  if (post) spec.embedding_size = 64;
  spec.num_layers = 4;
  spec.hidden_size = 512;
  spec.num_attention_heads = 8;
  spec.num_query_groups = l.family == "llama" ? 4 : 8;
  spec.max_position_embeddings = kS;
  spec.vocab_size = 1000;
  spec.padded_vocab_size = 1024;
  // The fused attention draws its own dropout, which differs between layouts.
  spec.hidden_dropout = l.family == "gpt2" ? 0.1f : 0.0f;
  spec.attention_dropout = 0;
  complete(spec);
  return spec;
}

EngineOptions options_of(const Layout& l, DType dtype) {
  EngineOptions options;
  options.seq_length = kS;
  options.micro_batch_size = kB;
  options.max_microbatches = kM / l.data;
  options.model_dtype = dtype;
  options.sequence_parallel = l.sequence;
  options.schedule = l.schedule;
  options.chunks = l.chunks;
  options.zero_stage = l.stage;
  options.fp8 = l.fp8;
  options.overlap_grad_reduce = options.overlap_param_gather = l.stage > 0 || l.overlap;
  options.copy_engines = l.copy_engines;
  options.cpu_offload = l.offload;
  if (l.muon) {
    options.optimizer = OptimizerKind::muon;
    options.muon.tensor_mode = *l.muon;
    options.muon.extra_scale = 0.2f;  // Steps as large as AdamW's.
  }
  return options;
}

void fill_batch(Engine& engine, const Layout& l, int data_rank, uint32_t step) {
  const HostBatch batch = engine.host_batch();
  const size_t rows = size_t(kS * kB);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    // Micro-batch m of rank r is number m * data + r of the step, as the loader assigns them.
    const size_t whole = (i / rows * size_t(l.data) + size_t(data_rank)) * rows + i % rows;
    const bool learns = step >= kClose;
    const ops::Philox4 w =
        ops::philox({static_cast<uint32_t>(whole), learns ? step : step % 4, 0, 0}, 5, 6);
    batch.tokens[i] = static_cast<int32_t>(w.x % 1000);
    batch.labels[i] = learns ? (batch.tokens[i] * 5 + 3) % 1000 : static_cast<int32_t>(w.y % 1000);
    batch.positions[i] = static_cast<int32_t>(i % rows / size_t(kB));
    batch.loss_mask[i] = 1;
  }
}

struct Losses {
  float of[kSteps], norm[kSteps];
};

/// A layout in one precision.
struct Case {
  Layout layout;
  DType dtype = DType::bf16;
};

/// One rank's part of run `number`; the first writes `losses`.
void run_rank(const Case& c, size_t number, int rank, ops::Ops& ops, rendezvous::Store& store,
              Losses& losses) {
  const Layout& l = c.layout;
  const DType dtype = c.dtype;
  SCOPED_TRACE(testing::Message() << l << ", " << ops::name(dtype));
  const Topology topology = make_topology(rank, l.gpus(), l.tensor, l.pipeline);
  Groups groups = make_groups(topology, [&](const GroupPlace& place) {
    comm::NcclOptions options;
    options.name = place.name;
    options.id = place.id + "/" + std::to_string(number);
    options.rank = place.rank;
    options.size = static_cast<int>(place.ranks.size());
    options.device_index = rank;
    options.timeout = std::chrono::seconds(60);
    options.least_shared_bytes = 1;  // so that copy engines take part in models of this size.
    return comm::make_nccl_comm(options, store);
  });
  Engine engine(spec_of(l), options_of(l, dtype), ops, std::move(groups));
  engine.initialise();
  for (int step = 0; step < kSteps; ++step) {
    fill_batch(engine, l, topology.data_rank, static_cast<uint32_t>(step));
    engine.step(step + 1, kM / l.data, l.learning_rate(), 0.1f);
    const ops::StepState state = engine.result();
    if (rank == 0) losses.of[step] = state.loss, losses.norm[step] = state.grad_norm;
  }
  // The step after an evaluation is replayed as before.
  fill_batch(engine, l, topology.data_rank, 0);
  EXPECT_TRUE(std::isfinite(engine.evaluate(kM / l.data)));
  EXPECT_EQ(engine.peak_bytes(), engine.memory_plan().total_bytes);
}

/// The runs of `cases`, all on the same number of GPUs, in one set of processes, which take seconds
/// to start. Runs that do not end have no numbers.
std::vector<Losses> run_all(const std::vector<Case>& cases) {
  const size_t bytes = cases.size() * sizeof(Losses);
  auto* shared = static_cast<Losses*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED) throw std::runtime_error("no memory for the losses");
  Losses none;
  std::ranges::fill(none.of, NAN);
  std::ranges::fill(none.norm, NAN);
  std::fill_n(shared, cases.size(), none);
  const auto seconds = static_cast<unsigned>(60 + 15 * cases.size());
  ranks::run_rank_processes(cases.front().layout.gpus(), seconds,
                            [&](int rank, rendezvous::Store& store) {
                              const std::unique_ptr<ops::Ops> ops = ops::cuda::make_cuda_ops(
                                  {.device_index = rank, .gemm_choices_path = "", .tune = false});
                              for (size_t i = 0; i < cases.size(); ++i)
                                run_rank(cases[i], i, rank, *ops, store, shared[i]);
                            });
  std::vector<Losses> out(shared, shared + cases.size());
  munmap(shared, bytes);
  return out;
}

Losses run(const Layout& l, DType dtype) { return run_all({{l, dtype}}).front(); }

class Layouts : public testing::TestWithParam<Layout> {};

/// A run in fp32 and one in bf16.
struct Both {
  Losses exact, rounded;
};

/// One GPU's runs of a family, made once.
const Both& single(const std::string& family) {
  static std::map<std::string, Both> made;
  const auto [at, is_new] = made.try_emplace(family);
  if (is_new) {
    const Layout one{.family = family};
    const std::vector<Losses> runs = run_all({{one, DType::f32}, {one, DType::bf16}});
    at->second = {runs[0], runs[1]};
  }
  return at->second;
}

/// Mean over the learning steps of the difference of two runs' losses.
double mean_difference(const Losses& a, const Losses& b) {
  double sum = 0;
  for (int step = kClose; step < kSteps; ++step) sum += std::abs(a.of[step] - b.of[step]);
  return sum / double(kSteps - kClose);
}

std::vector<Layout> layouts() {
  constexpr ScheduleKind zb = ScheduleKind::zero_bubble, chunked = ScheduleKind::interleaved;
  return {{.tensor = 2},
          {.tensor = 2, .sequence = true},
          {.pipeline = 2},
          {.pipeline = 2, .schedule = zb},
          {.pipeline = 2, .schedule = chunked, .chunks = 2},
          {.data = 2},
          {.data = 2, .stage = 1},
          {.data = 2, .stage = 2},
          {.data = 2, .stage = 3},
          {.data = 2, .stage = 1, .offload = true},
          {.data = 4, .stage = 3},
          {.data = 4, .overlap = true},
          {.tensor = 2, .data = 2, .stage = 2},
          {.pipeline = 2, .data = 2, .stage = 1},
          {.family = "llama", .tensor = 2, .sequence = true},
          {.family = "gpt_neox", .tensor = 2, .sequence = true},
          {.family = "opt", .pipeline = 2},
          {.family = "opt_post", .pipeline = 2},
          {.family = "opt_post", .tensor = 2, .sequence = true},
          {.tensor = 4, .sequence = true},
          {.pipeline = 4},
          {.pipeline = 4, .schedule = zb},
          {.tensor = 2, .pipeline = 2, .sequence = true, .schedule = zb},
          {.tensor = 2, .sequence = true, .data = 2},
          {.family = "llama", .tensor = 2, .pipeline = 2, .sequence = true}};
}

std::string text_of(const Layout& l) { return (std::ostringstream() << l).str(); }

/// Whether this program is asked for that layout's case.
bool asked_for(size_t index) {
  const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->current_test_suite();
  for (int i = 0; i < suite.total_test_count(); ++i) {
    const testing::TestInfo& test = *suite.GetTestInfo(i);
    if (std::string(test.name()).ends_with("_" + std::to_string(index))) return test.should_run();
  }
  return false;
}

/// The runs of that layout, made together with those of all others on as many GPUs that this
/// program is asked for. Each is given once: a repeated case runs again.
Both together(const Layout& wanted) {
  static std::map<std::string, Both> made;
  if (!made.contains(text_of(wanted))) {
    std::vector<Case> cases;
    const std::vector<Layout> all = layouts();
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].gpus() != wanted.gpus() || !asked_for(i)) continue;
      for (const DType dtype : {DType::f32, DType::bf16}) cases.push_back({all[i], dtype});
    }
    const std::vector<Losses> runs = run_all(cases);
    for (size_t i = 0; i < cases.size(); i += 2)
      made[text_of(cases[i].layout)] = {runs[i], runs[i + 1]};
  }
  return made.extract(text_of(wanted)).mapped();
}

TEST_P(Layouts, EqualOneGpu) {
  const Layout& l = GetParam();
  if (gpus() < l.gpus()) GTEST_SKIP() << "needs " << l.gpus() << " GPUs, has " << gpus();
  // What rounding to bf16 changes on one GPU: no layout may change much more.
  const Both& one = single(l.family);
  const Both many = together(l);
  const double noise = mean_difference(one.exact, one.rounded);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Losses& wanted = dtype == DType::f32 ? one.exact : one.rounded;
    const Losses& got = dtype == DType::f32 ? many.exact : many.rounded;
    // Products of 512 terms: fp32 through TF32 keeps 11 bits as bf16 keeps 8; the loss is a mean
    // over 1024 rows, in which rounding averages out. In bf16 one or two steps in which the loss
    // falls fastest may be further apart: 0.031 is the most seen.
    const double allowed = dtype == DType::f32 ? 2e-3 : 2e-2;
    int beyond = 0;
    for (int step = 0; step < kClose; ++step) {
      const double apart = std::abs(double(got.of[step]) - double(wanted.of[step]));
      beyond += !(apart <= allowed);
      EXPECT_LE(apart, dtype == DType::f32 ? allowed : 3.5e-2)
          << l << ", " << ops::name(dtype) << ", step " << step;
      EXPECT_NEAR(got.norm[step], wanted.norm[step], 20 * allowed * double(wanted.norm[step]))
          << l << ", " << ops::name(dtype) << ", step " << step;
    }
    EXPECT_LE(beyond, 2) << l << ", " << ops::name(dtype);
    EXPECT_LT(got.of[kClose - 1], got.of[0]);
    const double difference = mean_difference(got, wanted);
    std::printf("%s: loss %.3f to %.3f in %d steps, mean |difference| %.2g, of bf16 %.2g\n",
                ops::name(dtype), double(got.of[kClose]), double(got.of[kSteps - 1]),
                kSteps - kClose, difference, noise);
    // One GPU's two precisions may agree by chance: 0.039 is the most seen in bf16.
    EXPECT_LT(difference, dtype == DType::f32 ? noise : std::max(2 * noise, 0.06))
        << l << ", " << ops::name(dtype);
    EXPECT_LT(got.of[kSteps - 1], got.of[kClose]);
  }
}

/// "Gpus4_10": those of four GPUs can be chosen by name.
std::string case_name(const testing::TestParamInfo<Layout>& info) {
  return "Gpus" + std::to_string(info.param.gpus()) + "_" + std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(All, Layouts, testing::ValuesIn(layouts()), case_name);

// In FP8 a sum in another order may round to another of 8 bits; in the first step ranks scale their
// own parts of a tensor.
class Fp8Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Fp8Layouts, AreNearOneGpu) {
  Layout l = GetParam();
  if (gpus() < l.gpus()) GTEST_SKIP() << "needs " << l.gpus() << " GPUs, has " << gpus();
  std::vector<Case> alone, together;
  for (const auto recipe : {Fp8Options::Recipe::delayed, Fp8Options::Recipe::tensorwise,
                            Fp8Options::Recipe::rowwise, Fp8Options::Recipe::blockwise}) {
    l.fp8 = {.format = Fp8Options::Format::hybrid, .recipe = recipe};
    alone.push_back({{.family = l.family, .fp8 = l.fp8}});
    together.insert(together.end(), 2, {l});
  }
  const std::vector<Losses> one = run_all(alone), many = run_all(together);
  for (size_t i = 0; i < alone.size(); ++i) {
    const Losses &wanted = one[i], &got = many[2 * i], &again = many[2 * i + 1];
    double furthest = 0;
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_EQ(got.of[step], again.of[step]) << l << ", step " << step;
      const double apart = std::abs(double(got.of[step]) - double(wanted.of[step]));
      if (step < kClose) furthest = std::max(furthest, apart);
    }
    const double difference = mean_difference(got, wanted);
    std::printf("fp8: loss %.3f to %.3f, |difference| before %.2g at most, then %.2g on average\n",
                double(got.of[kClose]), double(got.of[kSteps - 1]), furthest, difference);
    // Seen: 0.013 and 0.011. One GPU's micro-batches in another order: 0.02 (on the CPU).
    EXPECT_LE(furthest, 0.03) << l;
    EXPECT_LT(difference, 0.03) << l;
    EXPECT_LT(got.of[kSteps - 1], got.of[kClose]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Fp8Layouts,
    testing::Values(Layout{.tensor = 2}, Layout{.family = "llama", .tensor = 2, .sequence = true},
                    Layout{.pipeline = 2, .schedule = ScheduleKind::zero_bubble},
                    Layout{.data = 2, .stage = 1}, Layout{.data = 2, .stage = 3}),
    case_name);

/// Expects the same bits of each pair of runs, the second of which is the one wanted.
void expect_equal_pairs(const std::vector<Case>& pairs) {
  const std::vector<Losses> runs = run_all(pairs);
  for (size_t i = 0; i < pairs.size(); i += 2) {
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_EQ(runs[i].of[step], runs[i + 1].of[step]) << pairs[i].layout << ": " << step;
      EXPECT_EQ(runs[i].norm[step], runs[i + 1].norm[step]) << pairs[i].layout << ": " << step;
    }
  }
}

TEST(Layout, StateOnTheHostChangesNoBit) {
  if (gpus() < 1) GTEST_SKIP() << "needs a GPU";
  expect_equal_pairs({{{.offload = true}}, {{}}});
}

TEST(Layout, WeightsGatheredAsFp8ChangeNoBit) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs, has " << gpus();
  std::vector<Case> pairs;
  for (const auto recipe :
       {Fp8Options::Recipe::delayed, Fp8Options::Recipe::tensorwise, Fp8Options::Recipe::blockwise})
    for (const int stage : {1, 3}) {
      Layout l{.data = 2, .stage = stage};
      l.fp8 = {.format = Fp8Options::Format::hybrid, .recipe = recipe, .param_gather = true};
      pairs.push_back({l});
      l.fp8.param_gather = false;
      pairs.push_back({l});
    }
  expect_equal_pairs(pairs);
}

// A sum of two has one order.
TEST(Layout, CopyEnginesGiveNcclsBitsOnTwoGpus) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs, has " << gpus();
  const Fp8Options fp8 = {.format = Fp8Options::Format::hybrid,
                          .recipe = Fp8Options::Recipe::tensorwise,
                          .param_gather = true};
  std::vector<Case> pairs;
  for (Layout l : {Layout{.data = 2, .overlap = true}, Layout{.data = 2, .stage = 1},
                   Layout{.data = 2, .stage = 2}, Layout{.data = 2, .stage = 3},
                   Layout{.data = 2, .stage = 1, .offload = true},
                   Layout{.data = 2, .stage = 3, .fp8 = fp8}}) {
    pairs.push_back({l});
    l.copy_engines = false;
    pairs.push_back({l});
  }
  expect_equal_pairs(pairs);
}

TEST(Layout, RunsTwiceWithTheSameBits) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs, has " << gpus();
  std::vector<Case> pairs;
  for (const Layout& l : {Layout{.tensor = 2, .sequence = true},
                          Layout{.tensor = 2, .muon = MuonTensorMode::distributed},
                          Layout{.data = 2, .stage = 1, .muon = MuonTensorMode::blockwise}})
    pairs.insert(pairs.end(), 2, {l});
  expect_equal_pairs(pairs);
}

TEST(Layout, MuonOfSeveralGpusIsThatOfOne) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs, has " << gpus();
  const Losses one = run({.muon = MuonTensorMode::duplicated}, DType::bf16);
  const std::vector<Case> cases = {{{.tensor = 2, .muon = MuonTensorMode::duplicated}},
                                   {{.tensor = 2, .muon = MuonTensorMode::distributed}},
                                   {{.data = 2, .stage = 1, .muon = MuonTensorMode::blockwise}},
                                   {{.data = 2, .stage = 3, .muon = MuonTensorMode::blockwise}},
                                   {{.pipeline = 2, .muon = MuonTensorMode::blockwise}}};
  const std::vector<Losses> runs = run_all(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Layout& l = cases[i].layout;
    const Losses& many = runs[i];
    // Sums in another order, rounded to bf16 in five steps of the iteration: the loss of 1024 rows
    // may be apart by what a twentieth of a step does to it.
    for (int step = 0; step < kClose; ++step)
      EXPECT_NEAR(many.of[step], one.of[step], 0.05) << l << ", step " << step;
    EXPECT_LT(many.of[kSteps - 1], many.of[kClose]) << l;
  }
}

}  // namespace
