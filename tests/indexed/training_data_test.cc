// SPDX-License-Identifier: MIT
// The cache folder that megatron-core's own classes leave, file by file, for random configurations
// (made by tests/reference/index_golden.py), must be the folder that TrainingData leaves: names,
// headers, arrays, descriptions. Also numpy's sums and text, the grammar of --data-path, splits and
// sizes of the specification.
#include "libindexed/training_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "libindexed/builder.h"
#include "libindexed/md5.h"
#include "libindexed/numpy_random.h"
#include "tests/indexed/scratch.h"

namespace indexed {
namespace {

using testing::ElementsAre;

Json golden(const std::string& name) {
  const std::string path = std::string(GOLDEN_DIR) + "/indexed/" + name;
  return Json::parse(read_whole(path), path);
}

const Json& at(const Json& json, std::string_view key) { return *json.find(key); }
const Json::Array& list(const Json& json, std::string_view key) { return *at(json, key).array(); }
int64_t number(const Json& json) { return *json.integer(); }
bool truth(const Json& json) { return json.dump(0) == "true"; }
double real(const Json& json) { return std::stod(json.dump(0)); }

std::vector<std::string> words_of(const Json& json) {
  std::vector<std::string> words;
  for (const Json& word : *json.array()) words.push_back(*word.string());
  return words;
}

// The generator of tests/reference/index_golden.py.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : x_(seed) {}
  int32_t below(int64_t n) {
    x_ = x_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int32_t>((x_ >> 33) % static_cast<uint64_t>(n));
  }

 private:
  uint64_t x_;
};

void write_dataset(const std::string& prefix, const Json::Array& recipe) {
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  Numbers numbers(static_cast<uint64_t>(number(recipe[0])));
  IndexedDatasetBuilder builder(
      prefix,
      {.dtype = *dtype_from_code(static_cast<uint64_t>(number(recipe[3]))), .manifest = false});
  for (int64_t k = 0; k < number(recipe[1]); ++k) {
    std::vector<int32_t> lengths(static_cast<size_t>(numbers.below(4))), tokens;
    for (int32_t& length : lengths) length = numbers.below(number(recipe[2]) + 1);
    for (const int32_t length : lengths) {
      for (int32_t j = 0; j < length; ++j) tokens.push_back((length + j) % 1000);
    }
    builder.add_document(tokens, lengths);
  }
  builder.finish();
}

std::map<std::string, std::string> digests_of(const std::string& folder) {
  std::map<std::string, std::string> digests;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    digests[std::filesystem::relative(entry.path(), folder).string()] =
        md5_hex(read_whole(entry.path().string()));
  }
  return digests;
}

TrainingDataOptions options_of(const Json& config) {
  TrainingDataOptions options;
  if (at(config, "data_path").is_null()) {
    for (size_t i = 0; i < 3; ++i) {
      const Json& words = list(config, "split_data_path")[i];
      if (!words.is_null()) options.split_data_path[i] = words_of(words);
    }
  } else {
    options.data_path = words_of(at(config, "data_path"));
    options.split = *at(config, "split").string();
  }
  for (size_t i = 0; i < 3; ++i) {
    const Json& size = list(config, "num_samples")[i];
    if (!size.is_null()) options.num_samples[i] = number(size);
  }
  options.seed = number(at(config, "seed"));
  options.seq_length = number(at(config, "seq_length"));
  options.surplus = real(at(config, "surplus"));
  options.drop_last_partial_validation = truth(at(config, "drop_last"));
  options.extra_token = truth(at(config, "extra_token"));
  options.cache = CacheUse::write;
  if (const std::string* path = at(config, "cache_path").string()) options.cache_path = *path;
  TokenizerFlags tokenizer{.tokenizer_type = "NullTokenizer"};
  for (const auto& [name, value] : *at(config, "null_tokenizer").object()) {
    if (name == "vocab_size") tokenizer.vocab_size = number(value);
    if (name == "eod_id") tokenizer.null_tokenizer_eod_id = number(value);
    if (name == "pad_id") tokenizer.null_tokenizer_pad_id = number(value);
  }
  // The golden is 0.19's classes without its script, which always says the pad_id.
  const bool says_pad = tokenizer.null_tokenizer_pad_id.has_value();
  options.tokenizer =
      describe_tokenizer(tokenizer, says_pad ? CoreRelease::v0_18 : CoreRelease::v0_17);
  return options;
}

