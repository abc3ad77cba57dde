// What the two JSON loaders share: parsing with a place in the message, and vocabularies and
// merges written in the byte-level alphabet.
// Not for users of the library: it is the only header that shows nlohmann-json.
// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libtok/vocab.h"

namespace tok {

/// Parses a JSON object. Errors: ParseError "place: byte N: why".
nlohmann::json parse_json(std::string_view text, std::string_view place);

/// Tokens of an object {text: id}. Errors: ParseError for anything that is not an integer id.
std::vector<VocabSource::Token> tokens_of_json(const nlohmann::json& vocab, std::string_view place);

/// Both halves of a merge, as bytes.
/// Errors: ParseError for a half that is not in the byte-level alphabet: such a merge can never
/// apply, and no byte-level trainer writes one.
std::pair<std::string, std::string> merge_of_halves(std::string_view left, std::string_view right,
                                                    std::string_view place);

/// Gives an added token its id the way Hugging Face does: the vocabulary's, if it has the content,
/// else one more than the largest so far.
/// Range: `largest_added` is the largest id among added tokens so far, kNoId when there is none.
int32_t assign_added_id(const nlohmann::json& vocab, const std::string& content,
                        int32_t largest_added);

}  // namespace tok
