// SPDX-License-Identifier: MIT
// Descriptions and names. With one wrong comma Megatron rebuilds its arrays for hours, so the tests
// compare the hashes with those of the real classes.
#include "libindexed/cache_names.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "libindexed/message.h"

namespace indexed {
namespace {

std::string_view tokenizer_class(CoreRelease release) {
  return release < CoreRelease::v0_20
             ? "megatron.core.tokenizers.text.models.default_tokenizer.DefaultTokenizerText"
             : "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText";
}

std::string python_bool(bool value) { return value ? "True" : "False"; }
std::string text_or_none(const std::string& value) { return value.empty() ? "None" : value; }

// str() of a list of strings, or of None.
std::string python_list(const std::vector<std::string>& items, bool none_if_empty) {
  if (items.empty() && none_if_empty) return "None";
  std::string out = "[";
  for (const std::string& item : items) {
    if (out.size() > 1) out += ", ";
    out += item.find('\'') == std::string::npos ? "'" + item + "'" : "\"" + item + "\"";
  }
  return out + "]";
}

std::string join(const std::string& folder, const std::string& name) {
  return folder.empty() || folder.back() == '/' ? folder + name : folder + "/" + name;
}

std::string format_number(const char* format, int precision, double value) {
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, format, precision, value);
  return buffer;
}

}  // namespace

CoreRelease core_release(std::string_view name) {
  if (name == "0.16") return CoreRelease::v0_16;
  if (name == "0.17") return CoreRelease::v0_17;
  if (name == "0.18" || name == "0.19") return CoreRelease::v0_18;
  if (name == "0.20") return CoreRelease::v0_20;
  throw FormatError(message("megatron-core ", name, ": known are 0.16 to 0.20"));
}

namespace {

// The keys after class and path, in the order in which one release's build_tokenizer sets them.
struct TokenizerDescription {
  const TokenizerFlags& flags;
  CoreRelease release;
  Json json = {};

  void begin(const std::string& path) {
    json.set("class", tokenizer_class(release));
    json.set("tokenizer_path", path.empty() ? Json() : Json(path));
  }

  void chat_template() {
    if (release >= CoreRelease::v0_18) json.set("chat_template", "None");
  }

  void hugging_face(const std::vector<std::string>& special_tokens, bool tokens_first) {
    if (tokens_first) json.set("additional_special_tokens", python_list(special_tokens, false));
    json.set("vocab_file", text_or_none(flags.vocab_file));
    json.set("merges_file", text_or_none(flags.merge_file));
    if (!tokens_first) json.set("additional_special_tokens", python_list(special_tokens, false));
    const bool on_by_default = release > CoreRelease::v0_16;
    json.set("use_fast", python_bool(flags.use_fast.value_or(on_by_default)));
    json.set("trust_remote_code", python_bool(flags.trust_remote_code));
    json.set("include_special_tokens",
             python_bool(flags.include_special_tokens.value_or(on_by_default)));
    if (release >= CoreRelease::v0_20 && flags.use_gigatoken != Gigatoken::absent)
      json.set("use_gigatoken", python_bool(flags.use_gigatoken == Gigatoken::on));
  }

  void megatron() {
    begin(flags.tokenizer_type);
    std::vector<std::string> special = flags.special_tokens;
    if (flags.tokenizer_type == "BertWordPieceCase") {
      special.clear();
      for (int i = 0; i < 100; ++i) special.push_back(message("<extra_id_", i, ">"));
    }
    hugging_face(special, true);
  }

  void sentencepiece() {
    begin(flags.tokenizer_model);
    chat_template();
    if (release >= CoreRelease::v0_18)
      json.set("ignore_extra_whitespaces", python_bool(flags.ignore_extra_whitespaces));
    json.set("legacy", python_bool(flags.sentencepiece_legacy));
    json.set("special_tokens", python_list(flags.special_tokens, true));
  }

  void tiktoken() {
    begin(flags.tokenizer_model);
    chat_template();
    if (!flags.tiktoken_pattern.empty()) json.set("pattern", flags.tiktoken_pattern);
    if (flags.vocab_size > 0) json.set("vocab_size", std::to_string(flags.vocab_size));
    json.set("num_special_tokens", std::to_string(flags.tiktoken_num_special_tokens));
    json.set("special_tokens", python_list(flags.special_tokens, true));
  }

