// SPDX-License-Identifier: MIT
// Room: tools/dataset. Flag rows and the arithmetic between them.
// Not here: what the values mean for arrays (libindexed/blend, training_data).
#include "tools/dataset/sample_flags.h"

#include "tools/cli/text.h"

namespace dataset {
namespace {

using F = SampleFlags;

std::array<std::optional<int64_t>, 3> parse_samples(const std::string& text) {
  std::array<std::optional<int64_t>, 3> samples;
  size_t at = 0;
  for (size_t i = 0; i < 3; ++i) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (word != "all") samples[i] = cli::parse_integer(word, 0, cli::kMaxInteger);
    if (i < 2 && end == text.size())
      throw cli::UsageError("--samples " + text + ": expected TRAIN,VALID,TEST");
    at = end + 1;
  }
  if (at <= text.size()) throw cli::UsageError("--samples " + text + ": expected TRAIN,VALID,TEST");
  return samples;
}

// The tree whose arrays and names are asked for.
std::string tree_asked(const SampleFlags& flags) {
  const bool neox = flags.sample_order == "gpt-neox";
  if (neox && flags.compat == SampleFlags().compat) return "gpt-neox";
  if (neox && !flags.compat.starts_with("gpt-neox"))
    throw cli::UsageError(
        cli::concat("--sample-order gpt-neox is not that of --compat ", flags.compat));
  return flags.compat;
}

indexed::CacheStyle style_of(const std::string& compat) {
  if (compat == "gpt-neox") return indexed::CacheStyle::gpt_neox;
  if (compat == "gpt-neox-2.0") return indexed::CacheStyle::gpt_neox_2_0;
  if (compat == "megatron-2023") return indexed::CacheStyle::megatron_2023;
  if (compat == "megatron-deepspeed") return indexed::CacheStyle::megatron_deepspeed;
  return indexed::CacheStyle::megatron_core;
}

// megatron-core without a number is the newest release.
constexpr std::string_view kCore = "megatron-core";
const std::vector<std::string> kTrees = {
    "megatron-core",      "megatron-core-0.16", "megatron-core-0.17", "megatron-core-0.18",
    "megatron-core-0.19", "megatron-core-0.20", "megatron-2023",      "megatron-deepspeed",
    "gpt-neox",           "gpt-neox-2.0"};

indexed::CoreRelease release_of(std::string_view compat) {
  if (!compat.starts_with(kCore) || compat == kCore) return indexed::kNewestCore;
  return indexed::core_release(compat.substr(kCore.size() + 1));
}

// One flag turns on what is off by default in 0.16; another turns off what is on by default in
// later releases.
std::optional<bool> on_or_off(bool on, bool off, const char* name) {
  if (on && off)
    throw cli::UsageError(cli::concat("--tokenizer-hf-", name, " and --tokenizer-hf-no-", name,
                                      " exclude each other"));
  return on || off ? std::optional<bool>(on) : std::nullopt;
}

indexed::Json tokenizer_of(const SampleFlags& flags) {
  using indexed::Gigatoken;
  indexed::TokenizerFlags tokenizer{
      .tokenizer_type = flags.tokenizer_type,
      .tokenizer_model = flags.tokenizer_model,
      .vocab_file = flags.vocab_file,
      .merge_file = flags.merge_file,
      .vocab_size = flags.vocab_size.value_or(0),
      .null_tokenizer_eod_id = flags.null_tokenizer_eod_id,
      .null_tokenizer_pad_id = flags.null_tokenizer_pad_id,
      .tiktoken_pattern = flags.tiktoken_pattern,
      .tiktoken_num_special_tokens = flags.tiktoken_num_special_tokens,
      .use_fast = on_or_off(flags.use_fast, flags.no_use_fast, "use-fast"),
      .trust_remote_code = flags.trust_remote_code,
      .include_special_tokens = on_or_off(flags.include_special_tokens, flags.no_special_tokens,
                                          "include-special-tokens"),
      .ignore_extra_whitespaces = !flags.keep_whitespace,
      .sentencepiece_legacy = flags.sentencepiece_legacy};
  if (!flags.use_gigatoken.empty()) {
    tokenizer.use_gigatoken = flags.use_gigatoken == "absent" ? Gigatoken::absent
                              : flags.use_gigatoken == "true" ? Gigatoken::on
                                                              : Gigatoken::off;
  }
  return indexed::describe_tokenizer(tokenizer, release_of(flags.compat));
}

// All that no samples can be made without, in one message; and one way to name datasets at most.
void check_needed(const SampleFlags& flags) {
  const bool any_split = !flags.train_data_path.empty() || !flags.valid_data_path.empty() ||
                         !flags.test_data_path.empty();
  const int ways = !flags.data_path.empty() + any_split + !flags.data_args_path.empty() +
                   !flags.per_split_data_args_path.empty();
  if (ways > 1) {
    throw cli::UsageError(
        "only one of --data-path, --train-data-path and the like, --data-args-path and "
        "--per-split-data-args-path can be given");
  }
  const bool counted = !flags.samples.empty();
  const bool length = counted || flags.train_samples || flags.train_iters;
  const bool batch = counted || flags.global_batch_size;
  const cli::Needed needed[] = {
      {ways == 1, "--data-path"},
      {flags.seq_length != 0, "--seq-length"},
      {length, "--train-samples (or --train-iters, or --samples)"},
      {batch, length ? "--global-batch-size" : "--global-batch-size (not with --samples)"}};
  cli::require_all(needed);
}

void set_paths(const SampleFlags& flags, indexed::TrainingDataOptions& options) {
  const std::vector<std::string>* per_split[] = {&flags.train_data_path, &flags.valid_data_path,
                                                 &flags.test_data_path};
  options.data_path = flags.data_path;
  if (!flags.data_args_path.empty())
    options.data_path = indexed::read_blend_words(flags.data_args_path);
  for (size_t i = 0; i < 3; ++i) options.split_data_path[i] = *per_split[i];
  if (!flags.per_split_data_args_path.empty()) {
    options.split_data_path = indexed::read_blend_words_per_split(flags.per_split_data_args_path);
  }
  if (options.data_path.empty() && !flags.split.empty()) {
    throw cli::UsageError(
        "--split divides one --data-path; with paths for each split it has nothing to divide");
  }
  if (!flags.split.empty()) options.split = flags.split;
}

// With these GPT-NeoX would look for other files, or for none.
void refuse_foreign_to_neox(const SampleFlags& flags, const indexed::TrainingDataOptions& options) {
  const std::pair<bool, std::string_view> foreign[] = {
      {flags.no_extra_token, "--no-extra-token: not in GPT-NeoX"},
      {flags.keep_last_partial, "--keep-last-partial-validation-sequence: not in GPT-NeoX"},
      {flags.train_epochs.has_value(), "--train-data-exact-num-epochs: not in GPT-NeoX"},
      {!flags.data_cache_path.empty(),
       "--data-cache-path: GPT-NeoX looks for its files beside the datasets"},
      {options.data_path.size() > 1,
       "--data-path: GPT-NeoX divides one dataset, without a weight; others are --train-data-path "
       "and the like"}};
  for (const auto& [given, what] : foreign)
    if (given) throw cli::UsageError(std::string(what));
  for (size_t i = 0; i < 3; ++i) {
    const bool used = !options.data_path.empty() || !options.split_data_path[i].empty();
    if (used && !options.num_samples[i])
      throw cli::UsageError("--samples all: the number is part of the names of GPT-NeoX's files");
  }
}

void set_sizes(const SampleFlags& flags, indexed::TrainingDataOptions& options) {
  if (!flags.samples.empty()) {
    if (flags.train_samples || flags.train_iters) {
      throw cli::UsageError(
          "--samples replaces --train-samples and --train-iters; only one of them can be given");
    }
    options.num_samples = parse_samples(flags.samples);
    return;
  }
  if (flags.train_samples && flags.train_iters) {
    throw cli::UsageError("--train-samples and --train-iters cannot both be given");
  }
  const std::array<int64_t, 3> sizes =
      indexed::requested_samples({.train_samples = flags.train_samples,
                                  .train_iters = flags.train_iters.value_or(0),
                                  .global_batch_size = *flags.global_batch_size,
                                  .eval_interval = flags.eval_interval,
                                  .eval_iters = flags.eval_iters});
  for (size_t i = 0; i < 3; ++i) options.num_samples[i] = sizes[i];
}

}  // namespace

