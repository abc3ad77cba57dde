// generate: text from a model, a checkpoint of the trainer or a Hugging Face folder. Flags, model,
// tokenizer, then one continuation after another, token by token. Not here: the forward pass
// (generation/decoder.h), the choice of a token (generation/sampling.h), formats (checkpoint/,
// convert/).
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "libindexed/format.h"
#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/fields.h"
#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/generation/decoder_weights.h"
#include "trainer/generation/sampling.h"
#include "trainer/session/devices.h"
#include "trainer/session/vocabulary.h"

namespace {

using namespace trainer;
using cli::concat;
using cli::UsageError;

struct GenerateOptions {
  std::string load;
  std::optional<int64_t> ckpt_step;
  std::string prompt, prompt_file;
  std::string vocab_file, merge_file, tokenizer_model, tiktoken_pattern;
  int64_t max_new_tokens = 100, num_samples = 1, top_k = 0, seed = 1234;
  double temperature = 1, top_p = 1;
  bool greedy = false, no_prompt = false, ignore_eod = false, include_special_tokens = true;
  std::string device = "auto", dtype;
  std::optional<int64_t> cpu_threads;
};

const cli::Program kProgram = {.name = "generate",
                               .summary = "write text with a trained model",
                               .operands = "",
                               .at_signal = indexed::remove_temporaries,
                               .at_fault = indexed::describe_fault,
                               .at_end = indexed::check_mapped_files,
                               .config_file = true,
                               .version_note = gpu_support};

cli::Table<GenerateOptions> flags() {
  using O = GenerateOptions;
  using cli::choice, cli::integer, cli::on, cli::real, cli::text;
  return {
      {"Model",
       {{.name = "load",
         .aliases = "model",
         .value = "DIR",
         .help = "Checkpoints of the trainer (the newest is used), one iter_* folder, or a Hugging "
                 "Face folder.",
         .field = text(&O::load),
         .required = true},
        {.name = "ckpt-step",
         .value = "STEP",
         .help = "Use that step's checkpoint.",
         .field = integer(&O::ckpt_step)},
        {.name = "vocab-file",
         .aliases = "vocab",
         .value = "FILE",
         .help = "vocab.json, tokenizer.json or NAME.tiktoken. Default: what the model was "
                 "trained with.",
         .field = text(&O::vocab_file)},
        {.name = "merge-file",
         .aliases = "merges",
         .value = "FILE",
         .help = "merges.txt.",
         .field = text(&O::merge_file)},
        {.name = "tokenizer-model",
         .value = "PATH",
         .help = "tokenizer.json, SentencePiece's .model, tekken.json, or a folder with one.",
         .field = text(&O::tokenizer_model)},
        {.name = "tiktoken-pattern",
         .value = "V",
         .help = "How TikTokenizer's list of tokens cuts texts, v1 or v2. Default: as in training.",
         .field = text(&O::tiktoken_pattern)},
        {.name = "tokenizer-hf-no-include-special-tokens",
         .help = "Leave out the tokens that the tokenizer's template puts around a prompt, as "
                 "a BOS.",
         .field = cli::off(&O::include_special_tokens)},
        {.name = "device",
         .value = "KIND",
         .help = "auto uses a GPU when there is one.",
         .field = choice(&O::device, {"auto", "cpu", "cuda"})},
        {.name = "dtype",
         .value = "DTYPE",
         .help = "Number type to compute in. Default: the model's on a GPU, fp32 on a CPU.",
         .field = choice(&O::dtype, {"fp32", "bf16", "fp16"})},
        {.name = "cpu-threads",
         .value = "N",
         .help = "Threads of the CPU device. Default: all.",
         .field = integer(&O::cpu_threads, 1, 4096)}}},
      {"Text",
       {{.name = "prompt",
         .letter = 'p',
         .value = "TEXT",
         .help = "Beginning of the text. Default: all of standard input.",
         .field = text(&O::prompt)},
        {.name = "prompt-file",
         .aliases = "sample-input-file",
         .value = "FILE",
         .help = "Read the prompt from a file.",
         .field = text(&O::prompt_file)},
        {.name = "max-new-tokens",
         .aliases = "tokens-to-generate out-seq-length",
         .value = "N",
         .help = "Number of tokens to add; fewer if the text ends.",
         .field = integer(&O::max_new_tokens, 0, 1 << 24)},
        {.name = "num-samples",
         .value = "N",
         .help = "Number of continuations of the prompt, one after the other.",
         .field = integer(&O::num_samples, 1, 1 << 24)},
        {.name = "no-prompt",
         .help = "Print the continuation without the prompt.",
         .field = on(&O::no_prompt)},
        {.name = "ignore-eod",
         .help = "Continue after a token that ends the text.",
         .field = on(&O::ignore_eod)}}},
      {"Sampling",
       {{.name = "greedy", .help = "Always take the most likely token.", .field = on(&O::greedy)},
        {.name = "temperature",
         .value = "T",
         .help = "Below 1 closer to --greedy, above 1 more random; 0 is --greedy.",
         .field = real(&O::temperature, 0)},
        {.name = "top-k",
         .aliases = "top_k",
         .value = "K",
         .help = "Sample from the K most likely tokens; 0: all.",
         .field = integer(&O::top_k, 0, 1 << 24)},
        {.name = "top-p",
         .aliases = "top_p",
         .value = "P",
         .help = "Sample from the most likely tokens that together have probability P.",
         .field = real(&O::top_p, 0, 1)},
        {.name = "seed",
         .value = "SEED",
         .help = "Seed of the random numbers.",
         .field = integer(&O::seed, 0)}}}};
}

// An empty --prompt is one, too.
std::string read_prompt(const GenerateOptions& options, const cli::Parsed& parsed) {
  const bool given = parsed.given.contains("prompt");
  if (parsed.given.contains("prompt-file")) {
    if (given) throw UsageError("--prompt and --prompt-file exclude each other");
    if (options.prompt_file.empty()) throw UsageError("--prompt-file is empty");
    return read_text_file(options.prompt_file);
  }
  if (given) return options.prompt;
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

// Whether the command line names a tokenizer, and not the model alone.
bool names_tokenizer(const GenerateOptions& o) {
  return !(o.vocab_file + o.merge_file + o.tokenizer_model).empty();
}

tokenizer::Flags tokenizer_flags(const GenerateOptions& options, const DecoderModel& model,
                                 cli::Console& console) {
  if (names_tokenizer(options))
    return {.model = options.tokenizer_model,
            .vocab_file = options.vocab_file,
            .merge_file = options.merge_file,
            .tiktoken_pattern = options.tiktoken_pattern,
            .encodes = true};
  if (!model.tokenizer_note.empty()) console.note(model.tokenizer_note);
  tokenizer::Flags flags = model.tokenizer;
  if (!options.tiktoken_pattern.empty()) flags.tiktoken_pattern = options.tiktoken_pattern;
  flags.encodes = true;
  return flags;
}

// The identity of a tokenizer; empty if its files cannot be read or are not named.
std::string identity_of(const tokenizer::Flags& flags) {
  try {
    return tokenizer::open(flags).identity;
  } catch (const std::exception&) {
    return {};
  }
}

// A message if the tokenizer is not the model's: by the hash of the one that it was trained with;
// else, for one of the command line, by the model's own files, or the number of tokens.
std::string other_tokenizer_note(const GenerateOptions& options, const DecoderModel& model,
                                 const tokenizer::Flags& flags, const tok::Tokenizer& tokenizer) {
  const bool given = names_tokenizer(options);
  std::string known = model.tokenizer_hash;
  // What has a note is at a place where another model's files may be now.
  if (known.empty() && given && model.tokenizer_note.empty()) known = identity_of(model.tokenizer);
  if (known == tokenizer.identity()) return {};
  if (!known.empty()) {
    // Training may have read the same files as its --tokenizer-type asks.
    tokenizer::Flags typed = flags;
    typed.type = model.tokenizer_type;
    if (!typed.type.empty() && identity_of(typed) == known) return {};
    return concat(options.load, ": its tokenizer is another one than ", tokenizer::shown(flags),
                  ": the same ids may mean other tokens");
  }
  const int64_t tokens = std::max<int64_t>(tokenizer.vocab_size(), tokenizer.id_limit());
  if (!given || tokens == model.spec.vocab_size) return {};
  return concat(options.load, ": a vocabulary of ", model.spec.vocab_size, ", but ",
                tokenizer::shown(flags), " has ", tokens, " tokens: it may be another model's");
}

// Ids of the prompt, as transformers' tokenizer(prompt) gives them: the template's tokens around
// it, special tokens in it parsed. An empty one starts a document, after the BOS if one is named,
// else after the token that ends the previous document.
std::vector<int32_t> prompt_ids(const tok::Tokenizer& tokenizer, const GenerateOptions& options,
                                const std::string& text) {
  const tok::TokenizerSource& source = tokenizer.source();
  const auto in_text =
      source.split_special_tokens ? tok::SpecialTokens::text : tok::SpecialTokens::parse;
  std::vector<int32_t> ids = tokenizer.encode(
      text,
      {.special_tokens_in_text = in_text, .add_special_tokens = options.include_special_tokens});
  if (!ids.empty()) return ids;
  const int32_t start =
      source.bos_id != tok::kNoId ? source.bos_id : tokenizer.eod_id().value_or(tok::kNoId);
  if (start == tok::kNoId)
    throw UsageError("an empty prompt needs a tokenizer with a BOS or an end of document");
  return {start};
}

void put(const std::string& bytes) {
  cli::print(bytes);
  cli::finish_stdout();
}

// The ids that end a text; none with --ignore-eod.
std::vector<int64_t> ends_of(const GenerateOptions& options, const DecoderModel& model,
                             tokenizer::Flags named, const tok::Tokenizer& tokenizer) {
  if (options.ignore_eod) return {};
  if (model.ends) return *model.ends;
  std::vector<int64_t> ends = {tokenizer.eod_id().value_or(tok::kNoId)};
  // These types end a training document with another token than the file's.
  if (model.tokenizer_type == "SentencePieceTokenizer" || model.tokenizer_type == "SPMTokenizer") {
    named.type = model.tokenizer_type;
    if (const auto eod = tokenizer::open(named).eod) ends.push_back(*eod);
  }
  return ends;
}

// How tokens become text, and which ends it.
struct TextForm {
  const tok::Tokenizer& tokenizer;
  std::vector<int64_t> ends;
};

// One continuation, printed as it comes.
void write_sample(const GenerateOptions& options, const TextForm& form, Decoder& decoder,
                  const std::vector<int32_t>& prompt, std::mt19937_64& random) {
  const SamplingOptions sampling{options.greedy, options.temperature, options.top_k, options.top_p};
  decoder.reset();
  std::vector<float> scores = decoder.append(prompt);
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    check_scores(scores, options.load);
    const int32_t next = choose_token(scores, sampling, random);
    if (std::ranges::find(form.ends, next) != form.ends.end()) break;
    put(std::string(form.tokenizer.token_bytes(next)));
    if (i + 1 < options.max_new_tokens) scores = decoder.append(std::span(&next, 1));
  }
  put("\n");
}

int generate(GenerateOptions& options, cli::Invocation& call) {
  const std::string text = read_prompt(options, call.parsed);
  const DecoderModel model = open_decoder_model(options.load, options.ckpt_step);
  for (const std::string& note : model.notes) call.console.note(note);
  const tokenizer::Flags named = tokenizer_flags(options, model, call.console);
  const tokenizer::Opened opened = tokenizer::open(named);
  const std::optional<tok::Tokenizer>& tokenizer = opened.tokenizer;
  if (!tokenizer)
    throw UsageError(concat(options.load, " names no tokenizer: --vocab-file is missing"));
  for (const std::string& note : opened.notes) call.console.note(note);
  const std::vector<int32_t> prompt = prompt_ids(*tokenizer, options, text);
  for (const int32_t id : prompt)
    if (id >= model.spec.vocab_size)
      throw indexed::FormatError(concat(options.load, ": a vocabulary of ", model.spec.vocab_size,
                                        ", but the prompt has token ", id,
                                        ": the tokenizer is another model's"));
  if (const std::string note = other_tokenizer_note(options, model, named, *tokenizer);
      !note.empty())
    call.console.note(note);
  if (options.include_special_tokens && !tokenizer->source().template_note.empty())
    call.console.note(tokenizer->source().template_note);
  const int64_t length = static_cast<int64_t>(prompt.size()) + options.max_new_tokens;
  if (model.spec.position == Position::learned && length > model.spec.max_position_embeddings) {
    throw UsageError(concat("the prompt's ", prompt.size(), " tokens and --max-new-tokens ",
                            options.max_new_tokens, " are more than the model's ",
                            model.spec.max_position_embeddings, " positions"));
  }
  TrainConfig device;
  device.device = options.device;
  device.cpu_threads = options.cpu_threads;
  const std::unique_ptr<ops::Ops> ops = open_device(device);
  const std::string& wanted =
      options.dtype.empty() && ops->device() == Device::cuda ? model.dtype : options.dtype;
  const DType dtype = wanted == "bf16" ? DType::bf16 : wanted == "fp16" ? DType::f16 : DType::f32;
  if (dtype != DType::f32 && ops->device() == Device::cpu) {
    throw UsageError(concat("--dtype ", wanted, " needs a GPU: permitted is fp32"));
  }
  const bool widens = dtype == DType::f32 && ops->device() == Device::cpu;
  Decoder decoder(model.spec, dtype, length, *ops,
                  widens ? model.place : std::function<WeightPlace(const LocalParam&)>());
  model.load(decoder, *ops);
  const TextForm form{*tokenizer, ends_of(options, model, named, *tokenizer)};
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  for (int64_t i = 0; i < options.num_samples; ++i) {
    if (!options.no_prompt) put(text);
    write_sample(options, form, decoder, prompt, random);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return cli::run(kProgram, flags(), argc, argv, generate); }
