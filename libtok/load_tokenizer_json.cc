// tokenizer.json: BPE models of bytes or of characters, the pre-tokenizer, exact normalisers, added
// tokens, and the special tokens that a template puts around a document. Every member that would
// change ids is either followed or refused by name; truncation and padding are up to the caller and
// are only noted.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "libtok/load_json.h"
#include "libtok/loaders.h"

namespace tok {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& place, const std::string& what,
                         const std::string& why) {
  throw ParseError("tokenizer.json: " + place + ": " + what + ": " + why);
}

/// A value as shown in a message.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 100 ? text.substr(0, 100) + "..." : text;
}

/// A member, or null if it is absent.
const json& member(const json& object, const char* name) {
  static const json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

bool flag(const json& object, const char* name, bool fallback, const std::string& place) {
  const json& value = member(object, name);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) refuse(place + "." + name, shown(value), "expected true or false");
  return value.get<bool>();
}

std::string type_of(const json& object, const std::string& place) {
  if (!object.is_object()) refuse(place, shown(object), "expected an object");
  const json& type = member(object, "type");
  if (!type.is_string()) refuse(place + ".type", shown(type), "expected a string");
  return type.get<std::string>();
}

/// The elements of a Sequence under `list`, or the object itself.
std::vector<json> steps_of(const json& object, const char* list, const std::string& place) {
  if (object.is_null()) return {};
  if (type_of(object, place) != "Sequence") return {object};
  const json& steps = member(object, list);
  if (!steps.is_array()) refuse(place + "." + list, shown(steps), "expected an array");
  std::vector<json> flat;
  for (const json& step : steps) {
    for (json& inner : steps_of(step, list, place + "." + list)) flat.push_back(std::move(inner));
  }
  return flat;
}

/// Prepend and Replace, as converters of SentencePiece models write them.
void read_blank_step(const json& step, const std::string& type, TokenizerSource& source) {
  const std::string place = "normalizer." + type;
  if (type == "Prepend") {
    const json& prepended = member(step, "prepend");
    if (prepended != kBlankMark) refuse(place, shown(prepended), "only \"\u2581\" is supported");
    if (source.prepend_blank) refuse(place, shown(prepended), "twice is not supported");
    source.prepend_blank = true;
    return;
  }
  const json& pattern = member(step, "pattern");
  if (pattern != json{{"String", " "}}) refuse(place, shown(pattern), "only a blank is supported");
  const json& content = member(step, "content");
  if (content != kBlankMark) refuse(place, shown(content), "only \"\u2581\" is supported");
  source.replace_blanks = true;
}

void read_normalizer(const json& normalizer, TokenizerSource& source) {
  for (const json& step : steps_of(normalizer, "normalizers", "normalizer")) {
    const std::string type = type_of(step, "normalizer");
    if (type == "Prepend" || type == "Replace") {
      read_blank_step(step, type, source);
      continue;
    }
    if (source.prepend_blank || source.replace_blanks) {
      refuse("normalizer", type, "after Prepend or Replace it is not supported");
    }
    if (type == "NFC") {
      source.normal_forms.push_back(NormalForm::nfc);
    } else if (type == "NFD") {
      source.normal_forms.push_back(NormalForm::nfd);
    } else if (type == "NFKC") {
      source.normal_forms.push_back(NormalForm::nfkc);
    } else if (type == "NFKD") {
      source.normal_forms.push_back(NormalForm::nfkd);
    } else {
      refuse("normalizer", type,
             "only NFC, NFD, NFKC, NFKD, and Prepend and Replace of blanks are supported");
    }
  }
  if (source.prepend_blank && !source.replace_blanks) {
    refuse("normalizer", "Prepend", "without Replace it is not supported");
  }
}

