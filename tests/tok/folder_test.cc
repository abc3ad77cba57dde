// Whole tokenizer folders, against what AutoTokenizer of transformers 4.46 and 5 makes of them.
// Golden: tests/golden/tok/folders.json, made by tests/reference/tokenizer_folders_golden.py.
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "libtok/loaders.h"
#include "libtok/tokenizer.h"
#include "tests/tok/tok_data.h"

namespace tok_test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;

const ordered_json& golden() {
  static const ordered_json tree = ordered_json::parse(read_golden("folders.json"));
  return tree;
}

/// A value with vocabularies and merges in the places that name them.
ordered_json written(const ordered_json& value) {
  if (!value.is_object()) return value == "@merges" ? golden()["merges"] : value;
  if (value.contains("@vocab")) {
    ordered_json vocab = ordered_json::object();
    int32_t id = 0;
    for (const ordered_json& token : golden()["vocabs"][value["@vocab"].get<std::string>()]) {
      vocab[token.get<std::string>()] = id++;
    }
    return vocab;
  }
  ordered_json out = ordered_json::object();
  for (const auto& [key, inner] : value.items()) out[key] = written(inner);
  return out;
}

Files files_of(const std::string& name) {
  Files files;
  for (const auto& [file, value] : golden()["cases"][name].items()) {
    files[file] = written(value).dump();
    if (value != "@merges") continue;
    files[file] = "#version: 0.2\n";
    for (const ordered_json& merge : golden()["merges"]) {
      files[file] += merge.get<std::string>() + "\n";
    }
  }
  return files;
}

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& [name, files] : golden()["cases"].items()) names.push_back(name);
  return names;
}

bool follows_4(const std::string& name) {
  const ordered_json& names = golden()["follows_4"];
  return std::find(names.begin(), names.end(), name) != names.end();
}

class FolderTest : public testing::TestWithParam<std::string> {};

TEST_P(FolderTest, GivesTheIdsOfTransformers) {
  const std::string name = GetParam();
  const ordered_json& want = golden()["results"][follows_4(name) ? "4.46" : "5"][name];
  const std::optional<tok::Tokenizer> tokenizer =
      tok::Tokenizer::from_folder(reader(files_of(name)));
  EXPECT_EQ(!tokenizer->source().version_note.empty(), follows_4(name))
      << tokenizer->source().version_note;
  const auto id_or_null = [](int32_t id) { return id == tok::kNoId ? json() : json(id); };
  EXPECT_EQ(id_or_null(tokenizer->source().bos_id), json(want["bos"]));
  EXPECT_EQ(id_or_null(tokenizer->source().eos_id), json(want["eos"]));
  EXPECT_EQ(id_or_null(tokenizer->source().pad_id), json(want["pad"]));
  EXPECT_EQ(tokenizer->vocab_size(), want["size"].get<int64_t>());
  if (!want["eos"].is_null()) {
    EXPECT_EQ(tokenizer->eod_id(), want["eos"].get<int32_t>());
  }
  for (const ordered_json& token : want["added"]) {
    EXPECT_EQ(tokenizer->token_id(token[1].get<std::string>()), token[0].get<int32_t>());
    EXPECT_EQ(tokenizer->is_special(token[0].get<int32_t>()), token[2].get<bool>()) << token;
  }
  EXPECT_EQ(tokenizer->added_tokens().size(), want["added"].size());
  const tok::EncodeOptions parse{.special_tokens_in_text = tok::SpecialTokens::parse};
  size_t i = 0;
  for (const ordered_json& text : golden()["texts"]) {
    EXPECT_EQ(tokenizer->encode(text.get<std::string>(), parse),
              want["plain"][i++].get<std::vector<int32_t>>())
        << text;
  }
  const tok::EncodeOptions around{.special_tokens_in_text = tok::SpecialTokens::parse,
                                  .add_special_tokens = true};
  EXPECT_EQ(tokenizer->encode(golden()["texts"][0].get<std::string>(), around),
            want["around"].get<std::vector<int32_t>>());
}

