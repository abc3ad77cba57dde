// SPDX-License-Identifier: MIT
// The arithmetic of GPTDataset. Megatron loops over samples and, inside, over sequences; here the
// loop is over sequences only. Row r is the place of token r*S + x - 1 of the shuffled text, which
// is the same place (also past empty sequences), and the lengths, which are read in random order,
// can be prefetched.
#include "libindexed/sample_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "libindexed/message.h"
#include "libindexed/numpy_random.h"

namespace indexed {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kFirstWideShuffle = 4294967294;  // numpy.iinfo(uint32).max - 1

std::string place_of(const IndexedDataset& dataset, SequenceRange range,
                     std::string_view split = {}) {
  return message(dataset.prefix(), ".idx: sequences ", range.begin, " to ", range.end,
                 split.empty() ? "" : " of the ", split, split.empty() ? "" : " split");
}

// Whether `count` times `size`, and `more`, exceed 64 bits.
bool overflows(int64_t count, int64_t size, int64_t more) {
  int64_t product = 0;
  return __builtin_mul_overflow(count, size, &product) ||
         __builtin_add_overflow(product, more, &product);
}

int64_t num_samples_of(int64_t epochs, int64_t tokens_per_epoch,
                       const SampleIndexOptions& options) {
  const int64_t tokens = epochs * tokens_per_epoch - (options.extra_token ? 1 : 0);
  if (options.drop_last_partial) return tokens / options.seq_length;
  // The reference divides in single precision; beyond 2^24 tokens its count is wrong, and ours must
  // equal it.
  const float quotient = static_cast<float>(tokens) / static_cast<float>(options.seq_length);
  return static_cast<int64_t>(std::ceil(quotient));
}

template <class T>
void shuffle_parts(std::span<T> values, int64_t first_part, RandomState& random) {
  random.shuffle(values.first(static_cast<size_t>(first_part)));
  random.shuffle(values.subspan(static_cast<size_t>(first_part)));
}

IndexArray build_document_index(SequenceRange range, const EpochPlan& plan, RandomState& random) {
  const int64_t n = range.end - range.begin;
  IndexArray array(IndexType::i4, n * plan.num_epochs);
  const std::span<int32_t> values = array.fill<int32_t>();
  for (int64_t epoch = 0; epoch < plan.num_epochs; ++epoch) {
    const auto part = values.subspan(static_cast<size_t>(epoch * n), static_cast<size_t>(n));
    std::iota(part.begin(), part.end(), static_cast<int32_t>(range.begin));
  }
  shuffle_parts(values, plan.separate_last_epoch ? n * (plan.num_epochs - 1) : n * plan.num_epochs,
                random);
  return array;
}

template <class T>
IndexArray build_rows(IndexType type, const IndexedDataset& dataset,
                      std::span<const int32_t> documents, int64_t n,
                      const SampleIndexOptions& options) {
  constexpr size_t kAhead = 16;
  const std::span<const Le<int32_t>> lengths = dataset.sequence_lengths();
  const int64_t extra = options.extra_token ? 1 : 0;
  IndexArray array(type, n + 1, 2);
  T* row = array.fill<T>().data();
  T* const end = row + 2 * (n + 1);
  *row++ = 0;
  *row++ = 0;
  int64_t until_row = options.seq_length + extra - 1;  // tokens before the next row's token
  for (size_t k = 0; k < documents.size() && row != end; ++k) {
    if (k + kAhead < documents.size())
      __builtin_prefetch(&lengths[static_cast<size_t>(documents[k + kAhead])]);
    const int64_t length = lengths[static_cast<size_t>(documents[k])];
    while (until_row < length && row != end) {
      *row++ = static_cast<T>(k);
      *row++ = static_cast<T>(until_row + 1 - extra);
      until_row += options.seq_length;
    }
    until_row -= length;
  }
  // Only for a partial last sample, which ends with the last sequence.
  while (row != end) {
    const int64_t offset = lengths[static_cast<size_t>(documents.back())] - extra;
    if (offset < 0)
      throw FormatError(
          message(dataset.prefix(), ".idx: a partial sample ends in an empty sequence"));
    *row++ = static_cast<T>(documents.size() - 1);
    *row++ = static_cast<T>(offset);
  }
  return array;
}

IndexArray build_sample_rows(const IndexedDataset& dataset, std::span<const int32_t> documents,
                             int64_t n, const SampleIndexOptions& options) {
  // The reference checks all lengths of the dataset, not only the split's; they are int32, so only
  // the number of documents can require int64.
  // GPT-NeoX, which alone shuffles all epochs together, counts the array's places.
  const bool neox = !options.separate_last_epoch;
  const bool wide = static_cast<int64_t>(documents.size()) > kMaxInt32 ||
                    (neox ? 2 * (n + 1) >= kMaxInt32 : options.compat == Compat::fork_2023);
  return wide ? build_rows<int64_t>(IndexType::i8, dataset, documents, n, options)
              : build_rows<int32_t>(IndexType::i4, dataset, documents, n, options);
}

IndexArray build_shuffle_index(int64_t first_part, int64_t n, RandomState& random) {
  if (n >= kFirstWideShuffle) {
    IndexArray array(IndexType::i8, n);
    std::iota(array.fill<int64_t>().begin(), array.fill<int64_t>().end(), int64_t{0});
    shuffle_parts(array.fill<int64_t>(), first_part, random);
    return array;
  }
  IndexArray array(IndexType::u4, n);
  std::iota(array.fill<uint32_t>().begin(), array.fill<uint32_t>().end(), 0u);
  shuffle_parts(array.fill<uint32_t>(), first_part, random);
  return array;
}

}  // namespace

