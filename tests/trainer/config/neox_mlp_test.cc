// The layers that GPT-NeoX's configurations ask for: gated MLPs and their widths, biases of each
// part, sliding windows; and those that its releases do not build.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/config/neox_reading.h"

namespace trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Widths of the models that GPT-NeoX's own files describe: Llama 7B, 13B, 2 70B, Code Llama 34B and
// Mistral 7B.
TEST(Neox, GatedMlps) {
  const auto width = [](const std::string& more, const std::string& hidden = "",
                        const std::vector<std::string>& line = {}) {
    std::string model = kModel;
    if (!hidden.empty())
      model.replace(model.find("\"hidden_size\": 512"), 18, "\"hidden_size\": " + hidden);
    const Result r = read({model, "{" + more + "}"}, line);
    EXPECT_EQ(r.error, "") << more;
    EXPECT_EQ(r.config.derived.activation, "swiglu") << more;
    return r.config.derived.ffn_hidden_size;
  };
  const std::string old = R"("mlp_type": "llama", "activation": "silu")",
                    since = R"("activation": "swiglu", "mlp_multiple_of": 256)";
  EXPECT_EQ(width(old, "4096"), 11008);
  EXPECT_EQ(width(old, "5120"), 13824);
  EXPECT_EQ(width(old, "8192"), 22016);
  EXPECT_EQ(width(old + R"(, "intermediate_size": 14336)", "4096"), 14336);
  EXPECT_EQ(width(old + R"(, "intermediate_size": 100)"), 100);
  EXPECT_EQ(width(old, "", {"--hidden-size", "1024"}), 2816);
  EXPECT_EQ(width(since + R"(, "intermediate_size": 32768)", "4096"), 11008);
  EXPECT_EQ(width(since + R"(, "intermediate_size": 86016)", "8192"), 28672);
  EXPECT_EQ(width(since + R"(, "intermediate_size": 11008)", "4096"), 3840);
  EXPECT_EQ(width(since, "4096"), 5632);  // 4 h
  EXPECT_EQ(width(R"("activation": "swiglu", "expansion_factor": 3.5)"), 597);
  EXPECT_EQ(width(R"("activation": "swiglu", "intermediate_size": 300)"), 100);
  EXPECT_EQ(width(R"("activation": "swiglu", "use_flashattn_swiglu": true)", "768"), 1024);
  EXPECT_EQ(width(R"("activation": "swiglu")", "[768]"), 1024);
  EXPECT_EQ(width(R"("activation": "swiglu")", "", {"--ffn-hidden-size", "77"}), 77);
}

// Since September 2024 widths are rounded without a gate, too.
TEST(Neox, WidthsWithoutAGate) {
  const auto width = [](const std::string& more) {
    const Result r = with(more);
    EXPECT_EQ(r.error, "") << more;
    EXPECT_EQ(r.config.derived.activation, "gelu_erf");
    return r.config.derived.ffn_hidden_size;
  };
  EXPECT_EQ(width(""), 2048);
  EXPECT_EQ(width(R"("mlp_multiple_of": 512)"), 2048);
  EXPECT_EQ(width(R"("expansion_factor": 3)"), 1536);
  EXPECT_EQ(width(R"("intermediate_size": 1590, "mlp_multiple_of": 100)"), 1600);
  EXPECT_EQ(width(R"("feedforward_size": 1536)"), 1536);
  EXPECT_EQ(width(R"("mlp_type": "regular", "intermediate_size": 2048)"), 2048);
}

// Where hidden_size is not said, nothing is compared with it.
TEST(Neox, WidthsWithoutAHiddenSize) {
  std::string model = kModel;
  model.erase(model.find("\"hidden_size\": 512,"), 19);
  for (const char* more : {"mlp_type: regular\nintermediate_size: 2048\n", "activation: swiglu\n",
                           "mlp_type: llama\nactivation: silu\n"})
    EXPECT_THAT(read({model, more}).error, HasSubstr("--hidden-size")) << more;
}

