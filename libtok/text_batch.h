// SPDX-License-Identifier: MIT
// Collects short texts to encode them together: the fixed cost of encoding a text is then paid once
// for a batch. Copies the texts, one after another.
// Not here: how they are encoded (Tokenizer::encode). Includes: C++ library only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tok {

/// Texts to be encoded together. One thread at a time; 24 KiB.
class TextBatch {
 public:
  /// The most bytes of text in a batch; longer texts are better encoded alone.
  static constexpr size_t kBytes = 16384;
  static constexpr size_t kMaxText = 4096;
  /// The most texts in a batch.
  static constexpr size_t kTexts = 2048;

  /// Whether add() may be called: the text is short, not empty, and there is room.
  bool has_room_for(std::string_view text) const noexcept {
    return text.size() - 1 < kMaxText && text.size() <= kBytes - size_ && count_ < kTexts;
  }

  /// Appends a copy of a text. Range: has_room_for(text).
  void add(std::string_view text) noexcept {
    std::copy_n(text.data(), text.size(), bytes_.data() + size_);
    size_ += text.size();
    ends_[count_++] = static_cast<uint32_t>(size_);
  }

  void clear() noexcept { size_ = count_ = 0; }

  bool empty() const noexcept { return count_ == 0; }

  /// Number of texts.
  size_t size() const noexcept { return count_; }

  /// All texts, concatenated; sixteen bytes past them may be read.
  std::string_view all() const noexcept { return {bytes_.data(), size_}; }
  static constexpr size_t kReadableBytes = 16;

  /// Where each text ends in all().
  std::span<const uint32_t> ends() const noexcept { return {ends_.data(), count_}; }

  std::string_view text(size_t i) const noexcept {
    const uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return all().substr(begin, ends_[i] - begin);
  }

 private:
  std::array<char, kBytes + kReadableBytes> bytes_{};
  size_t size_ = 0;
  size_t count_ = 0;
  std::array<uint32_t, kTexts> ends_{};
};

}  // namespace tok
