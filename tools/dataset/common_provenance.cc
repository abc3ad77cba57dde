// SPDX-License-Identifier: MIT
// Room: tools/dataset. Manifests of several inputs, compared and joined; see common_provenance.h.
#include "tools/dataset/common_provenance.h"

#include <utility>
#include <vector>

#include "tools/cli/text.h"

namespace dataset {

std::optional<indexed::Manifest> read_own_manifest(const indexed::IndexedDataset& data) {
  std::optional<indexed::Manifest> manifest = indexed::read_manifest(data.prefix());
  if (manifest && !indexed::is_of(*manifest, data)) {
    throw indexed::FormatError(cli::concat(
        data.prefix(), ".manifest: ", cli::with_commas(manifest->num_documents), " documents and ",
        cli::with_commas(manifest->bin_bytes), " bytes of tokens, but the dataset has ",
        cli::with_commas(data.num_documents()), " and ", cli::with_commas(data.bin_bytes()),
        ": one of them is another dataset's"));
  }
  return manifest;
}

std::string other_dtype(const TokensOf& data, const TokensOf& first) {
  const auto written_here = [](indexed::DType dtype) {
    return dtype == indexed::DType::uint16 || dtype == indexed::DType::int32;
  };
  const bool can_agree = written_here(data.dtype) && written_here(first.dtype);
  return cli::concat(data.prefix, ".idx: dtype ", indexed::dtype_name(data.dtype), " differs from ",
                     indexed::dtype_name(first.dtype), " of ", first.prefix, ".idx",
                     can_agree ? " (make both with bpe-tokenize --dtype int32)" : "");
}

namespace {

std::string token_text(int64_t eod_token) {
  return eod_token < 0 ? "no token" : cli::concat("token ", eod_token);
}

}  // namespace

void CommonProvenance::add(const std::string& prefix,
                           const std::optional<indexed::Manifest>& manifest, int64_t documents) {
  indexed::Provenance from = manifest ? manifest->provenance : indexed::Provenance();
  if (const std::string other = known_.other(from); !other.empty() && !mixed_tokenizers_) {
    throw indexed::FormatError(cli::concat(
        prefix, ": ", other, "; merge-datasets --mixed-tokenizers merges them all the same"));
  }
  known_.learn(prefix, from);
  if (manifest && documents > 0 && ended_.empty()) {
    ended_ = prefix;
    eod_token_ = from.eod_token;
  } else if (manifest && documents > 0 && from.eod_token != eod_token_ && ends_note_.empty()) {
    ends_note_ = cli::concat(prefix, ".manifest: ", token_text(from.eod_token),
                             " ends its documents, ", token_text(eod_token_), " those of ", ended_,
                             ".manifest: that of the output names none");
  }
  if (from.sources.empty() || !from.shuffle_unit.empty()) {
    from.sources = {
        {.path = prefix, .first_document = 0, .num_documents = documents, .first_line = 0}};
  }
  indexed::append_sources(common_.sources, from.sources, documents_);
  documents_ += documents;
  if (first_) {
    std::vector<indexed::SourceRun> sources = std::move(common_.sources);
    common_ = std::move(from);
    common_.sources = std::move(sources);
  } else {
    const auto keep_equal = [](std::string& ours, const std::string& theirs) {
      if (ours != theirs) ours.clear();
    };
    keep_equal(common_.tokenizer, from.tokenizer);
    keep_equal(common_.tokenizer_hash, from.tokenizer_hash);
    keep_equal(common_.configuration_hash, from.configuration_hash);
    if (common_.vocab_size != from.vocab_size) common_.vocab_size = 0;
    if (common_.eod_token != from.eod_token) common_.eod_token = -1;
  }
  first_ = false;
}

indexed::Provenance CommonProvenance::finish(const std::string& tool,
                                             const std::string& command_line) {
  common_.tool = tool;
  common_.command = {command_line};
  common_.shuffle_unit.clear();
  common_.shuffle_seed = 0;
  return std::move(common_);
}

}  // namespace dataset