EpochPlan plan_epochs(const IndexedDataset& dataset, SequenceRange range,
                      const SampleIndexOptions& options) {
  const int64_t length = options.seq_length;
  const int64_t extra = options.extra_token ? 1 : 0;
  EpochPlan plan;
  for (int64_t i = range.begin; i < range.end; ++i) {
    plan.tokens_per_epoch += dataset.sequence_lengths()[static_cast<size_t>(i)];
  }
  const int64_t tokens = plan.tokens_per_epoch;
  if (length < 1) throw FormatError(message("sequence length ", length, ", expected at least 1"));
  if (options.num_samples && overflows(*options.num_samples, length, tokens + extra)) {
    throw FormatError(message(place_of(dataset, range, options.split), ": ", *options.num_samples,
                              " samples of ", length, " tokens are too many"));
  }
  if (options.num_samples) {
    const int64_t wanted = *options.num_samples * length + extra;
    if (tokens == 0 && wanted > 0) {
      throw FormatError(message(place_of(dataset, range, options.split), ": no tokens to make ",
                                *options.num_samples, " samples of"));
    }
    if (tokens > 0) {
      plan.num_epochs = std::max<int64_t>(1, wanted / tokens + (wanted % tokens != 0));
    }
  }
  if (options.num_epochs) plan.num_epochs = *options.num_epochs;
  const int64_t epochs = plan.num_epochs;
  if (overflows(epochs, std::max(tokens, range.end - range.begin), 0)) {
    throw FormatError(
        message(place_of(dataset, range, options.split), ": ", epochs, " epochs are too many"));
  }
  if (epochs > 1) {
    plan.samples_before_last_epoch = ((epochs - 1) * tokens - extra) / length;
    const int64_t from_last = options.num_samples.value_or(0) - plan.samples_before_last_epoch;
    const int64_t per_epoch = (tokens - extra) / length;
    // The reference asserts 0 <= from_last <= per_epoch + 1; a forced number of epochs may violate
    // that, which is harmless.
    plan.separate_last_epoch =
        options.separate_last_epoch &&
        from_last < static_cast<int64_t>(0.80 * static_cast<double>(per_epoch));
  }
  plan.num_samples = std::max<int64_t>(0, num_samples_of(epochs, tokens, options));
  return plan;
}

SampleIndex SampleIndex::build(const IndexedDataset& dataset, SequenceRange range,
                               const SampleIndexOptions& options) {
  if (range.end > kMaxInt32) {
    throw FormatError(
        message(place_of(dataset, range), ": more than 2147483647 sequences in one dataset"));
  }
  const EpochPlan plan = plan_epochs(dataset, range, options);
  RandomState random(options.seed);
  SampleIndex index;
  index.extra_token_ = options.extra_token ? 1 : 0;
  index.document_index_ = build_document_index(range, plan, random);
  index.sample_index_ =
      build_sample_rows(dataset, index.document_index_.fill<int32_t>(), plan.num_samples, options);
  index.shuffle_index_ = build_shuffle_index(
      plan.separate_last_epoch ? plan.samples_before_last_epoch : plan.num_samples,
      plan.num_samples, random);
  return index;
}

