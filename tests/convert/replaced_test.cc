// SPDX-License-Identifier: MIT
// Conversions with --force over another model: whenever one is killed or refused, what can be read
// is one whole model with its own tokenizer, or none; and nothing is written through a link.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "convert/hf_folder.h"
#include "convert/megatron_source.h"
#include "convert/megatron_target.h"
#include "convert/trainer_source.h"
#include "libindexed/format.h"
#include "tests/convert/replaced.h"
#include "trainer/checkpoint/checkpoint.h"

namespace convert {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// The names of what is there, with the files' bytes and what links lead to.
std::map<std::string, std::string> tree_of(const std::string& folder) {
  std::map<std::string, std::string> tree;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string();
    tree[path] = entry.is_symlink()     ? "-> " + fs::read_symlink(path).string()
                 : entry.is_directory() ? "folder"
                                        : read_file(path);
  }
  return tree;
}

// Writes a model with a tokenizer as a checkpoint of either form.
using Write = void (*)(const CanonicalModel&, const std::string& text, const std::string& path);

void write_trainers(const CanonicalModel& model, const std::string& text, const std::string& path) {
  write_start(model, tokenizer_of(text), {.path = path, .replace = true});
}

void write_megatrons(const CanonicalModel& model, const std::string& text,
                     const std::string& path) {
  write_megatron(model, tokenizer_of(text), {.path = path, .replace = true});
}

class ReplacedTest : public testing::TestWithParam<Write> {
 protected:
  ReplacedTest() : model_(read_hf_folder(std::string(GOLDEN_DIR) + "/convert/families/llama")) {
    other_ = model_;
    TensorSource& norm = other_.tensors.at("decoder.final_layernorm.weight");
    norm = add_one(norm);
  }

  std::string root() const { return own_ / "root"; }

  CanonicalModel read() const {
    return is_trainer_checkpoint(root(), std::nullopt)
               ? read_trainer_checkpoint(root(), std::nullopt, false)
               : read_megatron(root(), {});
  }

  // The set that a reader finds: "old", "new", "none", or what they have together.
  std::string found() const {
    std::vector<std::byte> norm;
    const char* name = "decoder.final_layernorm.weight";
    if (error_of([&] { norm = read().at(name).load(); }) != "accepted") return "none";
    const std::string weights = norm == model_.at(name).load()   ? "old"
                                : norm == other_.at(name).load() ? "new"
                                                                 : "damaged";
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
      const std::string text = text_of(root() + "/tokenizer/" + file);
      if (text != weights) return weights + " weights, " + text + " " + file;
    }
    return weights;
  }

  // A weight of the new model that does this when it is read.
  CanonicalModel with_weight(const std::function<void(std::span<float>)>& change) const {
    CanonicalModel model = other_;
    TensorSource& norm = model.tensors.at("decoder.final_layernorm.weight");
    const std::vector<std::byte> bytes = convert_dtype(norm, "F32").load();
    norm = TensorSource{"F32", norm.shape,
                        [bytes, change](int64_t first, int64_t count, std::byte* out) {
                          std::vector<float> numbers(static_cast<size_t>(count));
                          std::memcpy(numbers.data(), bytes.data() + first * 4, numbers.size() * 4);
                          change(numbers);
                          std::memcpy(out, numbers.data(), numbers.size() * 4);
                        },
                        "model.safetensors: model.norm.weight"};
    return model;
  }

  tests::OwnFolder own_;
  CanonicalModel model_, other_;
};

TEST_P(ReplacedTest, TheNewOneIsWhole) {
  GetParam()(model_, "old", root());
  EXPECT_EQ(found(), "old");
  GetParam()(other_, "new", root());
  EXPECT_EQ(found(), "new");
  for (const fs::directory_entry& entry : fs::directory_iterator(root()))
    EXPECT_FALSE(entry.path().extension() == ".tmp") << entry.path();
}

