// See batch_loader.h. A sample is read into a row and then written to a column of the batch, since
// activations are (S, B, H).
// Not here: opening the data (training_data.cc).
//
// SPDX-License-Identifier: MIT
#include "trainer/data/batch_loader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <map>
#include <set>

#include "libindexed/crc32c.h"
#include "libindexed/format.h"
#include "libindexed/message.h"

namespace trainer {
namespace {

using indexed::message;

template <class T>
std::span<T> from(std::span<T> array, int64_t offset) {
  return array.empty() ? array : array.subspan(static_cast<size_t>(offset));
}

// The document of a sequence: the last one whose first sequence is not after it.
int64_t document_of(const indexed::IndexedDataset& dataset, int64_t sequence) {
  const auto indices = dataset.document_indices();
  int64_t low = 0, high = static_cast<int64_t>(indices.size()) - 1;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (indices[static_cast<size_t>(middle)] <= sequence ? low : high) = middle;
  }
  return low;
}

// "3, 17-19", with a limited number of runs.
std::string describe_numbers(const std::set<int64_t>& numbers) {
  constexpr int kMostRuns = 40;
  std::string out;
  int runs = 0;
  for (std::set<int64_t>::const_iterator at = numbers.begin(); at != numbers.end();) {
    if (++runs > kMostRuns) return out + message(", ... (", numbers.size(), " in all)");
    const int64_t first = *at;
    int64_t last = first;
    while (++at != numbers.end() && *at == last + 1) last = *at;
    out += out.empty() ? "" : ", ";
    out += last == first ? std::to_string(first) : message(first, "-", last);
  }
  return out;
}

}  // namespace

void fill_sample(std::span<const int32_t> tokens, const BatchLoaderOptions& options,
                 const BatchArrays& out, int64_t stride) {
  int32_t start = 0;  // of the document of the current position.
  const int32_t eod = static_cast<int32_t>(options.eod_id);
  const int32_t length = static_cast<int32_t>(tokens.size()) - 1;
  for (int32_t s = 0; s < length; ++s) {
    const size_t at = static_cast<size_t>(s * stride);
    const int32_t token = tokens[static_cast<size_t>(s)];
    const bool ends = token == eod;
    out.tokens[at] = token;
    out.labels[at] = tokens[static_cast<size_t>(s) + 1];
    out.positions[at] = options.reset_position_ids ? s - start : s;
    out.loss_mask[at] = ends && options.eod_mask_loss ? 0.0f : 1.0f;
    if (!out.first_key.empty()) {
      const int32_t document = options.reset_attention_mask ? start : 0;
      const int32_t window = static_cast<int32_t>(options.sliding_window);
      out.first_key[at] = window > 0 ? std::max(document, s - window + 1) : document;
    }
    if (ends) start = s + 1;
  }
}

int64_t counted_tokens(std::span<const float> loss_mask) noexcept {
  return std::ranges::count_if(loss_mask, [](float weight) { return weight != 0; });
}

void weigh_tokens(std::span<float> loss_mask, int64_t num_microbatches, int64_t data_parallel_size,
                  int64_t total_tokens) noexcept {
  const double parts = static_cast<double>(num_microbatches * data_parallel_size);
  const float weight =
      total_tokens == 0 ? 0 : static_cast<float>(parts / static_cast<double>(total_tokens));
  for (float& element : loss_mask) element *= weight;
}

int64_t BatchLoader::sample(int64_t consumed_samples, int64_t microbatch, int64_t b) const {
  const int64_t chunk = microbatch * options_.data_parallel_size + options_.data_parallel_rank;
  const int64_t number = consumed_samples + chunk * options_.micro_batch_size + b;
  if (options_.starts_over && num_samples() > 0) return number % num_samples();
  if (number >= num_samples()) {
    throw indexed::FormatError(
        message("sample ", number, " is wanted, the data has ", num_samples()));
  }
  return number;
}