cli::Group<SampleFlags> sample_group() {
  return {
      "Samples",
      {{.name = "data-path",
        .value = "[WEIGHT] PREFIX",
        .help = "The datasets, each with its weight before it; or one without; or several without "
                "weights, in proportion to their samples.",
        .field = cli::last_list(&F::data_path)},
       {.name = "train-data-path",
        .value = "[WEIGHT] PREFIX",
        .help = "The datasets of the train split only.",
        .field = cli::last_list(&F::train_data_path)},
       {.name = "valid-data-path",
        .value = "[WEIGHT] PREFIX",
        .help = "The datasets of the valid split only.",
        .field = cli::last_list(&F::valid_data_path)},
       {.name = "test-data-path",
        .value = "[WEIGHT] PREFIX",
        .help = "The datasets of the test split only.",
        .field = cli::last_list(&F::test_data_path)},
       {.name = "data-args-path",
        .value = "FILE",
        .help = "Read the words of --data-path from FILE.",
        .field = cli::text(&F::data_args_path)},
       {.name = "per-split-data-args-path",
        .value = "FILE",
        .help = "Read the words for each split from a JSON FILE with train, valid and test.",
        .field = cli::text(&F::per_split_data_args_path)},
       {.name = "split",
        .value = "A,B,C",
        .help = "Parts of each dataset for train, valid and test. Without it \"969, 30, 1\". This "
                "text, unchanged, is part of the cache's name.",
        .field = cli::text(&F::split)},
       {.name = "seq-length",
        .value = "N",
        .help = "Tokens per sample.",
        .field = cli::integer(&F::seq_length, 1, 2147483646)},
       {.name = "seed",
        .value = "N",
        .help = "Seed of every shuffle.",
        .field = cli::integer(&F::seed, 0, 4294967295)},
       {.name = "train-samples",
        .value = "N",
        .help = "Samples to train on.",
        .field = cli::integer(&F::train_samples)},
       {.name = "train-iters",
        .value = "N",
        .help = "Steps to train; with --global-batch-size.",
        .field = cli::integer(&F::train_iters)},
       {.name = "global-batch-size",
        .value = "N",
        .help = "Samples per step.",
        .field = cli::integer(&F::global_batch_size, 1)},
       {.name = "eval-interval",
        .value = "N",
        .help = "Steps between evaluations.",
        .field = cli::integer(&F::eval_interval, 1)},
       {.name = "eval-iters",
        .value = "N",
        .help = "Steps per evaluation.",
        .field = cli::integer(&F::eval_iters)},
       {.name = "samples",
        .value = "TRAIN,VALID,TEST",
        .help = "The three sizes themselves; `all` for one epoch of everything, where no weights "
                "are given.",
        .field = cli::text(&F::samples)},
       {.name = "mid-level-dataset-surplus",
        .value = "X",
        .help = "What each dataset of a blend prepares beyond its share.",
        .field = cli::real(&F::surplus, 0, 1000)},
       {.name = "keep-last-partial-validation-sequence",
        .help = "The valid split keeps a last sample shorter than --seq-length.",
        .field = cli::on(&F::keep_last_partial)},
       {.name = "no-extra-token",
        .help = "Samples without one more token, the label of the last.",
        .field = cli::on(&F::no_extra_token)},
       {.name = "train-data-exact-num-epochs",
        .value = "N",
        .help = "Repeat the train split N times, whatever its size.",
        .field = cli::integer(&F::train_epochs, 1)},
       {.name = "compat",
        .value = "TREE",
        .help = "Whose arrays and names: megatron-core-0.16 to megatron-core-0.20, whose arrays "
                "are the same under other names; megatron-core for the newest of them; "
                "megatron-2023 (NVIDIA's tree in mid-2023) or megatron-deepspeed; gpt-neox, or "
                "gpt-neox-2.0 for its names before pack_impl.",
        .field = cli::choice(&F::compat, kTrees)},
       {.name = "sample-order",
        .value = "WHOSE",
        .help = "megatron, or gpt-neox, which shuffles all epochs together and rounds splits and "
                "blends in its own way: as --compat gpt-neox.",
        .field = cli::choice(&F::sample_order, {"megatron", "gpt-neox"})},
       {.name = "permuted",
        .help = "Accept datasets that are index-only shuffles.",
        .field = cli::on(&F::permuted)}}};
}