TEST_P(FolderTest, SaysWhere446PutsOtherTokensAroundATextAndOnlyThere) {
  const std::string name = GetParam();
  const ordered_json& four = golden()["results"]["4.46"][name]["around"];
  const bool differs = !follows_4(name) && four != golden()["results"]["5"][name]["around"];
  const tok::TokenizerSource source = tok::read_folder(reader(files_of(name)));
  EXPECT_EQ(!source.template_note.empty(), differs) << source.template_note;
}

INSTANTIATE_TEST_SUITE_P(Folders, FolderTest, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param; });

// --- folders whose only tokenizer file is a SentencePiece model ----------------------------------

const ordered_json& model_folders() {
  static const ordered_json tree = ordered_json::parse(read_golden("sentencepiece/folders.json"));
  return tree;
}

Files model_files_of(const ordered_json& entry) {
  Files files = {{"tokenizer.model",
                  read_golden("sentencepiece/" + entry["model"].get<std::string>() + ".model")}};
  for (const auto& [file, value] : entry["files"].items()) files[file] = value.dump();
  return files;
}

class ModelFolderTest : public testing::TestWithParam<std::string> {};

TEST_P(ModelFolderTest, GivesTheIdsOfTransformers) {
  const std::string name = GetParam();
  const ordered_json& entry = model_folders()["cases"][name];
  const ordered_json& want = model_folders()["results"][entry["follows"].get<std::string>()][name];
  const tok::Tokenizer tokenizer = tok::Tokenizer::from_folder(reader(model_files_of(entry)));
  const auto id_or_null = [](int32_t id) { return id == tok::kNoId ? json() : json(id); };
  EXPECT_EQ(id_or_null(tokenizer.source().bos_id), json(want["bos"]));
  EXPECT_EQ(id_or_null(tokenizer.source().eos_id), json(want["eos"]));
  EXPECT_EQ(id_or_null(tokenizer.source().pad_id), json(want["pad"]));
  EXPECT_EQ(tokenizer.vocab_size(), want["size"].get<int64_t>());
  for (const ordered_json& token : want["added"]) {
    EXPECT_EQ(tokenizer.token_id(token[1].get<std::string>()), token[0].get<int32_t>()) << token;
    EXPECT_EQ(tokenizer.is_special(token[0].get<int32_t>()), token[2].get<bool>()) << token;
  }
  EXPECT_EQ(tokenizer.added_tokens().size(), want["added"].size());
  const bool splits = tokenizer.source().split_special_tokens;
  tok::EncodeOptions options{.special_tokens_in_text =
                                 splits ? tok::SpecialTokens::text : tok::SpecialTokens::parse};
  size_t i = 0;
  for (const ordered_json& text : model_folders()["texts"]) {
    EXPECT_EQ(tokenizer.encode(text.get<std::string>(), options),
              want["plain"][i++].get<std::vector<int32_t>>())
        << text;
  }
  options.add_special_tokens = true;
  EXPECT_EQ(tokenizer.encode(model_folders()["texts"][0].get<std::string>(), options),
            want["around"].get<std::vector<int32_t>>());
}

TEST(ModelFolders, SayWhereTransformers5Differs) {
  for (const auto& [name, entry] : model_folders()["cases"].items()) {
    if (entry["follows"] != "4.46") continue;  // the man page says where
    const ordered_json& four = model_folders()["results"]["4.46"][name];
    const ordered_json& five = model_folders()["results"]["5"][name];
    const tok::TokenizerSource source = tok::read_folder(reader(model_files_of(entry)));
    EXPECT_EQ(source.version_note.empty(), four["plain"] == five["plain"]) << name;
    const auto added = [](const ordered_json& of) {
      return of["around"].size() - of["plain"][0].size();
    };
    EXPECT_EQ(source.template_note.empty(), added(four) == added(five)) << name;
  }
}

std::vector<std::string> model_cases() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : model_folders()["cases"].items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Folders, ModelFolderTest, testing::ValuesIn(model_cases()),
                         [](const auto& info) { return info.param; });

