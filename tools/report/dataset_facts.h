// SPDX-License-Identifier: MIT
// Room: tools/report. What the page says about a dataset: sizes, document lengths, documents that
// occur twice, where documents come from, and some of them as text. Reads the dataset once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libtok/tokenizer.h"
#include "tools/dataset/describe.h"
#include "tools/dataset/lengths.h"

namespace report {

/// One document of the page of samples.
struct Sample {
  int64_t document = 0, tokens = 0;
  std::string source;  ///< such as "corpus.jsonl:18"; empty if unknown
  std::string text;    ///< decoded, or ids if there is no tokenizer; at most the wanted tokens
};

/// A file that documents came from.
struct Source {
  std::string path;
  int64_t documents = 0;
};

/// Everything that is shown of a dataset.
struct DatasetFacts {
  std::string prefix;
  std::string dtype;
  int64_t documents = 0, sequences = 0, tokens = 0, bin_bytes = 0;
  dataset::LengthCounts lengths;  ///< tokens of each document
  int64_t empty_documents = 0;
  /// Documents equal to an earlier one, empty ones apart; -1 if not counted.
  int64_t repeated = -1;
  std::string tokenizer, tool;
  std::vector<Source> sources;  ///< most documents first
  std::vector<Sample> samples;
};

/// What to look at.
struct DatasetOptions {
  bool count_repeated = true;  ///< reads all of the .bin, and keeps 8 bytes a document in memory
  int64_t samples = 5;         ///< spread evenly, the same ones each time
  int64_t sample_tokens = 200;
  const tok::Tokenizer* tokenizer = nullptr;  ///< for samples; without it ids are shown
  std::function<void(int64_t, int64_t)> on_progress = {};  ///< documents read so far, and all
};

/// Reads a dataset's facts. Errors: indexed::FormatError, std::system_error.
DatasetFacts read_facts(const std::string& prefix, const DatasetOptions& options);

}  // namespace report
