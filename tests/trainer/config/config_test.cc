// What is derived from a configuration, what is refused, and the ramp-up of the global batch; the
// worked numbers follow Megatron's rules by hand. Whole command lines of tutorials are in
// tutorials_test.cc.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/trainer/config/small_config.h"
#include "tools/cli/parse.h"
#include "tools/cli/text.h"

namespace trainer {
namespace {

TEST(FlagTable, NamesAreUniqueAndEveryRowHasHelp) {
  TrainConfig config;
  std::set<std::string_view> names;
  for (const cli::Row& row : cli::bind_rows(flag_table(), config)) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const std::string_view alias : row.aliases)
      EXPECT_TRUE(names.insert(alias).second) << alias;
    EXPECT_FALSE(row.help.empty() && row.no_effect.empty() && row.refused.empty()) << row.name;
    EXPECT_EQ(row.arity == cli::Arity::none, row.value.empty()) << row.name;
  }
  EXPECT_GT(names.size(), 200u);
}

// Every default that arguments.py of Megatron-LM core 0.15 gives a flag of this table. Empty
// defaults are derived from other flags, there as here.
TEST(FlagTable, DefaultsAreMegatrons) {
  const std::map<std::string, std::string> defaults = {
      {"adam-beta1", "0.9"},
      {"adam-beta2", "0.999"},
      {"adam-eps", "1e-08"},
      {"attention-dropout", "0.1"},
      {"bf16", "false"},
      {"ckpt-step", ""},
      {"clip-grad", "1"},
      {"context-parallel-size", "1"},
      {"data-path", ""},
      {"disable-bias-linear", "false"},
      {"distributed-timeout-minutes", "10"},
      {"end-weight-decay", ""},
      {"eod-mask-loss", "false"},
      {"eval-interval", "1000"},
      {"eval-iters", "100"},
      {"exit-duration-in-mins", ""},
      {"exit-interval", ""},
      {"exp-avg-dtype", "fp32"},
      {"expert-model-parallel-size", "1"},
      {"ffn-hidden-size", ""},
      {"finetune", "false"},
      {"fp16", "false"},
      {"global-batch-size", ""},
      {"group-query-attention", "false"},
      {"hidden-dropout", "0.1"},
      {"hysteresis", "2"},
      {"init-method-std", "0.02"},
      {"initial-loss-scale", "4294967296"},
      {"kv-channels", ""},
      {"log-interval", "100"},
      {"loss-scale", ""},
      {"loss-scale-window", "1000"},
      {"lr", ""},
      {"lr-decay-iters", ""},
      {"lr-decay-samples", ""},
      {"lr-decay-style", "linear"},
      {"lr-warmup-fraction", ""},
      {"lr-warmup-init", "0"},
      {"lr-warmup-iters", "0"},
      {"lr-warmup-samples", "0"},
      {"lr-wsd-decay-style", "exponential"},
      {"make-vocab-size-divisible-by", "128"},
      {"mid-level-dataset-surplus", "0.005"},
      {"min-loss-scale", "1"},
      {"min-lr", "0"},
      {"no-bias-gelu-fusion", "false"},
      {"no-load-optim", "false"},
      {"no-log-loss-scale-to-tensorboard", "false"},
      {"no-save-optim", "false"},
      {"norm-epsilon", "1e-05"},
      {"normalization", "LayerNorm"},
      {"optimizer", "adam"},
      {"padded-vocab-size", ""},
      {"pipeline-model-parallel-size", "1"},
      {"position-embedding-type", "learned_absolute"},
      {"rampup-batch-size", ""},
      {"recompute-granularity", ""},
      {"recompute-method", ""},
      {"recompute-num-layers", ""},
      {"reset-attention-mask", "false"},
      {"reset-position-ids", "false"},
      {"qk-layernorm", "false"},
      {"rope-scaling-factor", "8"},
      {"rotary-base", "10000"},
      {"rotary-percent", "1"},
      {"save-interval", ""},
      {"seed", "1234"},
      {"sequence-parallel", "false"},
      {"split", ""},  // and with --data-path 969, 30, 1: see Derive.SplitOfOldDefault.
      {"start-weight-decay", ""},
      {"swiglu", "false"},
      {"tensor-model-parallel-size", "1"},
      {"tensorboard-log-interval", "1"},
      {"train-iters", ""},
      {"train-samples", ""},
      {"untie-embeddings-and-output-weights", "false"},
      {"vocab-size", ""},
      {"weight-decay", "0.01"},
      {"weight-decay-incr-style", "constant"},
  };
  TrainConfig config;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), config);
  for (const auto& [name, value] : defaults) {
    const cli::Row* row = cli::find_row(rows, name);
    ASSERT_NE(row, nullptr) << name;
    EXPECT_EQ(cli::join(row->show(), " "), value) << name;
  }
}

