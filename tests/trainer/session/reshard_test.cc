// A checkpoint of any layout can be continued in any other: canonical tensors bit for bit, and the
// same losses as one process that was never stopped.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/trainer/checkpoint/writer_links.h"
#include "tests/trainer/engine/ranks.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/philox.h"
#include "trainer/session/snapshot.h"

namespace {

using namespace trainer;
namespace fs = std::filesystem;

constexpr int64_t kS = 16, kB = 1, kSamples = 8;

struct Layout {
  int tensor = 1, pipeline = 1, data = 1, stage = 0;
  bool sequence = false, overlap = false, offload = false;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int chunks = 1;
  bool recompute = false;
  Fp8Options fp8 = {};
  bool muon = false;
  DType model_dtype = DType::f32;  ///< The CPU only holds weights of 16 bits: no step is made.
  int world() const { return tensor * pipeline * data; }
};

constexpr Fp8Options kFp8{
    .format = Fp8Options::Format::hybrid, .history_length = 3, .amax_choice = ops::AmaxChoice::max};

std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << "tensor " << l.tensor << (l.sequence ? " + sequence" : "") << ", pipeline "
             << l.pipeline << ", data " << l.data << ", ZeRO " << l.stage
             << (l.overlap ? ", overlap" : "") << (l.offload ? ", offload" : "")
             << (l.chunks > 1 ? ", interleaved" : "")
             << (l.schedule == ScheduleKind::zero_bubble ? ", zero-bubble" : "")
             << (l.recompute ? ", recompute" : "") << (l.fp8.on() ? ", fp8" : "")
             << (l.muon ? ", muon" : "") << (l.model_dtype == DType::f32 ? "" : ", 16 bits");
}

ModelSpec spec_of(const std::string& family) {
  const bool post = family == "opt_post";
  ModelSpec spec = family_defaults(post ? "opt" : family);
  spec.post_norm = post;
  if (post) spec.embedding_size = 12;
  spec.num_layers = 4;
  spec.hidden_size = 32;
  spec.num_attention_heads = 4;
  spec.num_query_groups = 4;
  spec.ffn_hidden_size = family == "opt" ? 64 : 40;  // opt is FP8's here: multiples of 16
  spec.max_position_embeddings = kS + 1;
  spec.vocab_size = 61;
  spec.padded_vocab_size = 64;
  spec.hidden_dropout = family == "gpt2" ? 0.1f : 0.0f;
  spec.attention_dropout = 0;
  complete(spec);
  return spec;
}

EngineOptions options_of(const Layout& l) {
  EngineOptions options;
  options.seq_length = kS;
  options.micro_batch_size = kB;
  options.max_microbatches = kSamples / l.data;
  options.adam_eps = 1e-6f;
  options.sequence_parallel = l.sequence;
  options.zero_stage = l.stage;
  options.overlap_grad_reduce = options.overlap_param_gather = l.overlap;
  options.cpu_offload = l.offload;
  options.schedule = l.schedule;
  options.chunks = l.chunks;
  options.fp8 = l.fp8;
  options.model_dtype = l.model_dtype;
  if (l.muon) {
    options.optimizer = OptimizerKind::muon;
    options.muon.tensor_mode =
        l.stage % 2 == 0 ? MuonTensorMode::duplicated : MuonTensorMode::distributed;
    options.muon.product_dtype = DType::f32;  // bf16 would make more of the last digit of fp32.
  }
  if (l.recompute)
    options.recompute = {Recompute::Granularity::full, Recompute::Method::uniform, 1};
  return options;
}

void fill_batch(Engine& engine, uint32_t step) {
  const HostBatch batch = engine.host_batch();
  const Topology& t = engine.topology();
  for (int64_t m = 0; m < kSamples / t.data_size; ++m) {
    for (int64_t s = 0; s < kS; ++s) {
      const uint32_t sample = static_cast<uint32_t>(m * t.data_size + t.data_rank);
      const ops::Philox4 w = ops::philox({sample, step, static_cast<uint32_t>(s), 0}, 5, 6);
      const size_t at = static_cast<size_t>(m * kS + s);
      batch.tokens[at] = static_cast<int32_t>(w.x % 61);
      batch.labels[at] = static_cast<int32_t>(w.y % 61);
      batch.positions[at] = static_cast<int32_t>(s);
      batch.loss_mask[at] = w.z % 5 == 0 ? 0.0f : 1.0f;
    }
  }
}

