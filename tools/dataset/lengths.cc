// SPDX-License-Identifier: MIT
// Room: tools/dataset. Document lengths; see lengths.h.
#include "tools/dataset/lengths.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tools/cli/text.h"

namespace dataset {
namespace {

using cli::concat;
using cli::with_commas;

size_t class_of(int64_t length) {
  const auto value = static_cast<uint64_t>(length);
  if (value < 16) return value;
  const auto width = static_cast<size_t>(std::bit_width(value));
  return 16 + (width - 5) * 8 + static_cast<size_t>(value >> (width - 4) & 7);
}

int64_t end_of(size_t c) {
  if (c < 16) return static_cast<int64_t>(c);
  const size_t shift = (c - 16) / 8 + 1;
  return static_cast<int64_t>((((c - 16) % 8 + 9) << shift) - 1);
}

// Eighths of a block, so that small counts still show.
std::string bar(int64_t count, int64_t most, int64_t columns) {
  const auto eighths = static_cast<int64_t>(std::ceil(
      static_cast<double>(count) / static_cast<double>(most) * static_cast<double>(columns * 8)));
  std::string out;
  for (int64_t i = 0; i < eighths / 8; ++i) out += "\u2588";
  if (eighths % 8 != 0) out += std::string("\xe2\x96") + static_cast<char>(0x90 - eighths % 8);
  return out;
}

}  // namespace

int64_t document_length(const indexed::IndexedDataset& data, int64_t k) {
  int64_t length = 0;
  const auto at = static_cast<size_t>(k);
  for (int64_t i = data.document_indices()[at]; i < data.document_indices()[at + 1]; ++i)
    length += data.sequence_lengths()[static_cast<size_t>(i)];
  return length;
}

void LengthCounts::add(int64_t length) {
  least_ = documents_ == 0 ? length : std::min(least_, length);
  most_ = std::max(most_, length);
  ++documents_;
  ++classes_[class_of(length)];
  ++powers_[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length)))];
}

int64_t LengthCounts::percentile(double share) const {
  const auto want = static_cast<int64_t>(std::ceil(share * static_cast<double>(documents_)));
  int64_t seen = 0;
  for (size_t c = 0; c < classes_.size(); ++c) {
    seen += classes_[c];
    if (seen >= std::max<int64_t>(want, 1)) return std::min(end_of(c), most_);
  }
  return most_;
}

size_t LengthCounts::first_power() const {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(least_)));
}

int64_t LengthCounts::bins() const {
  if (documents_ == 0) return 0;
  return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(most_)) - first_power()) + 1;
}

LengthCounts::Bin LengthCounts::bin(int64_t i) const {
  const size_t p = first_power() + static_cast<size_t>(i);
  return {p == 0 ? 0 : int64_t{1} << (p - 1), p == 0 ? 0 : (int64_t{1} << p) - 1, powers_[p]};
}

std::string LengthCounts::histogram(int64_t columns) const {
  const auto most = *std::max_element(powers_.begin(), powers_.end());
  std::string out;
  for (int64_t i = 0; i < bins(); ++i) {
    const auto [begin, end, documents] = bin(i);
    std::string label =
        begin == end ? with_commas(begin) : concat(with_commas(begin), " to ", with_commas(end));
    label.insert(0, label.size() < 26 ? 26 - label.size() : 0, ' ');
    std::string count = with_commas(documents);
    count.insert(0, count.size() < 14 ? 14 - count.size() : 0, ' ');
    out +=
        concat(label, count, "  ", bar(documents, most, std::max<int64_t>(columns - 43, 10)), "\n");
  }
  return out;
}

}  // namespace dataset