Family split_family(const json& step) {
  const std::string place = "pre_tokenizer.Split";
  const json& pattern = member(step, "pattern");
  const json& regex = pattern.is_object() ? member(pattern, "Regex") : json();
  if (!regex.is_string()) refuse(place, shown(pattern), "only a known Regex is supported");
  const std::optional<Family> family =
      family_of_pattern(regex.get<std::string>(), PatternEngine::oniguruma);
  if (!family.has_value()) {
    refuse(place, shown(regex), "not one of the supported patterns, which are known by identity");
  }
  // The large patterns leave no gaps, so removing the gaps (inverted) changes nothing. That of
  // DeepSeek-V3 does: numbers, and characters of no class.
  const bool covers = *family >= Family::gpt2 && *family <= Family::nemotron;
  const json& behavior = member(step, "behavior");
  const bool isolated = behavior == "Isolated";
  const bool inverted = flag(step, "invert", false, place);
  if (!isolated && !(covers && inverted && behavior == "Removed")) {
    refuse(place, shown(behavior), "only behavior Isolated is supported");
  }
  return *family;
}

void add_stage(TokenizerSource& source, Family family) {
  PreTokenizer& stages = source.pretokenizer;
  if (stages.num_stages == PreTokenizer::kMaxStages) {
    refuse("pre_tokenizer", "Sequence",
           "more than " + std::to_string(PreTokenizer::kMaxStages) + " splitting steps");
  }
  stages.stages[stages.num_stages++] = family;
}

void read_metaspace(const json& step, TokenizerSource& source) {
  const std::string place = "pre_tokenizer.Metaspace";
  const json& replacement = member(step, "replacement");
  if (replacement != kBlankMark) {
    refuse(place + ".replacement", shown(replacement), "only \"\u2581\" is supported");
  }
  const bool adds = flag(step, "add_prefix_space", true, place);
  const json& scheme = member(step, "prepend_scheme");
  const bool always = adds && (scheme.is_null() || scheme == "always");
  if (!always && scheme != "first" && scheme != "never" && !(scheme.is_null() && !adds)) {
    refuse(place + ".prepend_scheme", shown(scheme), "expected always, first or never");
  }
  source.metaspace = true;
  source.add_prefix_space = always || (adds && scheme == "first");
  source.prefix_first_only = scheme == "first";
  if (flag(step, "split", true, place)) add_stage(source, Family::blank_words);
}

/// Pre-tokenizer steps of files whose tokens are text: those made from SentencePiece models.
void read_text_pretokenizer(const std::vector<json>& steps, TokenizerSource& source) {
  for (const json& step : steps) {
    const std::string type = type_of(step, "pre_tokenizer");
    const bool first = &step == steps.data();
    if (type == "Metaspace" && first) {
      read_metaspace(step, source);
    } else if (type == "Split" && member(step, "pattern") == json{{"String", " "}}) {
      // Gemma's: if the normalizer has replaced all blanks there are none to split at.
      if (!source.replace_blanks) {
        refuse("pre_tokenizer.Split", "\" \"", "only behind a normalizer that replaces blanks");
      }
    } else if (type == "Digits" || type == "Split") {
      const bool single = type == "Digits" && flag(step, "individual_digits", false, "Digits");
      const Family family = type == "Split" ? split_family(step)
                            : single        ? Family::digits
                                            : Family::digit_runs;
      if (type == "Split" && family < Family::numbers) {
        refuse("pre_tokenizer.Split", shown(member(step, "pattern")),
               "not supported for tokens of text");
      }
      add_stage(source, family);
    } else {
      refuse("pre_tokenizer", type,
             "without a ByteLevel step only a first Metaspace, Split and Digits are supported");
    }
  }
}

