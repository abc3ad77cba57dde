// SPDX-License-Identifier: MIT
// megatron-to-hf: converts a checkpoint of the trainer, of Megatron-LM or of Megatron-DeepSpeed
// into a folder that transformers loads (or, with --to megatron, one model_optim_rng.pt). Here: the
// flags and the order of steps; the rest of convert/ reads and writes the formats.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "convert/hf_folder.h"
#include "convert/megatron_source.h"
#include "convert/megatron_target.h"
#include "convert/overwritten.h"
#include "convert/tokenizer_identity.h"
#include "convert/trainer_source.h"
#include "convert/verify.h"
#include "libindexed/format.h"
#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/named_tokenizer.h"

namespace convert {
namespace {

namespace fs = std::filesystem;
using cli::UsageError;

struct Options {
  std::string input, output;
  std::string to = "hf";
  std::string arch = "auto";
  std::string dtype = "keep";
  std::string vocab_file, merge_file, tokenizer, activation;
  std::string layout = "legacy", args_object = "ordereddict";
  std::string verify, report;
  std::vector<std::string> neox_configs;
  std::optional<int64_t> iteration, vocab_size, num_attention_heads;
  int64_t max_shard_bytes = 5'000'000'000;
  std::optional<int64_t> divisible_by;
  bool force = false, strict_pickle = false, ignore_checksums = false;
};

// "5GB" is transformers' 5 * 10^9; "5G" is 5 * 2^30 as everywhere in these tools.
cli::Field<Options> shard_size() {
  return {cli::Arity::one,
          [](Options& o, const cli::Values& v) {
            std::string text = v[0];
            int64_t unit = 1;
            for (const auto& [ending, size] : {std::pair("KB", 1'000), std::pair("MB", 1'000'000),
                                               std::pair("GB", 1'000'000'000)})
              if (text.size() > 2 && text.ends_with(ending)) {
                text.resize(text.size() - 2);
                unit = size;
                break;
              }
            o.max_shard_bytes = unit == 1
                                    ? cli::parse_size(text, 1, cli::kMaxInteger)
                                    : cli::parse_integer(text, 1, cli::kMaxInteger / unit) * unit;
          },
          [](const Options& o) { return cli::Values{cli::show_size(o.max_shard_bytes)}; }};
}

const cli::Program kProgram = {
    .name = "megatron-to-hf",
    .summary = "turn a Megatron or trainer checkpoint into a Hugging Face model",
    .at_signal = indexed::remove_temporaries,
    .at_fault = indexed::describe_fault,
    .at_end = indexed::check_mapped_files,
};

const cli::Table<Options> kFlags = {
    {"Input and output",
     {{.name = "input",
       .letter = 'i',
       .aliases = "load load-dir",
       .value = "PATH",
       .help =
           "Checkpoint to read. A folder that --save of the trainer, of Megatron or of "
           "GPT-NeoX wrote, one iter_* or global_step* folder of it, a model_optim_rng.pt, or a "
           "transformers folder.",
       .field = cli::text(&Options::input),
       .required = true},
      {.name = "output",
       .letter = 'o',
       .aliases = "save save-dir",
       .value = "DIR",
       .help = "Folder to write. It is created; one that has a config.json is replaced only with "
               "--force.",
       .field = cli::text(&Options::output),
       .required = true},
      {.name = "iteration",
       .aliases = "ckpt-step",
       .value = "N",
       .help = "Iteration to read. Default: the one in the folder's tracker.",
       .field = cli::integer(&Options::iteration)},
      {.name = "force",
       .letter = 'f',
       .help = "Replace an existing model.",
       .field = cli::on(&Options::force)}}},
    {"Model",
     {{.name = "to",
       .value = "FORMAT",
       .help = "Format to write. hf is a folder for transformers, megatron a Megatron-LM "
               "checkpoint of one rank, trainer a checkpoint of the trainer to train on from.",
       .field = cli::choice(&Options::to, {"hf", "megatron", "trainer"})},
      {.name = "arch",
       .value = "NAME",
       .help = "Family of Hugging Face models. auto takes the one that can represent the model.",
       .field = cli::text(&Options::arch)},
      {.name = "dtype",
       .value = "NAME",
       .help =
           "Type of the weights written. keep does not change it; fp32 takes the main "
           "parameters of the trainer's and DeepSpeed's checkpoints, and does not round what the "
           "conversion adds up.",
       .field = cli::choice(&Options::dtype, {"keep", "fp32", "fp16", "bf16"})},
      {.name = "num-attention-heads",
       .value = "N",
       .help = "Number of attention heads, for a checkpoint without arguments.",
       .field = cli::integer(&Options::num_attention_heads, 1)},
      {.name = "activation",
       .value = "NAME",
       .help = "Activation of the MLP, where the checkpoint's arguments are wrong or missing.",
       .field = cli::choice(&Options::activation, {"gelu", "gelu_new", "relu"})},
      {.name = "neox-config",
       .value = "FILE",
       .help = "GPT-NeoX's configurations of the run that wrote the checkpoint. Default: those "
               "that it put beside it, in configs.",
       .field = cli::last_list(&Options::neox_configs)},
      {.name = "max-shard-size",
       .value = "SIZE",
       .help = "Largest safetensors file, as 5GB (10^9) or 5G (2^30). A larger tensor gets a file "
               "of its own.",
       .field = shard_size()}}},
    {"Vocabulary",
     {{.name = "vocab-size",
       .value = "N",
       .help = "Real size of the vocabulary; padding after it is left out. No token is: less than "
               "the checkpoint or the tokenizer says is refused. Default: what they say.",
       .field = cli::integer(&Options::vocab_size, 1)},
      {.name = "vocab-file",
       .aliases = "vocab",
       .value = "FILE",
       .help = "Vocabulary (vocab.json) that the model was trained with. Default: the checkpoint's "
               "own, if that file exists.",
       .field = cli::text(&Options::vocab_file)},
      {.name = "merge-file",
       .value = "FILE",
       .help = "Merges (merges.txt) that go with --vocab-file.",
       .field = cli::text(&Options::merge_file)},
      {.name = "tokenizer",
       .aliases = "tokenizer-name-or-path",
       .value = "DIR",
       .help = "Folder whose tokenizer files are copied, instead of --vocab-file.",
       .field = cli::text(&Options::tokenizer)}}},
    {"Checks",
     {{.name = "verify",
       .value = "TEXT",
       .help = "Run the checkpoint and the written folder on TEXT, or on the text of the file of "
               "that name, and report how far their logits differ. Fails when they differ by more "
               "than rounding.",
       .field = cli::text(&Options::verify)},
      {.name = "report",
       .value = "FILE",
       .help = "Write the results of --verify to FILE, as JSON.",
       .field = cli::text(&Options::report)},
      {.name = "strict-pickle",
       .help = "Refuse a .pt file with unknown classes, even where they are not read. Code in a "
               "file is never executed.",
       .field = cli::on(&Options::strict_pickle)},
      {.name = "ignore-checksums",
       .help = "Read a .pt file that was written without valid checksums.",
       .field = cli::on(&Options::ignore_checksums)}}},
    {"With --to megatron or trainer",
     {{.name = "layout",
       .value = "NAME",
       .help = "Names of the parameters. legacy is what transformers' own converter and "
               "Megatron-LM before 2023-09 read, core what Megatron-core reads.",
       .field = cli::choice(&Options::layout, {"legacy", "core"})},
      {.name = "args-object",
       .value = "KIND",
       .help = "Class of the arguments in the file. ordereddict also has them as attributes and is "
               "loaded by torch.load with weights_only=True; namespace is Megatron's own "
               "argparse.Namespace, which torch 2.6 and later load only with weights_only=False.",
       .field = cli::choice(&Options::args_object, {"namespace", "ordereddict"})},
      {.name = "make-vocab-size-divisible-by",
       .value = "N",
       .help = "Pad the vocabulary to a multiple of this. Default: as in the checkpoint; 128 for a "
               "model of Hugging Face. Rows of padding count in the loss, so another size "
               "changes it.",
       .field = cli::integer(&Options::divisible_by, 1, 1 << 20)}}},
};

// Whether --input is a folder for transformers. An export in a checkpoint's own folder, or in one
// of several checkpoints, is not.
bool is_hf_input(const Options& options) {
  return !options.iteration && fs::exists(options.input + "/config.json") &&
         !is_megatron_root(options.input) && !is_megatron_checkpoint(options.input) &&
         !is_trainer_checkpoint(options.input, std::nullopt);
}

CanonicalModel read_source(const Options& options) {
  if (is_trainer_checkpoint(options.input, options.iteration))
    return read_trainer_checkpoint(options.input, options.iteration, options.dtype == "fp32");
  if (is_hf_input(options)) return read_hf_folder(options.input);
  SourceOptions source;
  source.iteration = options.iteration;
  source.num_attention_heads = options.num_attention_heads;
  source.activation = options.activation;
  source.neox_configs = options.neox_configs;
  source.strict_pickle = options.strict_pickle;
  source.prefer_main = options.dtype == "fp32";
  if (options.ignore_checksums) source.checksums = TorchFile::Checksums::ignore;
  return read_megatron(options.input, source);
}

// The tokenizer that a checkpoint names, if its files are on this machine.
TokenizerFiles named_tokenizer(const TokenizerHints& hints, int64_t length) {
  const std::string& model = hints.name_or_path;
  if (has_tokenizer(model)) return tokenizer_from_folder(model, length);
  if (fs::path(model).filename() == "tokenizer.json" && fs::exists(model))
    return tokenizer_from_folder(fs::absolute(model).parent_path().string(), length);
  if (model.ends_with(".model") && fs::is_regular_file(model))
    return tokenizer_from_sentencepiece(model, length);
  for (const std::string* file : {&model, &hints.vocab_file})
    if (hints.merge_file.empty() && file->ends_with(".json") && fs::is_regular_file(*file))
      return tokenizer_from_json(*file, length);
  if (hints.vocab_file.empty() || !fs::exists(hints.vocab_file) || !fs::exists(hints.merge_file))
    return {};
  const fs::path vocab(hints.vocab_file), merges(hints.merge_file);
  const bool folders_own = vocab.filename() == "vocab.json" && merges.filename() == "merges.txt" &&
                           vocab.parent_path() == merges.parent_path() &&
                           fs::exists(vocab.parent_path() / "tokenizer_config.json");
  return folders_own ? tokenizer_from_folder(fs::absolute(vocab).parent_path().string(), length)
                     : tokenizer_from_vocab(hints.vocab_file, hints.merge_file, length);
}

// Prefers the tokenizer that lies in the checkpoint's own root, where it is needed at all.
void take_own_tokenizer(const Options& options, CanonicalModel& model) {
  if (!options.tokenizer.empty() || !options.vocab_file.empty() || is_hf_input(options)) return;
  TokenizerHints& named = model.tokenizer;
  std::string note =
      trainer::take_own_tokenizer(folder_beside_checkpoint(options.input),
                                  {&named.vocab_file, &named.merge_file, &named.name_or_path});
  if (!note.empty()) model.notes.push_back(std::move(note));
}

// The command line's tokenizer, else the one that the checkpoint names, else the one that a
// conversion left beside it. If the second is a bare vocabulary, the third's ids are used.
TokenizerFiles find_tokenizer(const Options& options, const CanonicalModel& model) {
  const int64_t length = model.spec.max_position_embeddings;
  if (!options.tokenizer.empty()) return tokenizer_from_folder(options.tokenizer, length);
  if (!options.vocab_file.empty())
    return tokenizer_from_vocab(options.vocab_file, options.merge_file, length);
  if (is_hf_input(options)) return tokenizer_from_folder(options.input, length);
  TokenizerFiles named = named_tokenizer(model.tokenizer, length);
  const std::string folder = folder_beside_checkpoint(options.input);
  if (folder.empty() || !named.model_files.empty()) return named;
  TokenizerFiles beside = tokenizer_from_folder(folder, length);
  if (named.files.empty()) return beside;
  if (!named.copied && !beside.model_files.empty()) {
    named.model_files = std::move(beside.model_files);
    named.ids = std::move(beside.ids);
  }
  return named;
}

// A message if the tokenizer is not the model's: by the hash of the one that it was trained with;
// else, for one of the command line, by the files beside the model, or the number of tokens.
std::string other_tokenizer_note(const Options& options, const CanonicalModel& model,
                                 const TokenizerFiles& tokenizer) {
  const bool given = !options.tokenizer.empty() || !options.vocab_file.empty();
  std::vector<std::string> known;
  if (!model.tokenizer.hash.empty()) {
    known = {model.tokenizer.hash};
  } else if (given) {
    const std::string own =
        is_hf_input(options) ? options.input : folder_beside_checkpoint(options.input);
    try {
      if (has_tokenizer(own))
        known = identities_of(tokenizer_from_folder(own, model.spec.max_position_embeddings));
    } catch (const std::exception&) {  // a damaged one may be why another is given.
    }
  }
  const std::vector<std::string> used =
      known.empty() ? std::vector<std::string>() : identities_of(tokenizer);
  if (!used.empty()) {
    if (std::ranges::find_first_of(used, known) != used.end()) return {};
    return cli::concat(options.input, ": its tokenizer is another one than ", tokenizer.place,
                       ": the same ids may mean other tokens");
  }
  const int64_t tokens = tokenizer.vocab_size, expected = model.spec.vocab_size;
  if (!given || tokens == 0 || expected == 0 || tokens == expected) return {};
  return cli::concat(options.input, ": a vocabulary of ", expected, ", but ", tokenizer.place,
                     " has ", tokens, " tokens: it may be another model's");
}

// How many rows of the embedding are real tokens. Never guessed from the padding.
int64_t real_vocab_size(const Options& options, const CanonicalModel& model,
                        const TokenizerFiles& tokenizer) {
  const int64_t rows = model.spec.padded_vocab_size;
  const auto fail = [](const std::string& why) -> int64_t { throw indexed::FormatError(why); };
  const int64_t size = options.vocab_size          ? *options.vocab_size
                       : model.spec.vocab_size > 0 ? model.spec.vocab_size
                                                   : tokenizer.vocab_size;
  if (size == 0)
    return fail(options.input + ": the embedding has " + std::to_string(rows) +
                " rows and nothing says how many are padding: give --vocab-file, --tokenizer or "
                "--vocab-size");
  if (size > rows)
    return fail(
        options.input + ": a vocabulary of " + std::to_string(size) + ", but the embedding has " +
        std::to_string(rows) + " rows" +
        (tokenizer.vocab_size == size ? ": " + tokenizer.place + " belongs to another model" : ""));
  const int64_t known = model.spec.vocab_size > 0 ? model.spec.vocab_size : rows;
  if (options.vocab_size && size < std::min(tokenizer.vocab_size, known))
    return fail(tokenizer.place + ": " + std::to_string(tokenizer.vocab_size) +
                " tokens, but --vocab-size is " + std::to_string(size));
  if (size < model.spec.vocab_size)
    return fail(options.input + ": a vocabulary of " + std::to_string(model.spec.vocab_size) +
                ", but --vocab-size is " + std::to_string(size));
  // A model's own folder may list more tokens than its embedding has, like its source.
  if (tokenizer.vocab_size > size && (tokenizer.model_files.empty() || !options.tokenizer.empty()))
    return fail(tokenizer.place + ": " + std::to_string(tokenizer.vocab_size) +
                " tokens, but the model's vocabulary is " + std::to_string(size));
  return size;
}

// A warning if training documents ended with another token than the one at which generation stops;
// else empty.
std::string end_note(const CanonicalModel& model, const TokenizerFiles& tokenizer) {
  const int64_t end = model.tokenizer.end_of_document;
  const nlohmann::ordered_json eos = tokenizer.ids.value("eos_token_id", nlohmann::ordered_json());
  const bool listed = eos.is_array() && std::find(eos.begin(), eos.end(), end) != eos.end();
  if (end < 0 || eos.is_null() || eos == end || listed) return {};
  return cli::concat("documents ended with id ", end,
                     " in training, but eos_token_id of the export is ", eos.dump(),
                     ": generation will not stop at the end of a document");
}

// --verify's text, or the content of the file of that name.
std::string text_to_verify(const std::string& text) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(text, none)) return text;
  const indexed::MappedFile file(text);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void check_usage(const Options& options, const cli::Parsed& parsed) {
  for (const auto& [flag, value] :
       {std::pair("verify", &options.verify), std::pair("report", &options.report)})
    if (parsed.given.contains(flag) && value->empty())
      throw UsageError(cli::concat("--", flag, " is empty"));
  if (options.vocab_file.empty() != options.merge_file.empty())
    throw UsageError("--vocab-file and --merge-file go together");
  if (!options.vocab_file.empty() && !options.tokenizer.empty())
    throw UsageError("--tokenizer and --vocab-file exclude each other");
  if (options.arch != "auto" && find_family(options.arch) == nullptr)
    throw UsageError("--arch " + options.arch + ": not a family that can be written");
  if (!options.verify.empty() && options.to != "hf") throw UsageError("--verify needs --to hf");
  if (!options.report.empty() && options.verify.empty())
    throw UsageError("--report needs --verify");
}

const Family& pick_family(const Options& options, const CanonicalModel& model) {
  if (options.arch == "auto") return choose_family(model.spec);
  const Family& family = *find_family(options.arch);
  const std::string reason = refusal(family, model.spec);
  if (!reason.empty())
    throw indexed::FormatError(options.input + ": not a " + options.arch + " model: " + reason);
  return family;
}

std::string safetensors_dtype(const std::string& name) {
  return name == "fp32" ? "F32" : name == "fp16" ? "F16" : name == "bf16" ? "BF16" : "";
}

// Refuses, before any work, a report that could not be written after it.
void check_report(const Options& options) {
  const fs::path path(options.report);
  if (path.empty()) return;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const std::string name = path.filename().string();
  const bool beside = trainer::same_folder(folder.string(), options.output);
  if (trainer::same_folder(folder.string(), options.output + "/" + kTemplatesFolder))
    throw UsageError(
        cli::concat("--report ", options.report, ": in the folder of the tokenizer's templates"));
  if (beside && (name == "config.json" || name == "generation_config.json" || is_model_file(name)))
    throw UsageError(cli::concat("--report ", options.report, ": a file of the model in --output"));
  if (beside && !fs::exists(folder)) return;  // the conversion makes it.
  indexed::refuse_bad_target(
      options.report, options.force ? indexed::Existing::replace : indexed::Existing::refuse);
}

// Refuses outputs that are read: a model in place of itself, a report in place of the text.
void refuse_inputs(const Options& options, const CanonicalModel& model) {
  std::vector<std::string> inputs = model_inputs(options.input, is_hf_input(options));
  const TokenizerHints& named = model.tokenizer;
  for (const std::string& path : {options.tokenizer, options.vocab_file, options.merge_file,
                                  named.name_or_path, named.vocab_file, named.merge_file})
    for (std::string& file : cli::tokenizer_inputs(path)) inputs.push_back(std::move(file));
  inputs.insert(inputs.end(), options.neox_configs.begin(), options.neox_configs.end());
  inputs.push_back(options.verify);
  cli::refuse_input_as_output("--report", options.report, inputs);
  refuse_overwriting(options.to == "hf" ? overwritten_by_hf(options.output)
                     : options.to == "megatron"
                         ? overwritten_by_megatron(options.output)
                         : overwritten_by_start(options.output, model.iteration),
                     inputs);
}

// For pad_vocabulary(): a model of Hugging Face is padded as a new one is.
int64_t unit_of(const Options& options) {
  return options.divisible_by.value_or(is_hf_input(options) ? 128 : 0);
}

// Says how the vocabulary is padded, and what the target makes of it.
void say_padding(const Options& options, const CanonicalModel& model, cli::Console& console) {
  const int64_t real = model.spec.vocab_size, before = model.spec.padded_vocab_size;
  const std::string padded = cli::concat("vocabulary of ", cli::with_commas(real), ", padded to ",
                                         cli::with_commas(before), " in the checkpoint");
  CanonicalModel target{.spec = model.spec};
  if (options.to != "hf") pad_vocabulary(target, unit_of(options));
  const int64_t after = target.spec.padded_vocab_size;
  if (after == before || is_hf_input(options)) {
    if (real != before) console.log(padded);
    return;
  }
  console.note(cli::concat(padded, " and to ", cli::with_commas(after),
                           " here: rows of padding count in the loss, which changes; without "
                           "--make-vocab-size-divisible-by it stays as it was"));
}

// Where the checkpoint names a tokenizer, its name as it was typed where the training ran.
std::string no_tokenizer_note(const TokenizerHints& hints) {
  std::string named;
  for (const std::string& file : {hints.vocab_file, hints.merge_file, hints.name_or_path})
    if (named.empty()) named = file;
  return cli::concat(named.empty() ? std::string()
                                   : cli::concat("the checkpoint names the tokenizer ", named,
                                                 ", which is not here: "),
                     "no tokenizer files are written: give --vocab-file and --merge-file, or "
                     "--tokenizer");
}

int run(Options& options, cli::Invocation& call) {
  check_usage(options, call.parsed);
  cli::Console& console = call.console;
  CanonicalModel model = read_source(options);
  take_own_tokenizer(options, model);
  refuse_inputs(options, model);
  check_report(options);
  const TokenizerFiles tokenizer = find_tokenizer(options, model);
  const std::string other = other_tokenizer_note(options, model, tokenizer);
  model.spec.vocab_size = real_vocab_size(options, model, tokenizer);
  if (!other.empty()) console.note(other);
  for (const std::string& note : model.notes) console.note(note);
  if (!model.training_note.empty()) console.note(model.training_note);
  say_padding(options, model, console);
  if (options.to == "hf") trim_vocabulary(model, model.spec.vocab_size);
  if (const std::string note = end_note(model, tokenizer); !note.empty()) console.note(note);
  if (!tokenizer.note.empty()) console.note(tokenizer.note);
  if (tokenizer.files.empty()) console.note(no_tokenizer_note(model.tokenizer));
  const auto progress = [&](int64_t done, int64_t total) {
    console.progress({.done = done, .total = total, .item_noun = "tensor"});
  };
  if (options.to == "megatron") {
    MegatronTarget target{options.output,
                          options.layout == "core",
                          options.args_object == "ordereddict",
                          unit_of(options),
                          safetensors_dtype(options.dtype),
                          options.force,
                          {}};
    target.progress = progress;
    write_megatron(model, tokenizer, target);
    return 0;
  }
  if (options.to == "trainer") {
    write_start(
        model, tokenizer,
        {options.output, unit_of(options), safetensors_dtype(options.dtype), options.force});
    console.log("continue with: trainer --load " + options.output +
                " --use-checkpoint-args --finetune ...");
    return 0;
  }
  HfTarget target{options.output, options.max_shard_bytes, safetensors_dtype(options.dtype),
                  options.force, progress};
  const HfResult result = write_hf_folder(model, pick_family(options, model), tokenizer, target);
  for (const std::string& note : result.notes) console.note(note);
  console.log(cli::counted(result.tensors, "tensor") + ", " +
              cli::readable_bytes(static_cast<double>(result.bytes)) + ", in " +
              cli::counted(result.shards, "file"));
  if (options.verify.empty()) return 0;
  const VerifyReport report = verify_folder(model, options.output, text_to_verify(options.verify));
  console.note(report.summary());
  if (!options.report.empty()) report.write(options.report, options.force);
  return report.equal ? 0 : 1;
}

}  // namespace
}  // namespace convert

int main(int argc, char** argv) {
  return cli::run(convert::kProgram, convert::kFlags, argc, argv, convert::run);
}