TEST(TrainingData, CacheFolderEqualsMegatrons) {
  const Json json = golden("training_data.json");
  const std::filesystem::path before = std::filesystem::current_path();
  int equal = 0, refused = 0;
  for (size_t i = 0; i < list(json, "cases").size(); ++i) {
    const Json& config = list(json, "cases")[i];
    ScratchFolder folder;
    std::filesystem::current_path(folder.path());
    std::string error;
    try {
      for (const auto& [prefix, recipe] : *at(config, "datasets").object())
        write_dataset(prefix, *recipe.array());
      const TrainingData data = TrainingData::build(options_of(config));
      // The cache just written serves the next reader with the same tokens.
      TrainingDataOptions again = options_of(config);
      again.cache = CacheUse::read;
      const TrainingData cached = TrainingData::build(again);
      for (int64_t split = 0; split < 3; ++split) {
        const SplitData* one = data.split(split);
        const SplitData* two = cached.split(split);
        ASSERT_EQ(one == nullptr, two == nullptr);
        for (int64_t s = 0; one != nullptr && s < std::min<int64_t>(one->num_samples(), 50); ++s) {
          std::vector<int32_t> a(static_cast<size_t>(again.seq_length + 1), -1), b = a;
          ASSERT_EQ(data.read(*one, s, a), cached.read(*two, s, b));
          ASSERT_EQ(a, b);
        }
      }
    } catch (const FormatError& caught) {
      error = caught.what();
    }
    std::filesystem::current_path(before);
    const Json::Object* files = at(config, "files").object();
    EXPECT_EQ(error.empty(), files != nullptr) << "case " << i << ": " << error << "\n"
                                               << config.dump(0);
    if (files == nullptr) {
      ++refused;
      continue;
    }
    std::map<std::string, std::string> expected;
    for (const auto& [name, digest] : *files) expected[name] = *digest.string();
    if (!error.empty()) continue;
    EXPECT_EQ(digests_of(folder.path()), expected) << "case " << i << "\n" << config.dump(0);
    ++equal;
  }
  EXPECT_GT(equal, 100);
  EXPECT_GT(refused, 5);
}

TEST(Numpy, TextSumsAndShuffles) {
  const Json json = golden("numpy.json");
  const auto reals = [](const Json& value) {
    std::vector<double> out;
    for (const Json& item : *value.array()) out.push_back(real(item));
    return out;
  };
  for (const Json& text : list(json, "texts")) {
    EXPECT_EQ(numpy_text(reals(at(text, "values"))), *at(text, "text").string());
  }
  for (const Json& sum : list(json, "sums")) {
    const std::vector<double> values = reals(at(sum, "values"));
    EXPECT_EQ(python_float(numpy_sum(values)), at(sum, "sum").dump(0)) << values.size();
    std::string text = "[";
    for (const double value : normalize(normalize(values)))
      text += (text.size() > 1 ? ", " : "") + python_float(value);
    EXPECT_EQ(md5_hex(text + "]"), *at(sum, "twice").string()) << values.size();
  }
  for (const Json& shuffle : list(json, "shuffles")) {
    RandomState random(static_cast<uint32_t>(number(at(shuffle, "seed"))));
    const auto n = static_cast<size_t>(number(at(shuffle, "n")));
    const auto digest = [&]<class T>(T, size_t size) {
      std::vector<T> values(size);
      for (size_t i = 0; i < size; ++i) values[i] = static_cast<T>(i);
      random.shuffle(std::span<T>(values));
      return md5_hex(std::as_bytes(std::span(values)));
    };
    const Json::Array& parts = list(shuffle, "md5");
    EXPECT_EQ(digest(int32_t{}, n), *parts[0].string());
    EXPECT_EQ(digest(uint32_t{}, n / 2), *parts[1].string());
    EXPECT_EQ(digest(int64_t{}, n / 3 + 1), *parts[2].string());
  }
}