cli::Group<SampleFlags> tokenizer_group() {
  return {
      "Tokenizer, as the training run will name it (megatron-core makes it part of the cache's "
      "name)",
      {{.name = "tokenizer-type",
        .value = "TYPE",
        .help = "Megatron's name of the tokenizer.",
        .field = cli::text(&F::tokenizer_type)},
       {.name = "tokenizer-model",
        .aliases = "tokenizer-name-or-path",
        .value = "PATH",
        .help = "Its model, as the run will spell it.",
        .field = cli::text(&F::tokenizer_model)},
       {.name = "vocab-file",
        .aliases = "vocab",
        .value = "PATH",
        .help = "Its vocabulary, as the run will spell it.",
        .field = cli::text(&F::vocab_file)},
       {.name = "merge-file",
        .aliases = "merges-file merges",
        .value = "PATH",
        .help = "Its merges, as the run will spell them.",
        .field = cli::text(&F::merge_file)},
       {.name = "vocab-size",
        .value = "N",
        .help = "For NullTokenizer and TikTokenizer.",
        .field = cli::integer_or_none(&F::vocab_size, 1, int64_t{1} << 31)},
       {.name = "null-tokenizer-eod-id",
        .value = "N",
        .help = "For NullTokenizer, from megatron-core 0.18.",
        .field = cli::integer(&F::null_tokenizer_eod_id, -1)},
       {.name = "null-tokenizer-pad-id",
        .value = "N",
        .help = "For NullTokenizer, from megatron-core 0.18. Default: -1, as there.",
        .field = cli::integer(&F::null_tokenizer_pad_id, -1)},
       {.name = "tiktoken-pattern",
        .value = "NAME",
        .help = "For TikTokenizer.",
        .field = cli::text(&F::tiktoken_pattern)},
       {.name = "tiktoken-num-special-tokens",
        .value = "N",
        .help = "For TikTokenizer.",
        .field = cli::integer(&F::tiktoken_num_special_tokens)},
       {.name = "tokenizer-hf-use-fast",
        .help = "As in the run; for megatron-core 0.16, where it is off by default.",
        .field = cli::on(&F::use_fast)},
       {.name = "tokenizer-hf-include-special-tokens",
        .help = "As in the run; for megatron-core 0.16, where it is off by default.",
        .field = cli::on(&F::include_special_tokens)},
       {.name = "tokenizer-hf-no-use-fast",
        .help = "As in the run.",
        .field = cli::on(&F::no_use_fast)},
       {.name = "trust-remote-code",
        .help = "As in the run.",
        .field = cli::on(&F::trust_remote_code)},
       {.name = "tokenizer-hf-no-include-special-tokens",
        .help = "As in the run.",
        .field = cli::on(&F::no_special_tokens)},
       {.name = "tokenizer-sentencepiece-legacy",
        .help = "As in the run.",
        .field = cli::on(&F::sentencepiece_legacy)},
       {.name = "no-tokenizer-sentencepiece-ignore-extra-whitespaces",
        .help = "As in the run.",
        .field = cli::on(&F::keep_whitespace)},
       {.name = "use-gigatoken",
        .value = "VALUE",
        .help = "As in the run, for megatron-core 0.20; absent for a version from before the flag. "
                "Default: false.",
        .field = cli::choice(&F::use_gigatoken, {"absent", "true", "false"})}}};
}

