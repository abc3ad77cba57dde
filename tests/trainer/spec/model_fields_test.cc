// The table of model fields: every row written and read back, as meta.json and as its flag; the
// flags' defaults. Families: which models each can represent, and the message for a model that none
// can. Rotary rates.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>

#include "tools/cli/parse.h"
#include "trainer/config/flags.h"
#include "trainer/session/assembly.h"
#include "trainer/spec/families.h"
#include "trainer/spec/rotary.h"

namespace trainer {
namespace {

using testing::HasSubstr;

/// A value that is not the default's.
std::string another(const ModelField& field) {
  const std::string text = field_text(field, {});
  if (text == "true") return "false";
  if (text == "false") return "true";
  if (field.name == "family") return "opt";
  if (field.name == "norm") return "rmsnorm";
  if (field.name == "position") return "rotary";
  if (field.name == "activation") return "swiglu";
  return field_text(field, {}).find('.') != std::string::npos ? "0.3" : "7";
}

TEST(ModelFields, ComeBackFromTheirTexts) {
  std::set<std::string_view> names;
  ModelSpec all;
  for (const ModelField& field : model_fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_EQ(&model_field(field.name), &field);
    ModelSpec one, by_flag;
    ASSERT_TRUE(set_field(field, one, another(field))) << field.name;
    EXPECT_FALSE(same_field(field, one, {})) << field.name;
    EXPECT_EQ(field_text(field, one), another(field));
    ASSERT_TRUE(set_field(field, by_flag, field_text(field, one, true), true)) << field.name;
    EXPECT_TRUE(same_field(field, by_flag, one)) << field.name;
    // No other field changes with it.
    for (const ModelField& other : model_fields())
      EXPECT_EQ(same_field(other, one, {}), &other != &field) << field.name << " " << other.name;
    set_field(field, all, another(field));
    EXPECT_EQ(set_field(field, one, "?"), field.name == "family") << field.name;
  }
  const ModelSpec back = model_from_record(model_record(all));
  for (const ModelField& field : model_fields())
    EXPECT_TRUE(same_field(field, back, all)) << field.name;
  EXPECT_THROW(model_from_record({{"norm_epsilon", "small"}}), ShapeError);
  EXPECT_EQ(model_from_record({}).qk_norm, false);  // a record from before the field existed
}

// What the flag says when it is not given is the field's default; sizes have none.
TEST(ModelFields, HaveFlagsWithTheirDefaults) {
  TrainConfig config;
  const cli::Table<TrainConfig> table = model_flags();
  const std::vector<cli::Row> rows = cli::bind_rows(table, config);
  for (const ModelField& field : model_fields()) {
    if (field.argument.empty()) continue;
    const cli::Row* row = cli::find_row(rows, field.flag());
    ASSERT_NE(row, nullptr) << field.flag();
    EXPECT_EQ(row->name, field.flag());
    const cli::Values shown = row->show();
    if (!shown.empty()) {
      ModelSpec spec;
      ASSERT_TRUE(set_field(field, spec, shown[0], true)) << field.flag() << " " << shown[0];
      EXPECT_TRUE(same_field(field, spec, {})) << field.flag();
    }
    for (const std::string_view rival : cli::split_names(field.rivals))
      EXPECT_NE(cli::find_row(rows, rival), nullptr) << rival;
  }
}

TrainConfig config_of(const std::vector<std::pair<std::string, std::string>>& flags) {
  TrainConfig config;
  config.num_layers = 2;
  config.hidden_size = 32;
  config.num_attention_heads = 4;
  config.seq_length = 16;
  config.micro_batch_size = 1;
  config.train_iters = 1;
  config.lr = 1;
  config.dry_run = true;
  const cli::Table<TrainConfig> table = model_flags();
  const std::vector<cli::Row> rows = cli::bind_rows(table, config);
  for (const auto& [flag, value] : flags) {
    const cli::Row* row = cli::find_row(rows, flag);
    if (row == nullptr) throw std::runtime_error(flag);
    row->set({value});
  }
  derive_and_check(config, {}, 1);
  return config;
}

TEST(Families, ModelsThatNobodyHasAreRefused) {
  const auto error = [](const std::vector<std::pair<std::string, std::string>>& flags) {
    try {
      model_spec(config_of(flags), 61);
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(
      error({{"post-norm", "true"}, {"parallel-residual", "true"}, {"hidden-dropout", "0"}}),
      HasSubstr("--parallel-residual and --post-norm exclude each other"));
  EXPECT_THAT(error({{"position-embedding-type", "rope"}, {"rotary-percent", "0.15"}}),
              HasSubstr("--rotary-percent 0.15 of a head of 8 is 1"));
}

TEST(Families, FollowFromTheFlags) {
  using Flags = std::vector<std::pair<std::string, std::string>>;
  const Flags llama = {
      {"swiglu", "true"}, {"normalization", "RMSNorm"}, {"position-embedding-type", "rope"}};
  const auto with = [](Flags flags, const Flags& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  const Flags no_bias = {{"disable-bias-linear", "true"}};
  const auto family = [](const Flags& flags) { return model_spec(config_of(flags), 61).family; };
  EXPECT_EQ(family({}), "gpt2");
  EXPECT_EQ(family({{"activation", "relu"}, {"position-offset", "2"}}), "opt");
  const Flags opt_350m = {{"activation", "relu"}, {"position-offset", "2"}, {"post-norm", "true"}};
  EXPECT_EQ(family(opt_350m), "opt");
  EXPECT_EQ(family(with(opt_350m, {{"embedding-size", "16"}})), "opt");
  EXPECT_EQ(family({{"embedding-size", "32"}}), "gpt2");  // as wide as the model: no projections
  EXPECT_EQ(family({{"embedding-size", "16"}, {"position-embedding-type", "rope"}}), "");
  EXPECT_EQ(family({{"position-embedding-type", "rope"}}), "gpt_neox");
  EXPECT_EQ(family(llama), "llama");  // with attention_bias and mlp_bias
  EXPECT_EQ(family(with(llama, no_bias)), "llama");
  EXPECT_EQ(family(with(with(llama, no_bias), {{"attention-bias", "true"}})), "llama");
  EXPECT_EQ(family(with(with(llama, no_bias), {{"add-qkv-bias", "true"}})), "qwen2");
  EXPECT_EQ(family(with(with(llama, no_bias), {{"qk-layernorm", "true"}})), "qwen3");
  EXPECT_EQ(family(with(with(llama, no_bias), {{"window-size", "(7,0)"}})), "mistral");
  EXPECT_EQ(family(with(with(llama, no_bias), {{"model-family", "mistral"}})), "mistral");
  EXPECT_THAT(
      [&] {
        family(with(llama, {{"model-family", "qwen3"}}));
      },
      testing::ThrowsMessage<cli::UsageError>(testing::StrEq(
          "--model-family qwen3: qk_norm is false, expected true; linear_bias is true, expected "
          "false")));
  EXPECT_THAT(
      [&] {
        family({{"model-family", "bert"}});
      },
      testing::ThrowsMessage<cli::UsageError>(HasSubstr("bert is none of gpt2, opt, ")));
}

TEST(Families, AModelThatNoneHoldsIsToldWhatWouldChangeThat) {
  const auto note = [](const std::vector<std::pair<std::string, std::string>>& flags) {
    return family_note(model_spec(config_of(flags), 61));
  };
  EXPECT_EQ(note({}), "");
  EXPECT_EQ(note({{"normalization", "RMSNorm"}}),
            "no family of Hugging Face models holds this model, so megatron-to-hf will not export "
            "it; with --normalization LayerNorm it would be gpt2");
  EXPECT_THAT(note({{"swiglu", "true"}, {"position-embedding-type", "rope"}}),
              HasSubstr("; with --normalization RMSNorm it would be llama"));
  EXPECT_THAT(note({{"swiglu", "true"},
                    {"position-embedding-type", "rope"},
                    {"normalization", "RMSNorm"},
                    {"rotary-percent", "0.5"}}),
              HasSubstr("; with --rotary-percent 1 it would be llama"));
  EXPECT_THAT(note({{"sliding-window", "8"}}),
              HasSubstr("; without --sliding-window it would be gpt2"));
  EXPECT_THAT(note({{"qk-layernorm", "true"}}),
              HasSubstr("; without --qk-layernorm it would be gpt2"));
  EXPECT_THAT(
      note({{"qk-layernorm", "true"}, {"normalization", "RMSNorm"}}),
      HasSubstr("; with --normalization LayerNorm and without --qk-layernorm it would be gpt2"));
  EXPECT_THAT(note({{"num-query-groups", "2"}}),
              HasSubstr("; with --num-query-groups 4 it would be gpt2"));
}

ModelSpec one_layer(std::string_view family, int64_t hidden, int64_t heads,
                    int64_t kv_channels = 0) {
  ModelSpec spec = family_defaults(family);
  spec.num_layers = 1;
  spec.hidden_size = hidden;
  spec.num_attention_heads = heads;
  spec.kv_channels = kv_channels;
  spec.vocab_size = spec.max_position_embeddings = 8;
  complete(spec);
  return spec;
}

TEST(Families, HoldTheirOwnDefaults) {
  for (const ModelFamily& family : model_families()) {
    const ModelSpec spec = one_layer(family.name, 32, 4);
    EXPECT_EQ(why_not(spec, family), "");
    ASSERT_NE(find_family_of(spec), nullptr);
    EXPECT_EQ(find_family_of(spec)->name, family.name);
  }
}

// transformers 5 loads no llama whose heads do not divide the hidden size, but such a mistral.
TEST(Families, HeadsThatDoNotDivideTheHiddenSizeAreNoLlama) {
  const ModelSpec spec = one_layer("llama", 20, 6, 8);
  ASSERT_NE(find_family_of(spec), nullptr);
  EXPECT_EQ(find_family_of(spec)->name, "mistral");
}

// Four times the hidden size; with a gate two thirds of that, in whole 64s, as Megatron has it.
TEST(ModelSpecs, TheMlpIsAsWideAsMegatronMakesIt) {
  const auto width = [](const char* family, int64_t hidden) {
    return one_layer(family, hidden, 4).ffn_hidden_size;
  };
  EXPECT_EQ(width("gpt2", 4096), 16384);
  EXPECT_EQ(width("llama", 4096), 10880);
  EXPECT_EQ(width("llama", 768), 2048);
  EXPECT_EQ(width("llama", 16), 64);
}

// Every set of biases has one form, and means the same before and after.
TEST(ModelSpecs, BiasesAreSettled) {
  std::set<std::string> forms;
  for (int bits = 0; bits < 16; ++bits) {
    ModelSpec spec;
    spec.linear_bias = bits & 1;
    spec.qkv_bias = bits & 2;
    spec.attention_bias = bits & 4;
    spec.mlp_bias = bits & 8;
    ModelSpec settled = spec;
    settle_biases(settled);
    EXPECT_EQ(settled.has_qkv_bias(), spec.has_qkv_bias());
    EXPECT_EQ(settled.has_proj_bias(), spec.has_proj_bias());
    EXPECT_EQ(settled.has_mlp_bias(), spec.has_mlp_bias());
    std::string form;
    for (const char* name : {"linear_bias", "qkv_bias", "attention_bias", "mlp_bias"})
      form += field_text(model_field(name), settled) + " ";
    forms.insert(form);
  }
  EXPECT_EQ(forms.size(), 6u);  // none, q k v, attention, MLP, q k v and MLP, all
}

// As transformers' modeling_rope_utils.py: plain, linear by 2, llama3 by 4 of 8 positions.
TEST(RotaryTables, RatesAreScaled) {
  ModelSpec spec = family_defaults("llama");
  spec.kv_channels = 6;
  spec.rotary_base = 50;
  const auto turns = [&] {  // of position 1
    const RotaryTables tables = rotary_tables(spec, 2);
    std::vector<double> out;
    for (size_t i = 3; i < 6; ++i)
      out.push_back(std::atan2(double{tables.sine[i]}, double{tables.cosine[i]}));
    return out;
  };
  const auto near = [](double a, double b, double c) {
    return testing::ElementsAre(testing::DoubleNear(a, 1e-6), testing::DoubleNear(b, 1e-6),
                                testing::DoubleNear(c, 1e-6));
  };
  const double second = std::pow(50, -1.0 / 3), third = std::pow(50, -2.0 / 3);
  EXPECT_THAT(turns(), near(1, second, third));
  spec.rotary_interpolation = 2;
  EXPECT_THAT(turns(), near(0.5, second / 2, third / 2));
  spec.rotary_interpolation = 1;
  spec.rotary_scaling = true;
  spec.rotary_scaling_factor = 4;
  spec.rotary_low_freq_factor = 0.2f;
  spec.rotary_high_freq_factor = 1;
  spec.rotary_original_positions = 8;
  const double share = (8 * second / (2 * std::numbers::pi) - 0.2) / 0.8;
  EXPECT_THAT(turns(), near(1, second * (share + (1 - share) / 4), third / 4));
  spec.position = Position::learned;
  EXPECT_TRUE(rotary_tables(spec, 2).cosine.empty());
}

}  // namespace
}  // namespace trainer