TEST(Blend, WordsAsMegatronReadsThem) {
  const Json json = golden("blend_words.json");
  for (const Json& item : list(json, "cases")) {
    const std::vector<std::string> words = words_of(at(item, "words"));
    const std::string text = at(item, "words").dump(0);
    const Json& prefixes = at(item, "prefixes");
    const Json& weights = at(item, "weights");
    Blend blend;
    try {
      blend = parse_blend(words);
    } catch (const FormatError&) {
      // Also refused here: an infinite weight, which the reference accepts and then divides by.
      EXPECT_TRUE(prefixes.is_null() || words[0] == "infinity") << text;
      continue;
    }
    ASSERT_FALSE(prefixes.is_null()) << text;
    EXPECT_EQ(blend.prefixes, words_of(prefixes)) << text;
    const size_t num_weights = weights.is_null() ? 0 : weights.array()->size();
    ASSERT_EQ(blend.weights.size(), num_weights) << text;
    for (size_t i = 0; i < num_weights; ++i)
      EXPECT_EQ(blend.weights[i], real((*weights.array())[i])) << text;
  }
  EXPECT_THROW(parse_blend(std::vector<std::string>{"a", "b", "c"}, Compat::fork_2023),
               FormatError);
  EXPECT_THROW(parse_blend(std::vector<std::string>{"0", "a"}), FormatError);
}

// Megatron takes the words for datasets, and does not find the first.
TEST(Blend, AWeightTooFewIsNamed) {
  const auto refusal = [&](const std::vector<std::string>& words) -> std::string {
    try {
      refuse_stray_weights(parse_blend(words));
    } catch (const FormatError& error) {
      return error.what();
    }
    return "";
  };
  const std::string end = ": either every dataset has a weight before it or none";
  EXPECT_EQ(refusal({"0.5", "a", "b"}),
            "\"0.5\" stands where a dataset is expected, and 0.5.idx does not exist" + end);
  EXPECT_EQ(refusal({"a", "1"}),
            "\"1\" stands where a dataset is expected, and 1.idx does not exist" + end);
  for (const std::vector<std::string>& fine :
       {std::vector<std::string>{"1"}, {"0.5", "a"}, {"a", "b", "c"}, {"1", "2", "1", "3"}})
    EXPECT_EQ(refusal(fine), "");
  // A dataset may have a number for its name.
  const ScratchFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_whole("7.idx", "");
  EXPECT_EQ(refusal({"a", "7", "b"}), "");
  std::filesystem::current_path(before);
}

TEST(Blend, SplitsOfBothEras) {
  const auto edges = [](const std::string& split, int64_t n, Compat compat) {
    std::vector<int64_t> out;
    for (const std::optional<SequenceRange>& range : split_ranges(split, n, compat)) {
      out.push_back(range ? range->begin : -1);
      out.push_back(range ? range->end : -1);
    }
    return out;
  };
  EXPECT_THAT(edges("969, 30, 1", 1000, Compat::megatron_core),
              ElementsAre(0, 969, 969, 999, 999, 1000));
  EXPECT_THAT(edges("1,1,1", 10, Compat::fork_2023), ElementsAre(0, 4, 4, 7, 7, 10));
  EXPECT_THAT(edges("1,1,1", 10, Compat::megatron_core), ElementsAre(0, 3, 3, 7, 7, 10));
  EXPECT_THAT(edges("98,1,1", 53, Compat::fork_2023), ElementsAre(0, 51, 51, 52, 52, 53));
  EXPECT_THAT(edges("98,1,1", 53, Compat::megatron_core), ElementsAre(0, 52, 52, 52, 52, 53));
  EXPECT_THAT(edges("90/5/5", 7, Compat::fork_2023), ElementsAre(0, 7, -1, -1, -1, -1));
  EXPECT_THROW(parse_split("1,2,3,4"), FormatError);
  EXPECT_THROW(parse_split("0,0,0"), FormatError);
  EXPECT_THROW(parse_split("1.2.3"), FormatError);
}

