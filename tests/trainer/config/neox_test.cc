// GPT-NeoX's configurations: every key has an effect, is reported as without effect, or is refused
// by name. The real files are planned by tests/tools/neox-real-configs.sh.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/config/neox_reading.h"

namespace trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Neox, AnotherRmsNormIsRemarkedOn) {
  const auto remarks = [](const std::string& text) {
    return read({kModel, kComplete + text}).remarks;
  };
  ASSERT_EQ(remarks("norm: rmsnorm\nrms_norm_epsilon: 1.0e-5\n").size(), 1U);
  EXPECT_THAT(remarks("norm: rmsnorm\nrms_norm_epsilon: 1.0e-5\n")[0],
              HasSubstr("b.yml: rms_norm_epsilon 1e-05 is added to the root"));
  for (const char* same : {"norm: rmsnorm\n", "norm: rmsnorm\nrms_norm_epsilon: 1.0e-8\n",
                           "norm: rmsnorm\nrms_norm_epsilon: 1.0e-5\nrmsnorm_fusion: true\n",
                           "norm: te_rmsnorm\nrms_norm_epsilon: 1.0e-5\n", "norm: layernorm\n"})
    EXPECT_TRUE(remarks(same).empty()) << same;
}

// As GPT-NeoX compares them; the name that no one knows is find_vocabulary()'s to refuse.
TEST(Neox, NamesOfTokenizersAreKnownInAnyCase) {
  const auto type = [](const std::string& name) {
    return read({kModel, kComplete + ("tokenizer_type: " + name)}).config.tokenizer_type;
  };
  EXPECT_EQ(type("hftokenizer"), "HFTokenizer");
  EXPECT_EQ(type("CHARLEVELTOKENIZER"), "CharLevelTokenizer");
  EXPECT_EQ(type("SPMTokenizer"), "SPMTokenizer");
  EXPECT_EQ(type("Gpt2"), "Gpt2");
}

// Not by way of a real, which has 53 bits.
TEST(Neox, WholeNumbersAreExact) {
  EXPECT_THAT(read({kModel, "seed: 9007199254740993\n"}).error, HasSubstr("9007199254740993"));
  EXPECT_THAT(read({kModel, "seed: 18446744073709551615\n"}).error, HasSubstr("seed"));
  EXPECT_THAT(read({kModel, "seed: -99999999999999999999\n"}).error, HasSubstr("seed"));
}

TEST(Neox, AListWhereOneValueIsExpectedIsRefused) {
  for (const char* list : {"[]", "[512]", "[512, 1024]"}) {
    const std::string text = std::string("hidden_size: ") + list + "\n";
    std::string model = kModel;
    model.erase(model.find("\"hidden_size\": 512,"), 19);
    const std::string error = read({model, text}).error;
    const bool one = std::string_view(list) == "[512]";
    EXPECT_EQ(error.find("expected one value") == error.npos, one) << error;
    EXPECT_EQ(error.empty(), one) << error;
  }
}

// A few lines that stand for 10^9 values, or for values without end, are refused by their line.
TEST(Neox, AliasesAreBounded) {
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i <= 9; ++i) {
    const std::string one = "*a" + std::to_string(i - 1), name = "a" + std::to_string(i);
    bomb += name + ": &" + name + " [" + one;
    for (int k = 1; k < 10; ++k) bomb += ", " + one;
    bomb += "]\n";
  }
  EXPECT_THAT(read({kModel, bomb}).error,
              AllOf(HasSubstr("b.yml:"), HasSubstr(": with its aliases written out it has more "
                                                   "than 1,048,576 values and bytes")));
  EXPECT_EQ(read({kModel, "comment: &a [1, [*a]]\n"}).error,
            "b.yml:1: values lie more than 64 deep");
  std::string lists(64, '['), ends(64, ']');
  EXPECT_EQ(read({kModel, "comment: " + lists + ends + "\n"}).error, "");
  EXPECT_EQ(read({kModel, "comment: [" + lists + ends + "]\n"}).error,
            "b.yml:1: values lie more than 64 deep");
  const std::string text(10000, 'x');
  const auto times = [&](int count) {
    std::string out = "include: &a " + text + "\ncomment: [0";
    for (int i = 0; i < count; ++i) out += ", *a";
    return read({kModel, out + "]\n"}).error;
  };
  EXPECT_EQ(times(50), "");
  EXPECT_THAT(times(105), HasSubstr("b.yml:1: with its aliases written out"));
}

