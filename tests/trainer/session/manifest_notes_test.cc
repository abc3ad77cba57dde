// What a run is told of its datasets' manifests.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/manifest_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "libindexed/builder.h"
#include "libindexed/manifest.h"
#include "tests/own.h"

namespace trainer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ManifestNotesTest : public testing::Test {
 protected:
  // Documents 7 8 `last`, with a manifest that says `from`.
  std::string make(const std::string& name, const indexed::Provenance& from, int32_t last = 9,
                   bool manifest = true, int documents = 100) {
    const std::string prefix = own_ / name;
    indexed::IndexedDatasetBuilder builder(prefix,
                                           {.dtype = indexed::DType::int32, .manifest = manifest});
    for (int i = 0; i < documents; ++i) {
      const std::vector<int32_t> tokens = {7, 8, last};
      builder.add_document(tokens);
    }
    builder.finish(from);
    return prefix;
  }

  std::vector<std::string> notes(std::vector<std::string> data_path) {
    config_.data_path = std::move(data_path);
    return manifest_notes(config_, vocabulary_);
  }

  TrainConfig config_;
  Vocabulary vocabulary_{.vocab_size = 100, .eod_id = 0};
  tests::OwnFolder own_;
};

TEST_F(ManifestNotesTest, DocumentsThatEndOtherwiseThanTheRunBelievesAreNamed) {
  const std::string none = make("none", {.eod_token = -1}), other = make("other", {.eod_token = 1});
  EXPECT_THAT(notes({"0.5", none, "0.5", other}), IsEmpty());
  config_.eod_mask_loss = true;
  EXPECT_THAT(notes({none}),
              ElementsAre(none + ": no token ends its documents, the end of a document is 0 here: "
                                 "--eod-mask-loss finds none there"));
  config_.reset_position_ids = config_.reset_attention_mask = true;
  EXPECT_THAT(
      notes({other}),
      ElementsAre(other + ": token 1 ends its documents, the end of a document is 0 here: "
                          "--eod-mask-loss, --reset-attention-mask and --reset-position-ids find "
                          "none there"));
  config_.eod_mask_loss = config_.reset_attention_mask = false;
  const std::string second = make("second", {.eod_token = 1});
  EXPECT_THAT(
      notes({"0.2", other, "0.3", none, "0.5", second}),
      ElementsAre(other + " and 1 more: token 1 ends its documents, the end of a document is 0 "
                          "here: --reset-position-ids finds none there",
                  none + ": no token ends its documents, the end of a document is 0 here: "
                         "--reset-position-ids finds none there"));
}

TEST_F(ManifestNotesTest, NothingIsSaidWhereNothingIsKnownOrTheEndIsThere) {
  config_.eod_mask_loss = true;
  EXPECT_THAT(notes({make("right", {.eod_token = 0}, 0)}), IsEmpty());
  EXPECT_THAT(notes({make("bare", {}, 9, false)}), IsEmpty());
  EXPECT_THAT(notes({make("template", {.eod_token = -1}, 0)}), IsEmpty());
  EXPECT_THAT(notes({own_ / "missing"}), IsEmpty());
  // A manifest that another dataset left under this name.
  const std::string one = make("one", {.eod_token = -1}, 9, true, 1);
  EXPECT_EQ(notes({one}).size(), 1u);
  std::filesystem::copy_file(own_ / "one.manifest", own_ / "bare.manifest");
  EXPECT_THAT(notes({own_ / "bare"}), IsEmpty());
  std::ofstream(own_ / "bare.manifest") << "no manifest";
  EXPECT_THAT(notes({own_ / "bare"}), IsEmpty());
}

TEST_F(ManifestNotesTest, AnotherTokenizerThanTheRunsOrTheFirstDatasetsIsNamed) {
  const std::string a = make("a", {.tokenizer = "A v.json", .tokenizer_hash = "1"});
  const std::string b = make("b", {.tokenizer = "B w.json", .tokenizer_hash = "2"});
  const std::string other = ": its tokenizer (B w.json) differs from ";
  const std::string end = ": the same ids may mean other tokens";
  EXPECT_THAT(notes({a}), IsEmpty());
  EXPECT_THAT(notes({"0.5", a, "0.5", b}),
              ElementsAre(b + other + "that of " + a + " (A v.json)" + end));
  vocabulary_.identity = "1";
  vocabulary_.files = "--vocab-file v.json";
  EXPECT_THAT(notes({a}), IsEmpty());
  EXPECT_THAT(notes({"0.5", b, "0.5", a}),
              ElementsAre(b + other + "this run's (--vocab-file v.json)" + end));
  // Ids of a NullTokenizer are another program's, and no manifest says nothing.
  const std::string null =
      make("null", {.tokenizer = "NullTokenizer", .tokenizer_hash = "NullTokenizer"});
  for (const std::string& prefix : {null, make("bare", {}, 9, false), make("merged", {})})
    EXPECT_THAT(notes({prefix}), IsEmpty());
  vocabulary_.identity = "";
  EXPECT_THAT(notes({"0.5", null, "0.5", a}), IsEmpty());
}

}  // namespace
}  // namespace trainer