TEST_P(ReplacedTest, KilledAmongTheWeightsTheOldOneIsWhole) {
  GetParam()(model_, "old", root());
  const CanonicalModel deadly = with_weight([](std::span<float>) { std::raise(SIGKILL); });
  EXPECT_EXIT(GetParam()(deadly, "new", root()), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EQ(found(), "old");
  GetParam()(other_, "new", root());
  EXPECT_EQ(found(), "new");
}

// The second ends at once, and takes nothing from the first.
TEST_P(ReplacedTest, OfTwoAtOnceTheSecondIsRefused) {
  GetParam()(model_, "old", root());
  std::string second;
  const CanonicalModel during = with_weight([&](std::span<float>) {
    if (second.empty()) second = error_of([&] { GetParam()(model_, "second", root()); });
  });
  GetParam()(during, "new", root());
  EXPECT_THAT(second, HasSubstr(root() + ": another "));
  EXPECT_EQ(found(), "new");
}

// A folder comes into the place of a file, so that not all files get their names.
TEST_P(ReplacedTest, WhereAFileGetsNoNameTheOldOneIsWhole) {
  TokenizerFiles files = tokenizer_of("new");
  files.files.push_back({"vocab.json", "new"});  // after others in the order of naming
  for (const bool in_old_place : {false, true}) {
    const std::string full =
        root() + "/tokenizer/" + (in_old_place ? "tokenizer_config.json" : "vocab.json");
    fs::remove_all(root());
    GetParam()(model_, "old", root());
    const CanonicalModel late = with_weight([&](std::span<float>) {
      fs::remove_all(full);
      fs::create_directories(full + "/full");
    });
    const bool trainers = is_trainer_checkpoint(root(), std::nullopt);
    EXPECT_NE(error_of([&] {
                if (trainers)
                  write_start(late, files, {.path = root(), .replace = true});
                else
                  write_megatron(late, files, {.path = root(), .replace = true});
              }),
              "accepted");
    EXPECT_TRUE(fs::exists(full + "/full"));
    EXPECT_FALSE(fs::exists(root() + "/.replaced"));
    if (in_old_place) {
      fs::remove_all(full);
      std::ofstream(full) << "old";
    }
    EXPECT_EQ(found(), "old");
    EXPECT_TRUE(fs::exists(root() + "/latest_checkpointed_iteration.txt"));
    fs::remove_all(full);
    GetParam()(other_, "new", root());
    EXPECT_EQ(found(), "new");
  }
}

// The user whom access rights hold back: the superuser becomes another one meanwhile.
class HeldBack {
 public:
  HeldBack() : was_(::geteuid()) {
    constexpr uid_t kNobody = 65534;
    if (was_ == 0 && ::seteuid(kNobody) != 0) std::abort();
  }
  ~HeldBack() {
    if (was_ == 0 && ::seteuid(was_) != 0) std::abort();
  }

 private:
  uid_t was_;
};

TEST_P(ReplacedTest, AFolderThatMayNotBeChangedIsFoundBeforeAnythingChanges) {
  GetParam()(model_, "old", root());
  fs::create_directories(root() + "/tokenizer/additional_chat_templates");
  std::ofstream(root() + "/tokenizer/additional_chat_templates/a.jinja") << "{{ x }}";
  const auto everyone = [](const std::string& path, bool writes) {
    fs::permissions(path, fs::perms(writes ? 0777 : 0555));
  };
  everyone(own_.path(), true);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root()))
    fs::permissions(entry.path(), fs::perms(0777));
  everyone(root(), true);
  const std::map<std::string, std::string> before = tree_of(root());
  for (const char* name : {"/tokenizer", "/tokenizer/additional_chat_templates"}) {
    everyone(root() + name, false);
    std::string error;
    {
      const HeldBack user;
      if (::access(own_.path().c_str(), X_OK) != 0) GTEST_SKIP() << "others may not go there";
      error = error_of([&] { GetParam()(other_, "new", root()); });
    }
    EXPECT_THAT(error, HasSubstr(root() + name + ": Permission denied"));
    EXPECT_EQ(tree_of(root()), before);
    everyone(root() + name, true);
  }
  EXPECT_EQ(found(), "old");
}

// A killed conversion's old weights: only a conversion that replaces them removes them.
TEST_P(ReplacedTest, KilledBetweenTheNamesTheOldOneStaysUntilTheNextConversion) {
  GetParam()(model_, "old", root());
  const std::string aside = root() + "/.replaced/iter_0000000";
  fs::create_directories(aside);
  trainer::CheckpointRoot(root(), {});
  EXPECT_TRUE(fs::exists(aside));
  GetParam()(other_, "new", root());
  EXPECT_FALSE(fs::exists(root() + "/.replaced"));
  EXPECT_EQ(found(), "new");
}