TEST(Neox, TheDefaultWarmupIsForWhoSaysNone) {
  EXPECT_EQ(read({kModel}).config.lr_warmup_fraction, 0.01);
  EXPECT_EQ(with("\"warmup\": 0.05").config.lr_warmup_fraction, 0.05);
  const Result given = with("", {"--lr-warmup-iters", "5"});
  EXPECT_EQ(given.error, "");
  EXPECT_FALSE(given.config.lr_warmup_fraction.has_value());
}

// linear is GPT-NeoX's default; Megatron's ends at min_lr. With min_lr 0 they are the same.
TEST(Neox, LinearDecayFallsToZero) {
  const auto style = [](const std::string& more, const std::vector<std::string>& line = {}) {
    const Result r = with(more, line);
    EXPECT_EQ(r.error, "");
    return r.config.lr_decay_style;
  };
  EXPECT_EQ(style(R"("min_lr": 6.0e-5)"), "linear-to-zero");
  EXPECT_EQ(style(R"("min_lr": 6.0e-5, "lr_decay_style": "linear")"), "linear-to-zero");
  EXPECT_EQ(style("", {"--min-lr", "6e-5"}), "linear-to-zero");
  EXPECT_EQ(style(R"("lr_decay_style": "linear")"), "linear");
  EXPECT_EQ(style(R"("min_lr": 6.0e-5, "lr_decay_style": "cosine")"), "cosine");
  EXPECT_EQ(style(R"("min_lr": 6.0e-5)", {"--lr-decay-style", "linear"}), "linear");
}

// Of the three, each that the files or the command line give is not named.
TEST(Neox, WhatIsLeftOutIsGptNeoxs) {
  const Result none = with(R"("gpt_j_residual": true)");
  EXPECT_EQ(none.error, "");
  EXPECT_EQ(none.config.hidden_dropout, 0);
  EXPECT_EQ(none.config.attention_dropout, 0);
  EXPECT_EQ(none.config.weight_decay, 0.1);
  EXPECT_THAT(none.remarks,
              ElementsAre("a.yml, b.yml: without hidden_dropout, attention_dropout, weight_decay: "
                          "0, 0, 0.1, as in GPT-NeoX since December 2023; before, 0.1, 0.1, 0.01"));
  const Result some = with(R"("hidden-dropout": 0.3)", {"--weight-decay", "0.5"});
  EXPECT_EQ(some.config.hidden_dropout, 0.3);
  EXPECT_EQ(some.config.weight_decay, 0.5);
  EXPECT_THAT(some.remarks,
              ElementsAre("a.yml, b.yml: without attention_dropout: 0, as in GPT-NeoX "
                          "since December 2023; before, 0.1"));
  const std::string decay =
      std::string(kModel).replace(std::string(kModel).find("\"lr\""), 0, "\"weight_decay\": 0.2, ");
  const Result params = read({decay, "hidden_dropout: 0.3\nattention_dropout: 0.4\n"});
  EXPECT_EQ(params.config.weight_decay, 0.2);
  EXPECT_THAT(params.remarks, IsEmpty());
}

