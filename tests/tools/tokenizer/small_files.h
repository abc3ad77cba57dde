// SPDX-License-Identifier: MIT
// The files of one tokenizer with three tokens, and a fourth that is added, for the tests of what
// programs do with flags and files. Its merges make "ab" of "a b".
#pragma once

namespace tests::small {

inline constexpr const char* kVocab = R"({"a":0,"b":1,"ab":2})";
inline constexpr const char* kMerges = "#version: 0.2\na b\n";
inline constexpr const char* kJson = R"({"version":"1.0","added_tokens":[{"id":3,"content":"<e>",
  "single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
  "normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,
  "trim_offsets":true,"use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel",
  "add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE",
  "vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})";

}  // namespace tests::small