TEST(Neox, MlpsThatGptNeoxDoesNotBuildAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("activation": "geglu")",
       "b.yml: activation \"geglu\": its MLP has other widths from one release of GPT-NeoX to "
       "another"},
      {R"("activation": "silu")",
       "b.yml: activation \"silu\": without mlp_type llama GPT-NeoX's "
       "MLP has no gate: swiglu has one"},
      {R"("activation": "reglu")",
       "b.yml: activation \"reglu\": permitted are gelu, relu and swiglu, and silu with mlp_type "
       "llama"},
      {R"("activation": ["gelu"])", "b.yml: activation [\"gelu\"]: expected a name"},
      {R"("mlp_type": "llama")",
       "b.yml: activation \"gelu\": permitted with mlp_type llama is silu"},
      {R"("mlp_type": "glu")", "b.yml: mlp_type \"glu\": permitted are regular and llama"},
      {R"("mlp_type": "llama", "activation": "silu", "mlp_multiple_of": 256)",
       "b.yml: mlp_multiple_of: releases of GPT-NeoX that have it have no mlp_type: one must go"},
      {R"("mlp_type": "llama", "activation": "silu", "expansion_factor": 4)",
       "b.yml: expansion_factor: releases of GPT-NeoX that have it have no mlp_type: one must go"},
      {R"("mlp_type": "regular", "activation": "swiglu")",
       "b.yml: activation \"swiglu\": releases of GPT-NeoX that have it have no mlp_type: one must "
       "go"},
      {R"("mlp_type": "regular", "intermediate_size": 1024)",
       "b.yml: intermediate_size 1024: releases of GPT-NeoX that have mlp_type regular take 2048, "
       "whatever it says: one must go"},
      {R"("intermediate_size": 1024, "expansion_factor": 2)",
       "b.yml: expansion_factor: intermediate_size says it already: one must go"},
      {R"("intermediate_size": 1024, "feedforward_size": 1024)",
       "b.yml: feedforward_size: intermediate_size says it already"},
      {R"("activation": "swiglu", "intermediate_size": 200)",
       "b.yml: intermediate_size: of 200, with mlp_multiple_of 1, GPT-NeoX makes 67 in its first "
       "linear and takes 66 in the last: they must be equal"},
      {R"("intermediate_size": 1025)", "makes 1026 in its first linear and takes 1025 in the last"},
      {R"("mlp_multiple_of": 2048)",
       "b.yml: mlp_multiple_of: of 2048, with mlp_multiple_of 2048, GPT-NeoX makes 4096"},
      {R"("intermediate_size": 1.5)",
       "b.yml: intermediate_size 1.5: expected a whole number up to 2^30"},
      {R"("intermediate_size": -8)", "b.yml: intermediate_size -8: expected a whole number"},
      {R"("intermediate_size": 18446744073709551615)", "expected a whole number up to 2^30"},
      {R"("mlp_multiple_of": "256")", "b.yml: mlp_multiple_of \"256\": expected a whole number"},
      {R"("expansion_factor": .nan)", "b.yml: expansion_factor"},
      {R"("use_bias_in_mlp": 1)", "b.yml: use_bias_in_mlp 1: expected true or false"}};
  for (const auto& [more, wanted] : cases) EXPECT_THAT(with(more).error, HasSubstr(wanted)) << more;
}

// Dropout and the parallel residual's sum are where GPT-NeoX adds a bias.
TEST(Neox, WhatGptNeoxDoesWithoutBiasesIsNotHere) {
  const std::string mlp = R"("use_bias_in_mlp": false)",
                    attention = R"("use_bias_in_attn_linear": false)",
                    parallel = R"("gpt_j_residual": true)";
  EXPECT_EQ(with(parallel).error, "");
  EXPECT_EQ(with(parallel + ", " + attention).error, "");
  for (const std::string& more : {mlp, std::string(R"("mlp_type": "llama", "activation": "silu")")})
    EXPECT_EQ(
        with(parallel + ", " + more).error,
        "b.yml: gpt_j_residual: where the MLP has no biases GPT-NeoX leaves attention out, or "
        "stops");
  const auto remarks = [](const std::string& more) {
    return with(R"("attention_dropout": 0, "weight_decay": 0, "hidden_dropout": 0.1, )" + more)
        .remarks;
  };
  EXPECT_THAT(remarks(mlp),
              ElementsAre("a.yml, b.yml: hidden_dropout 0.1 is of attention and MLP here; GPT-NeoX "
                          "drops nothing of an MLP without biases"));
  EXPECT_THAT(remarks(attention + ", " + mlp).size(), 1U);
  EXPECT_THAT(remarks(attention + ", " + parallel),
              ElementsAre("a.yml, b.yml: hidden_dropout 0.1 is of attention and MLP here; GPT-NeoX "
                          "drops nothing of attention without biases"));
  for (const std::string& same : {attention, parallel, R"("seed": 1)" + std::string()})
    EXPECT_THAT(remarks(same), IsEmpty()) << same;
  EXPECT_THAT(
      with(R"("attention_dropout": 0, "weight_decay": 0, "hidden_dropout": 0, )" + mlp).remarks,
      IsEmpty());
}