void read_pretokenizer(const json& pretokenizer, TokenizerSource& source) {
  const PreTokenizer& stages = source.pretokenizer;
  bool byte_level = false;
  for (const json& step : steps_of(pretokenizer, "pretokenizers", "pre_tokenizer")) {
    const std::string type = type_of(step, "pre_tokenizer");
    if (byte_level) refuse("pre_tokenizer", type, "a step after ByteLevel is not supported");
    if (type == "ByteLevel") {
      byte_level = true;
      source.add_prefix_space = flag(step, "add_prefix_space", true, "pre_tokenizer.ByteLevel");
      if (source.add_prefix_space && stages.num_stages > 0) {
        refuse("pre_tokenizer.ByteLevel.add_prefix_space", "true",
               "after another splitting step it is not supported");
      }
      if (flag(step, "use_regex", true, "pre_tokenizer.ByteLevel")) {
        add_stage(source, Family::gpt2);
      }
    } else if (type == "Digits") {
      const bool single = flag(step, "individual_digits", false, "pre_tokenizer.Digits");
      add_stage(source, single ? Family::digits : Family::digit_runs);
    } else if (type == "Split") {
      add_stage(source, split_family(step));
    } else {
      refuse("pre_tokenizer", type, "only ByteLevel, Split and Digits are supported");
    }
  }
}

void check_model_type(const json& model) {
  if (!model.is_object()) refuse("model", shown(model), "expected an object");
  const json& type = member(model, "type");
  if (type != "BPE" && !(type.is_null() && model.contains("merges"))) {
    refuse("model.type", shown(type), "only BPE is supported");
  }
}

/// Refuses affixes and options that would change ids and that byte-level vocabularies do not use.
void check_model_options(const json& model) {
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json& value = member(model, affix);
    if (!value.is_null() && value != "") {
      refuse(std::string("model.") + affix, shown(value), "not supported");
    }
  }
  const json& dropout = member(model, "dropout");
  if (!dropout.is_null() && dropout != 0) {
    refuse("model.dropout", shown(dropout), "encoding would be random");
  }
}

/// What replaces characters without a token: their bytes, otherwise unk_token.
void read_unknown_characters(JsonFile& file, bool byte_fallback, VocabSource& vocab) {
  if (byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      char name[8];
      std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
      const int32_t id = file.vocab.find(name);
      if (id == kNoId) refuse("model.byte_fallback", "true", std::string(name) + " has no token");
      vocab.byte_fallback.push_back(id);
    }
    return;
  }
  const json& unk_token = member(member(file.tree, "model"), "unk_token");
  if (unk_token.is_null()) {
    refuse("model.unk_token", "null", "characters without a token would be lost");
  }
  if (!unk_token.is_string()) refuse("model.unk_token", shown(unk_token), "expected a string");
  vocab.unk_id = file.vocab.find(unk_token.get_ref<const std::string&>());
  if (vocab.unk_id == kNoId) refuse("model.unk_token", shown(unk_token), "not in the vocabulary");
}

void read_model(JsonFile& file, TokenizerSource& source) {
  const json& model = member(file.tree, "model");
  check_model_options(model);
  if (!member(model, "vocab").is_object()) {
    throw ParseError(
        "tokenizer.json: model.vocab: the vocabulary is not an object of token and id");
  }
  if (!file.vocab_complaint.empty()) {
    throw ParseError("tokenizer.json: model.vocab: " + file.vocab_complaint);
  }
  const json& merges = member(model, "merges");
  if (!merges.is_array()) refuse("model.merges", shown(merges), "expected an array");
  if (!file.merges_complaint.empty()) {
    throw ParseError("tokenizer.json: model.merges" + file.merges_complaint);
  }
  VocabSource& vocab = source.vocab;
  vocab.merges = std::move(file.merges);
  vocab.whole_piece_first = flag(model, "ignore_merges", false, "model");
  vocab.fuse_unk = flag(model, "fuse_unk", false, "model");
  const bool byte_fallback = flag(model, "byte_fallback", false, "model");
  vocab.by_characters = file.vocab.alphabet() == Alphabet::text;
  if (vocab.by_characters) return read_unknown_characters(file, byte_fallback, vocab);
  const int64_t single_bytes =
      std::count_if(file.vocab.tokens.begin(), file.vocab.tokens.end(),
                    [](const auto& token) { return !token.text_only && token.bytes.size() == 1; });
  if (single_bytes == 256) return;  // no byte is ever unknown
  if (byte_fallback) {
    refuse("model.byte_fallback", "true",
           std::to_string(256 - single_bytes) + " bytes have no token");
  }
  const json& unk_token = member(model, "unk_token");
  if (unk_token.is_null()) return;
  if (!unk_token.is_string()) refuse("model.unk_token", shown(unk_token), "expected a string");
  vocab.unk_id = file.vocab.find(unk_token.get_ref<const std::string&>());
  if (vocab.unk_id == kNoId) refuse("model.unk_token", shown(unk_token), "not in the vocabulary");
}

