// SPDX-License-Identifier: MIT
// Room: tools/report. Reading a dataset's facts; see dataset_facts.h.
#include "tools/report/dataset_facts.h"

#include <algorithm>
#include <map>

#include "libindexed/dataset.h"
#include "libindexed/manifest.h"
#include "tools/dataset/load_tokenizer.h"

namespace report {
namespace {

using indexed::IndexedDataset;

std::vector<int64_t> tokens_of(const IndexedDataset& data, int64_t k, int64_t most) {
  std::vector<int64_t> out;
  const auto documents = data.document_indices();
  for (int64_t i = documents[static_cast<size_t>(k)]; i < documents[static_cast<size_t>(k) + 1];
       ++i) {
    const indexed::TokenView view = data.sequence(i);
    const auto before = static_cast<int64_t>(out.size());
    const int64_t count = std::min(view.size(), most - before);
    for (int64_t j = 0; j < count; ++j) out.push_back(view[j]);
  }
  return out;
}

// A number for a document's tokens: equal documents have equal ones, and two others the same one
// with a chance of 2^-64. Source: the finaliser of splitmix64 (Steele et al. 2014).
uint64_t digest(const std::vector<int64_t>& tokens) {
  uint64_t state = 0x9e3779b97f4a7c15 * (tokens.size() + 1);
  for (const int64_t token : tokens) {
    state += static_cast<uint64_t>(token) + 0x9e3779b97f4a7c15;
    state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
    state = (state ^ state >> 27) * 0x94d049bb133111eb;
    state ^= state >> 31;
  }
  return state;
}

std::vector<Source> sources_of(const indexed::Provenance& from) {
  std::map<std::string, int64_t> counts;
  for (const indexed::SourceRun& run : from.sources) counts[run.path] += run.num_documents;
  std::vector<Source> out;
  for (const auto& [path, documents] : counts) out.push_back({path, documents});
  std::stable_sort(out.begin(), out.end(),
                   [](const Source& a, const Source& b) { return a.documents > b.documents; });
  return out;
}

Sample sample(const IndexedDataset& data, dataset::SourceFinder& finder, int64_t k, int64_t length,
              const DatasetOptions& options) {
  const std::vector<int64_t> ids = tokens_of(data, k, options.sample_tokens);
  Sample out{k, length, finder.where(k), ""};
  if (out.source.starts_with("unknown")) out.source.clear();
  out.text = dataset::shown_text(options.tokenizer, ids);
  if (static_cast<int64_t>(ids.size()) < length) out.text += " ...";
  return out;
}

}  // namespace

DatasetFacts read_facts(const std::string& prefix, const DatasetOptions& options) {
  const IndexedDataset data = IndexedDataset::open(prefix, {});
  DatasetFacts facts;
  facts.prefix = prefix;
  facts.dtype = indexed::dtype_name(data.dtype());
  facts.documents = data.num_documents();
  facts.sequences = data.num_sequences();
  facts.tokens = data.num_tokens();
  facts.bin_bytes = data.bin_bytes();
  std::vector<int64_t> wanted;
  for (int64_t i = 0; i < std::min(options.samples, facts.documents); ++i)
    wanted.push_back((2 * i + 1) * facts.documents /
                     (2 * std::min(options.samples, facts.documents)));
  dataset::SourceFinder finder(data);
  std::vector<uint64_t> digests;
  for (int64_t k = 0; k < facts.documents; ++k) {
    const int64_t length = dataset::document_length(data, k);
    facts.lengths.add(length);
    if (length == 0) ++facts.empty_documents;
    if (options.count_repeated && length > 0) digests.push_back(digest(tokens_of(data, k, length)));
    if (std::binary_search(wanted.begin(), wanted.end(), k))
      facts.samples.push_back(sample(data, finder, k, length, options));
    if (k % 65536 == 65535) {
      data.bin().release();
      data.idx().release();
      if (options.on_progress) options.on_progress(k + 1, facts.documents);
    }
  }
  if (options.count_repeated) {
    std::sort(digests.begin(), digests.end());
    const auto end = std::unique(digests.begin(), digests.end());
    facts.repeated = digests.end() - end;
  }
  if (const auto manifest = indexed::read_manifest(prefix)) {
    facts.tokenizer = manifest->provenance.tokenizer;
    facts.tool = manifest->provenance.tool;
    facts.sources = sources_of(manifest->provenance);
  }
  return facts;
}

}  // namespace report
