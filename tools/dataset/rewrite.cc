// SPDX-License-Identifier: MIT
// Room: tools/dataset. If all tokens fit into the memory limit they are gathered in output order.
// Otherwise the output is divided into buckets that fit: the first pass reads the inputs once,
// sequentially, and writes each unit to its bucket's place in the output file, in input order; the
// second pass sorts each bucket in memory. Both ways give the same bytes.
#include "tools/dataset/rewrite.h"
#include "tools/cli/exit_status.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>

#include "libindexed/builder.h"
#include "libindexed/dataset.h"
#include "libindexed/manifest.h"
#include "libindexed/numpy_random.h"
#include "tools/cli/text.h"
#include "tools/dataset/common_provenance.h"

namespace dataset {
namespace {

using indexed::IndexedDataset;

// Several datasets as one list of units (documents or sequences).
class Units {
 public:
  explicit Units(const RewriteOptions& options) : sequences_(options.sequences) {
    for (const std::string& prefix : options.prefixes) {
      datasets_.push_back(IndexedDataset::open(prefix, {.permuted = options.permuted}));
      const IndexedDataset& data = datasets_.back();
      if (data.dtype() != datasets_[0].dtype()) {
        throw indexed::FormatError(
            other_dtype({prefix, data.dtype()}, {options.prefixes[0], datasets_[0].dtype()}));
      }
      ends_.push_back(size() + (sequences_ ? data.num_sequences() : data.num_documents()));
      num_tokens_ += data.num_tokens();
    }
  }

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  int64_t num_tokens() const { return num_tokens_; }
  indexed::DType dtype() const { return datasets_[0].dtype(); }
  int64_t element_bytes() const { return indexed::dtype_size(dtype()); }
  const std::deque<IndexedDataset>& datasets() const { return datasets_; }

  // The sequences of unit `u`.
  struct Range {
    const IndexedDataset* data;
    int64_t begin;
    int64_t end;
  };
  Range range(int64_t u) const {
    const auto which =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), u) - ends_.begin());
    const int64_t local = which == 0 ? u : u - ends_[which - 1];
    const IndexedDataset& data = datasets_[which];
    if (sequences_) return {&data, local, local + 1};
    const auto at = static_cast<size_t>(local);
    return {&data, data.document_indices()[at], data.document_indices()[at + 1]};
  }

  int64_t bytes(int64_t u) const {
    const Range range = this->range(u);
    int64_t tokens = 0;
    for (int64_t i = range.begin; i < range.end; ++i)
      tokens += range.data->sequence_lengths()[static_cast<size_t>(i)];
    return tokens * element_bytes();
  }

  template <class Use>
  void for_each_piece(int64_t u, Use use) const {
    const Range range = this->range(u);
    for (int64_t i = range.begin; i < range.end; ++i) use(range.data->sequence(i).bytes());
  }

 private:
  bool sequences_;
  std::deque<IndexedDataset> datasets_;
  std::vector<int64_t> ends_;
  int64_t num_tokens_ = 0;
};

// A range of output units whose tokens fit into memory together (or a single larger unit).
struct Bucket {
  int64_t first_unit;
  int64_t begin_byte;
};

template <class Index>
class Rewriter {
 public:
  Rewriter(const RewriteOptions& options, const Units& units,
           indexed::IndexedDatasetBuilder& builder,
           const std::function<void(int64_t, int64_t)>& progress)
      : options_(options),
        units_(units),
        builder_(builder),
        progress_(progress),
        order_(static_cast<size_t>(units.size())),
        total_(units.num_tokens() * units.element_bytes()) {
    std::iota(order_.begin(), order_.end(), Index{0});
    indexed::RandomState(static_cast<uint32_t>(options.seed)).shuffle(std::span<Index>(order_));
  }

  int64_t run() {
    if (total_ <= options_.memory_bytes) {
      write_index();
      gather();
      return 1;
    }
    cut_buckets();
    write_index();
    scatter();
    put_in_order();
    return exit_status::kUsage;
  }