TEST(FlagTable, NamesOfOneMeaning) {
  const auto value = [](const std::vector<std::string>& words, const std::string& name) {
    TrainConfig config;
    const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), config);
    cli::parse_arguments(rows, words);
    return cli::join(cli::find_row(rows, name)->show(), " ");
  };
  EXPECT_EQ(value({"--warmup", ".01"}, "lr-warmup-fraction"), "0.01");
  EXPECT_EQ(value({"--batch-size", "4"}, "micro-batch-size"), "4");
  EXPECT_EQ(value({"--model-parallel-size", "2"}, "tensor-model-parallel-size"), "2");
  EXPECT_EQ(value({"--checkpoint-granularity", "full"}, "recompute-granularity"), "full");
  EXPECT_EQ(value({"--checkpoint-method", "block"}, "recompute-method"), "block");
  EXPECT_EQ(value({"--activations-checkpoint-method", "block"}, "recompute-method"), "block");
  EXPECT_EQ(value({"--activations-checkpoint-method", "block"}, "checkpoint-activations"), "true");
  EXPECT_EQ(value({"--pad-vocab-size-to", "250880"}, "padded-vocab-size"), "250880");
  EXPECT_EQ(value({"--layernorm-epsilon", "1e-6"}, "norm-epsilon"), "1e-06");
  EXPECT_EQ(value({"--rotary-position-embeddings-theta", "5e5"}, "rotary-base"), "5e+05");
  EXPECT_EQ(value({"--train-samples", "220_000_000"}, "train-samples"), "220000000");
  EXPECT_EQ(value({"--data-path", "a", "b", "--data-path", "c"}, "data-path"), "c");
}

TEST(FlagTable, EffectiveConfigReadsBackToItself) {
  TrainConfig config = small_config();
  config.rampup_batch_size = {"2", "2", "100"};
  config.global_batch_size = 8;
  config.adam_eps = 1e-7;
  config.bias_gelu_fusion = false;
  config.save = "a folder/with \"quotes\"";
  config.data_path = {"0.3", "a", "0.7", "b"};
  const std::string text = effective_config(config);
  TrainConfig copy;
  cli::Parsed parsed;
  cli::read_config(cli::bind_rows(flag_table(), copy), text, "saved", parsed);
  EXPECT_EQ(effective_config(copy), text);
  EXPECT_EQ(copy.data_path, config.data_path);
  EXPECT_EQ(copy.save, config.save);
  EXPECT_FALSE(copy.bias_gelu_fusion);
}

// What is kept with a checkpoint and compared between ranks: every flag with a value, and no other.
TEST(FlagTable, ValuesAreOfTheFlagsThatHaveSome) {
  TrainConfig config = small_config();
  config.data_path = {"0.3", "a", "0.7", "b"};
  config.seq_length = 24;
  const std::map<std::string, cli::Values> values = flag_values(config);
  EXPECT_EQ(values.at("seq-length"), (cli::Values{"24"}));
  EXPECT_EQ(values.at("data-path"), (cli::Values{"0.3", "a", "0.7", "b"}));
  EXPECT_FALSE(values.contains("load"));
  for (const auto& [name, of] : values) EXPECT_FALSE(of.empty()) << name;
  TrainConfig copy;
  for (const cli::Row& row : cli::bind_rows(flag_table(), copy))
    if (const auto at = values.find(std::string(row.name)); at != values.end()) row.set(at->second);
  EXPECT_EQ(flag_values(copy), values);
}