// fp16.type bfloat16 was bf16 until 2023.
TEST(Neox, AnotherTypeOfFp16IsRefused) {
  const auto error = [](const std::string& more, const std::vector<std::string>& line = {}) {
    return with(more, line).error;
  };
  const std::string refusal =
      "b.yml: fp16.type \"bfloat16\": releases of GPT-NeoX disagree on it: instead of this "
      "section, "
      "give \"bf16\": {\"enabled\": true}";
  EXPECT_EQ(error(R"("fp16": {"enabled": true, "type": "bfloat16"})"), refusal);
  EXPECT_EQ(error(R"("fp16": {"enabled": false, "type": "bfloat16"})"), refusal);
  EXPECT_EQ(error(R"("fp16": {"enabled": false, "type": "bfloat16"}, "bf16": 3)"), refusal);
  EXPECT_EQ(error(R"("fp16": true)"), "a.yml, b.yml: fp16 true: expected an object");
  EXPECT_EQ(error(R"("fp16": {"type": "bfloat16"}, "precision": "bfloat16")"), "");
  EXPECT_EQ(error(R"("fp16": {"enabled": true, "type": "fp16"})"), "");
  EXPECT_EQ(error(R"("fp16": {"enabled": true, "type": "bfloat16"})", {"--bf16"}), "");
}

TEST(Neox, ACosineThatRisesAgainIsRemarkedOn) {
  const auto remarks = [](const std::string& more, const std::vector<std::string>& line = {}) {
    return read({kModel, kComplete + ("lr_decay_style: cosine\n" + more)}, line).remarks;
  };
  EXPECT_THAT(remarks("lr_decay_iters: 60\n"),
              ElementsAre("a.yml, b.yml: cosine: in steps 62 to 100 the learning rate is min_lr "
                          "here; GPT-NeoX's rises again after lr_decay_iters since August 2023"));
  EXPECT_EQ(remarks("lr_decay_iters: 98\n").size(), 1U);
  EXPECT_THAT(remarks("lr_decay_iters: 99\n"), IsEmpty());
  EXPECT_THAT(remarks("min_lr: 6.0e-5\n"), IsEmpty());
  EXPECT_THAT(remarks("lr_decay_iters: 60\n", {"--train-iters", "61"}), IsEmpty());
  EXPECT_THAT(remarks("lr_decay_iters: 60\n", {"--lr-decay-style", "cosine"}), IsEmpty());
}

TEST(Neox, KeysWithFlagsOfTheTrainer) {
  const Result r = with(R"("fp32_allreduce": true, "pos-emb": "none", "log_grad_pct_zeros": true,
    "sequence_parallel": true, "apply_query_key_layer_scaling": true,
    "attention_softmax_in_fp32": true, "norm": "rmsnorm", "use_bias_in_norms": false)");
  EXPECT_EQ(r.error, "");
  EXPECT_TRUE(r.config.accumulate_allreduce_grads_in_fp32);
  EXPECT_EQ(r.config.derived.position_embedding_type, "none");
  EXPECT_TRUE(r.config.log_num_zeros_in_grad);
  EXPECT_TRUE(r.config.sequence_parallel);
  EXPECT_THAT(r.idle, ElementsAre("apply_query_key_layer_scaling", "attention_softmax_in_fp32"));
  EXPECT_FALSE(with(R"("fp32_allreduce": false)").config.accumulate_allreduce_grads_in_fp32);
}

TEST(Neox, WhatStatesADefaultOrIsOffIsAccepted) {
  const Result r = with(R"("pack_impl": "packed", "train_impl": "normal", "dataset_impl": "gpt2",
    "mlp_type": "regular", "allow_chopped": true, "use_shared_fs": true, "log_grad_norm": true,
    "eval_results_prefix": "e", "memory_profiling": false, "memory_profiling_path": "p",
    "use_mup": false, "mup_d_model_base": 256, "mup_rp_embedding_mult": 1.0,
    "coord_check_nsteps": 10, "base_shapes_file": "b",
    "comms_logger": {"enabled": true, "verbose": false}, "tensorboard": {"enabled": true},
    "activation_checkpointing": {"partition_activations": true},
    "curriculum_learning": {"enabled": false, "curriculum_type": "seqlen"},
    "autotuning": {"enabled": false, "fast": true}, "soft_prompt_tuning": {"enabled": false},
    "flops_profiler": {"enabled": false, "profile_step": 1})");
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.idle.size(), 22U);
  const std::pair<const char*, const char*> others[] = {
      {R"("pack_impl": "unpacked")", "pack_impl \"unpacked\": not known"},
      {R"("train_impl": "dpo")", "train_impl \"dpo\": not known"},
      {R"("dataset_impl": "pairwise")", "dataset_impl \"pairwise\": not known"},
      {R"("use_mup": true, "mup_d_model_base": 256)", "use_mup true: not known"},
      {R"("mup_rp_embedding_mult": 2.0)", "mup_rp_embedding_mult 2.0: not known"},
      {R"("memory_profiling": true)", "memory_profiling true: not known"},
      {R"("curriculum_learning": {"enabled": true})",
       "curriculum_learning {\"enabled\":true}: not"},
      {R"("autotuning": {"enabled": true})", "autotuning {\"enabled\":true}: not known"},
      {R"("use_bias_in_norms": false)", "use_bias_in_norms false: a layernorm has a bias here"},
      {R"("reset_attention_mask": true)",
       "reset_attention_mask true: GPT-NeoX has this key no more: give --reset-attention-mask"},
      {R"("lr_decay_style": "exponential")",
       "lr_decay_style \"exponential\": permitted are constant, linear and cosine: no style here"}};
  for (const auto& [more, wanted] : others)
    EXPECT_THAT(with(more).error, HasSubstr(wanted)) << more;
}