TEST(FolderRefusalTest, NamesWhatItDoesNotMakeOfASentencePieceModel) {
  Files files = {{"tokenizer.model", read_golden("sentencepiece/llama.model")}};
  EXPECT_EQ(folder_refusal(files),
            "tokenizer.model: no file names its tokenizer_class: name tokenizer.model itself for "
            "sentencepiece's own ids");
  files["tokenizer_config.json"] = "{}";
  EXPECT_THAT(folder_refusal(files), HasSubstr("no file names its tokenizer_class"));
  files["tokenizer_config.json"] = R"({"tokenizer_class": "CodeLlamaTokenizer"})";
  EXPECT_THAT(folder_refusal(files), HasSubstr("tokenizer_class: \"CodeLlamaTokenizer\" with a "
                                               "tokenizer.model is not supported"));
  files["tokenizer_config.json"] =
      R"({"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {"0": "<UNK>"}})";
  EXPECT_EQ(folder_refusal(files),
            "tokenizer_config.json: \"<UNK>\": its id is 0, Hugging Face would give it 1500");
  files["tokenizer.model"] = read_golden("sentencepiece/nfkc.model");
  files["tokenizer_config.json"] = R"({"tokenizer_class": "PreTrainedTokenizerFast"})";
  EXPECT_EQ(folder_refusal(files),
            "tokenizer.model: SentencePiece model: normalizer_spec.precompiled_charsmap: not "
            "supported for the class PreTrainedTokenizerFast");
}

TEST(FolderRefusalTest, NamesWhatTekkenJsonDoesNotHave) {
  Files files = {{"tekken.json", read_golden("sentencepiece/tekken.json")}};
  const auto with = [&](const char* config) {
    files["tokenizer_config.json"] = config;
    return folder_refusal(files);
  };
  EXPECT_EQ(with(R"({"eos_token": "</s>", "added_tokens_decoder":
                     {"1": {"content": "<s>", "special": true}}})"),
            "");
  EXPECT_EQ(with(R"({"mask_token": "<mask>"})"),
            "tokenizer_config.json: mask_token: \"<mask>\": no token of tekken.json");
  EXPECT_EQ(with(R"({"additional_special_tokens": ["<|user|>"]})"),
            "tokenizer_config.json: extra_special_tokens: \"<|user|>\": no token of tekken.json");
  EXPECT_EQ(with(R"({"added_tokens_decoder":
                     {"1": {"content": "<s>", "special": true, "rstrip": true}}})"),
            "tokenizer_config.json: \"<s>\": its flags are not those of tekken.json, which is not "
            "supported");
  EXPECT_THAT(with(R"({"added_tokens_decoder": {"1": {"content": "<s>"}}})"),
              HasSubstr("its flags are not those of tekken.json"));
  for (const char* flag : {"lstrip", "single_word"})
    EXPECT_THAT(with((std::string(R"({"added_tokens_decoder": {"1": {"content": "<s>", ")") + flag +
                      R"(": true, "special": true}}})")
                         .c_str()),
                HasSubstr("its flags are not those of tekken.json"));
  const auto at = [&](const char* id, const char* content) {
    return with((std::string(R"({"added_tokens_decoder": {")") + id + R"(": {"content": ")" +
                 content + R"(", "special": true}}})")
                    .c_str());
  };
  EXPECT_EQ(at("1590", "<new>"), "");
  EXPECT_EQ(at("1490", "<new>"),
            "tokenizer_config.json: \"<new>\": its id is 1490, which tekken.json contradicts");
  EXPECT_EQ(at("1591", "<new>"),
            "tokenizer_config.json: \"<new>\": its id is 1591, which tekken.json contradicts");
  EXPECT_EQ(at("1590", "<s>"),
            "tokenizer_config.json: \"<s>\": its id is 1590, which tekken.json contradicts");
}