TEST(Derive, AccumulationOfDeepspeedCountsDataParallelRanks) {
  TrainConfig config = small_config();
  config.gradient_accumulation_steps = 3;
  derive_and_check(config, {}, 4);
  EXPECT_EQ(config.derived.global_batch_size, 3 * 2 * 4);
  config.global_batch_size = 8;
  EXPECT_THAT(error_of(config, 4), testing::HasSubstr("gradient_accumulation_steps"));
}

TEST(Derive, RefusesWhatCannotBeHonoured) {
  const auto with = [](auto change) {
    TrainConfig config = small_config();
    config.vocab_size = 256;
    change(config);
    return error_of(config);
  };
  EXPECT_EQ(with([](TrainConfig& c) { c.num_layers.reset(); }), "--num-layers is missing");
  EXPECT_EQ(with([](TrainConfig& c) { c.num_attention_heads = 5; }),
            "--num-attention-heads 5 does not divide --hidden-size 64");
  EXPECT_EQ(with([](TrainConfig& c) { c.num_query_groups = 3; }),
            "--num-query-groups 3 does not divide --num-attention-heads 4");
  EXPECT_EQ(with([](TrainConfig& c) { c.max_position_embeddings = 16; }),
            "--max-position-embeddings 16 is less than --seq-length 32");
  EXPECT_EQ(
      with([](TrainConfig& c) { c.global_batch_size = 5; }),
      "--global-batch-size 5 is no multiple of --micro-batch-size 2 times data-parallel size 1");
  EXPECT_EQ(with([](TrainConfig& c) { c.train_samples = 5; }),
            "--train-iters and --train-samples exclude each other");
  EXPECT_EQ(with([](TrainConfig& c) { c.lr.reset(); }), "--lr is missing");
  EXPECT_EQ(with([](TrainConfig& c) { c.min_lr = 1; }), "--min-lr 1 is above --lr 0.001");
  EXPECT_EQ(with([](TrainConfig& c) { c.fp16 = c.bf16 = true; }),
            "--fp16 and --bf16 exclude each other");
  EXPECT_EQ(with([](TrainConfig& c) { c.lr_decay_style = "WSD"; }),
            "--lr-decay-style WSD needs --lr-wsd-decay-iters or --lr-wsd-decay-samples");
  EXPECT_EQ(with([](TrainConfig& c) { c.recompute_method = "block"; }),
            "--recompute-method needs --recompute-granularity full");
  EXPECT_EQ(with([](TrainConfig& c) { c.data_path.clear(); }), "--data-path is missing");
  EXPECT_EQ(with([](TrainConfig& c) { c.valid_data_path = {"v"}; }),
            "--train-data-path and its like exclude --data-path and --split");
  EXPECT_EQ(with([](TrainConfig& c) { c.lr_warmup_iters = 10; }),
            "warm-up of 20 samples (--lr-warmup-iters 10) is not shorter than the decay of 20 "
            "samples (--train-iters 10)");
  EXPECT_EQ(with([](TrainConfig& c) { c.lr_warmup_samples = 30, c.lr_decay_samples = 25; }),
            "warm-up of 30 samples is not shorter than the decay of 25 samples");
  EXPECT_EQ(with([](TrainConfig& c) { c.lr_warmup_init = 1, c.lr_warmup_iters = 1; }),
            "--lr-warmup-init 1 is above --lr 0.001");
  EXPECT_EQ(error_of(small_config()), "");
}

