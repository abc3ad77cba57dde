// The rows of FP8. Names and defaults are Megatron's and Transformer Engine's; what follows from
// their values is in derive_learning.cc. See flags.h.
//
// SPDX-License-Identifier: MIT
#include "tools/cli/fields.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using C = TrainConfig;
using cli::choice;
using cli::integer;
using cli::off;
using cli::on;

/// A switch of Megatron's older scripts with the meaning of a --fp8-format. If there is another one
/// already, that is kept, and derive_and_check() sees the contradiction.
cli::Field<C> format(const char* name) {
  return {cli::Arity::none,
          [name](C& c, const cli::Values& v) {
            if (cli::parse_bool(v[0]) && c.fp8_format.empty()) c.fp8_format = name;
          },
          nullptr,
          {}};
}

}  // namespace

cli::Table<TrainConfig> fp8_flags() {
  return {{
      "FP8",
      {
          {.name = "fp8-format",
           .value = "FORMAT",
           .help = "The layers' linears multiply in 8 bits: e4m3 everywhere, or hybrid with "
                   "gradients in e5m2. Needs a GPU of capability 8.9 or newer, and --bf16 or "
                   "--fp16 there; sizes must be multiples of 16. Embeddings, the output layer, "
                   "norms, attention, main parameters and sums are not changed.",
           .field = choice(&C::fp8_format, {"e4m3", "hybrid"})},
          {.name = "fp8-hybrid",
           .help = "--fp8-format hybrid.",
           .field = format("hybrid"),
           .sets = "fp8-format"},
          {.name = "fp8-e4m3",
           .help = "--fp8-format e4m3.",
           .field = format("e4m3"),
           .sets = "fp8-format"},
          {.name = "fp8-recipe",
           .value = "RECIPE",
           .help =
               "Where scales come from. delayed: the largest values of a tensor in earlier steps; "
               "the fastest. tensorwise: the tensor's own values, which are read once more for it. "
               "rowwise: a scale for each token and each output, in weight gradients for each "
               "feature. blockwise: one for 128 values of a token, and for 128x128 of a weight. "
               "The last two need Hopper.",
           .field = choice(&C::fp8_recipe, {"delayed", "tensorwise", "rowwise", "blockwise"})},
          {.name = "no-fp8-power-of-two-scales",
           .help = "Scales of rowwise and blockwise need not be powers of two.",
           .field = off(&C::fp8_power_of_two_scales)},
          {.name = "fp8-margin",
           .value = "BITS",
           .help = "Scales are smaller, by 2 to this power, than the largest value allows.",
           .field = integer(&C::fp8_margin, 0, 8)},
          {.name = "fp8-amax-history-len",
           .value = "STEPS",
           .help = "Steps that delayed scales look back.",
           .field = integer(&C::fp8_amax_history_len, 1, 1024)},
          {.name = "fp8-amax-compute-algo",
           .value = "WHICH",
           .help = "Which of those steps' largest values counts.",
           .field = choice(&C::fp8_amax_compute_algo, {"most_recent", "max"})},
          {.name = "no-fp8-wgrad",
           .help = "Weight gradients are computed in --bf16 or --fp16.",
           .field = off(&C::fp8_wgrad)},
          {.name = "fp8-param-gather",
           .help =
               "Data-parallel ranks that divide the optimizer (--use-distributed-optimizer or "
               "--zero-stage 1 to 3) gather the weights of these linears in 8 bits, half of the "
               "bytes, and keep no 16-bit copy of the other ranks' shares. The same bits are "
               "computed as without it. Not for --fp8-recipe rowwise.",
           .field = on(&C::fp8_param_gather)},
          {.name = "first-last-layers-bf16",
           .help = "The first and the last layers are computed without FP8.",
           .field = on(&C::first_last_layers_bf16)},
          {.name = "num-layers-at-start-in-bf16",
           .value = "LAYERS",
           .help = "How many first layers, with --first-last-layers-bf16.",
           .field = integer(&C::num_layers_at_start_in_bf16, 0, 4096)},
          {.name = "num-layers-at-end-in-bf16",
           .value = "LAYERS",
           .help = "How many last layers, with --first-last-layers-bf16.",
           .field = integer(&C::num_layers_at_end_in_bf16, 0, 4096)},
      },
  }};
}

}  // namespace trainer