// Ids of the golden tekken.json: special tokens 0 to 99, of which six have names, others to 1589.
TEST(FolderTemplates, AConfigurationBesideTekkenJson) {
  const auto folder = [](const std::string& config) {
    return tok::read_folder(reader({{"tekken.json", read_golden("sentencepiece/tekken.json")},
                                    {"tokenizer_config.json", config}}));
  };
  const tok::TokenizerSource plain = folder("{}");
  EXPECT_EQ(plain.bos_id, 1);
  EXPECT_EQ(plain.eos_id, 2);
  EXPECT_EQ(plain.pad_id, 5);
  EXPECT_EQ(plain.prefix_ids, std::vector<int32_t>{1});
  EXPECT_EQ(plain.suffix_ids, std::vector<int32_t>());
  EXPECT_FALSE(plain.split_special_tokens);

  const tok::TokenizerSource other =
      folder(R"({"bos_token": "[INST]", "eos_token": "<new>", "pad_token": "",
                 "add_bos_token": true, "add_eos_token": true, "split_special_tokens": true,
                 "added_tokens_decoder": {"1590": {"content": "<new>", "special": true},
                                          "1591": {"content": "<next>", "lstrip": true}}})");
  EXPECT_EQ(other.bos_id, 3);
  EXPECT_EQ(other.eos_id, 1590);
  EXPECT_EQ(other.prefix_ids, std::vector<int32_t>{3});
  EXPECT_EQ(other.suffix_ids, std::vector<int32_t>{1590});
  EXPECT_TRUE(other.split_special_tokens);
  ASSERT_EQ(other.added_tokens.size(), 102u);
  EXPECT_EQ(other.added_tokens[101].content, "<next>");
  EXPECT_EQ(other.added_tokens[101].id, 1591);
  EXPECT_EQ(folder(R"({"add_bos_token": false})").prefix_ids, std::vector<int32_t>());
  EXPECT_EQ(folder(R"({"pad_token": "</s>"})").pad_id, 2);
}

// A list of ranks has no role for a token: with no BOS in it, none is put before a text.
TEST(FolderTemplates, TekkenJsonWithoutABeginning) {
  ordered_json tree = ordered_json::parse(read_golden("sentencepiece/tekken.json"));
  tree["special_tokens"][1]["token_str"] = "<start>";
  const auto folder = [&](const char* config) {
    return tok::read_folder(
        reader({{"tekken.json", tree.dump()}, {"tokenizer_config.json", config}}));
  };
  EXPECT_EQ(folder("{}").prefix_ids, std::vector<int32_t>());
  EXPECT_EQ(folder(R"({"add_bos_token": true})").prefix_ids, std::vector<int32_t>());
  EXPECT_EQ(folder(R"({"bos_token": "<start>"})").prefix_ids, std::vector<int32_t>());
}

// Seen with transformers 5.23: the flags are lost, or the token is not special, where 4.46 keeps
// both.
TEST(FolderNotesTest, SaysWhereVersion5TakesTheFlagsOfAListedTokenOtherwise) {
  const auto note = [](const std::string& name, const std::string& kind, const std::string& flags,
                       const std::string& more) {
    Files files = files_of("opt_saved");
    files.erase("special_tokens_map.json");
    files["tokenizer_config.json"] = R"({"tokenizer_class": ")" + kind +
                                     R"(", "added_tokens_decoder": {"266": {"content": "<t>")" +
                                     flags + "}}, \"eos_token\": \"</s>\", " + more + "}";
    files["config.json"] = "{}";
    EXPECT_EQ(folder_refusal(files), "") << name;
    return tok::read_folder(reader(files)).version_note;
  };
  const std::string named = R"("additional_special_tokens": ["<t>"])";
  const std::string role = R"("pad_token": "<t>")";
  const std::string split = R"(, "split_special_tokens": true)";
  const std::string dropped =
      "the flags of \"<t>\" are taken as by transformers 4.46; transformers 5 drops them";
  for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized"}) {
    const std::string on = std::string(", \"") + flag + "\": true, \"special\": true";
    EXPECT_EQ(note(flag, "Qwen2Tokenizer", on, named), dropped);
    EXPECT_EQ(note(flag, "Qwen2TokenizerFast", on, role), dropped);
    EXPECT_EQ(note(flag, "GPT2Tokenizer", on, named), "");
    EXPECT_EQ(note(flag, "Qwen2Tokenizer", on, R"("legacy": true)"), "");
  }
  const std::string plain = R"(, "special": false, "normalized": false)";
  EXPECT_EQ(note("plain", "Qwen2Tokenizer", plain, named), "");
  EXPECT_EQ(note("not split", "GPT2Tokenizer", plain, named), "");
  EXPECT_EQ(
      note("split", "GPT2Tokenizer", plain, named + split),
      "the flags of \"<t>\" are taken as by transformers 4.46; transformers 5 does not make it "
      "special");
  EXPECT_EQ(note("a role", "GPT2Tokenizer", plain, role + split), "");
  EXPECT_EQ(note("special", "GPT2Tokenizer", R"(, "special": true)", named + split), "");
}

