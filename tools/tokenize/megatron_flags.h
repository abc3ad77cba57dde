// SPDX-License-Identifier: MIT
// Room: tools/tokenize. Flags of Megatron's preprocess_data.py and its forks that change nothing
// here, so that their command lines run unchanged. Source: the flag table of Megatron-LM,
// Megatron-DeepSpeed, gpt-neox and BigScience.
#pragma once

#include "tools/cli/fields.h"

namespace tokenize {

/// Rows without effect, each with its reason.
template <class O>
cli::Group<O> compatibility_group() {
  using cli::Arity;
  using cli::no_effect;
  return {
      "Flags of other programs",
      {{.name = "dataset-impl",
        .value = "NAME",
        .field = no_effect<O>(Arity::one, "the format is always mmap")},
       {.name = "chunk-size",
        .value = "N",
        .field = no_effect<O>(Arity::one, "work is handed out by bytes")},
       {.name = "partitions",
        .value = "N",
        .field = no_effect<O>(Arity::one,
                              "one run uses all workers; documents keep the order of the input")},
       {.name = "keep-sequential-samples",
        .field = no_effect<O>(Arity::none, "documents keep the order of the input")},
       {.name = "find-optimal-num-workers",
        .field = no_effect<O>(Arity::none, "without --workers there is one for each processor")},
       {.name = "workers-to-check",
        .value = "N",
        .field = no_effect<O>(Arity::many, "nothing is tried out")},
       {.name = "max-documents",
        .value = "N",
        .field = no_effect<O>(Arity::one, "nothing is tried out")},
       {.name = "num-docs",
        .value = "N",
        .field = no_effect<O>(Arity::one, "progress is counted in bytes")},
       {.name = "seq-length",
        .value = "N",
        .field = no_effect<O>(Arity::one, "documents are never cut")},
       {.name = "trust-remote-code", .field = no_effect<O>(Arity::none, "no code is ever loaded")},
       {.name = "padded-vocab-size",
        .value = "N",
        .field = no_effect<O>(Arity::one, "datasets hold no padding")},
       {.name = "pad-vocab-size-to",
        .value = "N",
        .field = no_effect<O>(Arity::one, "datasets hold no padding")},
       {.name = "vocab-extra-ids",
        .value = "N",
        .field = no_effect<O>(Arity::one, "Megatron's script sets it to 0 as well")},
       {.name = "tokenizer-metadata",
        .value = "FILE",
        .field = no_effect<O>(Arity::one, "the tokenizer's own files say it")},
       {.name = "tokenizer-sentencepiece-legacy",
        .field = no_effect<O>(Arity::none, "the model's own special tokens are all there are")},
       {.name = "tokenizer-hf-no-use-fast",
        .field = no_effect<O>(Arity::none, "both give the same ids")},
       {.name = "tokenizer-hf-use-fast",
        .field = no_effect<O>(Arity::none, "both give the same ids")},
       {.name = "null-tokenizer-pad-id",
        .value = "N",
        .field = no_effect<O>(Arity::one, "nothing is padded")},
       {.name = "chat-template",
        .value = "TEXT",
        .field = no_effect<O>(Arity::one, "documents are no chats")},
       {.name = "use-gigatoken", .field = no_effect<O>(Arity::none, "the ids are the same")},
       {.name = "rank",
        .value = "N",
        .field = no_effect<O>(Arity::one, "this is no distributed program")}}};
}

}  // namespace tokenize