TEST(Neox, TheOptimizersClippingMustAgree) {
  const auto error = [](const std::string& more, const std::vector<std::string>& line = {}) {
    const std::string model = std::string(kModel).replace(std::string(kModel).find("\"lr\""), 0,
                                                          "\"max_grad_norm\": 1.0, ");
    return read({model, "{" + more + "}"}, line).error;
  };
  EXPECT_EQ(error(R"("gradient_clipping": 1)"), "");
  EXPECT_EQ(error(R"("clip_grad": 1.0)"), "");
  EXPECT_EQ(error("", {"--clip-grad", "3"}), "");
  for (const char* other : {"", R"("gradient_clipping": 0.5)"})
    EXPECT_EQ(error(other),
              "a.yml: optimizer.params.max_grad_norm 1.0: gradient_clipping must say the same");
}

TEST(Neox, TheOrderOfSamplesIsGptNeoxs) {
  EXPECT_EQ(read({kModel}).config.sample_order, "gpt-neox");
  EXPECT_EQ(with("", {"--sample-order", "megatron"}).config.sample_order, "megatron");
}

TEST(Neox, DefaultsAreGptNeoxs) {
  const Result r = read({kModel});
  ASSERT_EQ(r.error, "");
  EXPECT_THAT(r.idle, IsEmpty());
  EXPECT_EQ(r.config.derived.num_layers, 6);
  EXPECT_EQ(r.config.derived.activation, "gelu_erf");
  EXPECT_EQ(r.config.derived.position_embedding_type, "learned_absolute");
  EXPECT_EQ(r.config.derived.global_batch_size, 4);
  EXPECT_EQ(r.config.lr_warmup_fraction, 0.01);
  EXPECT_EQ(r.config.lr, 6e-4);
  EXPECT_EQ(r.config.adam_beta2, 0.95);
  EXPECT_FALSE(r.config.parallel_residual);
  EXPECT_FALSE(r.config.untie_embeddings_and_output_weights);
  EXPECT_FALSE(r.config.output_layer_init_method_std.has_value());
  EXPECT_FALSE(r.config.fp16);
}