// A checkpoint of a link's target, whose ".." is not the folder that has the link.
TEST_P(ReplacedTest, DotsAfterALinkAreThoseOfTheFileSystem) {
  fs::create_directories(own_ / "data/runs");
  fs::create_directories(own_ / "proj");
  fs::create_directory_symlink("../data/runs", own_ / "proj/runs");
  GetParam()(model_, "another", own_ / "proj/model");
  const std::map<std::string, std::string> before = tree_of(own_ / "proj");
  const std::string dots = own_ / "proj/runs/../model";
  GetParam()(other_, "new", dots);
  EXPECT_EQ(tree_of(own_ / "proj"), before);
  EXPECT_EQ(text_of(own_ / "data/model/tokenizer/tokenizer.json"), "new");
  const CanonicalModel read = is_trainer_checkpoint(dots, std::nullopt)
                                  ? read_trainer_checkpoint(dots, std::nullopt, false)
                                  : read_megatron(dots, {});
  EXPECT_TRUE(fs::equivalent(read.tokenizer.name_or_path, own_ / "data/model/tokenizer"));
  EXPECT_TRUE(fs::equivalent(folder_beside_checkpoint(dots), own_ / "data/model/tokenizer"));
}

// What is written there would never be read.
TEST_P(ReplacedTest, ACheckpointIsNoRoot) {
  const std::string golden = std::string(GOLDEN_DIR) + "/convert/";
  const auto copy = [&](const std::string& from) {
    fs::remove_all(root());
    fs::create_directories(own_.path());
    fs::copy(from, root(), fs::copy_options::recursive);
  };
  write_start(model_, tokenizer_of("old"), {.path = own_ / "s"});
  write_megatron(model_, tokenizer_of("old"), {.path = own_ / "m"});
  std::vector<std::string> forms = {own_ / "s/iter_0000000", own_ / "m/release"};
  for (const char* form :
       {"gpt2/tp2pp2/iter_0000010", "gpt2/deepspeed/global_step4", "gpt2/zero3/global_step9",
        "torch_dist/llama_tp2", "neox/sequential/checkpoints/global_step7"})
    forms.push_back(golden + form);
  for (const std::string& form : forms) {
    copy(form);
    const std::map<std::string, std::string> before = tree_of(root());
    EXPECT_THAT(error_of<std::system_error>([&] { GetParam()(other_, "new", root()); }),
                HasSubstr(root() + ": is a checkpoint itself"))
        << form;
    EXPECT_EQ(tree_of(root()), before) << form;
  }
}

// meta.json of another program, which need not be JSON.
TEST_P(ReplacedTest, AnotherProgramsFolderIsSetAside) {
  GetParam()(model_, "old", root());
  if (!is_trainer_checkpoint(root(), std::nullopt)) return;
  for (const char* text : {"lang: en", "{\"name\": \"data\"}"}) {
    fs::remove_all(root());
    fs::create_directories(root() + "/iter_0000000");
    std::ofstream(root() + "/iter_0000000/meta.json") << text;
    GetParam()(other_, "new", root());
    EXPECT_EQ(text_of(root() + "/iter_0000000.set_aside/meta.json"), text);
    EXPECT_EQ(found(), "new");
  }
}

TEST_P(ReplacedTest, ANumberThatIsNotFiniteIsRefusedAndTheOldOneIsWhole) {
  GetParam()(model_, "old", root());
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const CanonicalModel damaged =
        with_weight([value](std::span<float> numbers) { numbers.back() = value; });
    EXPECT_EQ(error_of<indexed::FormatError>([&] { GetParam()(damaged, "new", root()); }),
              "model.safetensors: model.norm.weight: has numbers that are not finite in F32");
    EXPECT_EQ(found(), "old");
    EXPECT_FALSE(fs::exists(root() + "/.tokenizer.tmp"));
  }
}

// A link in the place of the tokenizer's folder, or of a file in it, leads to another model's.
TEST_P(ReplacedTest, NothingIsWrittenThroughALink) {
  fs::create_directories(own_ / "other");
  std::ofstream(own_ / "other/tokenizer.json") << "another model's";
  GetParam()(model_, "old", root());
  fs::remove(root() + "/tokenizer/tokenizer.json");
  fs::create_symlink(own_ / "other/tokenizer.json", root() + "/tokenizer/tokenizer.json");
  GetParam()(other_, "new", root());
  EXPECT_EQ(found(), "new");
  fs::remove_all(root() + "/tokenizer");
  fs::create_directory_symlink(own_ / "other", root() + "/tokenizer");
  GetParam()(model_, "old", root());
  EXPECT_EQ(found(), "old");
  EXPECT_EQ(text_of(own_ / "other/tokenizer.json"), "another model's");
}

