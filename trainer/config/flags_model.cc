// The rows that say what the model is, and which tokenizer and data it reads. What follows from
// their values is in derive.cc. Names and defaults are Megatron's arguments.py.
// See flags.h.
//
// SPDX-License-Identifier: MIT
#include "tools/cli/fields.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using C = TrainConfig;
using cli::choice;
using cli::integer;
using cli::integer_or_none;
using cli::last_list;
using cli::list;
using cli::off;
using cli::on;
using cli::real;
using cli::text;

/// "(127,0)" or "127,0": 128 tokens. Errors: UsageError.
int64_t parse_window(std::string_view text) {
  std::string_view inner = text;
  if (inner.starts_with('(') && inner.ends_with(')')) inner = inner.substr(1, inner.size() - 2);
  const size_t comma = inner.find(',');
  if (comma == std::string_view::npos)
    throw cli::UsageError(cli::concat("\"", text, "\": expected LEFT,RIGHT"));
  std::string_view right = inner.substr(comma + 1);
  while (right.starts_with(' ')) right.remove_prefix(1);
  cli::parse_integer(right, 0, 0);
  return cli::parse_integer(inner.substr(0, comma), -1, (1 << 28) - 1) + 1;
}

cli::Group<C> model_group() {
  return {
      "Model",
      {
          {.name = "num-layers",
           .value = "L",
           .help = "Transformer layers.",
           .field = integer(&C::num_layers, 1, 4096)},
          {.name = "hidden-size",
           .value = "H",
           .help = "Width of the residual stream.",
           .field = integer(&C::hidden_size, 1, 1 << 20)},
          {.name = "embedding-size",
           .aliases = "word-embed-proj-dim",
           .value = "E",
           .help = "Width of the word embeddings and of the output layer, where it is not H: they "
                   "are projected to H and back (OPT-350m). 0: H.",
           .field = integer(&C::embedding_size, 0, 1 << 20)},
          {.name = "ffn-hidden-size",
           .aliases = "intermediate-size",
           .value = "F",
           .help = "Width inside the MLP. Default: 4 H; with --swiglu 8/3 H in multiples of 64.",
           .field = integer(&C::ffn_hidden_size, 1, 1 << 22)},
          {.name = "num-attention-heads",
           .value = "N",
           .help = "Query heads.",
           .field = integer(&C::num_attention_heads, 1, 1 << 16)},
          {.name = "kv-channels",
           .value = "D",
           .help = "Size of a head. Default: H / N.",
           .field = integer(&C::kv_channels, 1, 1 << 16)},
          {.name = "group-query-attention",
           .help = "Several query heads share a key and a value head.",
           .field = on(&C::group_query_attention)},
          {.name = "num-query-groups",
           .aliases = "num-key-value-heads n-head-kv",
           .value = "G",
           .help = "Key and value heads. Default: N, or 1 with --group-query-attention.",
           .field = integer(&C::num_query_groups, 1, 1 << 16)},
          {.name = "seq-length",
           .aliases = "encoder-seq-length",
           .value = "S",
           .help = "Tokens in a sample.",
           .field = integer(&C::seq_length, 1, 1 << 24)},
          {.name = "max-position-embeddings",
           .aliases = "max-absolute-position-embeddings",
           .value = "P",
           .help = "Rows of the learned position table. Default: S.",
           .field = integer(&C::max_position_embeddings, 1, 1 << 28)},
          {.name = "position-offset",
           .value = "ROWS",
           .help = "Rows of the learned position table before that of position 0 (OPT has 2).",
           .field = integer(&C::position_offset, 0, 1 << 20)},
          {.name = "position-embedding-type",
           .value = "TYPE",
           .help = "How positions enter the model. absolute and rotary are BigScience's names for "
                   "the first two.",
           .field = choice(&C::position_embedding_type,
                           {"learned_absolute", "rope", "none", "absolute", "rotary"})},
          {.name = "no-position-embedding",
           .help = "No learned position table; only with rope.",
           .field = on(&C::no_position_embedding)},
          {.name = "use-rotary-position-embeddings",
           .aliases = "use-llama2-rotary-position-embeddings",
           .help = "Same as --position-embedding-type rope.",
           .field = on(&C::use_rotary_position_embeddings)},
          {.name = "rotary-percent",
           .aliases = "rotary-pct",
           .value = "SHARE",
           .help = "Share of a head that is rotated.",
           .field = real(&C::rotary_percent, 0, 1)},
          {.name = "rotary-base",
           .aliases = "rotary-position-embeddings-theta rotary-emb-base",
           .value = "BASE",
           .help = "Base of the rotary frequencies.",
           .field = real(&C::rotary_base, 1)},
          {.name = "rotary-seq-len-interpolation-factor",
           .value = "FACTOR",
           .help = "Positions are divided by it before they rotate.",
           .field = real(&C::rotary_seq_len_interpolation_factor, 1e-6)},
          {.name = "use-rope-scaling",
           .help = "Lower the slow rotary frequencies, as in Llama 3.1 and later.",
           .field = on(&C::use_rope_scaling)},
          {.name = "rope-scaling-factor",
           .value = "FACTOR",
           .help = "The divisor of --use-rope-scaling.",
           .field = real(&C::rope_scaling_factor, 1e-6)},
          {.name = "rope-low-freq-factor",
           .value = "TURNS",
           .help = "With --use-rope-scaling: what turns fewer times in the original positions is "
                   "lowered whole.",
           .field = real(&C::rope_low_freq_factor, 1e-6)},
          {.name = "rope-high-freq-factor",
           .value = "TURNS",
           .help = "With --use-rope-scaling: frequencies with more turns are not changed.",
           .field = real(&C::rope_high_freq_factor, 1e-6)},
          {.name = "rope-original-max-position-embeddings",
           .value = "P",
           .help = "With --use-rope-scaling: the model's original number of positions.",
           .field = integer(&C::rope_original_max_position_embeddings, 1, 1 << 28)},
          {.name = "window-size",
           .value = "LEFT,RIGHT",
           .help = "Tokens before and after itself that a token attends to; RIGHT is 0, and a LEFT "
                   "of -1 means all. As --sliding-window of LEFT + 1.",
           .field = {cli::Arity::one,
                     [](C& c, const cli::Values& v) { c.sliding_window = parse_window(v[0]); },
                     nullptr},
           .sets = "sliding-window"},
          {.name = "sliding-window",
           .value = "W",
           .help = "Tokens that a token attends to, itself among them (Mistral). 0: all before it.",
           .field = integer(&C::sliding_window, 0, 1 << 28)},
          {.name = "qk-layernorm",
           .help = "A norm of each query and key head, before the rotary positions (Qwen3).",
           .field = on(&C::qk_layernorm)},
          {.name = "normalization",
           .value = "NORM",
           .help = "LayerNorm or RMSNorm.",
           .field = choice(&C::normalization, {"LayerNorm", "RMSNorm", "layernorm", "rmsnorm"})},
          {.name = "post-norm",
           .help = "The norms stand behind the residual additions instead of before attention and "
                   "MLP, and none before the first layer (OPT-350m).",
           .field = on(&C::post_norm)},
          {.name = "norm-epsilon",
           .aliases = "layernorm-epsilon",
           .value = "EPS",
           .help = "Added to the variance.",
           .field = real(&C::norm_epsilon, 0, 1)},
          {.name = "swiglu",
           .help = "Gated SiLU in the MLP instead of GELU.",
           .field = on(&C::swiglu)},
          {.name = "openai-gelu",
           .help = "GELU by its tanh formula.",
           .field = on(&C::openai_gelu)},
          {.name = "no-bias-gelu-fusion",
           .help = "GELU by the error function, as Megatron computes it without this fusion. "
                   "The kernels are fused either way.",
           .field = off(&C::bias_gelu_fusion)},
          {.name = "activation",
           .value = "NAME",
           .help = "Activation of the MLP. Default: as the flags above mean in Megatron; with "
                   "--disable-bias-linear also gelu_erf.",
           .field = choice(&C::activation, {"gelu_tanh", "gelu_erf", "relu", "swiglu"})},
          {.name = "disable-bias-linear",
           .help = "No bias in the linear layers.",
           .field = off(&C::add_bias_linear)},
          {.name = "add-qkv-bias",
           .help = "A bias for query, key and value, also with --disable-bias-linear (Qwen2).",
           .field = on(&C::add_qkv_bias)},
          {.name = "attention-bias",
           .help = "Biases in the attention's linear layers, also with --disable-bias-linear.",
           .field = on(&C::attention_bias)},
          {.name = "mlp-bias",
           .help = "Biases in the MLP's linear layers, also with --disable-bias-linear.",
           .field = on(&C::mlp_bias)},
          {.name = "parallel-residual",
           .aliases = "use-parallel-residual",
           .help = "Attention and MLP read the same input (GPT-NeoX).",
           .field = on(&C::parallel_residual)},
          {.name = "model-family",
           .value = "NAME",
           .help = "Family of Hugging Face models that this one is to be exported as: gpt2, opt, "
                   "gpt_neox, llama, mistral, qwen2 or qwen3. Default: the first that can "
                   "represent it.",
           .field = text(&C::model_family)},
          {.name = "untie-embeddings-and-output-weights",
           .help = "The output layer has weights of its own.",
           .field = on(&C::untie_embeddings_and_output_weights)},
          {.name = "make-vocab-size-divisible-by",
           .value = "M",
           .help = "Vocabulary rows are padded to a multiple of it.",
           .field = integer(&C::make_vocab_size_divisible_by, 1, 1 << 20)},
          {.name = "padded-vocab-size",
           .aliases = "pad-vocab-size-to",
           .value = "ROWS",
           .help = "Vocabulary rows, instead of that multiple.",
           .field = integer(&C::padded_vocab_size, 1, int64_t{1} << 31)},
          {.name = "init-method-std",
           .value = "STD",
           .help = "Spread of the initial weights; output layers get STD / sqrt(2 L).",
           .field = real(&C::init_method_std, 0)},
          {.name = "output-layer-init-method-std",
           .value = "STD",
           .help = "The same for the linears that end attention and MLP. Default: that of the "
                   "others, divided by the square root of twice the number of layers.",
           .field = real(&C::output_layer_init_method_std, 0)},
          {.name = "attention-dropout",
           .value = "P",
           .help = "Dropout of attention probabilities.",
           .field = real(&C::attention_dropout, 0, 0.999)},
          {.name = "hidden-dropout",
           .value = "P",
           .help = "Dropout of the embedding and of each branch.",
           .field = real(&C::hidden_dropout, 0, 0.999)},
      }};
}