cli::Group<SampleFlags> opened_tokenizer_group(std::string_view title) {
  cli::Group<SampleFlags> group = tokenizer_group();
  group.title = title;
  for (cli::Flag<SampleFlags>& flag : group.flags) {
    if (flag.name == "tokenizer-model") {
      flag.help =
          "tokenizer.json, a folder that holds one, SentencePiece's .model, tekken.json, the list "
          "of a TikTokenizer, or a .tiktoken file.";
    }
    if (flag.name == "vocab-file")
      flag.help = "vocab.json, which needs --merge-file; or what --tokenizer-model takes.";
    if (flag.name == "merge-file") flag.help = "merges.txt.";
  }
  return group;
}

std::string tree_of(const SampleFlags& flags) {
  const std::string tree = tree_asked(flags);
  return tree == kCore ? kTrees[5] : tree;
}

indexed::TrainingDataOptions training_data_options(const SampleFlags& flags) {
  check_needed(flags);
  indexed::TrainingDataOptions options;
  set_paths(flags, options);
  options.seq_length = flags.seq_length;
  options.seed = flags.seed;
  options.extra_token = !flags.no_extra_token;
  options.drop_last_partial_validation = !flags.keep_last_partial;
  options.surplus = flags.surplus;
  options.train_epochs = flags.train_epochs;
  options.style = style_of(tree_asked(flags));
  options.cache_path = flags.data_cache_path;
  options.open.permuted = flags.permuted;
  const indexed::Compat compat = options.style == indexed::CacheStyle::megatron_core
                                     ? indexed::Compat::megatron_core
                                     : indexed::Compat::fork_2023;
  try {  // errors in the flags themselves are reported before anything is opened
    set_sizes(flags, options);
    if (indexed::is_neox(options.style)) {
      refuse_foreign_to_neox(flags, options);
      indexed::use_neox_order(options);
      options.skip_empty_evaluation = true;  // as there
    }
    options.tokenizer = tokenizer_of(flags);
    if (!options.data_path.empty()) {
      indexed::refuse_stray_weights(indexed::parse_blend(options.data_path, compat));
      indexed::split_ranges(options.split, 1, compat);
    }
    for (const std::vector<std::string>& words : options.split_data_path) {
      if (!words.empty()) indexed::refuse_stray_weights(indexed::parse_blend(words, compat));
    }
  } catch (const indexed::FormatError& error) {
    throw cli::UsageError(error.what());
  }
  return options;
}

}  // namespace dataset
