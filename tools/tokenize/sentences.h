// SPDX-License-Identifier: MIT
// Room: tools/tokenize. Text cut into sentences by ICU's rules (Unicode Standard Annex 29), for
// --split-sentences. These are not NLTK's Punkt rules, which Megatron's script uses: boundaries
// differ around abbreviations. May include ICU.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tokenize {

/// A sentence cutter of one worker.
class SentenceSplitter {
 public:
  /// `language` is Punkt's name ("english") or an ICU locale ("en"). Errors: std::runtime_error
  /// when ICU has no rules for it.
  explicit SentenceSplitter(const std::string& language);
  SentenceSplitter(SentenceSplitter&&) noexcept;
  ~SentenceSplitter();

  /// Calls `each` for the sentences of `text`, in order. White space around a sentence is no part
  /// of it, or with `keep_space` belongs to the sentence before it, at the beginning to the first:
  /// then the sentences together are the text. A text of white space has no sentence.
  void split(std::string_view text, bool keep_space,
             const std::function<void(std::string_view)>& each);

 private:
  struct Rules;
  std::unique_ptr<Rules> rules_;
};

}  // namespace tokenize
