// SPDX-License-Identifier: MIT
// Room: tools/dataset. See load_tokenizer.h. A dataset that cannot be compared is verify's to
// report.
#include "tools/dataset/load_tokenizer.h"

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "tools/cli/text.h"
#include "tools/dataset/common_provenance.h"

namespace dataset {
namespace {

tokenizer::Flags named_flags(const SampleFlags& flags, const std::string& tiktoken_encoding) {
  return {.type = flags.tokenizer_type,
          .model = flags.tokenizer_model,
          .vocab_file = flags.vocab_file,
          .merge_file = flags.merge_file,
          .vocab_size = flags.vocab_size,
          .null_eod_id = flags.null_tokenizer_eod_id,
          .tiktoken_pattern = flags.tiktoken_pattern,
          .tiktoken_num_special_tokens = flags.tiktoken_num_special_tokens,
          .tiktoken_encoding = tiktoken_encoding};
}

/// Flags of the class that encodes texts.
void add_idle(const SampleFlags& flags, std::vector<std::string>& idle) {
  for (const auto& [given, name] :
       {std::pair{flags.null_tokenizer_pad_id.has_value(), "--null-tokenizer-pad-id"},
        {flags.use_fast, "--tokenizer-hf-use-fast"},
        {flags.no_use_fast, "--tokenizer-hf-no-use-fast"},
        {flags.trust_remote_code, "--trust-remote-code"},
        {flags.include_special_tokens, "--tokenizer-hf-include-special-tokens"},
        {flags.no_special_tokens, "--tokenizer-hf-no-include-special-tokens"},
        {flags.sentencepiece_legacy, "--tokenizer-sentencepiece-legacy"},
        {flags.keep_whitespace, "--no-tokenizer-sentencepiece-ignore-extra-whitespaces"},
        {!flags.use_gigatoken.empty(), "--use-gigatoken"}}) {
    if (given) idle.emplace_back(name);
  }
}

bool has_token(const tok::Tokenizer& tokenizer, int32_t id) {
  if (id < 0) return false;
  if (!tokenizer.token_bytes(id).empty()) return true;
  // What these give may be empty.
  return id == tokenizer.source().decode_rules.unk_id || tokenizer.is_special(id);
}

}  // namespace

tokenizer::Opened load_tokenizer(const SampleFlags& flags, const std::string& tiktoken_encoding) {
  tokenizer::Opened opened = tokenizer::open(named_flags(flags, tiktoken_encoding));
  if (opened.tokenizer) add_idle(flags, opened.idle);
  if (!opened.idle.empty())
    opened.notes.push_back(cli::concat("no effect here: ", cli::join(opened.idle, ", ")));
  return opened;
}

std::string other_tokenizer_note(const tokenizer::Opened& opened,
                                 const indexed::IndexedDataset& data) {
  const indexed::KnownTokenizer known{opened.identity, "the one given"};
  try {
    const std::optional<indexed::Manifest> manifest = read_own_manifest(data);
    const std::string other = manifest ? known.other(manifest->provenance) : std::string();
    return other.empty() ? other : cli::concat(data.prefix(), ": ", other);
  } catch (const std::exception&) {  // verify reports it.
    return {};
  }
}

std::string shown_text(const tok::Tokenizer* tokenizer, std::span<const int64_t> ids) {
  std::string out;
  if (tokenizer == nullptr) {
    for (const int64_t id : ids) out += cli::concat(out.empty() ? "" : " ", id);
    return out;
  }
  std::vector<int32_t> known;
  const auto decode_known = [&] {
    out += tokenizer->decode(known);
    known.clear();
  };
  for (const int64_t id : ids) {
    const auto narrow = static_cast<int32_t>(id);
    if (narrow == id && has_token(*tokenizer, narrow)) {
      known.push_back(narrow);
      continue;
    }
    decode_known();
    out += cli::concat("<id ", id, ">");
  }
  decode_known();
  return out;
}

}  // namespace dataset
