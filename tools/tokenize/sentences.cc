// SPDX-License-Identifier: MIT
// Room: tools/tokenize. ICU's sentence iterator, directly over UTF-8. Not here: what is done with
// the sentences (encode_documents.cc).
#include "tools/tokenize/sentences.h"

#include <array>
#include <stdexcept>
#include <utility>

#include <unicode/brkiter.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>
#include <unicode/utf8.h>

#include "tools/cli/text.h"

namespace tokenize {
namespace {

/// Punkt's languages and their locales.
constexpr std::array<std::pair<std::string_view, const char*>, 18> kLanguages = {
    {{"english", "en"},
     {"german", "de"},
     {"french", "fr"},
     {"spanish", "es"},
     {"italian", "it"},
     {"dutch", "nl"},
     {"portuguese", "pt"},
     {"russian", "ru"},
     {"polish", "pl"},
     {"czech", "cs"},
     {"danish", "da"},
     {"finnish", "fi"},
     {"greek", "el"},
     {"norwegian", "no"},
     {"swedish", "sv"},
     {"turkish", "tr"},
     {"slovene", "sl"},
     {"estonian", "et"}}};

icu::Locale locale_of(const std::string& language) {
  for (const auto& [name, locale] : kLanguages) {
    if (name == language) return icu::Locale(locale);
  }
  return icu::Locale(language.c_str());
}

/// `text` without the white space at its end.
std::string_view without_tail(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while ((text[begin] & 0xC0) == 0x80) --begin;
    int32_t at = static_cast<int32_t>(begin);
    UChar32 c = 0;
    const char* bytes = text.data();
    U8_NEXT_UNSAFE(bytes, at, c);
    if (!u_isUWhiteSpace(c)) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::string_view without_head(std::string_view text) {
  while (!text.empty()) {
    int32_t at = 0;
    UChar32 c = 0;
    const char* bytes = text.data();
    U8_NEXT_UNSAFE(bytes, at, c);
    if (!u_isUWhiteSpace(c)) break;
    text.remove_prefix(static_cast<size_t>(at));
  }
  return text;
}

}  // namespace

struct SentenceSplitter::Rules {
  std::unique_ptr<icu::BreakIterator> iterator;
  UText text = UTEXT_INITIALIZER;
  ~Rules() { utext_close(&text); }
};

SentenceSplitter::SentenceSplitter(const std::string& language)
    : rules_(std::make_unique<Rules>()) {
  UErrorCode status = U_ZERO_ERROR;
  rules_->iterator.reset(icu::BreakIterator::createSentenceInstance(locale_of(language), status));
  if (U_FAILURE(status)) {
    throw std::runtime_error(cli::concat("--lang ", language, ": ICU: ", u_errorName(status)));
  }
}

SentenceSplitter::SentenceSplitter(SentenceSplitter&&) noexcept = default;
SentenceSplitter::~SentenceSplitter() = default;

void SentenceSplitter::split(std::string_view text, bool keep_space,
                             const std::function<void(std::string_view)>& each) {
  UErrorCode status = U_ZERO_ERROR;
  utext_openUTF8(&rules_->text, text.data(), static_cast<int64_t>(text.size()), &status);
  rules_->iterator->setText(&rules_->text, status);
  if (U_FAILURE(status)) throw std::runtime_error(cli::concat("ICU: ", u_errorName(status)));
  // ICU makes white space behind a line end a segment of its own. With keep_space a sentence goes
  // on until the next one begins, and the first one begins with the text.
  const auto part = [&](int32_t from, int32_t to) {
    return text.substr(static_cast<size_t>(from), static_cast<size_t>(to - from));
  };
  int32_t begin = rules_->iterator->first();
  int32_t kept_from = begin;
  bool found = false;
  for (int32_t end = rules_->iterator->next(); end != icu::BreakIterator::DONE;
       begin = end, end = rules_->iterator->next()) {
    const std::string_view sentence = without_head(without_tail(part(begin, end)));
    if (sentence.empty()) continue;
    if (!keep_space) {
      each(sentence);
    } else if (found) {
      each(part(kept_from, begin));
      kept_from = begin;
    }
    found = true;
  }
  if (keep_space && begin > kept_from) each(part(kept_from, begin));
}

}  // namespace tokenize