using Canonical = std::map<std::string, std::vector<std::byte>>;

Canonical read_all(const std::string& folder) {
  Checkpoint checkpoint = Checkpoint::open(folder);
  checkpoint.verify();
  Canonical all;
  for (const TensorRecord& tensor : checkpoint.meta().tensors) {
    int64_t stored = 0;
    for (const ShardRecord& shard : tensor.shards) stored += shard.piece.count;
    EXPECT_EQ(stored, Piece::whole(tensor.shape).count) << tensor.name << " is written twice";
    all[tensor.group + " " + tensor.name] = checkpoint.read(tensor);
  }
  return all;
}

/// A state in which no number has its initial value, nor that of another.
const ops::StepState kUnusual = [] {
  ops::StepState state;
  state.loss_scale = 0x1p13f;
  state.growth_tracker = 5;
  state.hysteresis_tracker = 1;
  state.updates = 7;
  state.skipped_steps = 3;
  return state;
}();

/// Loads the checkpoint of step `from` (0: draws), saves it again unchanged, trains to step `to`
/// and saves that. Returns the losses.
std::vector<float> stretch(const std::string& family, const Layout& layout, const std::string& root,
                           const std::string& source, int64_t from, int64_t to) {
  std::vector<float> losses;
  std::vector<std::vector<float>> shared;
  std::mutex mutex;
  const WriterLinks links(layout.world());
  const auto body = [&](Groups groups) {
    ops::cpu::CpuOps ops(1);
    const bool computes = layout.model_dtype == DType::f32;
    EngineOptions options = options_of(layout);
    if (!computes) options.seed = static_cast<uint32_t>(100 + from);  // other weights if not loaded
    Engine engine(spec_of(family), options, ops, std::move(groups));
    engine.initialise();
    if (!computes && from == 0) engine.set_state(kUnusual);
    CheckpointRoot writer(root, links.place(engine.topology().rank(), std::chrono::seconds(60)));
    std::vector<float> all_here{1};
    engine.over_ranks(all_here, comm::Reduce::sum);
    const auto save = [&](int64_t iteration) {
      Snapshot snapshot(engine, true, false);
      snapshot.take();
      snapshot.wait();
      CheckpointMeta meta;
      meta.state.iteration = iteration;
      store_state(engine.state(), meta.state);
      writer.save(meta, snapshot.shards(), 0);
    };
    if (from > 0) {
      Checkpoint checkpoint = Checkpoint::open(iteration_folder(source, from));
      load_tensors(engine, checkpoint, true);
      engine.set_state(restore_state(checkpoint.meta().state));
      save(from);
    }
    std::vector<float> mine;
    for (int64_t step = from + 1; computes && step <= to; ++step) {
      fill_batch(engine, static_cast<uint32_t>(step));
      engine.step(step, kSamples / layout.data, 1e-3f, 0.1f);
      mine.push_back(engine.result().loss);
    }
    save(to);
    const std::lock_guard<std::mutex> lock(mutex);
    EXPECT_TRUE(losses.empty() || losses == mine) << "ranks disagree";
    losses = mine;
    std::vector<std::vector<float>> states;
    for (const StateView& state : engine.shared_state()) {
      const float* values = state.tensor.as<float>();
      states.emplace_back(values, values + state.tensor.elements());
    }
    EXPECT_TRUE(shared.empty() || shared == states) << "ranks have other scales";
    shared = states;
  };
  if (layout.world() == 1)
    body(solo_groups());
  else
    ranks::run_ranks(layout.world(), layout.tensor, layout.pipeline, body);
  return losses;
}