// The last number that a flag takes, and the first that it does not.
TEST(FlagTable, BoundsOfNumbers) {
  const auto taken = [](const std::string& flag, const std::string& value) {
    TrainConfig config;
    const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), config);
    try {
      cli::parse_arguments(rows, std::vector<std::string>{flag, value});
    } catch (const cli::UsageError&) {
      return false;
    }
    return true;
  };
  EXPECT_TRUE(taken("--exit-interval", "0"));
  EXPECT_FALSE(taken("--exit-interval", "-1"));
  EXPECT_TRUE(taken("--extra-vocab-size", "1048576"));
  EXPECT_FALSE(taken("--extra-vocab-size", "1048577"));
  EXPECT_TRUE(taken("--vocab-size", "2147483648"));
  EXPECT_FALSE(taken("--vocab-size", "2147483649"));
  EXPECT_FALSE(taken("--vocab-size", "0"));
  EXPECT_TRUE(taken("--num-query-groups", "1"));
  EXPECT_FALSE(taken("--num-query-groups", "0"));
  EXPECT_TRUE(taken("--num-query-groups", "65536"));
  EXPECT_FALSE(taken("--num-query-groups", "65537"));
}

TEST(Derive, RefusesWhatContradictsItself) {
  const auto with = [](auto change) {
    TrainConfig config = small_config();
    change(config);
    return error_of(config);
  };
  using C = TrainConfig;
  EXPECT_EQ(with([](C& c) { c.position_embedding_type = "rope", c.kv_channels = 7; }),
            "--rotary-percent 1 of a head of 7 is 7: positions rotate an even number");
  EXPECT_EQ(with([](C& c) { c.position_embedding_type = "rope", c.rotary_percent = 0.1; }),
            "--rotary-percent 0.1 of a head of 16 is 1: positions rotate an even number");
  EXPECT_EQ(with([](C& c) { c.position_embedding_type = "rope", c.rotary_percent = 0.125; }), "")
      << "two of sixteen";
  EXPECT_EQ(with([](C& c) { c.position_offset = 2, c.use_rotary_position_embeddings = true; }),
            "--position-offset 2 needs learned positions, and these are rope");
  EXPECT_EQ(with([](C& c) { c.position_embedding_type = "rotary", c.max_position_embeddings = 8; }),
            "--max-position-embeddings 8 is less than --seq-length 32");
  EXPECT_THAT(with([](C& c) { c.no_position_embedding = true; }),
              testing::StartsWith("--no-position-embedding goes with"));
  EXPECT_EQ(with([](C& c) { c.swiglu = true, c.activation = "relu"; }),
            "--swiglu and --activation relu exclude each other");
  EXPECT_EQ(with([](C& c) { c.swiglu = c.openai_gelu = true; }),
            "--swiglu and --openai-gelu exclude each other");
  EXPECT_EQ(with([](C& c) { c.lr_decay_iters = 5, c.lr_decay_samples = 10; }),
            "--lr-decay-iters and --lr-decay-samples exclude each other");
  EXPECT_EQ(with([](C& c) { c.lr_warmup_iters = 1, c.lr_warmup_samples = 2; }),
            "--lr-warmup-iters and --lr-warmup-samples exclude each other");
  EXPECT_EQ(with([](C& c) { c.lr_warmup_fraction = 0.1, c.lr_warmup_tokens = 64; }),
            "--lr-warmup-fraction and --lr-warmup-tokens exclude each other");
  EXPECT_EQ(with([](C& c) { c.exp_avg_sq_dtype = "bf16"; }),
            "--exp-avg-sq-dtype bf16 must be --exp-avg-dtype, which is fp32");
  EXPECT_THAT(with([](C& c) { c.bf16 = c.fp32_residual_connection = true; }),
              testing::StartsWith("--fp32-residual-connection: with --bf16"));
  EXPECT_EQ(with([](C& c) { c.calculate_per_token_loss = c.eod_mask_loss = true; }), "");
  // As Megatron's OptimizerParamScheduler, which wants end_wd >= start_wd.
  EXPECT_EQ(
      with([](C& c) {
        c.weight_decay_incr_style = "linear";
        c.start_weight_decay = 0.1, c.end_weight_decay = 0.01;
      }),
      "--end-weight-decay 0.01 is below --start-weight-decay 0.1: weight decay does not fall, "
      "as in Megatron");
  EXPECT_EQ(with([](C& c) {
              c.weight_decay_incr_style = "cosine";
              c.start_weight_decay = c.end_weight_decay = 0.01;
            }),
            "");
  EXPECT_EQ(with([](C& c) { c.add_qkv_bias = true, c.add_bias_linear = false; }), "");
  EXPECT_EQ(
      with([](C& c) { c.use_rope_scaling = true, c.rotary_seq_len_interpolation_factor = 2; }),
      "--use-rope-scaling and --rotary-seq-len-interpolation-factor exclude each other");
  EXPECT_EQ(with([](C& c) { c.rope_low_freq_factor = 4; }),
            "--rope-high-freq-factor 4 is not above --rope-low-freq-factor 4");
  EXPECT_EQ(with([](C& c) { c.add_qkv_bias = true; }), "");
  EXPECT_EQ(with([](C& c) { c.finetune = true; }),
            "--finetune needs --load or --pretrained-checkpoint");
  EXPECT_EQ(with([](C& c) { c.keep_last = 2; }), "--keep-last needs --save");
  EXPECT_EQ(with([](C& c) { c.fp32_residual_connection = c.calculate_per_token_loss = true; }), "");
}

