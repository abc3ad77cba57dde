// See manifest_notes.h. A dataset is opened only where its manifest gives something to say.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/manifest_notes.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "libindexed/dataset.h"
#include "libindexed/manifest.h"
#include "tools/cli/text.h"
#include "trainer/data/batch_loader.h"

namespace trainer {
namespace {

using cli::concat;

constexpr int64_t kLookedAt = 64;  // documents whose last token is compared.

// What its manifest says about a dataset; nothing without one, or if it cannot be read.
std::optional<indexed::Manifest> read_quietly(const std::string& prefix) {
  try {
    return indexed::read_manifest(prefix);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// Opens a dataset to whose manifest there is something to say; nothing if that is another's.
std::optional<indexed::IndexedDataset> open_own(const std::string& prefix,
                                                const indexed::Manifest& manifest) {
  try {
    indexed::IndexedDataset data =
        indexed::IndexedDataset::open(prefix, {.refuse = indexed::MappedFile::Refuse::cuts});
    if (indexed::is_of(manifest, data)) return data;
  } catch (const std::exception&) {  // the run reports it.
  }
  return std::nullopt;
}

// Whether some document ends with the token although the manifest does not say so: a template can
// put it there, and a merge of datasets that end otherwise has no common one.
bool some_end_with(const indexed::IndexedDataset& data, int64_t token) {
  const int64_t documents = data.num_documents(), looked_at = std::min(documents, kLookedAt);
  for (int64_t i = 0; i < looked_at; ++i) {
    const indexed::TokenView tokens = data.document(documents / looked_at * i);
    if (tokens.size() > 0 && tokens[tokens.size() - 1] == token) return true;
  }
  return false;
}

// Messages, each with the datasets that it is about.
class Notes {
 public:
  void add(const std::string& prefix, const std::string& text) {
    for (Entry& entry : entries_) {
      if (entry.text != text) continue;
      ++entry.datasets;
      return;
    }
    entries_.push_back({text, prefix, 1});
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const Entry& entry : entries_) {
      const std::string more =
          entry.datasets == 1 ? "" : concat(" and ", cli::with_commas(entry.datasets - 1), " more");
      lines.push_back(concat(entry.first, more, ": ", entry.text));
    }
    return lines;
  }

 private:
  struct Entry {
    std::string text, first;
    int64_t datasets;
  };
  std::vector<Entry> entries_;
};

// How the documents of a dataset end, if that hides them from a flag of the run; else empty.
std::string ends_note(const TrainConfig& config, int64_t eod, const indexed::Provenance& from) {
  std::vector<std::string> flags;
  if (config.eod_mask_loss) flags.emplace_back("--eod-mask-loss");
  if (config.reset_attention_mask) flags.emplace_back("--reset-attention-mask");
  if (config.reset_position_ids) flags.emplace_back("--reset-position-ids");
  if (flags.empty() || from.eod_token == eod) return {};
  const std::string ends = from.eod_token < 0 ? "no token" : concat("token ", from.eod_token);
  const bool one = flags.size() == 1;
  const std::string last = flags.back();
  flags.pop_back();
  return concat(ends, " ends its documents, the end of a document is ", eod,
                " here: ", cli::join(flags, ", "), one ? "" : " and ", last,
                one ? " finds" : " find", " none there");
}

}  // namespace

std::vector<std::string> manifest_notes(const TrainConfig& config, const Vocabulary& own) {
  std::vector<std::string> prefixes;
  try {
    prefixes = dataset_prefixes(config);
  } catch (const std::exception&) {  // the run reports it.
    return {};
  }
  Notes notes;
  indexed::KnownTokenizer known{own.identity, concat("this run's (", own.files, ")")};
  for (const std::string& prefix : prefixes) {
    const std::optional<indexed::Manifest> manifest = read_quietly(prefix);
    if (!manifest) continue;
    const indexed::Provenance& from = manifest->provenance;
    const std::string ends = ends_note(config, own.eod_id, from);
    const std::string tokenizer = known.other(from);
    const bool first =
        prefixes.size() > 1 && known.identity.empty() && !from.tokenizer_hash.empty();
    if (ends.empty() && tokenizer.empty() && !first) continue;
    const std::optional<indexed::IndexedDataset> data = open_own(prefix, *manifest);
    if (!data) continue;
    if (!tokenizer.empty()) notes.add(prefix, tokenizer);
    if (!ends.empty() && !some_end_with(*data, own.eod_id)) notes.add(prefix, ends);
    known.learn(prefix, from);
  }
  return notes.lines();
}

}  // namespace trainer