  void null() {
    begin("");
    if (flags.vocab_size > 0) json.set("vocab_size", std::to_string(flags.vocab_size));
    if (release < CoreRelease::v0_18) return;
    if (flags.null_tokenizer_eod_id)
      json.set("eod_id", std::to_string(*flags.null_tokenizer_eod_id));
    json.set("pad_id", std::to_string(flags.null_tokenizer_pad_id.value_or(-1)));
  }
};

// Refuses flags that the release's scripts do not have: they could not change its description.
void refuse_later_flags(const TokenizerFlags& flags, CoreRelease release) {
  if (release < CoreRelease::v0_18 && (flags.null_tokenizer_eod_id || flags.null_tokenizer_pad_id))
    throw FormatError(
        "--null-tokenizer-eod-id and --null-tokenizer-pad-id: not of megatron-core "
        "before 0.18");
  const bool says = flags.use_gigatoken == Gigatoken::off || flags.use_gigatoken == Gigatoken::on;
  if (release < CoreRelease::v0_20 && says)
    throw FormatError("--use-gigatoken: not of megatron-core before 0.20");
}

}  // namespace

Json describe_tokenizer(const TokenizerFlags& flags, CoreRelease release) {
  const std::string& type = flags.tokenizer_type;
  if (type.empty()) return {};
  refuse_later_flags(flags, release);
  TokenizerDescription description{.flags = flags, .release = release};
  if (type == "GPT2BPETokenizer" || type == "BertWordPieceLowerCase" ||
      type == "BertWordPieceCase") {
    description.megatron();
  } else if (type == "HuggingFaceTokenizer") {
    description.begin(flags.tokenizer_model);
    description.chat_template();
    description.hugging_face(flags.special_tokens, false);
  } else if (type == "SentencePieceTokenizer" || type == "GPTSentencePieceTokenizer" ||
             type == "Llama2Tokenizer") {
    description.sentencepiece();
  } else if (type == "TikTokenizer") {
    description.tiktoken();
  } else if (type == "NullTokenizer") {
    description.null();
  } else {
    throw FormatError(message("tokenizer type ", type, ": not one whose description is known"));
  }
  return std::move(description.json);
}

Json describe_dataset(const DatasetIdentity& identity) {
  Json json;
  json.set("class", "GPTDataset");
  json.set("dataset_path", identity.prefix);
  json.set("num_samples", identity.num_samples ? Json(*identity.num_samples) : Json());
  json.set("index_split", kSplitNames[static_cast<size_t>(identity.split)]);
  json.set("random_seed", identity.seed);
  json.set("sequence_length", identity.seq_length);
  if (!identity.split_string) {
    json.set("split", Json());
    json.set("split_matrix", Json());
  } else {
    json.set("split", *identity.split_string);
    Json::Array matrix;
    bool first = true;  // the first edge is the integer 0, the others are floats
    for (const std::optional<SplitFraction>& part : parse_split(*identity.split_string)) {
      if (!part) {
        matrix.emplace_back();
      } else {
        matrix.push_back(Json::Array{first ? Json(0) : Json(part->begin), Json(part->end)});
      }
      first = false;
    }
    json.set("split_matrix", std::move(matrix));
  }
  json.set("tokenizer", identity.tokenizer);
  return json;
}

bool is_neox(CacheStyle style) {
  return style == CacheStyle::gpt_neox || style == CacheStyle::gpt_neox_2_0;
}

std::string description_text(const DatasetIdentity& identity, CacheStyle style) {
  if (is_neox(style)) return "";
  if (style == CacheStyle::megatron_core) return describe_dataset(identity).dump(4);
  std::string text = "GPT Dataset\n\n";
  text += message("Data prefix ", identity.prefix, "\nDataset name ",
                  kSplitNames[static_cast<size_t>(identity.split)], "\nNumber of samples ",
                  identity.num_samples.value_or(0), "\n");
  if (style == CacheStyle::megatron_deepspeed)
    text += message("Number of epochs ", identity.num_epochs, "\n");
  return text + message("Sequence length ", identity.seq_length, "\nRandom seed ", identity.seed,
                        "\nSplit ", identity.split_string.value_or("None"), "\n");
}