// Each part of the checkpoint is moved elsewhere, and a link to it put into its place.
TEST_P(ReplacedTest, ALinkInACheckpointIsReplacedWhenTheWeightsAreThere) {
  const CanonicalModel damaged = with_weight(
      [](std::span<float> numbers) { numbers[0] = std::numeric_limits<float>::infinity(); });
  for (const char* part :
       {"iter_0000000", "release", "release/mp_rank_00", "release/mp_rank_00/model_optim_rng.pt",
        "tokenizer", "tokenizer/tokenizer.json", "latest_checkpointed_iteration.txt"}) {
    fs::remove_all(own_.path());
    GetParam()(model_, "old", root());
    const std::string path = root() + "/" + part;
    if (!fs::exists(path)) continue;  // of the other form
    fs::create_directories(own_ / "other");
    fs::rename(path, own_ / "other/part");
    fs::create_symlink(own_ / "other/part", path);
    EXPECT_THAT(error_of([&] { GetParam()(damaged, "new", root()); }), HasSubstr("not finite"));
    EXPECT_EQ(found(), "old") << part;
    EXPECT_EQ(fs::read_symlink(path), own_ / "other/part");
    const std::map<std::string, std::string> other = tree_of(own_ / "other");
    GetParam()(other_, "new", root());
    EXPECT_EQ(found(), "new") << part;
    EXPECT_FALSE(fs::is_symlink(path)) << part;
    EXPECT_EQ(tree_of(own_ / "other"), other) << part;
    for (const auto& [name, text] : tree_of(root())) EXPECT_FALSE(name.ends_with(".tmp")) << name;
  }
}

TEST_P(ReplacedTest, ATemplateIsNotWrittenThroughALink) {
  GetParam()(model_, "old", root());
  fs::create_directories(own_ / "templates");
  std::ofstream(own_ / "templates/a.jinja") << "another model's";
  fs::create_directory_symlink(own_ / "templates", root() + "/tokenizer/" + kTemplatesFolder);
  GetParam()(other_, "new", root());
  EXPECT_EQ(found(), "new");
  EXPECT_EQ(text_of(own_ / "templates/a.jinja"), "another model's");
  EXPECT_FALSE(fs::exists(root() + "/tokenizer/" + kTemplatesFolder));
}

// The other one would keep its weights and get the new tokenizer.
TEST_P(ReplacedTest, ARootWithAnotherCheckpointIsRefused) {
  GetParam()(model_, "old", root());
  const bool trainers = fs::exists(root() + "/iter_0000000");
  for (const std::string other :
       {"iter_0000500", "global_step500", trainers ? "release" : "iter_0000000"}) {
    fs::create_directories(root() + "/" + other + "/mp_rank_00");
    std::ofstream(root() + "/" + other + "/mp_rank_00/model_optim_rng.pt") << "x";
    const std::map<std::string, std::string> before = tree_of(root());
    EXPECT_THAT(error_of([&] { GetParam()(other_, "new", root()); }),
                HasSubstr("root/" + other + ": another checkpoint"));
    EXPECT_EQ(tree_of(root()), before);
    fs::remove_all(root() + "/" + other);
  }
  EXPECT_EQ(found(), "old");
  fs::create_directories(root() + "/iter_0000500.set_aside/x");  // no reader takes it
  fs::create_directories(root() + "/iter_0000600/mp_rank_00");   // of one that was killed
  GetParam()(other_, "new", root());
  EXPECT_EQ(found(), "new");
}