TEST(Neox, KeysAreHonoured) {
  const Result r = with(R"(
    "norm": "rmsnorm", "rms_norm_epsilon": 1e-6, "pos-emb": "rotary", "rotary_pct": 0.25,
    "rotary-emb-base": 20000, "no-weight-tying": True, "gpt_j_residual": true, hidden_dropout: 0,
    attention_dropout: 0.0, "bias-gelu-fusion": true, "init_method": "small_init",
    "output_layer_init_method": "wang_init", "attention-config": [[["flash"], 6]],
    "gas": 8, "gradient_clipping": 0.5, "fp16": {"fp16": true, "enabled": true, "loss_scale": 0,
    "initial_scale_power": 12}, "zero_optimization": {"stage": 1, "overlap_comm": true},
    "checkpoint-activations": true, "checkpoint-num-layers": 2, "warmup": 0.05,
    "min_lr": 0.97e-5, "checkpoint-factor": 50, "extra-save-iters": [1, 2, 64], "save": "s",
    "keep_last_n_checkpoints": 4, "weight-decay": 0.1, "intermediate_size": 1536,
    "finetune": false)");
  ASSERT_EQ(r.error, "");
  const TrainConfig& c = r.config;
  EXPECT_EQ(c.normalization, "RMSNorm");
  EXPECT_EQ(c.norm_epsilon, 1e-6);
  EXPECT_EQ(c.derived.position_embedding_type, "rope");
  EXPECT_EQ(c.rotary_percent, 0.25);
  EXPECT_EQ(c.rotary_base, 20000);
  EXPECT_TRUE(c.untie_embeddings_and_output_weights);
  EXPECT_TRUE(c.parallel_residual);
  EXPECT_EQ(c.derived.activation, "gelu_tanh");
  EXPECT_EQ(c.derived.ffn_hidden_size, 1536);
  EXPECT_DOUBLE_EQ(c.init_method_std, std::sqrt(2.0 / (5 * 512)));
  EXPECT_DOUBLE_EQ(c.output_layer_init_method_std.value_or(0), 2 / (6 * std::sqrt(512.0)));
  EXPECT_EQ(c.derived.global_batch_size, 32);
  EXPECT_EQ(c.clip_grad, 0.5);
  EXPECT_TRUE(c.fp16);
  EXPECT_EQ(c.initial_loss_scale, 4096);
  EXPECT_EQ(c.derived.recompute, "full");
  EXPECT_EQ(c.derived.recompute_num_layers, 2);
  EXPECT_EQ(c.lr_warmup_fraction, 0.05);
  EXPECT_EQ(c.min_lr, 0.97e-5);
  EXPECT_EQ(c.save_interval, 50);
  EXPECT_THAT(c.extra_save_iters, ElementsAre(1, 2, 64));
  EXPECT_EQ(c.keep_last, 4);
  EXPECT_EQ(c.weight_decay, 0.1);
  EXPECT_FALSE(c.finetune);
}

TEST(Neox, SplitsAndWeights) {
  const std::string model = std::string(kModel);
  const std::string without = model.substr(0, model.find("\"data_path\"")) + "}";
  const Result r =
      read({without, R"({"train-data-paths": ["a", "b"], "train-data-weights": [1., 2.5],
    "valid-data-paths": ["c"], "test-data-paths": ["e", "f"], "split": "949,50,1"})"});
  ASSERT_EQ(r.error, "");
  EXPECT_THAT(r.config.train_data_path, ElementsAre("1", "a", "2.5", "b"));
  EXPECT_THAT(r.config.valid_data_path, ElementsAre("c"));
  EXPECT_THAT(r.config.test_data_path, ElementsAre("1", "e", "1", "f"));
  EXPECT_THAT(r.idle, ElementsAre("split"));
  EXPECT_EQ(read({without, R"({"train-data-paths": ["a"], "train-data-weights": [1, 2]})"}).error,
            "b.yml: train_data_weights [1,2]: expected 1 number, one for each path");
}

TEST(Neox, TheCommandLineWins) {
  const Result r =
      with(R"("fp16": {"enabled": true}, "train_batch_size": 8, "gradient_clipping": 0.5)",
           {"--num-layers", "3", "--micro-batch-size", "2", "--bf16", "--clip-grad", "2",
            "--data-path", "mine", "--global-batch-size", "6"});
  ASSERT_EQ(r.error, "");
  EXPECT_EQ(r.config.derived.num_layers, 3);
  EXPECT_EQ(r.config.derived.global_batch_size, 6);
  EXPECT_TRUE(r.config.bf16);
  EXPECT_FALSE(r.config.fp16);
  EXPECT_EQ(r.config.clip_grad, 2);
  EXPECT_THAT(r.config.data_path, ElementsAre("mine"));
  const Result other = with(R"("split": "9,1,0")", {"--train-data-path", "t"});
  EXPECT_EQ(other.error, "");
  EXPECT_THAT(other.config.data_path, IsEmpty());
}

