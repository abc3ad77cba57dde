// SPDX-License-Identifier: MIT
// hf-to-megatron: converts a Hugging Face folder into a checkpoint for further training: the
// trainer's own, or Megatron-LM's model_optim_rng.pt. Here: the flags and the order of steps; the
// rest of convert/ reads and writes the formats.
#include <string>

#include "convert/hf_folder.h"
#include "convert/megatron_target.h"
#include "convert/overwritten.h"
#include "convert/trainer_source.h"
#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/checkpoint/checkpoint.h"

namespace convert {
namespace {

struct Options {
  std::string input, output;
  std::string to = "trainer";
  std::string dtype = "keep";
  std::string layout = "legacy", args_object = "ordereddict";
  int64_t divisible_by = 128;
  bool force = false;
};

const cli::Program kProgram = {
    .name = "hf-to-megatron",
    .summary = "turn a Hugging Face model into a checkpoint for further training",
    .at_signal = indexed::remove_temporaries,
    .at_fault = indexed::describe_fault,
    .at_end = indexed::check_mapped_files,
};

const cli::Table<Options> kFlags = {
    {"Input and output",
     {{.name = "input",
       .letter = 'i',
       .aliases = "load load-dir",
       .value = "DIR",
       .help = "Folder with config.json and model.safetensors.",
       .field = cli::text(&Options::input),
       .required = true},
      {.name = "output",
       .letter = 'o',
       .aliases = "save save-dir",
       .value = "DIR",
       .help = "Root folder of checkpoints to write, for --load of the trainer or of Megatron-LM.",
       .field = cli::text(&Options::output),
       .required = true},
      {.name = "force",
       .letter = 'f',
       .help = "Write into a folder that already has a checkpoint.",
       .field = cli::on(&Options::force)}}},
    {"Model",
     {{.name = "to",
       .value = "FORMAT",
       .help = "Format to write. trainer is the trainer's own, megatron Megatron-LM's of one rank.",
       .field = cli::choice(&Options::to, {"trainer", "megatron"})},
      {.name = "dtype",
       .value = "NAME",
       .help = "Type of the weights written. keep does not change it.",
       .field = cli::choice(&Options::dtype, {"keep", "fp32", "fp16", "bf16"})},
      {.name = "make-vocab-size-divisible-by",
       .value = "N",
       .help = "Pad the vocabulary to a multiple of this, as the training command will.",
       .field = cli::integer(&Options::divisible_by, 1, 1 << 20)}}},
    {"With --to megatron",
     {{.name = "layout",
       .value = "NAME",
       .help = "Names of the parameters. legacy is what Megatron-LM before 2023-09 reads, core "
               "what Megatron-core reads.",
       .field = cli::choice(&Options::layout, {"legacy", "core"})},
      {.name = "args-object",
       .value = "KIND",
       .help = "Class of the arguments in the file. See megatron-to-hf.",
       .field = cli::choice(&Options::args_object, {"namespace", "ordereddict"})}}},
};

int run(Options& options, cli::Invocation& call) {
  const std::string type = options.dtype == "fp32"   ? "F32"
                           : options.dtype == "fp16" ? "F16"
                           : options.dtype == "bf16" ? "BF16"
                                                     : "";
  CanonicalModel model = read_hf_folder(options.input);
  for (const std::string& note : model.notes) call.console.note(note);
  if (!model.training_note.empty()) call.console.note(model.training_note);
  refuse_overwriting(options.to == "megatron"
                         ? overwritten_by_megatron(options.output)
                         : overwritten_by_start(options.output, model.iteration),
                     model_inputs(options.input, true));
  const TokenizerFiles tokenizer =
      tokenizer_from_folder(options.input, model.spec.max_position_embeddings);
  if (options.to == "megatron") {
    if (options.output.ends_with(".pt"))
      call.console.note(
          "one file has no room for the tokenizer and its ids: give a folder, or --tokenizer to "
          "megatron-to-hf");
    MegatronTarget target{.path = options.output,
                          .core_names = options.layout == "core",
                          .ordered_args = options.args_object == "ordereddict",
                          .divisible_by = options.divisible_by,
                          .dtype = type,
                          .replace = options.force};
    target.progress = [&](int64_t done, int64_t total) {
      call.console.progress({.done = done, .total = total, .item_noun = "tensor"});
    };
    write_megatron(model, tokenizer, target);
    return 0;
  }
  write_start(model, tokenizer, {options.output, options.divisible_by, type, options.force});
  call.console.log("continue with: trainer --load " + options.output +
                   " --use-checkpoint-args --finetune ...");
  return 0;
}

}  // namespace
}  // namespace convert

int main(int argc, char** argv) {
  return cli::run(convert::kProgram, convert::kFlags, argc, argv, convert::run);
}