TEST(FolderRefusalTest, NamesFileMemberAndReason) {
  const Files good = files_of("opt_saved");
  EXPECT_EQ(folder_refusal(good), "");
  const auto with = [&](const char* file, const std::string& text) {
    Files files = good;
    files[file] = text;
    return folder_refusal(files);
  };
  EXPECT_EQ(with("tokenizer_config.json", "{"), "tokenizer_config.json: not a JSON object");
  EXPECT_EQ(with("tokenizer_config.json", R"({"tokenizer_class": "BartTokenizer"})"),
            "tokenizer_config.json: tokenizer_class: \"BartTokenizer\" without a tokenizer.json "
            "is not supported");
  EXPECT_EQ(with("tokenizer_config.json", R"({"add_bos_token": 1})"),
            "tokenizer_config.json: add_bos_token: 1: expected true or false");
  EXPECT_EQ(with("tokenizer_config.json", R"({"eos_token": 7})"),
            "tokenizer_config.json: eos_token: 7: expected a token");
  EXPECT_EQ(with("tokenizer_config.json", R"({"added_tokens_decoder": {"x": "a"}})"),
            "tokenizer_config.json: added_tokens_decoder: \"x\" is no id");
  EXPECT_EQ(with("tokenizer_config.json",
                 R"({"added_tokens_decoder": {"900": {"content": "<t>"}}, "eos_token": "</s>"})"),
            "tokenizer_config.json: \"<t>\": its id is 900, Hugging Face would give it 266");
  EXPECT_EQ(with("tokenizer_config.json",
                 R"({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": true})"),
            "tokenizer_config.json: add_prefix_space: true: not supported for Qwen2Tokenizer");
  EXPECT_EQ(with("config.json", "// of another program\n[]"), "");
  Files qwen = files_of("qwen2");
  qwen["tokenizer_config.json"] =
      R"({"tokenizer_class": "Qwen2TokenizerFast", "add_prefix_space": true})";
  EXPECT_EQ(folder_refusal(qwen),
            "tokenizer_config.json: add_prefix_space: true: not supported for Qwen2Tokenizer");
  Files files = good;
  files.erase("merges.txt");
  EXPECT_EQ(folder_refusal(files),
            "neither tokenizer.json nor vocab.json with merges.txt nor tokenizer.model nor "
            "tekken.json there");
}

// Seen with transformers 5.24 (tokenizers 0.23.3): a token of the vocabulary that was added before
// counts for the next list of tokens, and not for those of its own.
TEST(FolderIdsTest, TokensAreCountedFromThoseOfTheListsBefore) {
  const auto eos = [](const char* kind, const char* config) {
    const ordered_json tree = {
        {"model",
         {{"type", "BPE"},
          {"vocab", {{"a", 0}, {"b", 1}, {"<j>", 9}}},
          {"merges", ordered_json::array()}}},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"added_tokens", {{{"id", 9}, {"content", "<j>"}, {"special", true}}}}};
    return tok::read_folder(
               reader({{"tokenizer.json", tree.dump()},
                       {"tokenizer_config.json", std::string(R"({"eos_token": "<e>", )") + config +
                                                     R"("tokenizer_class": ")" + kind + "\"}"}}))
        .eos_id;
  };
  EXPECT_EQ(eos("PreTrainedTokenizerFast", ""), 10);
  EXPECT_EQ(eos("GPT2Tokenizer", ""), 4);  // behind its bos and unk
  const char* list = R"("added_tokens_decoder": {"9": {"content": "<j>", "special": true}}, )";
  EXPECT_EQ(eos("PreTrainedTokenizerFast", list), 10);
  EXPECT_EQ(eos("GPT2Tokenizer", list), 4);
}