void BatchLoader::check_tokens(int64_t sample, std::span<const int32_t> tokens) const {
  const int32_t limit = static_cast<int32_t>(options_.vocab_size);
  const auto bad = std::ranges::find_if(tokens, [&](int32_t t) { return t < 0 || t >= limit; });
  if (bad == tokens.end()) return;
  const indexed::SplitData::Place place = split_->place(sample);
  const indexed::IndexedDataset& dataset = data_->datasets()[place.member->dataset];
  std::vector<indexed::SamplePiece> pieces;
  place.member->index.pieces(place.sample, dataset, pieces);
  int64_t at = bad - tokens.begin();
  for (const indexed::SamplePiece& piece : pieces) {
    if (at < piece.num_tokens) {
      const int64_t id = dataset.sequence(piece.sequence)[piece.offset + at];
      throw indexed::FormatError(
          message(dataset.prefix(), ".bin: document ", document_of(dataset, piece.sequence),
                  ", token ", piece.offset + at, ": id ", id, ": the vocabulary has ids 0 to ",
                  limit - 1, id == limit ? options_.one_above : std::string()));
    }
    at -= piece.num_tokens;
  }
}

void BatchLoader::fill(int64_t consumed_samples, int64_t num_microbatches,
                       const BatchArrays& out) const {
  const int64_t length = options_.seq_length, width = options_.micro_batch_size;
  std::vector<int32_t> row(static_cast<size_t>(length) + 1);
  for (int64_t m = 0; m < num_microbatches; ++m) {
    for (int64_t b = 0; b < width; ++b) {
      const int64_t number = sample(consumed_samples, m, b);
      const int64_t count = data_->read(*split_, number, row);
      if (count != length + 1) {
        throw indexed::FormatError(
            message("sample ", number, " has ", count, " tokens, expected ", length + 1));
      }
      check_tokens(number, row);
      const int64_t offset = m * length * width + b;
      fill_sample(row, options_,
                  {from(out.tokens, offset), from(out.labels, offset), from(out.positions, offset),
                   from(out.loss_mask, offset), from(out.first_key, offset)},
                  width);
    }
  }
}

std::string BatchLoader::digest(int64_t consumed_samples) const {
  constexpr int64_t kSamples = 8;
  if (consumed_samples < 1 || consumed_samples > num_samples()) return "";
  std::vector<int32_t> row(static_cast<size_t>(options_.seq_length) + 1);
  uint32_t checksum = 0;
  for (int64_t i = std::max<int64_t>(0, consumed_samples - kSamples); i < consumed_samples; ++i) {
    data_->read(*split_, i, row);
    checksum = indexed::crc32c(checksum, std::as_bytes(std::span(row)));
  }
  return indexed::hex8(checksum);
}

std::string BatchLoader::places(int64_t consumed_samples) const {
  constexpr int64_t kMost = 4096;
  std::vector<indexed::SamplePiece> pieces;
  std::string text;
  uint32_t checksum = 0;
  const int64_t count = std::min(kMost, num_samples() - consumed_samples);
  for (int64_t i = 0; i < count; ++i) {
    const indexed::SplitData::Place place = split_->place(consumed_samples + i);
    place.member->index.pieces(place.sample, data_->datasets()[place.member->dataset], pieces);
    const std::array<int64_t, 3> where = {static_cast<int64_t>(place.member->dataset),
                                          pieces.front().sequence, pieces.front().offset};
    checksum = indexed::crc32c(checksum, std::as_bytes(std::span(where)));
    if (std::has_single_bit(static_cast<uint64_t>(i + 1)))
      text += message(text.empty() ? "" : " ", indexed::hex8(checksum));
  }
  return text;
}

std::vector<std::string> BatchLoader::documents(int64_t consumed_samples,
                                                int64_t num_microbatches) const {
  std::map<size_t, std::set<int64_t>> found;
  std::vector<indexed::SamplePiece> pieces;
  for (int64_t m = 0; m < num_microbatches; ++m) {
    for (int64_t b = 0; b < options_.micro_batch_size; ++b) {
      const indexed::SplitData::Place place = split_->place(sample(consumed_samples, m, b));
      const indexed::IndexedDataset& dataset = data_->datasets()[place.member->dataset];
      pieces.clear();
      place.member->index.pieces(place.sample, dataset, pieces);
      for (const indexed::SamplePiece& piece : pieces) {
        found[place.member->dataset].insert(document_of(dataset, piece.sequence));
      }
    }
  }
  std::vector<std::string> out;
  for (const auto& [dataset, numbers] : found) {
    out.push_back(
        message(data_->datasets()[dataset].prefix(), ": documents ", describe_numbers(numbers)));
  }
  return out;
}

}  // namespace trainer