cli::Group<C> data_group() {
  return {
      "Tokenizer and data",
      {
          {.name = "tokenizer-type",
           .value = "TYPE",
           .help = "Megatron's name of the tokenizer; the files define the rest. NullTokenizer "
                   "needs --vocab-size.",
           .field = text(&C::tokenizer_type)},
          {.name = "vocab-file",
           .aliases = "vocab",
           .value = "FILE",
           .help = "vocab.json, tokenizer.json or .tiktoken.",
           .field = text(&C::vocab_file)},
          {.name = "merge-file",
           .aliases = "merges-file merges",
           .value = "FILE",
           .help = "merges.txt.",
           .field = text(&C::merge_file)},
          {.name = "tokenizer-model",
           .aliases = "tokenizer-name-or-path",
           .value = "PATH",
           .help = "tokenizer.json, SentencePiece's .model, tekken.json, or a folder with one.",
           .field = text(&C::tokenizer_model)},
          {.name = "vocab-size",
           .value = "V",
           .help = "Number of token ids before padding; needed if no tokenizer is named.",
           .field = integer_or_none(&C::vocab_size, 1, int64_t{1} << 31)},
          {.name = "tokenizer-special-tokens",
           .value = "TOKEN",
           .help = "More special tokens for a vocab.json; those that it lacks get the next ids.",
           .field = list(&C::tokenizer_special_tokens)},
          {.name = "tiktoken-pattern",
           .value = "V",
           .help = "How TikTokenizer's list of tokens cuts texts, v1 or v2: to compare datasets.",
           .field = text(&C::tiktoken_pattern)},
          {.name = "tiktoken-num-special-tokens",
           .value = "N",
           .help = "Ids below N are special tokens in that list; else 1000.",
           .field = integer(&C::tiktoken_num_special_tokens, 3, 1 << 16)},
          {.name = "tiktoken-special-tokens",
           .value = "TOKEN",
           .help = "Its special tokens from id 0 on; else <unk>, <s>, </s>.",
           .field = list(&C::tiktoken_special_tokens)},
          {.name = "extra-vocab-size",
           .value = "N",
           .help = "Token ids added above the tokenizer's own.",
           .field = integer(&C::extra_vocab_size, 0, 1 << 20)},
          {.name = "patch-tokenizer-type",
           .value = "TYPE",
           .help =
               "Pai-Megatron-Patch's name of the tokenizer: the vocabulary has the rows that it "
               "has there.",
           .field = text(&C::patch_tokenizer_type)},
          {.name = "eod-id",
           .aliases = "null-tokenizer-eod-id",
           .value = "ID",
           .help = "Token that ends a document. Default: the tokenizer's.",
           .field = integer(&C::eod_id, 0, int64_t{1} << 31)},
          {.name = "data-path",
           .value = "[WEIGHT] PREFIX",
           .help = "Dataset prefix, or weights and prefixes to blend. Files PREFIX.bin and "
                   "PREFIX.idx.",
           .field = last_list(&C::data_path)},
          {.name = "train-data-path",
           .value = "[WEIGHT] PREFIX",
           .help = "For training only, instead of --data-path with --split.",
           .field = last_list(&C::train_data_path)},
          {.name = "valid-data-path",
           .value = "[WEIGHT] PREFIX",
           .help = "For validation only.",
           .field = last_list(&C::valid_data_path)},
          {.name = "test-data-path",
           .value = "[WEIGHT] PREFIX",
           .help = "For the test only.",
           .field = last_list(&C::test_data_path)},
          {.name = "data-args-path",
           .value = "FILE",
           .help = "File with the words of --data-path.",
           .field = text(&C::data_args_path)},
          {.name = "per-split-data-args-path",
           .value = "FILE",
           .help = "JSON with train, valid and test lists.",
           .field = text(&C::per_split_data_args_path)},
          {.name = "split",
           .value = "A,B,C",
           .help = "Shares of train, valid and test. Default: 969, 30, 1.",
           .field = text(&C::split)},
          {.name = "data-cache-path",
           .value = "DIR",
           .help =
               "Keep the arrays of the sample order in DIR, in Megatron's files and under its "
               "names; existing ones that fit are read. Default: they are computed at each start.",
           .field = text(&C::data_cache_path)},
          {.name = "data-impl",
           .value = "KIND",
           .help = "Dataset format.",
           .field = choice(&C::data_impl, {"mmap", "infer"})},
          {.name = "dataloader-type",
           .value = "KIND",
           .help = "Order of the samples.",
           .field = choice(&C::dataloader_type, {"single"})},
          {.name = "sample-order",
           .value = "WHOSE",
           .help =
               "megatron, or gpt-neox, which shuffles all epochs together and rounds splits and "
               "blends in its own way; GPT-NeoX's configurations set it.",
           .field = choice(&C::sample_order, {"megatron", "gpt-neox"})},
          {.name = "mid-level-dataset-surplus",
           .value = "SHARE",
           .help = "Extra samples made for each blended dataset.",
           .field = real(&C::mid_level_dataset_surplus, 0, 1)},
          {.name = "calculate-per-token-loss",
           .help = "Every token of a step counts the same, even if --eod-mask-loss leaves "
                   "micro-batches with different numbers of tokens; otherwise every micro-batch "
                   "counts the same. Evaluations are weighted in the same way.",
           .field = on(&C::calculate_per_token_loss)},
          {.name = "eod-mask-loss",
           .help = "No loss at tokens whose input is an end of document.",
           .field = on(&C::eod_mask_loss)},
          {.name = "reset-position-ids",
           .help = "Restart positions after an end of document.",
           .field = on(&C::reset_position_ids)},
          {.name = "reset-attention-mask",
           .help = "No attention across an end of document.",
           .field = on(&C::reset_attention_mask)},
      }};
}

}  // namespace

cli::Table<TrainConfig> model_flags() { return {model_group(), data_group()}; }

}  // namespace trainer