void read_added_tokens(LoadingTokenizer& loading) {
  const json& list = member(loading.file.tree, "added_tokens");
  if (list.is_null()) return;
  if (!list.is_array()) refuse("added_tokens", shown(list), "expected an array");
  std::set<std::string> seen;
  for (const json& entry : list) {
    const std::string place = "added_tokens";
    if (!entry.is_object()) refuse(place, shown(entry), "expected an object");
    const json& content = member(entry, "content");
    const json& id = member(entry, "id");
    if (!content.is_string()) refuse(place, shown(entry), "content is not a string");
    if (!id.is_number_integer()) refuse(place, shown(entry), "id is not an integer");
    AddedToken token{.content = content.get<std::string>(),
                     .special = flag(entry, "special", false, place),
                     .single_word = flag(entry, "single_word", false, place),
                     .lstrip = flag(entry, "lstrip", false, place),
                     .rstrip = flag(entry, "rstrip", false, place),
                     .normalized = flag(entry, "normalized", true, place)};
    if (token.content.empty()) continue;  // as Hugging Face does
    if (!seen.insert(token.content).second) refuse(place, shown(content), "listed twice");
    const int32_t given = loading.add(std::move(token));
    if (given != id.get<int64_t>()) {
      refuse(place, shown(content),
             "its id is " + id.dump() + ", Hugging Face would give it " + std::to_string(given));
    }
  }
}

/// The ids of one special token of a template.
std::vector<int32_t> template_ids(const json& tokens, const std::string& name) {
  const json& ids = member(member(tokens, name.c_str()), "ids");
  if (!ids.is_array()) refuse("post_processor.special_tokens", name, "has no ids");
  std::vector<int32_t> out;
  for (const json& id : ids) {
    if (!id.is_number_integer()) refuse("post_processor", shown(id), "expected an id");
    out.push_back(id.get<int32_t>());
  }
  return out;
}

void read_template(const json& step, TokenizerSource& source) {
  const std::string place = "post_processor.TemplateProcessing";
  const json& single = member(step, "single");
  if (!single.is_array()) refuse(place + ".single", shown(single), "expected an array");
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  int texts = 0;
  for (const json& part : single) {
    if (part.is_object() && part.contains("Sequence")) {
      ++texts;
    } else if (part.is_object() && member(member(part, "SpecialToken"), "id").is_string()) {
      const std::string name = part["SpecialToken"]["id"].get<std::string>();
      std::vector<int32_t>& side = texts == 0 ? before : after;
      for (int32_t id : template_ids(member(step, "special_tokens"), name)) side.push_back(id);
    } else {
      refuse(place + ".single", shown(part), "expected a Sequence or a SpecialToken");
    }
  }
  if (texts != 1) refuse(place + ".single", shown(single), "the text must stand in it once");
  source.prefix_ids.insert(source.prefix_ids.begin(), before.begin(), before.end());
  source.suffix_ids.insert(source.suffix_ids.end(), after.begin(), after.end());
}