 private:
  // Lengths and documents of the output, in its order; tokens are written separately.
  void write_index() {
    std::vector<int32_t> lengths, counts;
    const auto flush = [&] {
      builder_.add_index(lengths, counts);
      lengths.clear();
      counts.clear();
    };
    for (const Index unit : order_) {
      const Units::Range range = units_.range(static_cast<int64_t>(unit));
      counts.push_back(static_cast<int32_t>(range.end - range.begin));
      for (int64_t i = range.begin; i < range.end; ++i) {
        lengths.push_back(range.data->sequence_lengths()[static_cast<size_t>(i)]);
      }
      if (lengths.size() + counts.size() > 65536) flush();
    }
    flush();
  }

  void gather() {
    std::vector<std::byte> buffer;
    int64_t at = 0;
    const auto flush = [&] {
      builder_.place(at, buffer);
      builder_.add_checksums(buffer);
      at += static_cast<int64_t>(buffer.size());
      buffer.clear();
      progress_(at, total_);
    };
    for (const Index unit : order_) {
      units_.for_each_piece(static_cast<int64_t>(unit), [&](std::span<const std::byte> piece) {
        buffer.insert(buffer.end(), piece.begin(), piece.end());
      });
      if (buffer.size() > (size_t{8} << 20)) flush();
    }
    flush();
  }

  int64_t bucket_limit() const { return std::max<int64_t>(options_.memory_bytes / 3, 1); }

  void cut_buckets() {
    int64_t at = 0, filled = 0;
    for (size_t q = 0; q < order_.size(); ++q) {
      const int64_t bytes = units_.bytes(static_cast<int64_t>(order_[q]));
      if (buckets_.empty() || (filled > 0 && filled + bytes > bucket_limit())) {
        buckets_.push_back({static_cast<int64_t>(q), at});
        filled = 0;
      }
      filled += bytes;
      at += bytes;
    }
  }

  // First pass: writes units, in input order, to the place of their bucket.
  void scatter() {
    std::vector<Index> position(order_.size());
    for (size_t q = 0; q < order_.size(); ++q)
      position[static_cast<size_t>(order_[q])] = static_cast<Index>(q);
    const size_t buffer_bytes = static_cast<size_t>(std::clamp<int64_t>(
        bucket_limit() / static_cast<int64_t>(buckets_.size()), 4096, int64_t{4} << 20));
    std::vector<std::vector<std::byte>> buffers(buckets_.size());
    std::vector<int64_t> cursors;
    for (const Bucket& bucket : buckets_) cursors.push_back(bucket.begin_byte);
    int64_t done = 0, released = 0;
    const auto flush = [&](size_t b) {
      builder_.place(cursors[b], buffers[b]);
      cursors[b] += static_cast<int64_t>(buffers[b].size());
      buffers[b].clear();
    };
    for (int64_t u = 0; u < units_.size(); ++u) {
      const auto q = static_cast<int64_t>(position[static_cast<size_t>(u)]);
      const auto after = std::upper_bound(
          buckets_.begin(), buckets_.end(), q,
          [](int64_t unit, const Bucket& bucket) { return unit < bucket.first_unit; });
      const auto b = static_cast<size_t>(after - buckets_.begin() - 1);
      units_.for_each_piece(u, [&](std::span<const std::byte> piece) {
        for (; !piece.empty(); piece = piece.subspan(std::min(piece.size(), buffer_bytes))) {
          const std::span<const std::byte> part = piece.first(std::min(piece.size(), buffer_bytes));
          if (buffers[b].size() + part.size() > buffer_bytes) flush(b);
          buffers[b].insert(buffers[b].end(), part.begin(), part.end());
          done += static_cast<int64_t>(part.size());
        }
      });
      if (u % 4096 == 0) {
        progress_(done / 2, total_);
        if (released + (int64_t{64} << 20) < done) {
          units_.range(u).data->bin().release();
          released = done;
        }
      }
    }
    for (size_t b = 0; b < buckets_.size(); ++b) flush(b);
  }