SampleIndex SampleIndex::adopt(IndexArray document_index, IndexArray sample_index,
                               IndexArray shuffle_index, const IndexedDataset& dataset,
                               const SampleIndexOptions& options, const std::string& place) {
  const auto require = [&](bool good, std::string_view what) {
    if (!good) throw FormatError(message(place, ": ", what, ": stale or damaged index files"));
  };
  require(
      document_index.columns() == 0 && shuffle_index.columns() == 0 && sample_index.columns() == 2,
      "wrong shapes");
  require(sample_index.rows() == shuffle_index.rows() + 1,
          "sample and shuffle index differ in length");
  const int64_t documents = document_index.rows();
  const int64_t extra = options.extra_token ? 1 : 0;
  for (int64_t k = 0; k < documents; ++k) {
    require(document_index[k] >= 0 && document_index[k] < dataset.num_sequences(),
            "no such sequence");
  }
  for (int64_t j = 0; j < shuffle_index.rows(); ++j) {
    require(shuffle_index[j] >= 0 && shuffle_index[j] < shuffle_index.rows(), "no such sample");
  }
  int64_t last_document = 0, last_offset = 0;
  for (int64_t j = 0; j < sample_index.rows(); ++j) {
    const int64_t document = sample_index[2 * j];
    const int64_t offset = sample_index[2 * j + 1];
    require(document >= last_document && document < documents, "no such document");
    require(offset >= (document == last_document ? last_offset : 0), "offsets out of order");
    if (j > 0 || extra == 0) {
      const auto sequence = static_cast<size_t>(document_index[document]);
      require(offset + extra <= dataset.sequence_lengths()[sequence] || (j == 0 && offset == 0),
              "offset past the end");
    }
    last_document = document;
    last_offset = offset;
  }
  SampleIndex index;
  index.document_index_ = std::move(document_index);
  index.sample_index_ = std::move(sample_index);
  index.shuffle_index_ = std::move(shuffle_index);
  index.extra_token_ = extra;
  return index;
}

namespace {

/// Steele, Lea and Flood 2014, splitmix64's last steps.
uint64_t hash_of(int64_t number) noexcept {
  auto x = static_cast<uint64_t>(number) + 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

bool SampleIndex::fits(const IndexedDataset& dataset, SequenceRange range, const EpochPlan& plan,
                       const SampleIndexOptions& options) const {
  const int64_t documents = document_index_.rows(), samples = num_samples();
  if (samples != plan.num_samples) return false;
  uint64_t sequences = 0, order = 0;  // sums of hashes, which another number would change
  for (int64_t i = range.begin; i < range.end; ++i)
    sequences += static_cast<uint64_t>(plan.num_epochs) * hash_of(i);
  for (int64_t k = 0; k < documents; ++k) sequences -= hash_of(document_index_[k]);
  for (int64_t i = 0; i < samples; ++i) order += hash_of(i) - hash_of(shuffle_index_[i]);
  if (sequences != 0 || order != 0) return false;
  const int64_t end = plan.num_epochs * plan.tokens_per_epoch - extra_token_;  // of the last sample
  int64_t begin = 0, document = 0;  // tokens before `document`
  for (int64_t j = 0; j <= samples; ++j) {
    for (; document < sample_index_[2 * j]; ++document)
      begin += dataset.sequence_lengths()[static_cast<size_t>(document_index_[document])];
    const int64_t wanted = j == 0 ? 0 : std::min(j * options.seq_length, end);
    if (begin + sample_index_[2 * j + 1] != wanted) return false;
  }
  return true;
}

template <class Visit>
void SampleIndex::visit(int64_t i, const IndexedDataset& dataset, Visit visit) const {
  const int64_t j = shuffle_index_[i];
  const int64_t first = sample_index_[2 * j];
  const int64_t last = sample_index_[2 * j + 2];
  int64_t begin = sample_index_[2 * j + 1];
  for (int64_t k = first; k <= last; ++k, begin = 0) {
    const int64_t sequence = document_index_[k];
    const int64_t end = k == last
                            ? sample_index_[2 * j + 3] + extra_token_
                            : int64_t{dataset.sequence_lengths()[static_cast<size_t>(sequence)]};
    if (end > begin) visit(SamplePiece{sequence, begin, end - begin});
  }
}

void SampleIndex::pieces(int64_t i, const IndexedDataset& dataset,
                         std::vector<SamplePiece>& out) const {
  out.clear();
  visit(i, dataset, [&out](const SamplePiece& piece) { out.push_back(piece); });
}

int64_t SampleIndex::read(int64_t i, const IndexedDataset& dataset, std::span<int32_t> out) const {
  int64_t filled = 0;
  visit(i, dataset, [&](const SamplePiece& piece) {
    filled += copy_tokens(dataset.sequence(piece.sequence, piece.offset, piece.num_tokens),
                          out.subspan(static_cast<size_t>(filled)));
  });
  return filled;
}

}  // namespace indexed