TEST(Blend, Sizes) {
  EXPECT_THROW(requested_samples({.train_iters = INT64_MAX / 2, .global_batch_size = 3}),
               FormatError);
  EXPECT_THROW(requested_samples({.train_iters = 9000,
                                  .global_batch_size = 4,
                                  .eval_interval = 1,
                                  .eval_iters = INT64_MAX / 999}),
               FormatError);
  const double weights[] = {0.3, 0.7};
  EXPECT_THAT(blend_sizes(weights, 1000).take, ElementsAre(300, 700));
  EXPECT_THAT(blend_sizes(weights, 1000).prepare, ElementsAre(302, 704));
  EXPECT_THAT(blend_sizes(weights, 50).prepare, ElementsAre(16, 36));
  EXPECT_EQ(blend_sizes(weights, 6).blend_size, 7);
  EXPECT_THAT(
      requested_samples(
          {.train_iters = 1000, .global_batch_size = 32, .eval_interval = 100, .eval_iters = 10}),
      ElementsAre(32000, 3520, 320));
}

TEST(CacheNames, DescriptionsOfTheSpecification) {
  const TokenizerFlags gpt2{.tokenizer_type = "GPT2BPETokenizer",
                            .vocab_file = "gpt2-vocab.json",
                            .merge_file = "gpt2-merges.txt"};
  const DatasetIdentity my{.prefix = "/data/my_text_document",
                           .num_samples = 32000,
                           .seq_length = 1024,
                           .split_string = "969, 30, 1",
                           .tokenizer = describe_tokenizer(gpt2)};
  EXPECT_EQ(description_text(my, CacheStyle::megatron_core).size(), 832u);
  EXPECT_EQ(md5_hex(description_text(my, CacheStyle::megatron_core)),
            "438ae4d2a673f029df28ab73dfe7e5cd");
  const DatasetIdentity old{.prefix = "/data/my_text_document",
                            .num_samples = 32000,
                            .seq_length = 1024,
                            .split_string = "969, 30, 1"};
  const std::string old_text = description_text(old, CacheStyle::megatron_deepspeed);
  EXPECT_EQ(old_text.size(), 165u);
  EXPECT_EQ(md5_hex(old_text), "75e35d051ac3cf304abc9888bd18642d");
  EXPECT_EQ(default_cache_folder("/data/my", CacheStyle::megatron_deepspeed), "/data/index-cache");
  EXPECT_THROW(describe_tokenizer({.tokenizer_type = "MultimodalTokenizer"}), FormatError);
}

// The flags of one case, as shuffle-index takes them from a command line.
TokenizerFlags flags_of(const Json& flags) {
  TokenizerFlags t;
  const auto text = [&](const char* name) {
    const Json* value = flags.find(name);
    return value == nullptr ? std::string() : *value->string();
  };
  const auto given = [&](const char* name) { return flags.find(name) != nullptr; };
  t.tokenizer_type = text("tokenizer_type");
  t.tokenizer_model = text("tokenizer_model");
  t.vocab_file = text("vocab_file");
  t.merge_file = text("merge_file");
  t.tiktoken_pattern = text("tiktoken_pattern");
  if (given("vocab_size")) t.vocab_size = number(at(flags, "vocab_size"));
  if (given("null_tokenizer_eod_id"))
    t.null_tokenizer_eod_id = number(at(flags, "null_tokenizer_eod_id"));
  if (given("null_tokenizer_pad_id"))
    t.null_tokenizer_pad_id = number(at(flags, "null_tokenizer_pad_id"));
  if (given("tiktoken_num_special_tokens"))
    t.tiktoken_num_special_tokens = number(at(flags, "tiktoken_num_special_tokens"));
  t.trust_remote_code = given("trust_remote_code");
  if (given("tokenizer_hf_use_fast")) t.use_fast = t.include_special_tokens = true;
  if (given("tokenizer_hf_no_include_special_tokens")) t.include_special_tokens = false;
  t.sentencepiece_legacy = given("tokenizer_sentencepiece_legacy");
  t.ignore_extra_whitespaces = !given("tokenizer_sentencepiece_ignore_extra_whitespaces");
  const std::string gigatoken = text("use_gigatoken");
  t.use_gigatoken = gigatoken == "absent"  ? Gigatoken::absent
                    : gigatoken == "true"  ? Gigatoken::on
                    : gigatoken == "false" ? Gigatoken::off
                                           : Gigatoken::by_release;
  return t;
}