class Reshard : public testing::Test {
 protected:
  Reshard() {
    std::string name = fs::temp_directory_path() / "reshard_test.XXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  ~Reshard() override { fs::remove_all(root_); }
  /// Each layout continues from another's checkpoint.
  void chain_of_all(bool muon);
  std::string root_;
};

/// Every (tensor, pipeline, data) of at most 4 ranks, with every ZeRO stage where data > 1.
std::vector<Layout> all_layouts() {
  std::vector<Layout> all;
  for (const int tensor : {1, 2, 4})
    for (const int pipeline : {1, 2, 4})
      for (const int data : {1, 2, 4})
        for (const int stage : {0, 1, 2, 3})
          if (tensor * pipeline * data <= 4 && (stage == 0 || data > 1))
            all.push_back({tensor, pipeline, data, stage, tensor > 1 && stage % 2 == 0,
                           stage % 2 == 1, stage == 2});
  return all;
}

TEST_F(Reshard, AnyLayoutGoesOnInAnyOther) {
  for (const bool muon : {false, true}) {
    SCOPED_TRACE(muon ? "Muon" : "AdamW");
    chain_of_all(muon);
  }
}

void Reshard::chain_of_all(bool muon) {
  std::vector<Layout> layouts = all_layouts();
  EXPECT_EQ(layouts.size(), 22u);
  std::mt19937 random(7);
  std::shuffle(layouts.begin(), layouts.end(), random);
  for (Layout& layout : layouts) layout.muon = muon;
  for (const char* family : {"gpt2", "llama", "qwen2", "qwen3", "opt_post"}) {
    const std::string one = root_ + "/one_" + family + (muon ? "_muon" : "");
    const std::vector<float> wanted = stretch(family, {.muon = muon}, one, "", 0, 4);
    // A chain through layouts, each continuing from the one before; the second family alternates.
    std::string before;
    std::vector<float> first;
    for (size_t i = family[0] == 'g' ? 0 : 1; i < layouts.size(); i += 2) {
      SCOPED_TRACE(testing::Message() << family << ": " << layouts[i]);
      const std::string here = root_ + "/" + family + std::to_string(i) + (muon ? "_muon" : "");
      const std::vector<float> start = stretch(family, layouts[i], here, "", 0, 2);
      ASSERT_EQ(start.size(), 2u);
      for (size_t s = 0; s < 2; ++s) EXPECT_NEAR(start[s], wanted[s], 2e-6 * wanted[s]);
      if (!before.empty()) {
        const std::string onward = here + "_onward";
        const std::vector<float> end = stretch(family, layouts[i], onward, before, 2, 4);
        for (size_t s = 0; s < 2; ++s) EXPECT_NEAR(end[s], wanted[s + 2], 4e-6 * wanted[s + 2]);
        EXPECT_EQ(read_all(iteration_folder(onward, 2)), read_all(iteration_folder(before, 2)))
            << "what was loaded and saved again differs";
      }
      before = here;
    }
  }
}

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

/// Any layout with any option that it allows.
Layout random_layout(std::mt19937& random) {
  const std::vector<Layout> all = all_layouts();
  Layout layout = all[random() % all.size()];
  layout.sequence = layout.tensor > 1 && random() % 2 == 0;
  layout.overlap = random() % 2 == 0;
  layout.offload = random() % 3 == 0;
  layout.recompute = random() % 3 == 0;
  const auto kind = random() % 3;
  if (layout.pipeline == 2 && kind == 0) {
    layout.schedule = ScheduleKind::interleaved;
    layout.chunks = 2;
  } else if (layout.pipeline > 1 && kind == 1 && (layout.data == 1 || layout.stage < 2)) {
    layout.schedule = ScheduleKind::zero_bubble;
  }
  return layout;
}

// RESHARD_ROUNDS and RESHARD_SEED ask for more and for others.
TEST_F(Reshard, ChainsOfRandomLayouts) {
  const int64_t rounds = from_environment("RESHARD_ROUNDS", 4),
                seed = from_environment("RESHARD_SEED", 1);
  constexpr int64_t kLinks = 4;
  for (int64_t round = 0; round < rounds; ++round) {
    std::mt19937 random(static_cast<uint32_t>(seed + round));
    constexpr const char* kFamilies[] = {"gpt2",  "opt",   "gpt_neox", "llama",
                                         "qwen2", "qwen3", "mistral",  "opt_post"};
    const char* family = kFamilies[random() % std::size(kFamilies)];
    const std::string root = root_ + "/" + std::to_string(round);
    const bool muon = (seed + round) % 2 == 0;
    const std::vector<float> wanted = stretch(family, {.muon = muon}, root + "_one", "", 0, kLinks);
    std::string before;
    for (int64_t link = 0; link < kLinks; ++link) {
      Layout layout = random_layout(random);
      layout.muon = muon;
      SCOPED_TRACE(testing::Message() << "RESHARD_SEED=" << seed + round << " " << family
                                      << ", step " << link + 1 << ": " << layout);
      const std::string here = root + "_" + std::to_string(link);
      std::vector<float> loss;
      EXPECT_NO_THROW(loss = stretch(family, layout, here, before, link, link + 1));
      ASSERT_EQ(loss.size(), 1u);
      // Each step's sums in another order, accumulated through the weights of later steps.
      const float expected = wanted[static_cast<size_t>(link)];
      EXPECT_NEAR(loss[0], expected, 4e-6 * expected);
      if (link > 0) {
        EXPECT_EQ(read_all(iteration_folder(here, link)), read_all(iteration_folder(before, link)));
      }
      before = here;
      if (HasFailure()) return;
    }
  }
}

Canonical read_fp8(const std::string& folder) {
  Canonical all = read_all(iteration_folder(folder, 2));
  std::erase_if(all, [](const auto& item) { return !item.first.starts_with("fp8 "); });
  return all;
}

// Scales are the whole model's, or follow from the values alone, so another layout goes on with the
// same ones; a sum in another order may round to a neighbour of 8 bits.
TEST_F(Reshard, Fp8ScalesGoOnInAnyLayout) {
  using Recipe = Fp8Options::Recipe;
  for (const Recipe recipe : {Recipe::delayed, Recipe::rowwise, Recipe::blockwise}) {
    Fp8Options fp8 = kFp8;
    fp8.recipe = recipe;
    const std::string root = root_ + "/" + std::to_string(int(recipe));
    const std::vector<float> wanted = stretch("opt", {.fp8 = fp8}, root + "one", "", 0, 4);
    const std::string before = root + "one_early";
    stretch("opt", {.fp8 = fp8}, before, "", 0, 2);
    const Canonical scales = read_fp8(before);
    EXPECT_EQ(scales.size(), fp8.in_blocks() ? 0u : 2u);
    int number = 0;
    for (const Layout& layout :
         {Layout{.tensor = 2, .sequence = true, .fp8 = fp8}, Layout{.pipeline = 2, .fp8 = fp8},
          Layout{.data = 2, .stage = 3, .fp8 = fp8}, Layout{.fp8 = fp8},
          Layout{.tensor = 2, .pipeline = 2, .schedule = ScheduleKind::zero_bubble, .fp8 = fp8}}) {
      SCOPED_TRACE(testing::Message() << layout << ", recipe " << int(recipe));
      const std::string onward = root + "onward" + std::to_string(number++);
      const std::vector<float> end = stretch("opt", layout, onward, before, 2, 4);
      for (size_t s = 0; s < 2; ++s) EXPECT_NEAR(end[s], wanted[s + 2], 2e-3 * wanted[s + 2]);
      EXPECT_EQ(read_fp8(onward), scales) << "what was loaded and saved again differs";
      EXPECT_EQ(read_all(iteration_folder(onward, 2)), read_all(iteration_folder(before, 2)));
      if (layout.world() == 1) {
        EXPECT_EQ(end, (std::vector<float>{wanted[2], wanted[3]}))
            << "the same layout, the same bits";
      }
    }
  }
}

// Gathering weights as FP8 changes neither a bit nor a checkpoint.
TEST_F(Reshard, WeightsGatheredAsFp8GoOnWithTheSameBits) {
  for (const Fp8Options::Recipe recipe :
       {Fp8Options::Recipe::delayed, Fp8Options::Recipe::tensorwise,
        Fp8Options::Recipe::blockwise}) {
    Fp8Options plain = kFp8;
    plain.recipe = recipe;
    Fp8Options gathered = plain;
    gathered.param_gather = true;
    for (const int stage : {1, 3}) {
      SCOPED_TRACE(testing::Message() << "ZeRO " << stage << ", recipe " << int(recipe));
      const auto layout = [&](const Fp8Options& fp8) {
        return Layout{.data = 4, .stage = stage, .overlap = stage == 3, .fp8 = fp8};
      };
      const std::string root = root_ + "/" + std::to_string(stage) + std::to_string(int(recipe));
      const std::vector<float> wanted = stretch("opt", layout(plain), root + "all", "", 0, 4);
      stretch("opt", layout(gathered), root + "half", "", 0, 2);
      for (const Fp8Options& fp8 : {plain, gathered}) {
        const std::string onward = root + (fp8.param_gather ? "gathered" : "plain");
        const std::vector<float> end = stretch("opt", layout(fp8), onward, root + "half", 2, 4);
        EXPECT_EQ(end, (std::vector<float>{wanted[2], wanted[3]}));
        EXPECT_EQ(read_all(iteration_folder(onward, 4)),
                  read_all(iteration_folder(root + "all", 4)));
      }
      // After a checkpoint without scales, they follow from the loaded weights alone.
      Layout without = layout(Fp8Options());
      stretch("opt", without, root + "without", "", 0, 2);
      std::vector<std::vector<float>> began;
      for (const Fp8Options& fp8 : {plain, gathered})
        began.push_back(stretch("opt", layout(fp8), root + "began" + std::to_string(began.size()),
                                root + "without", 2, 4));
      EXPECT_EQ(began[0], began[1]);
      // In other layouts too, it begins as they do without it.
      for (Layout other : {Layout{.tensor = 2, .data = 2, .stage = 2},
                           Layout{.pipeline = 2, .data = 2, .stage = 1, .overlap = true}}) {
        std::vector<std::vector<float>> ends;
        for (const Fp8Options& fp8 : {plain, gathered}) {
          other.fp8 = fp8;
          const std::string onward = root + "other" + std::to_string(ends.size());
          ends.push_back(stretch("opt", other, onward, root + "half", 2, 4));
        }
        EXPECT_EQ(ends[0], ends[1]) << other;
      }
    }
  }
}

// A recipe without saved scales goes on from one that has them, and the other way round.
TEST_F(Reshard, Fp8RecipesFollowEachOther) {
  Fp8Options rowwise = kFp8;
  rowwise.recipe = Fp8Options::Recipe::rowwise;
  for (const bool to_rows : {true, false}) {
    const Layout first{.fp8 = to_rows ? kFp8 : rowwise}, second{.fp8 = to_rows ? rowwise : kFp8};
    const std::string root = root_ + (to_rows ? "/to" : "/from");
    const std::vector<float> wanted = stretch("opt", second, root + "whole", "", 0, 4);
    stretch("opt", first, root + "first", "", 0, 2);
    const std::vector<float> end = stretch("opt", second, root + "second", root + "first", 2, 4);
    for (size_t s = 0; s < 2; ++s) EXPECT_NEAR(end[s], wanted[s + 2], 2e-3 * wanted[s + 2]);
  }
}

/// Group fp8 of a checkpoint.
struct Scales {
  std::vector<float> scale, history;
  int64_t tensors() const { return static_cast<int64_t>(scale.size()) / ops::kScaleSize; }
  int64_t length() const { return static_cast<int64_t>(history.size()) / tensors(); }
  float factor(int64_t i) const {
    return scale[static_cast<size_t>(i * ops::kScaleSize + ops::kScaleFactor)];
  }
  float seen(int64_t i, int64_t steps_ago) const {
    return history[static_cast<size_t>(i * length() + steps_ago)];
  }
  /// Tensors are listed by operand.
  bool is(Operand operand, int64_t i) const {
    return i / (tensors() / 3) == static_cast<int64_t>(operand);
  }
};

Scales read_scales(const std::string& root, int64_t iteration) {
  Canonical all = read_all(iteration_folder(root, iteration));
  const auto floats = [&](const char* name) {
    const std::vector<std::byte>& bytes = all.at(name);
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  };
  return {.scale = floats("fp8 scale"), .history = floats("fp8 history")};
}

/// Each scale is what the options compute from its history.
void expect_scales_of_history(const Scales& s, const Fp8Options& options) {
  ASSERT_EQ(s.length(), options.history_length);
  for (int64_t i = 0; i < s.tensors(); ++i) {
    float most = s.seen(i, 0);
    for (int64_t ago = 1; ago < s.length(); ++ago)
      if (options.amax_choice == ops::AmaxChoice::max) most = std::max(most, s.seen(i, ago));
    EXPECT_GT(most, 0) << i << " was not seen";
    const bool wide = s.is(Operand::gradient, i) && options.format == Fp8Options::Format::hybrid;
    const float largest = wide ? 57344.0f : 448.0f;
    EXPECT_EQ(s.factor(i), std::ldexp(largest / most, -options.margin)) << i;
  }
}

std::vector<Fp8Options> fp8_variants() {
  std::vector<Fp8Options> all(5, kFp8);
  all[0].history_length = 1;
  all[1].history_length = 4;
  all[2].format = Fp8Options::Format::e4m3;
  all[3].margin = 3;
  all[4].amax_choice = ops::AmaxChoice::most_recent;
  return all;
}

TEST_F(Reshard, Fp8ScalesFollowTheirHistory) {
  for (size_t v = 0; v < fp8_variants().size(); ++v) {
    SCOPED_TRACE(v);
    const Fp8Options options = fp8_variants()[v];
    const std::string two = root_ + "/two" + std::to_string(v), three = two + "_three";
    stretch("opt", {.fp8 = options}, two, "", 0, 2);
    stretch("opt", {.fp8 = options}, three, two, 2, 3);
    const Scales before = read_scales(two, 2), after = read_scales(three, 3);
    expect_scales_of_history(before, options);
    expect_scales_of_history(after, options);
    for (int64_t i = 0; i < after.tensors(); ++i) {
      EXPECT_NE(after.seen(i, 0), before.seen(i, 0)) << i;
      for (int64_t ago = 1; ago < after.length(); ++ago)
        EXPECT_EQ(after.seen(i, ago), before.seen(i, ago - 1)) << i << ", " << ago << " steps ago";
    }
  }
}

// A run may continue with another format, margin or history: its first step has matching scales.
TEST_F(Reshard, Fp8ScalesFitTheOptionsOfTheNextRun) {
  const std::string before = root_ + "/before";
  stretch("opt", {.fp8 = kFp8}, before, "", 0, 4);
  const Scales from = read_scales(before, 4);
  for (size_t v = 0; v < fp8_variants().size(); ++v) {
    SCOPED_TRACE(v);
    const std::string onward = root_ + "/other" + std::to_string(v);
    stretch("opt", {.fp8 = fp8_variants()[v]}, onward, before, 4, 4);
    const Scales to = read_scales(onward, 4);
    expect_scales_of_history(to, fp8_variants()[v]);
    for (int64_t i = 0; i < to.tensors(); ++i)
      for (int64_t ago = 0; ago < to.length(); ++ago)
        EXPECT_EQ(to.seen(i, ago), ago < from.length() ? from.seen(i, ago) : 0.0f) << i;
  }
}

// Layers that were not in FP8 have no scales: their first step in FP8 computes them.
TEST_F(Reshard, Fp8FindsScalesOfLayersThatHadNone) {
  Fp8Options left_out = kFp8;
  left_out.plain_layers_at_start = spec_of("opt").num_layers;
  const std::string none = root_ + "/none", out = root_ + "/out";
  stretch("opt", {}, none, "", 0, 2);
  stretch("opt", {.fp8 = left_out}, out, "", 0, 2);
  const std::vector<float> wanted = stretch("opt", {.fp8 = kFp8}, none + "_on", none, 2, 5);
  EXPECT_EQ(stretch("opt", {.fp8 = kFp8}, out + "_on", out, 2, 5), wanted);
  EXPECT_EQ(read_all(iteration_folder(out + "_on", 5)),
            read_all(iteration_folder(none + "_on", 5)));
}

// Each tensor's largest value is that of all ranks: of all samples, all rows and all layers.
TEST_F(Reshard, Fp8LargestValuesAreOfAllRanks) {
  stretch("opt", {.fp8 = kFp8}, root_ + "/one", "", 0, 1);
  const Scales one = read_scales(root_ + "/one", 1);
  int number = 0;
  for (const Layout& layout :
       {Layout{.tensor = 2, .fp8 = kFp8}, Layout{.pipeline = 2, .fp8 = kFp8},
        Layout{.data = 4, .fp8 = kFp8}, Layout{.data = 2, .stage = 3, .fp8 = kFp8}}) {
    SCOPED_TRACE(testing::Message() << layout);
    const std::string root = root_ + "/all" + std::to_string(number++);
    stretch("opt", layout, root, "", 0, 1);
    const Scales all = read_scales(root, 1);
    for (int64_t i = 0; i < one.tensors(); ++i) {
      // Data-parallel ranks have gradients of their own means, which are divided later.
      const float times = one.is(Operand::gradient, i) ? static_cast<float>(layout.data) : 1.0f;
      const float near = one.is(Operand::weight, i) ? 0.0f : 0.25f * one.seen(i, 0);
      EXPECT_NEAR(all.seen(i, 0) / times, one.seen(i, 0), near) << i;
    }
  }
}

// What weights of 16 bits are rounded from, and the loss scaler's state, go through checkpoints of
// other layouts unchanged.
TEST_F(Reshard, MainWeightsAndTheLossScaleGoOn) {
  const Layout layouts[] = {
      {}, {.data = 2, .stage = 1}, {.tensor = 2}, {.data = 2, .stage = 3}, {}};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    std::string source;
    Canonical first;
    for (int64_t at = 0; at < std::ssize(layouts); ++at) {
      Layout layout = layouts[at];
      layout.model_dtype = dtype;
      SCOPED_TRACE(testing::Message() << layout);
      const std::string root =
          root_ + (dtype == DType::f16 ? "/f16_" : "/bf16_") + std::to_string(at);
      stretch("llama", layout, root, source, at, at + 1);
      const Canonical all = read_all(iteration_folder(root, at + 1));
      if (at == 0) first = all;
      EXPECT_EQ(all, first);
      const CheckpointMeta meta = Checkpoint::open(iteration_folder(root, at + 1)).meta();
      for (const TensorRecord& tensor : meta.tensors)
        EXPECT_EQ(tensor.dtype, tensor.group != "model" ? "F32"
                                : dtype == DType::f16   ? "F16"
                                                        : "BF16");
      EXPECT_EQ(meta.state.loss_scale, 0x1p13);
      EXPECT_EQ(meta.state.growth_tracker, 5);
      EXPECT_EQ(meta.state.hysteresis_tracker, 1);
      EXPECT_EQ(meta.state.adam_steps, 7);
      EXPECT_EQ(meta.state.skipped_steps, 3);
      source = root;
    }
    // The main weights have digits that 16 bits have not.
    const std::vector<std::byte>& main = first.at("main embedding.word_embeddings.weight");
    int64_t finer = 0;
    for (size_t i = 0; i < main.size(); i += 4) finer += main[i] != std::byte{0};
    EXPECT_GT(finer, std::ssize(main) / 16);
  }
}

TEST_F(Reshard, TwoRunsOfALayoutAreBitEqual) {
  for (const bool muon : {false, true}) {
    const Layout layout{.tensor = 2, .data = 2, .stage = 1, .overlap = true, .muon = muon};
    const std::string a = root_ + (muon ? "/ma" : "/a"), b = root_ + (muon ? "/mb" : "/b");
    stretch("gpt2", layout, a, "", 0, 3);
    stretch("gpt2", layout, b, "", 0, 3);
    EXPECT_EQ(read_all(iteration_folder(a, 3)), read_all(iteration_folder(b, 3)));
    // Stopped after any step and continued.
    const std::string c = root_ + (muon ? "/mc" : "/c"), d = root_ + (muon ? "/md" : "/d");
    stretch("gpt2", layout, c, "", 0, 1);
    stretch("gpt2", layout, d, c, 1, 3);
    EXPECT_EQ(read_all(iteration_folder(d, 3)), read_all(iteration_folder(a, 3)));
  }
}

}  // namespace