TEST(Derive, NotesWhatChangesNothing) {
  const auto notes = [](TrainConfig config, const Given& given) {
    return derive_and_check(config, given, 1);
  };
  const Given scale = {"loss-scale", "hysteresis"};
  EXPECT_TRUE(notes(small_config(), scale).empty());  // given, but equal to the default.
  TrainConfig scaled = small_config();
  scaled.loss_scale = 8192;
  scaled.hysteresis = 3;
  EXPECT_THAT(notes(scaled, scale),
              testing::ElementsAre("--loss-scale changes nothing without --fp16",
                                   "--hysteresis changes nothing without --fp16"));
  TrainConfig fixed = scaled;
  fixed.fp16 = true;
  EXPECT_THAT(notes(fixed, scale),
              testing::ElementsAre("--hysteresis changes nothing with a fixed --loss-scale"));
  TrainConfig left_out = small_config();
  left_out.fp8_format = "hybrid";
  left_out.first_last_layers_bf16 = true;
  left_out.num_layers_at_start_in_bf16 = *left_out.num_layers - 1;
  EXPECT_THAT(notes(left_out, {}),
              testing::ElementsAre(testing::HasSubstr("--fp8-format changes nothing: ")));
  left_out.num_layers_at_end_in_bf16 = 0;
  EXPECT_THAT(
      notes(left_out, {}),
      testing::ElementsAre(testing::HasSubstr("the last 16 steps; Megatron's look back one")));
  left_out.fp8_amax_history_len = 1;
  EXPECT_TRUE(notes(left_out, {"fp8-amax-history-len", "fp8-hybrid", "fp8-format"}).empty());
  const auto refusal = [&](const Given& given) -> std::string {
    try {
      notes(left_out, given);
    } catch (const cli::UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({"fp8-e4m3", "fp8-hybrid"}),
            "--fp8-e4m3 and --fp8-hybrid contradict each other");
  EXPECT_EQ(refusal({"fp8-e4m3", "fp8-format"}),
            "--fp8-e4m3 and --fp8-format hybrid contradict each other");
  TrainConfig rotary = small_config();
  rotary.rotary_base = 5e5;
  EXPECT_THAT(
      notes(rotary, {"rotary-base"}),
      testing::ElementsAre("--rotary-base changes nothing without --position-embedding-type rope"));
  TrainConfig selective = small_config();
  selective.recompute_granularity = "selective";
  selective.recompute_num_layers = 1;
  EXPECT_THAT(notes(selective, {}), testing::ElementsAre(testing::HasSubstr("granularity full")));
}

// Megatron has no fused kernel for a GELU without biases, and its plain one is the error function.
TEST(Derive, ActivationOfMegatronsFlags) {
  const auto activation = [](auto change) {
    TrainConfig config = small_config();
    change(config);
    derive_and_check(config, {}, 1);
    return config.derived.activation;
  };
  using C = TrainConfig;
  EXPECT_EQ(activation([](C&) {}), "gelu_tanh");
  EXPECT_EQ(activation([](C& c) { c.bias_gelu_fusion = false; }), "gelu_erf");
  EXPECT_EQ(activation([](C& c) { c.add_bias_linear = false; }), "gelu_erf");
  EXPECT_EQ(activation([](C& c) { c.add_bias_linear = false, c.openai_gelu = true; }), "gelu_tanh");
  EXPECT_EQ(activation([](C& c) { c.swiglu = true; }), "swiglu");
}

TEST(Derive, GroupsOfHeadsAreSharedWithOrWithoutTheSwitch) {
  TrainConfig config = small_config();
  config.num_query_groups = 2;
  const std::vector<std::string> notes = derive_and_check(config, {}, 1);
  EXPECT_EQ(config.derived.num_query_groups, 2);
  EXPECT_TRUE(config.group_query_attention);  // so that the saved configuration says it.
  EXPECT_THAT(notes, testing::ElementsAre(testing::StartsWith("--num-query-groups 2: ")));
  EXPECT_TRUE(derive_and_check(config, {}, 1).empty());
}

TEST(Derive, SplitOfOldDefault) {
  TrainConfig config = small_config();
  derive_and_check(config, {}, 1);
  EXPECT_EQ(config.derived.split, "969, 30, 1");
}

TEST(Derive, Layouts) {
  const auto with = [](int64_t world, auto change) {
    TrainConfig config = small_config();
    config.num_layers = 8;
    change(config);
    return error_of(config, world);
  };
  using C = TrainConfig;
  EXPECT_EQ(with(1, [](C& c) { c.pipeline_model_parallel_size = 2; }),
            "--tensor-model-parallel-size 1 times --pipeline-model-parallel-size 2 does not divide "
            "the 1 process there is");
  EXPECT_EQ(with(6, [](C& c) { c.tensor_model_parallel_size = 4; }),
            "--tensor-model-parallel-size 4 times --pipeline-model-parallel-size 1 does not divide "
            "the 6 processes there are");
  EXPECT_EQ(with(8, [](C& c) { c.tensor_model_parallel_size = 8; }),
            "--tensor-model-parallel-size 8 does not divide --num-attention-heads 4");
  EXPECT_EQ(with(4, [](C& c) { c.tensor_model_parallel_size = 4, c.num_query_groups = 2; }),
            "--tensor-model-parallel-size 4 does not divide --num-query-groups 2");
  const auto uneven = [](C& c) {
    c.tensor_model_parallel_size = 4, c.sequence_parallel = true, c.seq_length = 30;
  };
  EXPECT_EQ(with(4, uneven), "--tensor-model-parallel-size 4 does not divide --seq-length 30");
  EXPECT_EQ(with(2, [](C& c) { c.context_parallel_size = 2; }),
            "--context-parallel-size 2: this trainer has no such parallelism; permitted is 1");
  EXPECT_EQ(with(16, [](C& c) { c.pipeline_model_parallel_size = 16; }),
            "--pipeline-model-parallel-size 16 is more than --num-layers 8");
  const auto chunks = [](int64_t of) {
    return [of](C& c) {
      c.pipeline_model_parallel_size = 4;
      c.num_layers_per_virtual_pipeline_stage = of;
    };
  };
  EXPECT_EQ(with(4, chunks(3)),
            "--num-layers-per-virtual-pipeline-stage 3 times --pipeline-model-parallel-size 4 does "
            "not divide --num-layers 8");
  EXPECT_EQ(with(4, chunks(1)), "");
  const auto schedule = [](const char* name) {
    return [name](C& c) { c.pipeline_model_parallel_size = 4, c.pipeline_schedule = name; };
  };
  EXPECT_EQ(with(4, schedule("zero-bubble")), "");
  EXPECT_EQ(with(4, schedule("interleaved")),
            "--pipeline-schedule interleaved with 1 chunks on a rank: interleaved needs "
            "--num-layers-per-virtual-pipeline-stage");
  const auto first = [](int64_t layers) {
    return [layers](C& c) {
      c.pipeline_model_parallel_size = 4;
      c.decoder_first_pipeline_num_layers = layers;
    };
  };
  EXPECT_EQ(with(4, first(2)), "");
  EXPECT_EQ(with(4, first(1)),
            "the first and the last stage's layers leave 7 for 3 other stages: no equal share");
}

TEST(Derive, LayersOfStages) {
  TrainConfig config = small_config();
  config.num_layers = 8;
  config.pipeline_model_parallel_size = 4;
  TrainConfig ends = config, chunks = config;
  derive_and_check(config, {}, 8);
  EXPECT_EQ(config.derived.data_parallel_size, 2);
  EXPECT_TRUE(config.derived.pipeline_layers.empty());
  EXPECT_EQ(config.derived.pipeline_schedule, "1f1b");
  ends.decoder_first_pipeline_num_layers = 3;
  ends.decoder_last_pipeline_num_layers = 1;
  derive_and_check(ends, {}, 4);
  EXPECT_THAT(ends.derived.pipeline_layers, testing::ElementsAre(3, 2, 2, 1));
  chunks.num_layers_per_virtual_pipeline_stage = 1;
  derive_and_check(chunks, {}, 4);
  EXPECT_EQ(chunks.derived.pipeline_chunks, 2);
  EXPECT_EQ(chunks.derived.pipeline_layers, std::vector<int64_t>(8, 1));
  EXPECT_EQ(chunks.derived.pipeline_schedule, "interleaved");
}

TEST(Derive, LayersOfStagesInMegatronsOtherWords) {
  TrainConfig config = small_config();
  config.num_layers = 8;
  config.pipeline_model_parallel_size = 2;
  const auto layers = [&](auto change) {
    TrainConfig c = config;
    change(c);
    derive_and_check(c, {}, 2);
    return c.derived.pipeline_layers;
  };
  const auto error = [&](auto change) {
    TrainConfig c = config;
    change(c);
    return error_of(c, 2);
  };
  using C = TrainConfig;
  using testing::ElementsAre;
  EXPECT_THAT(layers([](C& c) { c.num_virtual_stages_per_pipeline_rank = 2; }),
              ElementsAre(2, 2, 2, 2));
  EXPECT_TRUE(layers([](C& c) { c.num_virtual_stages_per_pipeline_rank = 1; }).empty());
  const auto counted = [](int64_t num_layers, bool embedding, bool loss) {
    return [=](C& c) {
      c.num_layers = num_layers;
      c.account_for_embedding_in_pipeline_split = embedding;
      c.account_for_loss_in_pipeline_split = loss;
    };
  };
  EXPECT_THAT(layers(counted(7, true, false)), ElementsAre(3, 4));
  EXPECT_THAT(layers(counted(7, false, true)), ElementsAre(4, 3));
  EXPECT_THAT(layers(counted(8, true, true)), ElementsAre(4, 4));
  EXPECT_EQ(error(counted(8, true, false)),
            "a pipeline of 2 parts does not divide --num-layers 8 and 1 more for the embedding");
  EXPECT_EQ(error(counted(2, true, true)), "");
  // Each rank has a chunk of each half: parts are in the model's order.
  const auto both = [&](C& c) {
    counted(6, true, true)(c);
    c.num_layers_per_virtual_pipeline_stage = 2;
  };
  EXPECT_THAT(layers(both), ElementsAre(1, 2, 2, 1));
  const auto first = [](int64_t number, int64_t chunks) {
    return [=](C& c) {
      c.decoder_first_pipeline_num_layers = number;
      c.num_virtual_stages_per_pipeline_rank = chunks;
    };
  };
  EXPECT_THAT(layers(first(2, 2)), ElementsAre(1, 3, 1, 3));
  EXPECT_EQ(error(first(3, 2)),
            "--num-virtual-stages-per-pipeline-rank 2 does not divide the 3 layers of a stage");
  EXPECT_EQ(error([](C& c) { c.num_virtual_stages_per_pipeline_rank = 3; }),
            "a pipeline of 6 parts does not divide --num-layers 8");
  EXPECT_EQ(error([](C& c) {
              c.num_virtual_stages_per_pipeline_rank = 2;
              c.num_layers_per_virtual_pipeline_stage = 2;
            }),
            "--num-layers-per-virtual-pipeline-stage and --num-virtual-stages-per-pipeline-rank "
            "exclude each other");
  EXPECT_EQ(error([](C& c) {
              c.decoder_last_pipeline_num_layers = 3;
              c.account_for_loss_in_pipeline_split = true;
            }),
            "--decoder-last-pipeline-num-layers excludes --account-for-loss-in-pipeline-split");
}

TEST(Derive, LengthInSamplesAndTokens) {
  TrainConfig config = small_config();
  config.global_batch_size = 4;
  config.train_iters.reset();
  config.train_samples = 103;
  derive_and_check(config, {}, 1);
  EXPECT_EQ(config.derived.train_iters, 25);
  EXPECT_EQ(config.derived.train_samples, 103);
  config.train_samples.reset();
  config.train_tokens = 32 * 100 + 1;  // 101 samples: the 26th step reaches them.
  derive_and_check(config, {}, 1);
  EXPECT_EQ(config.derived.train_iters, 26);
  EXPECT_EQ(config.derived.train_samples, 104);
}

// start 4, increment 4, 60 samples to a full batch of 16: three increments of 20 samples each.
TEST(BatchSchedule, RampsAsMegatronDoes) {
  TrainConfig config = small_config();
  config.global_batch_size = 16;
  config.rampup_batch_size = {"4", "4", "60"};
  config.train_iters.reset();
  config.train_samples = 200;
  derive_and_check(config, {}, 1);
  const BatchSchedule schedule(config);
  std::vector<int64_t> sizes;
  int64_t consumed = 0;
  for (int step = 0; step < 12; ++step) {
    EXPECT_EQ(schedule.samples_after(step), consumed);
    sizes.push_back(schedule.global_batch_size(consumed));
    EXPECT_EQ(schedule.num_microbatches(consumed) * 2, sizes.back());
    consumed += sizes.back();
  }
  EXPECT_THAT(sizes, testing::ElementsAre(4, 4, 4, 4, 4, 8, 8, 8, 12, 12, 16, 16));
  // 68 samples in ten steps of the ramp, then 8 whole batches of 16 in the remaining 132.
  EXPECT_EQ(config.derived.train_iters, 10 + (200 - 68) / 16);
}

TEST(BatchSchedule, RampRefusesWhatDoesNotFit) {
  TrainConfig config = small_config();
  config.global_batch_size = 16;
  config.rampup_batch_size = {"4", "5", "60"};
  EXPECT_EQ(error_of(config),
            "--rampup-batch-size 4 5 does not reach --global-batch-size 16 in whole increments");
  config.rampup_batch_size = {"1", "3", "60"};
  EXPECT_EQ(error_of(config),
            "--rampup-batch-size passes through 1, no multiple of --micro-batch-size 2 times "
            "data-parallel size 1");
  config.rampup_batch_size = {"4", "4"};
  EXPECT_EQ(error_of(config), "--rampup-batch-size takes three numbers: START INCREMENT SAMPLES");
}

TEST(Vocabulary, PadsToAMultiple) {
  const TrainConfig config = small_config();
  EXPECT_EQ(pad_vocab_size(config, 50257), 50304);
  EXPECT_EQ(pad_vocab_size(config, 50304), 50304);
  EXPECT_EQ(pad_vocab_size(config, 1), 128);
  TrainConfig fixed = config;
  fixed.padded_vocab_size = 250880;
  EXPECT_EQ(pad_vocab_size(fixed, 250680), 250880);
  EXPECT_THROW(pad_vocab_size(fixed, 250881), cli::UsageError);
  fixed.tensor_model_parallel_size = 3;
  EXPECT_THROW(pad_vocab_size(fixed, 250680), cli::UsageError);
}

}  // namespace
}  // namespace trainer