// How each release's own classes describe themselves (tests/reference/cache_names_golden.py).
TEST(CacheNames, TokenizersAsEachReleaseDescribesThem) {
  const Json json = golden("tokenizers.json");
  int described = 0;
  for (const auto& [release, whole] : *json.object()) {
    for (const Json& config : list(whole, "cases")) {
      const Json& text = at(config, "text");
      if (text.string() == nullptr) continue;
      const Json ours = describe_tokenizer(flags_of(at(config, "flags")), core_release(release));
      EXPECT_EQ(ours.dump(4), *text.string()) << release;
      ++described;
    }
  }
  EXPECT_EQ(described, 63);
  const TokenizerFlags eod{.tokenizer_type = "NullTokenizer", .null_tokenizer_eod_id = 3};
  EXPECT_THROW(describe_tokenizer(eod, CoreRelease::v0_17), FormatError);
  const TokenizerFlags giga{.tokenizer_type = "GPT2BPETokenizer", .use_gigatoken = Gigatoken::off};
  EXPECT_THROW(describe_tokenizer(giga, CoreRelease::v0_18), FormatError);
  EXPECT_THROW(core_release("0.21"), FormatError);
}

// The forks of 2023: names, blend of even one weighted dataset, uint8 blend index, int64 sample
// index.
TEST(TrainingData, ForkOf2023) {
  ScratchFolder folder;
  write_dataset(folder / "a", {int64_t{1}, int64_t{40}, int64_t{30}, int64_t{8}});
  write_dataset(folder / "b", {int64_t{2}, int64_t{50}, int64_t{30}, int64_t{8}});
  TrainingDataOptions options{.data_path = {"0.3", folder / "a", "0.7", folder / "b"},
                              .split = "90,5,5",
                              .seq_length = 8,
                              .num_samples = {{100, 5, 5}},
                              .style = CacheStyle::megatron_deepspeed,
                              .cache = CacheUse::write,
                              .cache_path = folder / "cache"};
  const TrainingData data = TrainingData::build(options);
  const SplitData& train = *data.split(0);
  EXPECT_EQ(train.num_samples(), 31 + 71);  // ceil(30 * 1.005) + ceil(70 * 1.005)
  EXPECT_EQ(train.blend()->dataset_index.type(), IndexType::u1);
  EXPECT_EQ(train.members()[0].index.sample_index().type(), IndexType::i8);
  EXPECT_EQ(data.cache_files().size(), 3u * (4 + 4 + 3));
  EXPECT_TRUE(std::filesystem::exists(folder / ("cache/" + train.hash() + "_sample_index.npy")));
  EXPECT_THAT(train.description(),
              testing::HasSubstr("Split 90,5,5\n\n\nGPT Dataset\n\nData prefix "));
  EXPECT_THAT(train.description(),
              testing::EndsWith("Split 90,5,5\n\n\nWeights: [0.3 0.7]\nSize: 102\n"));
  // A second run finds everything in place, and so does one whose weights have another sum.
  for (const auto& [a, b] : {std::pair{"0.3", "0.7"}, std::pair{"30", "70"}}) {
    options.data_path[0] = a;
    options.data_path[2] = b;
    const TrainingData again = TrainingData::build(options);
    for (const CacheFile& file : again.cache_files()) EXPECT_FALSE(file.written) << a;
  }
}

// numpy adds eight sums of eight or more numbers; the fork adds one number after another.
TEST(TrainingData, ForkOf2023AddsWeightsOneAfterAnother) {
  ScratchFolder folder;
  write_dataset(folder / "a", {int64_t{1}, int64_t{40}, int64_t{30}, int64_t{8}});
  std::vector<double> given, plain;
  TrainingDataOptions options{.split = "90,5,5",
                              .seq_length = 8,
                              .num_samples = {{100, 5, 5}},
                              .style = CacheStyle::megatron_deepspeed};
  double sum = 0;
  for (int i = 0; i < 16; ++i) {
    given.push_back(std::stod(std::to_string(0.1 * (i % 5 + 1))));
    sum += given.back();
    options.data_path.push_back(std::to_string(given.back()));
    options.data_path.push_back(folder / "a");
  }
  for (const double weight : given) plain.push_back(weight / sum);
  const std::vector<double> expected = normalize(plain), pairwise = normalize(normalize(given));
  ASSERT_NE(expected[0], pairwise[0]) << "these weights show nothing";
  const TrainingData data = TrainingData::build(options);
  EXPECT_EQ(data.split(0)->weights(), expected);
}

