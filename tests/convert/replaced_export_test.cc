// SPDX-License-Identifier: MIT
// Exports for transformers over what is in their folder: with --force the old model is whole until
// the new one is, and what is the user's stays; without it nothing is replaced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

#include "convert/file_identity.h"
#include "convert/hf_folder.h"
#include "tests/convert/replaced.h"

namespace convert {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ReplacedExport : public ReplacedModelTest {};

// As the hub's cache has its folders: every file is a link.
TEST_F(ReplacedExport, LinksInAFolderAreReplaced) {
  const HfTarget target{.folder = own_ / "hf", .replace = true};
  const Family& family = *find_family("llama");
  write_hf_folder(model_, family, tokenizer_of("old"), target);
  for (const char* name : {"hf/model.safetensors", "hf/config.json", "hf/tokenizer.json"})
    link(name);
  fs::create_directories(own_ / "templates");
  std::ofstream(own_ / "templates/a.jinja") << "another model's";
  fs::create_directory_symlink(own_ / "templates", own_ / "hf/additional_chat_templates");
  TokenizerFiles files = tokenizer_of("new");
  files.files.push_back({"additional_chat_templates/a.jinja", "new"});
  write_hf_folder(model_, family, files, target);
  EXPECT_EQ(text_of(own_ / "blob"), "another model's");
  EXPECT_EQ(text_of(own_ / "templates/a.jinja"), "another model's");
  EXPECT_EQ(text_of(own_ / "hf/additional_chat_templates/a.jinja"), "new");
  EXPECT_FALSE(fs::is_symlink(own_ / "hf/model.safetensors"));
  EXPECT_EQ(read_hf_folder(own_ / "hf").tensors.size(), model_.tensors.size());
}

TEST_F(ReplacedExport, OfTwoExportsAtOnceTheSecondIsRefused) {
  const HfTarget target{.folder = own_ / "hf", .replace = true};
  const Family& family = *find_family("llama");
  CanonicalModel during = model_;
  TensorSource& norm = during.tensors.at("decoder.final_layernorm.weight");
  std::string second;
  norm.read_rows = [&, read = norm.read_rows](int64_t first, int64_t count, std::byte* out) {
    if (second.empty())
      second = error_of([&] { write_hf_folder(model_, family, tokenizer_of("second"), target); });
    read(first, count, out);
  };
  write_hf_folder(during, family, tokenizer_of("new"), target);
  EXPECT_THAT(second, HasSubstr(own_ / "hf: another conversion is writing there"));
  EXPECT_EQ(text_of(own_ / "hf/tokenizer.json"), "new");
  EXPECT_EQ(read_hf_folder(own_ / "hf").tensors.size(), model_.tensors.size());
}

TEST_F(ReplacedExport, AFolderInThePlaceOfAFileIsFoundWhileTheOldModelIsWhole) {
  const HfTarget target{.folder = own_ / "hf", .replace = true};
  const Family& family = *find_family("llama");
  TokenizerFiles files = tokenizer_of("new");
  files.files.push_back({"additional_chat_templates/a.jinja", "new"});
  const auto write = [&] { write_hf_folder(model_, family, files, target); };
  write();
  fs::create_directories(own_ / "hf/tokenizer.old/full");  // the user's
  for (const char* name : {"hf/model.safetensors", "hf/generation_config.json",
                           "hf/additional_chat_templates/a.jinja"}) {
    fs::remove(own_ / name);
    fs::create_directories(own_ / name + "/full");
    EXPECT_THAT(error_of(write), HasSubstr(name + std::string(": in the place of a file")));
    EXPECT_TRUE(fs::exists(own_ / "hf/config.json"));
    fs::remove_all(own_ / name);
    write();
  }
  fs::remove_all(own_ / "hf/additional_chat_templates");
  std::ofstream(own_ / "hf/additional_chat_templates") << "x";
  EXPECT_THAT(error_of(write), HasSubstr("templates: in the place of a folder: Not a directory"));
  EXPECT_TRUE(fs::exists(own_ / "hf/config.json"));
  EXPECT_TRUE(fs::exists(own_ / "hf/tokenizer.old/full"));
}

// Files already in the folder are the user's: they are not replaced without --force, not removed
// when a failed run removes its own files, and not removed because their names look like those of
// weights.
TEST_F(ReplacedExport, FilesOfOthersStay) {
  const auto write = [&](bool replace) {
    write_hf_folder(model_, *find_family("llama"), tokenizer_of("new"),
                    {.folder = own_ / "hf", .replace = replace});
  };
  const auto put = [&](const std::string& name) { std::ofstream(own_ / ("hf/" + name)) << "mine"; };
  const auto mine = [&](const std::string& name) {
    std::string text;
    std::ifstream(own_ / ("hf/" + name)) >> text;
    return text == "mine";
  };
  fs::create_directories(own_ / "hf/additional_chat_templates");
  for (const std::string name :
       {"additional_chat_templates/tools.jinja", "vocab.json", "model.safetensors",
        "model-00002-of-00003.safetensors", "model.safetensors.index.json",
        "generation_config.json", "config.json"}) {
    put(name);
    EXPECT_THAT(error_of([&] { write(false); }),
                HasSubstr(name + ": not replaced without --force"));
    EXPECT_TRUE(mine(name));
    fs::remove(own_ / ("hf/" + name));
  }
  const std::vector<std::string> others = {
      "model_ema.safetensors",  "notes",
      "tokenizer.notes",        "tokenization_mine.py",
      "chat_template_mine.txt", "chat_template.jinja.bak",
      "mine.tiktoken",          "additional_chat_templates/notes"};
  for (const std::string& name : others) put(name);
  const std::vector<std::string> old = {"tokenizer.model",
                                        "tokenizer.model.v3",
                                        "tokenizer.4.0.0.json",
                                        "chat_template.jinja",
                                        "additional_chat_templates/tools.jinja",
                                        "model-00002-of-00003.safetensors"};
  for (const std::string& name : old) put(name);
  write(true);
  for (const std::string& name : others) EXPECT_TRUE(mine(name)) << name;
  for (const std::string& name : old) EXPECT_FALSE(fs::exists(own_ / ("hf/" + name))) << name;
  EXPECT_THAT(error_of([&] { write(false); }), HasSubstr("config.json: not replaced without"));
  // One that comes while the weights are written, too.
  fs::remove_all(own_ / "hf");
  const auto put_meanwhile = [&](int64_t, int64_t) { put("vocab.json"); };
  EXPECT_THAT(error_of([&] {
                write_hf_folder(model_, *find_family("llama"), tokenizer_of("new"),
                                {.folder = own_ / "hf", .progress = put_meanwhile});
              }),
              HasSubstr("vocab.json: not replaced without --force"));
  EXPECT_TRUE(mine("vocab.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(own_ / "hf"), {}), 1)
      << "what this run wrote stays";
}

// Also what is no file, below the folder.
TEST_F(ReplacedExport, WhatIsInTheNameOfATemplateStays) {
  TokenizerFiles files = tokenizer_of("new");
  files.files.push_back({"additional_chat_templates/a.jinja", "new"});
  HfTarget target{.folder = own_ / "hf"};
  const std::string name = own_ / "hf/additional_chat_templates/a.jinja";
  fs::create_directories(fs::path(name).parent_path());
  fs::create_symlink("nowhere", name);
  const auto write = [&] { write_hf_folder(model_, *find_family("llama"), files, target); };
  EXPECT_THAT(error_of(write), HasSubstr("a.jinja: not replaced without --force"));
  EXPECT_TRUE(fs::is_symlink(name));
  target.replace = true;
  write();
  EXPECT_EQ(text_of(name), "new");
}

// Nobody sees the new model who could not see the old one.
TEST_F(ReplacedExport, APrivateExportStaysPrivate) {
  HfTarget target{.folder = own_ / "hf", .replace = true};
  write_hf_folder(model_, *find_family("llama"), tokenizer_of("new"), target);
  for (const fs::directory_entry& entry : fs::directory_iterator(own_ / "hf"))
    fs::permissions(entry.path(), fs::perms::owner_read | fs::perms::owner_write);
  const fs::perms others = fs::perms::group_all | fs::perms::others_all;
  int looks = 0;
  target.progress = [&](int64_t, int64_t) {
    const fs::path unnamed = own_ / "hf/.megatron-to-hf.tmp";
    looks += (fs::status(unnamed).permissions() & others) == fs::perms::none;
  };
  target.max_shard_bytes = 4000;  // shards replace one file
  write_hf_folder(model_, *find_family("llama"), tokenizer_of("new"), target);
  EXPECT_GT(looks, 0);
  for (const fs::directory_entry& entry : fs::directory_iterator(own_ / "hf"))
    EXPECT_EQ(entry.status().permissions() & others, fs::perms::none) << entry.path();
}

// Whatever ends the writing, the folder is as it was, hidden files included.
TEST_F(ReplacedExport, AFailureLeavesTheFolderAsItWas) {
  const auto names = [&] {
    std::set<std::string> found;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(own_ / "hf"))
      found.insert(entry.path().string() + " " + file_identity(entry.path()));
    return found;
  };
  const auto fail = [](int64_t done, int64_t total) {
    if (done == total) throw std::runtime_error("no more");
  };
  HfTarget target{.folder = own_ / "hf", .replace = true};
  write_hf_folder(model_, *find_family("llama"), tokenizer_of("new"), target);
  const std::set<std::string> before = names();
  ASSERT_GT(before.size(), 4U);
  target.progress = fail;
  EXPECT_THAT(error_of([&] {
                write_hf_folder(model_, *find_family("llama"), tokenizer_of("new"), target);
              }),
              HasSubstr("no more"));
  EXPECT_EQ(names(), before);
  fs::remove_all(own_ / "hf");
  EXPECT_THAT(error_of([&] {
                write_hf_folder(model_, *find_family("llama"), tokenizer_of("new"), target);
              }),
              HasSubstr("no more"));
  EXPECT_TRUE(fs::is_empty(own_ / "hf"));
}

}  // namespace
}  // namespace convert