TEST(Neox, WhatChangesNothingIsNamed) {
  const Result r =
      with(R"("launcher": "slurm", "num_nodes": 4, "comment": "x", "steps_per_print": 10,
    "wandb_team": "t", "checkpoint_validation_with_forward_pass": False,
    "weight_by_num_documents": false,
    "some_new_key": null)");
  EXPECT_EQ(r.error, "");
  EXPECT_THAT(r.idle, ElementsAre("checkpoint_validation_with_forward_pass", "comment", "launcher",
                                  "num_nodes", "some_new_key", "steps_per_print", "wandb_team"));
}

TEST(Neox, WhatCannotBeHonouredIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("weight_by_num_documents": true)", "b.yml: weight_by_num_documents: give train_data_w"},
      {R"("gpt_j_tied": true)", "b.yml: gpt_j_tied: attention and MLP have a norm each here"},
      {R"("pos_emb": "alibi")", "b.yml: pos_emb \"alibi\": permitted are learned, rotary and none"},
      {R"("norm": "scalenorm")", "b.yml: norm \"scalenorm\": permitted are layernorm and rmsnorm"},
      {R"("attention-config": [[["global", "local"], 3]])",
       "b.yml: attention_config \"local\": permitted are global and flash"},
      {R"("init_method": "orthogonal")",
       "b.yml: init_method \"orthogonal\": permitted are normal,"},
      {R"("precision": "int8")",
       "b.yml: precision \"int8\": permitted are fp16, bfloat16 and fp32"},
      {R"("precision": "fp32", "fp16": {"enabled": true})", "b.yml: precision \"fp32\": fp16 is"},
      {R"("soft_prompt_tuning": {"enabled": true})",
       "b.yml: soft_prompt_tuning {\"enabled\":true}: "},
      {R"("num-layers": 7)", "b.yml: num_layers stands in a.yml already: one must go"},
      {R"("gas": 2, "gradient_accumulation_steps": 2)", "b.yml: gas: gradient_accumulation_steps "},
      {R"("lr_decay_style": "polynomial")", "b.yml: lr_decay_style \"polynomial\": "},
      {R"("log_interval": "often")", "b.yml: log_interval \"often\": "},
      {R"("zero_optimization": {"stage": 7})", "a.yml, b.yml: zero_optimization.stage 7: "},
      {R"("checkpoint_scale": "log")", "b.yml: checkpoint_scale \"log\": permitted is linear"},
      {R"("unknown": [1)", "b.yml:1: illegal flow end"}};
  for (const auto& [more, wanted] : cases) EXPECT_THAT(with(more).error, HasSubstr(wanted)) << more;
  EXPECT_EQ(read({"[1, 2]"}).error, "a.yml: expected keys with values");
  EXPECT_EQ(read({""}).error, "a.yml: expected keys with values");
  EXPECT_EQ(read({"num-layers: 2\n---\nnum-layers: 3\n"}).error,
            "a.yml: several documents, divided by ---: expected one");
  EXPECT_EQ(read({"a: 1\n...\n# more\nb: 2\n"}).error,
            "a.yml: several documents, divided by ---: expected one");
  EXPECT_EQ(read({"%YAML 1.2\n--- # only one\n[1]\n...\n"}).error,
            "a.yml: expected keys with values");
  EXPECT_EQ(read({"- ---x\n----\n"}).error, "a.yml: expected keys with values");
  EXPECT_EQ(read({"# first\nmlp-type: \"a\xff\"\n"}).error, "a.yml:2: \"a\\xff\" is not UTF-8");
  EXPECT_EQ(read({"optimizer:\n  \"\xff\": 1\n"}).error, "a.yml:2: \"\\xff\" is not UTF-8");
  const std::string sgd = std::string(kModel).replace(std::string(kModel).find("Adam"), 4, "sm3");
  EXPECT_EQ(read({sgd}).error, "a.yml: optimizer \"sm3\": permitted is Adam");
}

}  // namespace
}  // namespace trainer