  // Second pass: a bucket's units are in input order; they are copied to their output places in
  // memory.
  void put_in_order() {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      const int64_t first = buckets_[b].first_unit;
      const int64_t last = b + 1 < buckets_.size() ? buckets_[b + 1].first_unit : units_.size();
      const int64_t begin = buckets_[b].begin_byte;
      const int64_t end = b + 1 < buckets_.size() ? buckets_[b + 1].begin_byte : total_;
      if (last - first == 1 &&
          end - begin > bucket_limit()) {  // one unit, larger than the limit: it is in place
        checksum_range(begin, end);
        continue;
      }
      std::vector<Index> by_input(order_.begin() + first, order_.begin() + last);
      std::sort(by_input.begin(), by_input.end());
      std::vector<int64_t> offsets;
      int64_t at = 0;
      for (const Index unit : by_input) {
        offsets.push_back(at);
        at += units_.bytes(static_cast<int64_t>(unit));
      }
      std::vector<std::byte> in(static_cast<size_t>(end - begin)), out(in.size());
      builder_.read_back(begin, in);
      int64_t to = 0;
      for (int64_t q = first; q < last; ++q) {
        const Index unit = order_[static_cast<size_t>(q)];
        const auto rank = static_cast<size_t>(
            std::lower_bound(by_input.begin(), by_input.end(), unit) - by_input.begin());
        const int64_t bytes = (rank + 1 < offsets.size() ? offsets[rank + 1] : at) - offsets[rank];
        std::copy_n(in.begin() + offsets[rank], bytes, out.begin() + to);
        to += bytes;
      }
      builder_.place(begin, out);
      builder_.add_checksums(out);
      progress_(total_ / 2 + end / 2, total_);
    }
  }

  void checksum_range(int64_t begin, int64_t end) {
    std::vector<std::byte> piece(static_cast<size_t>(indexed::kBlockBytes));
    for (int64_t at = begin; at < end; at += static_cast<int64_t>(piece.size())) {
      piece.resize(static_cast<size_t>(std::min(end - at, indexed::kBlockBytes)));
      builder_.read_back(at, piece);
      builder_.add_checksums(piece);
    }
  }

  const RewriteOptions& options_;
  const Units& units_;
  indexed::IndexedDatasetBuilder& builder_;
  const std::function<void(int64_t, int64_t)>& progress_;
  std::vector<Index> order_;  // output place to input unit
  std::vector<Bucket> buckets_;
  int64_t total_;
};

// What the inputs' manifests say about the documents, in input order; unit and seed define the
// permutation.
indexed::Provenance provenance_of(const RewriteOptions& options, const Units& units,
                                  std::string& note) {
  CommonProvenance inputs;
  bool known = true;
  for (const IndexedDataset& data : units.datasets()) {
    inputs.add(data.prefix(), read_own_manifest(data), data.num_documents());
    // Sequences can be traced only if each is a document.
    known = known && (!options.sequences || data.num_documents() == data.num_sequences());
  }
  note = inputs.ends_note();
  indexed::Provenance common = inputs.finish(options.tool, options.command_line);
  if (!known) common.sources.clear();
  common.configuration_hash.clear();
  common.shuffle_unit = options.sequences ? "sequence" : "document";
  common.shuffle_seed = options.seed;
  return common;
}

}  // namespace

RewriteCounts rewrite_shuffled(const RewriteOptions& options,
                               const std::function<void(int64_t, int64_t)>& progress) {
  const Units units(options);
  std::string note;
  const indexed::Provenance provenance = provenance_of(options, units, note);
  indexed::IndexedDatasetBuilder builder(options.output_prefix,
                                         {.dtype = units.dtype(), .existing = options.existing});
  int64_t passes = 0;
  if (units.size() < INT32_MAX) {
    passes = Rewriter<int32_t>(options, units, builder, progress).run();
  } else {
    passes = Rewriter<int64_t>(options, units, builder, progress).run();
  }
  builder.finish(provenance);
  return {units.size(), units.num_tokens(), units.num_tokens() * units.element_bytes(), passes,
          note};
}

}  // namespace dataset