/// BertProcessing and RobertaProcessing: cls, text, sep.
void read_pair_processing(const json& step, const std::string& type, TokenizerSource& source) {
  for (const char* name : {"cls", "sep"}) {
    const json& pair = member(step, name);
    if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_integer()) {
      refuse("post_processor." + type + "." + name, shown(pair), "expected a token and an id");
    }
  }
  source.prefix_ids.insert(source.prefix_ids.begin(), step["cls"][1].get<int32_t>());
  source.suffix_ids.push_back(step["sep"][1].get<int32_t>());
}

void read_post_processor(const json& processor, TokenizerSource& source) {
  for (const json& step : steps_of(processor, "processors", "post_processor")) {
    const std::string type = type_of(step, "post_processor");
    if (type == "ByteLevel") continue;  // moves offsets, never ids
    if (type == "TemplateProcessing") {
      read_template(step, source);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      read_pair_processing(step, type, source);
    } else {
      refuse("post_processor", type, "not supported");
    }
  }
}

/// What decoding removes from the beginning of a text. Notes if the file's decoder gives other text
/// than this library's.
void read_decoder(const json& decoder, TokenizerSource& source) {
  const bool of_bytes = !source.vocab.by_characters;
  bool followed = !decoder.is_null();
  std::string seen;
  for (const json& step : steps_of(decoder, "decoders", "decoder")) {
    const std::string type = type_of(step, "decoder");
    seen += type + " ";
    if (type == "Strip") {
      const bool one =
          member(step, "content") == " " && member(step, "start") == 1 && member(step, "stop") == 0;
      followed = followed && one && seen.find("Fuse") != std::string::npos;
      source.decode_rules.leading = LeadingBlank::strip_one;
    } else if (type == "Metaspace") {
      const bool keeps =
          member(step, "prepend_scheme") == "never" || member(step, "add_prefix_space") == false;
      if (!keeps) source.decode_rules.leading = LeadingBlank::strip_first_token;
    } else if (type == "Replace") {
      followed = followed && member(step, "pattern") == json{{"String", kBlankMark}} &&
                 member(step, "content") == " ";
    } else if (type != "ByteFallback" && type != "Fuse") {
      followed = false;
    }
  }
  source.decode_rules.names_bytes = seen.find("ByteFallback") == std::string::npos;
  if (of_bytes) source.decode_rules = {};
  if (of_bytes ? seen == "ByteLevel " : followed) return;
  source.notes.push_back(
      of_bytes ? "the decoder is not ByteLevel; decoding gives the tokens' bytes anyway"
               : "the decoder is not one of SentencePiece's; decoding gives the tokens' "
                 "text anyway");
}

}  // namespace

LoadingTokenizer load_tokenizer_json(std::string_view text) {
  LoadingTokenizer loading;
  loading.file = read_json_file(text, "tokenizer.json", VocabPlace::model);
  const json& root = loading.file.tree;
  TokenizerSource& source = loading.source;
  check_model_type(member(root, "model"));
  read_normalizer(member(root, "normalizer"), source);
  const json& pretokenizer = member(root, "pre_tokenizer");
  if (loading.file.vocab.alphabet() == Alphabet::text) {
    read_text_pretokenizer(steps_of(pretokenizer, "pretokenizers", "pre_tokenizer"), source);
    read_model(loading.file, source);
  } else {
    read_model(loading.file, source);
    if (source.replace_blanks) refuse("normalizer", "Replace", "not supported before ByteLevel");
    read_pretokenizer(pretokenizer, source);
  }
  read_added_tokens(loading);
  read_post_processor(member(root, "post_processor"), source);
  for (const char* ignored : {"truncation", "padding"}) {
    if (member(root, ignored).is_null()) continue;
    source.notes.push_back(std::string("tokenizer.json asks for ") + ignored +
                           ", which is left out, as transformers does unless a call asks for it");
  }
  read_decoder(member(root, "decoder"), source);
  return loading;
}

TokenizerSource read_tokenizer_json(std::string_view text) {
  return load_tokenizer_json(text).finish();
}

}  // namespace tok