// A flag asks for a token that no file names: nothing is put around a text.
TEST(FolderTemplates, ATokenThatIsNotNamedIsNotPutAroundAText) {
  const auto folder = [](const char* tokens) {
    return tok::read_folder(
        reader({{"vocab.json", R"({"a":0,"b":1,"</s>":2})"},
                {"merges.txt", "#version: 0.2\n"},
                {"tokenizer_config.json", std::string(R"({"tokenizer_class": "GPT2Tokenizer",)") +
                                              R"("add_bos_token": true, "add_eos_token": true,)" +
                                              tokens + "}"}}));
  };
  const tok::TokenizerSource unnamed = folder(R"("bos_token": null, "eos_token": null)");
  EXPECT_EQ(unnamed.prefix_ids, std::vector<int32_t>());
  EXPECT_EQ(unnamed.suffix_ids, std::vector<int32_t>());
  const tok::TokenizerSource named = folder(R"("bos_token": "</s>", "eos_token": "</s>")");
  EXPECT_EQ(named.prefix_ids, std::vector<int32_t>{2});
  EXPECT_EQ(named.suffix_ids, std::vector<int32_t>{2});
}

TEST(FolderRefusalTest, NoTokenIsNamedAndNoneIsUsual) {
  const tok::FolderIds ids =
      tok::read_folder_ids(reader({{"vocab.json", R"({"a":0,"b":1})"}, {"merges.txt", ""}}));
  EXPECT_EQ(ids.bos, tok::kNoId);
  EXPECT_EQ(ids.eos, tok::kNoId);
  EXPECT_EQ(ids.eod, tok::kNoId);
  EXPECT_EQ(ids.pad, tok::kNoId);
  EXPECT_FALSE(ids.names_eos);
}

// The ids of tokenizers that are not followed: a unigram model's are the positions of its pairs,
// and those of a .model the positions of its pieces.
TEST(FolderIdsTest, AreThePositionsInAListOfPieces) {
  const std::string names =
      R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>",)"
      R"( "pad_token": "<unk>"})";
  const auto ids_of = [&](const char* file, const std::string& text) {
    return tok::read_folder_ids(reader({{file, text}, {"tokenizer_config.json", names}}));
  };
  const tok::FolderIds unigram = ids_of("tokenizer.json", R"({"model": {"type": "Unigram",
      "vocab": [["<unk>", 0], ["<s>", 0], ["</s>", 0], 7, ["a", -1.5]]}})");
  const tok::FolderIds pieces = ids_of("tokenizer.model", read_golden("sentencepiece/llama.model"));
  for (const tok::FolderIds& ids : {unigram, pieces}) {
    EXPECT_EQ(ids.pad, 0);
    EXPECT_EQ(ids.bos, 1);
    EXPECT_EQ(ids.eos, 2);
  }
  EXPECT_EQ(unigram.limit, 5);
}

TEST(FolderRefusalTest, NamedTokensAreReadOfAnyTokenizer) {
  const Files files = {
      {"tokenizer.json", R"({"model": {"type": "Unigram"}})"},
      {"tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})"}};
  const tok::NamedTokens named = tok::read_named_tokens(reader(files));
  EXPECT_EQ(named.bos, "<s>");
  EXPECT_EQ(named.eos, "</s>");
  EXPECT_EQ(named.pad, std::nullopt);
}

}  // namespace
}  // namespace tok_test