TEST(Neox, ASlidingWindowIsOfFlashAttention) {
  const std::string flash = R"("attention_config": [[["flash"], 6]])";
  const auto window = [](const std::string& more, const std::vector<std::string>& line = {}) {
    const Result r = with(R"("pos_emb": "rotary", )" + more, line);
    EXPECT_EQ(r.error, "") << more;
    return r.config.sliding_window;
  };
  EXPECT_EQ(window(flash), 0);
  EXPECT_EQ(window(flash + R"(, "sliding_window_width": 16)"), 17);  // and its own
  EXPECT_EQ(window(R"("sliding_window_width": null)"), 0);
  EXPECT_EQ(window(R"("sliding_window_width": 16)", {"--window-size", "7,0"}), 8);
  const std::string refusal =
      "b.yml: sliding_window_width 16: GPT-NeoX heeds it in flash attention alone, which "
      "attention_config does not give to all layers";
  for (const char* kinds : {"null", "[]", R"([[["global"], 6]])", R"([[["flash", "global"], 3]])"})
    EXPECT_EQ(
        with(R"("sliding_window_width": 16, "attention_config": )" + std::string(kinds)).error,
        refusal)
        << kinds;
  EXPECT_THAT(with(flash + R"(, "sliding_window_width": -2)").error,
              HasSubstr("b.yml: sliding_window_width -2: expected a whole number"));
}

// Each of attention and MLP has its key; with mlp_type llama the MLP has none.
TEST(Neox, BiasesOfAttentionAndMlp) {
  const auto biases = [](const std::string& more) {
    const Result r =
        with(R"("attention_dropout": 0, "hidden_dropout": 0, "weight_decay": 0, )" + more);
    EXPECT_EQ(r.error, "") << more;
    EXPECT_EQ(r.remarks.empty(), !(more.starts_with("\"activation") && r.config.mlp_bias &&
                                   more.find("_in_mlp") == more.npos))
        << more;
    const TrainConfig& c = r.config;
    return std::string(c.add_bias_linear ? "all" : "none") +
           (c.attention_bias ? "+attention" : "") + (c.mlp_bias ? "+mlp" : "");
  };
  EXPECT_EQ(biases(R"("use_bias_in_mlp": true)"), "all");
  EXPECT_EQ(biases(R"("use_bias_in_attn_linear": false, "use_bias_in_mlp": false)"), "none");
  EXPECT_EQ(biases(R"("use_bias_in_mlp": false)"), "none+attention");
  EXPECT_EQ(biases(R"("use_bias_in_attn_linear": false)"), "none+mlp");
  const std::string gated = R"("activation": "swiglu", "mlp_multiple_of": 64, )";
  EXPECT_EQ(biases(gated + R"("use_bias_in_attn_linear": false)"), "none+mlp");
  EXPECT_EQ(biases(gated + R"("use_bias_in_attn_linear": false, "use_bias_in_mlp": true)"),
            "none+mlp");
  EXPECT_EQ(biases(gated + R"("use_bias_in_attn_linear": false, "use_bias_in_mlp": false)"),
            "none");
  const std::string llama = R"("mlp_type": "llama", "activation": "silu", )";
  EXPECT_EQ(biases(llama + R"("use_bias_in_attn_linear": false)"), "none");
  EXPECT_EQ(biases(llama + R"("norm": "layernorm")"), "none+attention");
  EXPECT_EQ(biases(llama + R"("use_bias_in_mlp": true, "use_bias_in_attn_linear": false)"), "none");
  EXPECT_THAT(with(llama + R"("use_bias_in_mlp": true)").idle, ElementsAre("use_bias_in_mlp"));
  EXPECT_THAT(
      read({kModel, kComplete + std::string("activation: swiglu\nmlp_multiple_of: 64\n"
                                            "use_bias_in_attn_linear: false\n")})
          .remarks,
      ElementsAre("a.yml, b.yml: without use_bias_in_mlp the MLP has biases, as in GPT-NeoX since "
                  "September 2024; Llama's has none: use_bias_in_mlp: false"));
}

}  // namespace
}  // namespace trainer