std::string blend_description(std::span<const DatasetIdentity> datasets,
                              std::span<const double> weights, std::optional<int64_t> size,
                              CacheStyle style) {
  if (style != CacheStyle::megatron_core) {
    std::string text = "Blendable dataset\n\nDatasets:\n";
    for (const DatasetIdentity& dataset : datasets)
      text += description_text(dataset, style) + "\n\n";
    return text + message("Weights: ", numpy_text(weights), "\nSize: ", size.value_or(0), "\n");
  }
  Json json;
  Json::Array members, shares;
  for (const DatasetIdentity& dataset : datasets) members.push_back(describe_dataset(dataset));
  for (const double weight : weights)
    shares.push_back(size ? Json(weight) : Json(static_cast<int64_t>(weight)));
  json.set("class", "BlendedDataset");
  json.set("datasets", std::move(members));
  json.set("split", kSplitNames[static_cast<size_t>(datasets[0].split)]);
  json.set("weights", std::move(shares));
  json.set("size", size ? Json(*size) : Json());
  return json.dump(4);
}

std::string default_cache_folder(const std::string& prefix, CacheStyle style) {
  if (style == CacheStyle::megatron_core) return join(prefix, "cache/GPTDataset_indices");
  const size_t slash = prefix.rfind('/');
  return slash == std::string::npos ? "index-cache"
                                    : join(prefix.substr(0, slash == 0 ? 1 : slash), "index-cache");
}

CacheFiles dataset_cache_files(const std::string& folder, const std::string& hash, int64_t split,
                               CacheStyle style) {
  if (style != CacheStyle::megatron_core) {
    const std::string base = join(folder, hash);
    return {base + ".dsc",
            {base + "_doc_idx.npy", base + "_sample_idx.npy", base + "_shuffle_idx.npy"}};
  }
  const std::string base =
      join(folder, message(hash, "-GPTDataset-", kSplitNames[static_cast<size_t>(split)], "-"));
  return {base + "description.txt",
          {base + "document_index.npy", base + "sample_index.npy", base + "shuffle_index.npy"}};
}

CacheFiles neox_cache_files(const DatasetIdentity& identity, CacheStyle style) {
  std::string base =
      message(identity.prefix, "_", kSplitNames[static_cast<size_t>(identity.split)]);
  if (identity.own_place) base += message("_", *identity.own_place);
  base += message("_indexmap_", identity.num_samples.value_or(0), "ns_", identity.seq_length, "sl_",
                  identity.seed, "s");
  // How texts are packed into samples, and that those longer than one are cut.
  if (style == CacheStyle::gpt_neox) base += "_packedpi_ac";
  return {"", {base + "_doc_idx.npy", base + "_sample_idx.npy", base + "_shuffle_idx.npy"}};
}

CacheFiles blend_cache_files(const std::string& folder, const std::string& hash, int64_t split,
                             CacheStyle style) {
  if (style != CacheStyle::megatron_core) {
    const std::string base = join(folder, hash);
    return {base + ".dsc", {base + "_index.npy", base + "_sample_index.npy"}};
  }
  const std::string base =
      join(folder, message(hash, "-BlendedDataset-", kSplitNames[static_cast<size_t>(split)], "-"));
  return {base + "description.txt",
          {base + "dataset_index.npy", base + "dataset_sample_index.npy"}};
}

std::string numpy_text(std::span<const double> values) {
  if (values.empty()) return "[]";
  constexpr int kPrecision = 8;
  constexpr size_t kLineWidth = 74;  // of 75, one is for the bracket
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const bool scientific = *most >= 1e8 || *least < 1e-4 || *most / *least > 1000;
  const char* format = scientific ? "%.*e" : "%.*f";
  // The fewest decimals, at most 8, that every value needs.
  std::vector<std::string> words;
  size_t decimals = 0;
  for (const double value : values) {
    const std::string text = format_number(format, kPrecision, value);
    const size_t point = text.find('.');
    const size_t end = std::min(text.find('e'), text.size());
    size_t last = end;
    while (text[last - 1] == '0') --last;
    decimals = std::max(decimals, last - point - 1);
    words.push_back(scientific ? text : text.substr(0, last));
  }
  size_t before = 0;
  for (const std::string& word : words) before = std::max(before, word.find('.'));
  std::string out, line = " ";
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    if (scientific) {
      word = format_number(format, static_cast<int>(decimals), values[i]);
      if (decimals == 0) word.insert(word.find('e'), ".");
    } else {
      word.append(decimals - (word.size() - word.find('.') - 1), ' ');
    }
    word.insert(0, before - word.find('.'), ' ');
    if (line.size() + word.size() > kLineWidth && line.size() > 1) {
      out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line = " ";
    }
    line += word;
    if (i + 1 < words.size()) line += ' ';
  }
  out += line;
  return "[" + out.substr(1) + "]";
}

}  // namespace indexed
