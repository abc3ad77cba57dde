// The model of time: tables of cards, times looked up in them, steps simulated, beside steps that
// were measured.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <cstdio>

#include "trainer/engine/engine.h"
#include "trainer/planning/card.h"
#include "trainer/planning/simulation.h"
#include "trainer/planning/times.h"

namespace trainer {
namespace {

using testing::HasSubstr;

Card h200() { return card_of(*ops::find_gpu("h200")); }

/// A step of bench/training.md: random tokens, no dropout, fp32 gradients.
struct Measured {
  const char* what;
  int64_t layers, hidden, heads, seq, batch, vocabulary;
  int tensor = 1, pipeline = 1, gpus = 1;
  int64_t microbatches = 1;
  double tokens_per_second = 0;
  void (*more)(EngineOptions&) = [](EngineOptions&) {};
};

StepEstimate estimate(const Measured& m, const Card& card) {
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = m.layers;
  spec.hidden_size = m.hidden;
  spec.num_attention_heads = m.heads;
  spec.max_position_embeddings = m.seq;
  spec.vocab_size = 50257;
  spec.padded_vocab_size = m.vocabulary;
  spec.hidden_dropout = spec.attention_dropout = 0;
  complete(spec);
  EngineOptions options;
  options.seq_length = m.seq;
  options.micro_batch_size = m.batch;
  options.max_microbatches = m.microbatches;
  options.model_dtype = DType::bf16;
  m.more(options);
  std::vector<ops::Timeline> stages;
  CardTimes times(card, options.cpu_offload);
  for (int stage = 0; stage < m.pipeline; ++stage) {
    const Topology t =
        make_topology(m.gpus / m.pipeline * stage, m.gpus, m.tensor, m.pipeline);
    stages.push_back(Engine::timeline(spec, options, t, times));
  }
  return simulate(stages, make_topology(0, m.gpus, m.tensor, m.pipeline),
                  {.world_size = m.gpus, .local_size = 8}, card);
}

void lean(EngineOptions& o) {
  o.grad_dtype = DType::bf16;
  o.moment_dtype = DType::bf16;
  o.recompute.granularity = Recompute::Granularity::full;
}
void overlap(EngineOptions& o) { o.overlap_grad_reduce = o.overlap_param_gather = true; }
void zero1(EngineOptions& o) { overlap(o), o.zero_stage = 1; }
void zero2(EngineOptions& o) { overlap(o), o.zero_stage = 2; }
void zero3(EngineOptions& o) { overlap(o), o.zero_stage = 3; }
void sequence(EngineOptions& o) { o.sequence_parallel = true; }
void zero_bubble(EngineOptions& o) { o.schedule = ScheduleKind::zero_bubble; }
void two_chunks(EngineOptions& o) { o.schedule = ScheduleKind::interleaved, o.chunks = 2; }

const Measured kMeasured[] = {
    {"124M", 12, 768, 12, 1024, 64, 50304, 1, 1, 1, 1, 613644},
    {"345M", 24, 1024, 16, 1024, 32, 50304, 1, 1, 1, 1, 224450},
    {"774M", 36, 1280, 20, 1024, 16, 50304, 1, 1, 1, 1, 103245},
    {"1558M", 48, 1600, 25, 1024, 16, 50304, 1, 1, 1, 1, 54360},
    {"1.3B", 24, 2048, 16, 2048, 8, 50304, 1, 1, 1, 1, 67526},
    {"6.7B lean", 32, 4096, 32, 2048, 4, 50304, 1, 1, 1, 1, 11139, lean},
    {"124M x4", 12, 768, 12, 1024, 64, 50304, 1, 1, 4, 1, 2263349, overlap},
    {"124M x4 zero1", 12, 768, 12, 1024, 64, 50304, 1, 1, 4, 1, 2285348, zero1},
    {"1.3B x4", 24, 2048, 16, 2048, 8, 50304, 1, 1, 4, 1, 246942, overlap},
    {"1.3B x4 zero1", 24, 2048, 16, 2048, 8, 50304, 1, 1, 4, 1, 253234, zero1},
    {"1.3B x4 after", 24, 2048, 16, 2048, 8, 50304, 1, 1, 4, 1, 243607},
    {"1.3B tp4 sp", 24, 2048, 16, 2048, 8, 50304, 4, 1, 4, 1, 152374, sequence},
    {"6.7B x4 zero2", 32, 4096, 32, 2048, 4, 50304, 1, 1, 4, 1, 51683, zero2},
    {"6.7B x4 zero3", 32, 4096, 32, 2048, 4, 50304, 1, 1, 4, 1, 51495, zero3},
    {"13B x4 zero3", 40, 5120, 40, 2048, 2, 50304, 1, 1, 4, 1, 24619, zero3},
    {"13B x4 zero1", 40, 5120, 40, 2048, 2, 50304, 1, 1, 4, 1, 25095, zero1},
    {"13B x4 zero2", 40, 5120, 40, 2048, 2, 50304, 1, 1, 4, 1, 24439, zero2},
    {"6.7B tp4 sp", 32, 4096, 32, 2048, 4, 50304, 4, 1, 4, 1, 39992, sequence},
    {"22B/8 tp4 sp", 8, 6144, 64, 2048, 4, 51200, 4, 1, 4, 1, 74683, sequence},
    {"6.7B pp4", 32, 4096, 32, 2048, 4, 50304, 1, 4, 4, 16, 46431},
    {"6.7B pp4 zb", 32, 4096, 32, 2048, 4, 50304, 1, 4, 4, 16, 50074, zero_bubble},
    {"6.7B/16 pp2", 16, 4096, 32, 2048, 4, 50304, 1, 2, 2, 8, 48037},
    {"6.7B/16 pp2 i2", 16, 4096, 32, 2048, 4, 50304, 1, 2, 2, 8, 49684, two_chunks},
    {"6.7B/16 pp2 zb", 16, 4096, 32, 2048, 4, 50304, 1, 2, 2, 8, 50741, zero_bubble},
    {"6.7B pp2", 32, 4096, 32, 2048, 4, 50304, 1, 2, 2, 16, 27270},
    {"6.7B/16 tp2 sp", 16, 4096, 32, 2048, 4, 50304, 2, 1, 2, 1, 45021, sequence},
    {"124M x2 zero1", 12, 768, 12, 1024, 64, 50304, 1, 1, 2, 1, 1155316, zero1},
};

TEST(SimulationTest, StepsThatWereMeasured) {
  const Card card = h200();
  for (const Measured& m : kMeasured) {
    const StepEstimate e = estimate(m, card);
    const double data = m.gpus / m.tensor / m.pipeline;
    const double tokens = static_cast<double>(m.batch * m.microbatches * m.seq) * data;
    const double measured = tokens / m.tokens_per_second;
    const StageTime& s = e.stages[static_cast<size_t>(e.busiest)];
    std::printf("%-16s %8.1f ms, measured %8.1f: %+5.1f%%  compute %.1f exposed %.1f bubble %.1f\n",
                m.what, e.seconds * 1e3, measured * 1e3, 100 * (e.seconds / measured - 1),
                s.compute * 1e3, s.exposed * 1e3, s.bubble * 1e3);
  }
}

}  // namespace
}  // namespace trainer