TEST_P(ReplacedTest, WhatIsInTheWayIsFoundBeforeAnythingChanges) {
  GetParam()(model_, "old", root());
  const bool trainers = fs::exists(root() + "/iter_0000000");
  std::vector<std::pair<std::string, bool>> parts = {// and whether it is to be a folder
                                                     {"tokenizer", true},
                                                     {"tokenizer/tokenizer.json", false},
                                                     {"tokenizer/additional_chat_templates", true},
                                                     {"latest_checkpointed_iteration.txt", false}};
  if (trainers)
    parts.emplace_back("iter_0000000", true);
  else
    parts.insert(parts.end(), {{"release", true},
                               {"release/mp_rank_00", true},
                               {"release/mp_rank_00/model_optim_rng.pt", false}});
  for (const auto& [part, folder] : parts) {
    fs::remove_all(root());
    GetParam()(model_, "old", root());
    const std::string path = root() + "/" + part;
    fs::remove_all(path);
    if (folder)
      std::ofstream(path) << "x";
    else
      fs::create_directories(path + "/x");
    const std::map<std::string, std::string> before = tree_of(root());
    EXPECT_THAT(error_of<std::system_error>([&] { GetParam()(other_, "new", root()); }),
                HasSubstr(part + (folder ? ": in the place of a folder: Not a directory"
                                         : ": in the place of a file: Is a directory")));
    EXPECT_EQ(tree_of(root()), before) << part;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ReplacedTest, testing::Values(write_trainers, write_megatrons),
                         [](const testing::TestParamInfo<Write>& info) {
                           return std::string(info.index == 0 ? "Trainer" : "Megatron");
                         });

class ReplacedFiles : public ReplacedModelTest {};

// Several ranks' files, of which one would be replaced; DeepSpeed's tracker.
TEST_F(ReplacedFiles, WhatWouldBeReadInPlaceOfMegatronsFileIsRefused) {
  const auto write = [&] {
    write_megatron(model_, tokenizer_of("new"), {.path = own_ / "root", .replace = true});
  };
  write();
  for (const char* name : {"release/mp_rank_01", "release/metadata.json",
                           "release/mp_rank_00/distrib_optim.pt", "latest"}) {
    fs::create_directories(own_ / (std::string("root/") + name));
    EXPECT_THAT(error_of<std::system_error>(write), HasSubstr(name)) << name;
    fs::remove(own_ / (std::string("root/") + name));
    write();
  }
}

TEST_F(ReplacedFiles, WithoutForceNothingIsReplaced) {
  const std::string root = own_ / "root";
  const auto write = [&] { write_start(model_, tokenizer_of("new"), {.path = root}); };
  fs::create_directories(root + "/tokenizer");
  for (const char* name : {"tokenizer.json", "vocab.json", "config.json"}) {
    const std::string path = root + "/tokenizer/" + name;
    std::ofstream(path) << "another model's";
    EXPECT_THAT(error_of(write), HasSubstr(path + ": not replaced without --force"));
    EXPECT_EQ(text_of(path), "another model's");
    fs::remove(path);
  }
  std::ofstream(root + "/tokenizer/tokenizer.json") << "new";  // of this conversion, killed
  EXPECT_EQ(error_of(write), "accepted");
  fs::remove(root + "/latest_checkpointed_iteration.txt");
  EXPECT_THAT(error_of(write), HasSubstr("iter_0000000/meta.json: not replaced without --force"));
  fs::remove(root + "/iter_0000000/meta.json");
  EXPECT_THAT(error_of(write), HasSubstr("iter_0000000: not the trainer's"));
  fs::remove_all(root + "/iter_0000000");
  fs::create_symlink(own_ / "nowhere", root + "/latest_checkpointed_iteration.txt");
  EXPECT_THAT(error_of(write), HasSubstr("iteration.txt: not replaced without --force"));
}

TEST_F(ReplacedFiles, MegatronsFileReplacesALinkUnlessTheUserNamesIt) {
  const auto write = [&](const std::string& path) {
    write_megatron(model_, tokenizer_of("new"), {.path = own_ / path, .replace = true});
  };
  write("root");
  link("root/release/mp_rank_00/model_optim_rng.pt");
  write("root");
  EXPECT_EQ(text_of(own_ / "blob"), "another model's");
  EXPECT_EQ(error_of([&] { read_megatron(own_ / "root", {}); }), "accepted");
  link("one.pt");
  write("one.pt");
  EXPECT_TRUE(fs::is_symlink(own_ / "one.pt"));
  EXPECT_EQ(error_of([&] { read_megatron(own_ / "blob", {}); }), "accepted");
}

TEST_F(ReplacedFiles, ALinkForTheTokenizerIsRefusedWithoutForce) {
  fs::create_directories(own_ / "root");
  fs::create_directories(own_ / "other");
  fs::create_directory_symlink(own_ / "other", own_ / "root/tokenizer");
  EXPECT_THAT(error_of([&] { write_start(model_, tokenizer_of("new"), {.path = own_ / "root"}); }),
              HasSubstr("root/tokenizer: a link, not replaced without --force"));
  EXPECT_TRUE(fs::is_empty(own_ / "other"));
}

}  // namespace
}  // namespace convert