TEST(TrainingData, ADatasetWithoutAWholeSampleIsNamed) {
  const auto build = [](int64_t tokens) {
    const ScratchFolder folder;  // what is open stays readable
    write_dataset(folder / "a", {int64_t{1}, int64_t{40}, int64_t{30}, int64_t{8}});
    IndexedDatasetBuilder builder(folder / "b", {});
    builder.add_document(std::vector<int32_t>(static_cast<size_t>(tokens), 7));
    builder.finish();
    return TrainingData::build(
        {.data_path = {folder / "a", folder / "b"}, .split = "100,0,0", .seq_length = 8});
  };
  EXPECT_EQ(build(9).split(0)->blend()->counts[1], 1);
  EXPECT_THAT([&] { build(8); },
              testing::ThrowsMessage<FormatError>(testing::HasSubstr(
                  "b.idx: gives no whole sample of 8 tokens to the train split")));
}

// One dataset alone, too: nothing can be trained on no samples. For evaluation Megatron's empty
// arrays are written.
TEST(TrainingData, ATrainSplitWithoutASampleIsRefused) {
  const ScratchFolder folder;
  IndexedDatasetBuilder builder(folder / "a", {});
  for (int i = 0; i < 2; ++i) builder.add_document(std::vector<int32_t>(4, 7));
  builder.finish();
  TrainingDataOptions options{.data_path = {folder / "a"}, .split = "1,1,0", .seq_length = 4};
  EXPECT_THAT([&] { TrainingData::build(options); },
              testing::ThrowsMessage<FormatError>(testing::HasSubstr(
                  "a.idx: gives no whole sample of 4 tokens to the train split")));
  options.seq_length = 3;
  options.split = "1,0,1";
  EXPECT_EQ(TrainingData::build(options).split(2)->num_samples(), 1);
  options.num_samples = {0, 5, 0};
  options.seq_length = 4;
  EXPECT_EQ(TrainingData::build(options).split(0)->num_samples(), 0);
}

// Numbers of samples whose tokens 64 bits do not count ended as none.
TEST(TrainingData, TooManySamplesAreRefused) {
  const ScratchFolder folder;
  write_dataset(folder / "a", {int64_t{1}, int64_t{40}, int64_t{30}, int64_t{8}});
  const auto refusal = [&](std::vector<std::string> words, int64_t samples,
                           std::optional<int64_t> epochs) {
    return [=] {
      TrainingData::build({.data_path = words,
                           .split = "1",
                           .seq_length = 8,
                           .num_samples = {samples, 0, 0},
                           .train_epochs = epochs});
    };
  };
  const auto with = [](const char* text) {
    return testing::ThrowsMessage<FormatError>(testing::HasSubstr(text));
  };
  EXPECT_THAT(refusal({folder / "a"}, INT64_MAX, {}),
              with("a.idx: sequences 0 to 65 of the train split: 9223372036854775807 samples of 8 "
                   "tokens are too many"));
  EXPECT_THAT(refusal({folder / "a"}, INT64_MAX / 8, {}), with(" tokens are too many"));
  EXPECT_THAT(refusal({folder / "a"}, 1, INT64_MAX / 8),
              with("a.idx: sequences 0 to 65 of the train split: 1152921504606846975 epochs are "
                   "too many"));
  EXPECT_THAT(refusal({"1", folder / "a", "3", folder / "a"}, INT64_MAX, {}),
              with("9223372036854775807 samples with a surplus of 0.005 are too many"));
}

// Which of the datasets it is, is said: a surplus below 0 prepares too little of each.
TEST(TrainingData, ABlendThatTakesMoreOfADatasetThanThereIsIsRefused) {
  ScratchFolder folder;
  for (const auto& [name, samples] : {std::pair{"short", 5}, std::pair{"long", 200}}) {
    IndexedDatasetBuilder builder(folder / name, {});
    builder.add_document(std::vector<int32_t>(static_cast<size_t>(8 * samples + 1), 7));
    builder.finish();
  }
  TrainingDataOptions options{
      .split = "100,0,0", .seq_length = 8, .num_samples = {{20, 0, 0}}, .surplus = -0.6};
  for (const bool first : {true, false}) {
    options.data_path = {"0.5", folder / (first ? "short" : "long"), "0.5",
                         folder / (first ? "long" : "short")};
    EXPECT_THAT([&] { TrainingData::build(options); },
                testing::ThrowsMessage<FormatError>(testing::HasSubstr(
                    folder / "short" + ": the train blend takes 10 samples of 5: raise "
                                       "--mid-level-dataset-surplus above -0.6")))
        << first;
  }
}

TEST(TrainingData, StaleAndTornCachesAreNotUsed) {
  ScratchFolder folder;
  write_dataset(folder / "a", {int64_t{1}, int64_t{40}, int64_t{30}, int64_t{8}});
  TrainingDataOptions options{.data_path = {folder / "a"},
                              .split = "1",
                              .seq_length = 8,
                              .num_samples = {{20, 0, 0}},
                              .cache = CacheUse::write,
                              .cache_path = folder / "cache"};
  const std::vector<CacheFile> files = TrainingData::build(options).cache_files();
  const auto first = [&] {
    options.cache = CacheUse::read;
    const TrainingData data = TrainingData::build(options);
    std::vector<int32_t> tokens(9, -1);
    data.read(*data.split(0), 0, tokens);
    return tokens;
  };
  const std::vector<int32_t> expected = first();
  const std::string shuffle = read_whole(files[2].path);
  write_whole(files[2].path, shuffle.substr(0, shuffle.size() - 4));  // torn
  EXPECT_EQ(first(), expected);
  std::string changed = shuffle;
  changed[131] = 'x';  // a sample far out of range
  write_whole(files[2].path, changed);
  EXPECT_EQ(first(), expected);
  write_whole(files[2].path, shuffle);
  // The same prefix, tokenized again: Megatron would continue with the old arrays.
  std::filesystem::remove(folder / "a.idx");
  std::filesystem::remove(folder / "a.bin");
  write_dataset(folder / "a", {int64_t{9}, int64_t{60}, int64_t{30}, int64_t{8}});
  std::filesystem::last_write_time(
      folder / "a.idx", std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_NE(first(), expected);
  options.cache = CacheUse::none;
  const TrainingData fresh = TrainingData::build(options);
  std::vector<int32_t> tokens(9, -1);
  fresh.read(*fresh.split(0), 0, tokens);
  EXPECT_EQ(first(), tokens);
}

// The same bytes, tokenized again: the description says nothing of it, the time alone does.
TEST(TrainingData, CachesOlderThanTheirIndexAreNotUsed) {
  ScratchFolder folder;
  write_dataset(folder / "a", {int64_t{1}, int64_t{40}, int64_t{30}, int64_t{8}});
  TrainingDataOptions options{.data_path = {folder / "a"},
                              .split = "1",
                              .seq_length = 8,
                              .num_samples = {{20, 0, 0}},
                              .cache = CacheUse::write,
                              .cache_path = folder / "cache"};
  const std::vector<CacheFile> files = TrainingData::build(options).cache_files();
  options.cache = CacheUse::read;
  const auto first = [&] {
    const TrainingData data = TrainingData::build(options);
    std::vector<int32_t> tokens(9, -1);
    data.read(*data.split(0), 0, tokens);
    return tokens;
  };
  const std::vector<int32_t> expected = first();
  std::string order = read_whole(files[2].path);  // of the samples: the first and the last change
  std::swap_ranges(order.begin() + 128, order.begin() + 132, order.end() - 4);
  write_whole(files[2].path, order);
  const auto made = [&](int file) { return std::filesystem::last_write_time(files[file].path); };
  const auto oldest = std::min({made(0), made(1), made(2)});
  std::filesystem::last_write_time(folder / "a.idx", oldest);
  EXPECT_NE(first(), expected) << "files that are as old as the index are used";
  std::filesystem::last_write_time(folder / "a.idx", oldest + std::chrono::nanoseconds(1000));
  EXPECT_EQ(first(), expected);
}

}  // namespace
}  // namespace indexed
