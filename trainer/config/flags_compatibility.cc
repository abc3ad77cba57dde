// Flags of known command lines without a row of their own: those that change nothing here, with the
// reason that is printed once, and those that cannot be honoured, with the reason for the refusal.
// A flag that would change the model or the data is never among the former. See flags.h. Sources of
// the names: arguments.py of Megatron-LM 1.1 to core 0.19, of Megatron-DeepSpeed (Microsoft's and
// BigScience's) and of Pai-Megatron-Patch. Flags for other tasks (vision, retrieval, reinforcement
// learning, inference) are not here.
//
// SPDX-License-Identifier: MIT
#include <iterator>

#include "tools/cli/fields.h"
#include "tools/cli/parse.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

using C = TrainConfig;
using cli::Arity;

// Flags with the same reason; names separated by spaces.
struct Idle {
  const char* reason;
  std::string_view switches, with_value = {}, with_values = {};
};

constexpr Idle kNoEffect[] = {
    {"quantized weights are always kept in both layouts, and scales follow each step",
     "keep-fp8-transpose-cache", "fp8-interval"},
    {"every operation is as fused as the device allows",
     "no-masked-softmax-fusion no-bias-swiglu-fusion no-bias-dropout-fusion no-rope-fusion "
     "no-gradient-accumulation-fusion no-persist-layer-norm no-scaled-masked-softmax-fusion "
     "cross-entropy-loss-fusion scaled-upper-triang-masked-softmax-fusion "
     "scaled-masked-softmax-fusion bias-gelu-fusion bias-dropout-fusion "
     "memory-centric-tiled-linear use-fused-rmsnorm use-te-activation-func "
     "no-gradient-reduce-div-fusion abort-on-unmet-fused-kernel-constraints "
     "disable-mem-efficient-ln fused-residual-rmsnorm use-transformer-engine-op-fuser "
     "disable-jit-fuser",
     "cross-entropy-fusion-impl tile-factor"},
    {"attention is fused where the device has a deterministic kernel for it",
     "use-flash-attn use-flash-attn-v2 use-flash-attn-triton use-flash-attn-builder "
     "use-fused-attention use-flash-attn-v1",
     "attention-backend flash-attention-version"},
    {"softmax and all sums are computed in fp32",
     "attention-softmax-in-fp32 apply-query-key-layer-scaling no-query-key-layer-scaling "
     "fp16-lm-cross-entropy disable-bf16-reduced-precision-matmul"},
    {"--cuda-graph says whether steps are replayed as a graph",
     "enable-cuda-graph external-cuda-graph te-rng-tracker optimizer-cuda-graph",
     "cuda-graph-impl cuda-graph-warmup-steps", "cuda-graph-scope cuda-graph-modules"},
    {"determinism is the default", "deterministic-mode"},
    {"there is one implementation of the model",
     "use-mcore-models use-legacy-models use-cpu-initialization no-initialization deepspeed "
     "no-pipeline-parallel use-te ds-inference create-moe-param-group legacy-tokenizer "
     "trust-remote-code use-precision-aware-optimizer init-model-with-meta-device "
     "enable-experimental enable-msc disable-msc tokenizer-hf-no-use-fast "
     "tokenizer-sentencepiece-legacy no-tokenizer-sentencepiece-ignore-extra-whitespaces "
     "torch_adam cpu_torch_adam ds_fused_adam "
     "tokenizer-hf-use-fast tokenizer-hf-include-special-tokens use-gigatoken",
     "transformer-impl transformer-type null-tokenizer-pad-id DDP-impl model-type task "
     "max-padding-length lazy-mpu-init onnx-safe tokenizer-metadata"},
    {"there is one format of checkpoints, and any layout resumes from any of them",
     "use-dist-ckpt ckpt-fully-parallel-save no-ckpt-fully-parallel-save ckpt-fully-parallel-load "
     "async-save ckpt-assume-constant-structure use-persistent-ckpt-worker "
     "auto-detect-ckpt-format dist-ckpt-optim-fully-reshardable "
     "distrib-optim-fully-reshardable-mem-efficient dist-ckpt-save-pre-mcore-014 "
     "use-mp-args-from-checkpoint-args no-use-tokenizer-model-from-checkpoint-args "
     "universal-checkpoint replication verify-integrity async-ckpt-use-cpu-shm "
     "no-ckpt-load-validate-sharding-integrity ckpt-convert-update-legacy-dist-opt-format "
     "checkpoint-writer-decoupled",
     "async-strategy async-ckpt-cpu-priority async-ckpt-io-priority dist-ckpt-workers "
     "ckpt-fully-parallel-load-exchange-algo ckpt-fully-parallel-save-process-group "
     "ckpt-fully-parallel-load-process-group replication-jump replication-factor "
     "checkpoint-io-buffer-size checkpoint-data-parallel aio-intra-op-parallelism ckpt-format "
     "dist-ckpt-format dist-ckpt-strictness ckpt-convert-format "
     "export-te-mcore-model"},
    {"communication is arranged by the trainer itself",
     "no-async-tensor-model-parallel-allreduce distribute-saved-activations "
     "distribute-checkpointed-activations partition-activations contigious-checkpointing "
     "synchronize-each-layer no-scatter-gather-tensors-in-pipeline "
     "use-contiguous-buffers-in-local-ddp no-contiguous-buffers-in-local-ddp "
     "use-contiguous-parameters-in-local-ddp tp-comm-overlap overlap-p2p-communication "
     "no-overlap-p2p-communication overlap-p2p-communication-warmup-flush delay-grad-reduce "
     "no-delay-grad-reduce align-grad-reduce no-align-grad-reduce no-align-param-gather "
     "overlap-param-gather-with-optimizer-step defer-embedding-wgrad-compute "
     "use-layer-wise-param-layout "
     "use-ring-exchange-p2p nccl-ub use-nccl-ub disable-symmetric-registration use-sharp "
     "fsdp-double-buffer ddp-pad-buckets-for-high-nccl-busbw ddp-average-in-collective "
     "disable-gloo-process-groups tp-comm-overlap-ag tp-comm-overlap-rs "
     "tp-comm-overlap-rs-dgrad disable-tp-comm-overlap-ag disable-tp-comm-overlap-rs "
     "disable-tp-comm-bulk-dgrad disable-tp-comm-bulk-wgrad disable-tp-comm-split-ag "
     "disable-tp-comm-split-rs no-clone-scatter-output-in-embedding "
     "use-contiguous-buffers-in-ddp zero-reduce-scatter zero-contigious-gradients use-pin-memory "
     "scattered-embeddings split-transformers use-tp-pp-dp-mapping create-all-gather-group "
     "delay-wgrad-compute ddp-reduce-scatter-with-fp32-accumulation fsdp-manual-registration "
     "no-use-layer-wise-param-layout enable-zbh1-exact-semantics",
     "ddp-bucket-size ddp-num-buckets zero-reduce-bucket-size remote-device "
     "zero-contiguous-gradients zero-allgather-bucket-size nccl-communicator-config-path "
     "local_rank local-rank tp-comm-overlap-cfg tp-comm-bootstrap-backend sharp-enabled-group "
     "pipeline-model-parallel-comm-backend wgrad-deferral-limit "
     "suggested-communication-unit-size microbatch-group-size-per-virtual-pipeline-stage "
     "pp-partition-method distributed-timeout-seconds-after-init train-sync-interval",
     "high-priority-stream-groups cp-comm-type"},
    {"samples are read straight from the mapped files, as often as the run needs them",
     "mmap-warmup no-mmap-bin-files no-data-sharding no-create-attention-mask-in-dataloader "
     "create-attention-mask-in-dataloader repeated-dataloader "
     "dataloader-fast-cache-load dataloader-defer-npy-index-mmap",
     "per-dataset-sequences-path num-workers valid-num-workers num-dataset-builder-threads "
     "data-sharding "
     "object-storage-cache-path"},
    {"tokens that pad are learned like all others", "allow-ambiguous-pad-tokens"},
    {"only multi-latent attention reads it", "", "rotary-scaling-factor"},
    {"the log is written at every --log-interval",
     "log-batch-size-to-tensorboard log-learning-rate-to-tensorboard "
     "no-log-learnig-rate-to-tensorboard log-optimizer-states-to-tensorboard log-progress "
     "log-straggler disable-straggler-on-startup barrier-with-L1-time "
     "no-barrier-with-level-1-timing no-one-logger enable-one-logger one-logger-async "
     "wall-clock-breakdown memory-breakdown log-energy log-device-memory-used "
     "log-max-attention-logit",
     "timing-log-level timing-log-option tensorboard-queue-size log-memory-interval "
     "logging-level log-level log-level-replica log-path "
     "log-straggler-interval straggler-ctrlr-port straggler-minmax-count steps-per-print"},
    {"profilers need no flag here",
     "profile use-pytorch-profiler profile-backward record-memory-history "
     "run-workload-inspector-server record-shapes nvtx-ranges pytorch-profiler-collect-shapes "
     "pytorch-profiler-collect-callstack pytorch-profiler-collect-chakra",
     "profile-step-start profile-step-end profile_steps memory-snapshot-path", "profile-ranks"},
    {"there is no garbage collection, and no memory is released during a run",
     "manual-gc no-manual-gc-eval", "manual-gc-interval empty-unused-memory-level"},
    {"metrics go to metrics.jsonl and TensorBoard", "",
     "wandb-project wandb-exp-name wandb-save-dir wandb-entity one-logger-project "
     "one-logger-run-name one-logger-entity app-tag-run-name app-tag-run-version codecarbon-dir "
     "config-logger-dir"},
    {"memory is fixed before the first step, and --dry-run prints it",
     "log-memory-to-tensorboard no-pin-cpu-grads no-pin-cpu-params overlap-cpu-optimizer-d2h-h2d "
     "use-torch-optimizer-for-cpu-offload",
     "", "recompute-modules"},
    {"signals always end in a checkpoint",
     "exit-signal-handler exit-signal-handler-for-training exit-signal-handler-for-dataloader",
     "exit-signal"},
    {"a lost or stuck rank is named without it",
     "flight-recorder-include-stack-trace no-flight-recorder-dump-on-timeout "
     "no-flight-recorder-include-only-active no-flight-recorder-extra-dump-on-exec",
     "flight-recorder-dump-path flight-recorder-trace-buffer-size gpu-sniff-test-interval"},
    {"gradients are always checked before they are applied",
     "check-for-nan-in-loss-and-grad no-check-for-nan-in-loss-and-grad check-for-spiky-loss "
     "check-for-large-grads",
     "rerun-mode check-weight-hash-across-dp-replicas-interval"},
    {"the cluster's own resuming is used, and --max-restarts",
     "adlr-autoresume inprocess-restart enable-ft-package calc-ft-timeouts",
     "adlr-autoresume-interval inprocess-max-iterations inprocess-granularity"},
    {"there are no experts: --num-experts above 1 is refused",
     "moe-grouped-gemm moe-router-pre-softmax moe-extended-tp moe-per-layer-logging "
     "moe-permute-fusion use-tutel disable-moe-token-dropping moe-shared-expert-overlap "
     "moe-shared-expert-gate moe-router-enable-expert-bias moe-router-fusion "
     "moe-router-padding-for-fp8 moe-router-force-load-balancing moe-enable-deepep "
     "moe-pad-expert-input-to-capacity moe-layer-recompute moe-apply-probs-on-input "
     "moe-use-upcycling overlap-moe-expert-parallel-comm disable-moe-top2-2nd-expert-sampling "
     "enable-expert-tensor-parallelism",
     "moe-router-topk moe-z-loss-coeff moe-shared-expert-intermediate-size moe-router-num-groups "
     "moe-router-group-topk moe-router-topk-scaling-factor moe-router-score-function "
     "moe-router-dtype moe-router-bias-update-rate moe-input-jitter-eps moe-token-drop-policy "
     "moe-flex-dispatcher-backend moe-deepep-num-sms moe-expert-parallel-size mlp-type topk "
     "expert-interval "
     "moe-token-dispatcher-type moe-ffn-hidden-size moe-layer-freq moe-loss-coeff "
     "moe-train-capacity-factor moe-eval-capacity-factor moe-min-capacity "
     "moe-expert-capacity-factor expert-tensor-parallel-size",
     "moe-router-load-balancing-type moe-aux-loss-coeff"},
    {"no part of GPT pre-training reads it", "bert-no-binary-head",
     "mask-prob short-seq-prob sample-rate decoder-seq-length retriever-seq-length sgd-momentum "
     "inference-batch-times-seqlen-threshold inference-max-seq-length max-tokens-to-oom "
     "relative-attention-num-buckets relative-attention-max-distance"},
};

constexpr Idle kRefused[] = {
    {"the output layer is computed in --bf16 or --fp16, and 4 bits need Blackwell",
     "fp8-output-proj fp4-param-gather", "fp4-format fp4-recipe"},
    {"--fp8-recipe and --first-last-layers-bf16 say what is quantized, and how", "",
     "fp8-quantizer-factory te-precision-config-file"},
    {"this trainer's models have no such part",
     "embed-layernorm apply-layernorm-1p apply-residual-connection-post-layernorm "
     "qk-l2-norm quick-geglu multi-latent-attention mup use-mup mos kd moe "
     "qk-clip "
     "attention-output-gate is-hybrid-model use-alibi-mask use-normhead disable-bias-linear-fc "
     "disable-bias-attn-fc use-mistral-rotary-position-embeddings embedding-weights-in-fp32",
     "rotary-scale-factor no-rope-freq mtp-num-layers "
     "mtp-loss-scaling-factor window-attn-skip-freq glu-linear-offset "
     "glu-activation activation-func-clamp-value heterogeneous-layers-config-path "
     "heterogeneous-layers-config-encoded-json retro-project-dir q-lora-rank kv-lora-rank "
     "qk-head-dim qk-pos-emb-head-dim v-head-dim mscale mscale-all-dim linear-attention-freq "
     "experimental-attention-variant hybrid-layer-pattern hybrid-override-pattern "
     "attention-head-type z-loss-weight moe-topk num-experts-switch num-layers-teacher "
     "hidden-size-teacher num-attention-heads-teacher load-teacher kd-alpha-ce kd-beta-ce kd-temp",
     "mrope-section num-experts-teacher"},
    {"all parameters have one learning rate and one initial spread, --lr and --init-method-std",
     "init-method-xavier-uniform data-parallel-random-init",
     "decoupled-lr decoupled-min-lr embedding-init-method-std"},
    {"the optimizer trains all parameters, and vectors have no decay",
     "use-bnb-optimizer freeze-all-layers apply-wd-to-qk-layernorm", "no-weight-decay-cond-type"},
    {"use --rampup-batch-size", "", "step-batch-size-schedule"},
    {"use --train-iters or --train-samples", "", "epochs"},
    {"use --make-vocab-size-divisible-by 1", "no-pad-vocab-size disable-pad-vocab-size"},
    {"sequences are not divided among ranks", "force-ds-sequence-parallel hybrid-context-parallel",
     "max-seqlen-per-dp-cp-rank", "hierarchical-context-parallel-sizes"},
    {"make a dataset with bpe-tokenize", "mock-data sft"},
    {"use --train-data-path, --valid-data-path and --test-data-path, or "
     "--per-split-data-args-path",
     "",
     "train-weighted-split-paths-path valid-weighted-split-paths-path "
     "test-weighted-split-paths-path",
     "train-weighted-split-paths valid-weighted-split-paths test-weighted-split-paths"},
    {"the order of samples is computed, or read from --data-cache-path", "",
     "train-idx-path train-desc-path train-doc-idx-path train-sample-idx-path "
     "train-shuffle-idx-path"},
    {"say where the files are with --data-path", "", "aml-data-download-path"},
    {"use --reset-attention-mask", "dataloader-inter-document-masking"},
    {"activations of the MLP are gelu_tanh, gelu_erf, relu and swiglu", "squared-relu"},
    {"rotary positions turn the two halves of a head, as GPT-NeoX's and Llama's do",
     "rotary-interleaved"},
    {"samples are the dataset's tokens, and only --eod-mask-loss leaves some out of "
     "the loss",
     "fim-data loss-on-targets-only reweight-loss-based-on-position-frequency",
     "fim-rate fim-spm-rate"},
    {"an evaluation takes --eval-iters global batches of one blend",
     "full-validation multiple-validation-sets",
     "eval-global-batch-size eval-micro-batch-size start-eval-at-iter"},
    {"use --skip-train", "", "eval-only"},
    {"every step is taken, and every sample has --seq-length tokens",
     "curriculum-learning curriculum-learning-legacy random-ltd "
     "data-efficiency-curriculum-learning variable-seq-lengths",
     "result-rejected-tracker-filename train-data-exact-num-epochs",
     "iterations-to-skip skip-train-iteration-range"},
    {"activations stay on the device: --recompute-activations and --recompute-granularity full "
     "save memory, --cpu-offload moves the optimizer",
     "cpu-offloading checkpoint-in-cpu ds-sequence-parallel-fpdt "
     "ds-sequence-parallel-fpdt-offloading fine-grained-activation-offloading",
     "ds-sequence-parallel-fpdt-chunk-size optimizer-offload-policy", "offload-modules"},
    {"use --zero-stage",
     "use-torch-fsdp2 use-megatron-fsdp use-custom-fsdp enable-full-sharding-in-hsdp",
     "data-parallel-sharding-strategy outer-dp-sharding-strategy"},
    {"use --num-layers-per-virtual-pipeline-stage, or --decoder-first-pipeline-num-layers and "
     "--decoder-last-pipeline-num-layers",
     "standalone-embedding-stage",
     "pipeline-model-parallel-layout pipeline-model-parallel-split-rank"},
    {"no value is silently reduced", "decrease-batch-size-if-needed"},
    {"use --save-interval and --keep-last", "",
     "save-retain-interval non-persistent-save-interval non-persistent-ckpt-type "
     "non-persistent-global-ckpt-dir non-persistent-local-ckpt-dir"},
    {"megatron-to-hf converts checkpoints", "", "ckpt-convert-save"},
    {"use --ckpt-step", "", "load-tag"},
    {"use --finetune for only the weights, or --override-opt_param-scheduler",
     "no-load-lr-state reset-iteration"},
    {"main parameters come with the optimizer's state", "load-main-params-from-ckpt"},
    {"use --config FILE, one name = value per line", "", "yaml-cfg"},
    {"this trainer pre-trains only", "perform-rl-step"},
};

// A flag of which only some values, separated by spaces, change nothing.
struct Partly {
  std::string_view name, values;
  const char* reason;
};
constexpr Partly kOnly[] = {
    {"rope-type", "rope", "there is one kind of rotary positions"},
    {"softmax-type", "vanilla", "attention has one kind of softmax"},
    {"ds-sequence-parallel-size", "1", "sequences are not divided among ranks"},
    {"cpu-offloading-num-layers", "0", "activations stay on the device"},
    {"optimizer-offload-fraction", "1 1.0", "--cpu-offload moves the whole optimizer"},
    {"num-distributed-optimizer-instances", "1", "all replicas share the optimizer"},
    {"vocab-extra-ids", "0", "--extra-vocab-size adds token ids"},
    {"main-grads-dtype", "fp32", "gradients accumulate in fp32"},
    {"main-params-dtype", "fp32", "main parameters are fp32"},
    {"train-mode", "pretrain", "this trainer pre-trains only"},
    {"task-type", "llmacc.megatron.GPT", "the flags say what the model is"},
    {"dataset", "MMAP LLama-Pretrain-Idxmap", "datasets are Megatron's .bin and .idx"},
};

// --spec FILE FUNCTION, as Megatron's scripts name the layers of the GPT that there is here.
cli::Field<C> layer_spec() {
  const std::string reason = "there is one implementation of the model";
  return {Arity::many,
          [reason](C&, const cli::Values& v) {
            const std::string& place = v.front();
            const bool gpt = place == "local" || place == "te" ||
                             place == "megatron.core.models.gpt.gpt_layer_specs";
            const bool experts = v.size() > 1 && v[1].find("moe") != std::string::npos;
            if (!gpt || experts)
              throw cli::UsageError(
                  "names the layers of another model: permitted is "
                  "megatron.core.models.gpt.gpt_layer_specs");
          },
          nullptr,
          {},
          reason};
}

template <class Make>
void add(cli::Group<C>& group, const Idle& idle, Make make) {
  const auto rows = [&](std::string_view names, Arity arity) {
    for (const std::string_view name : cli::split_names(names))
      group.flags.push_back({.name = name,
                             .value = arity == Arity::none ? "" : "VALUE",
                             .field = make(arity, std::string(idle.reason))});
  };
  rows(idle.switches, Arity::none);
  rows(idle.with_value, Arity::one);
  rows(idle.with_values, Arity::many);
}

}  // namespace

cli::Table<TrainConfig> compatibility_flags() {
  cli::Group<C> idle{"Without effect here", {}}, refused{"Known, but not supported here", {}};
  for (const Idle& one : kNoEffect) add(idle, one, cli::no_effect<C>);
  for (const Partly& one : kOnly) {
    std::vector<std::string> values;
    for (const std::string_view value : cli::split_names(one.values)) values.emplace_back(value);
    idle.flags.push_back({.name = one.name,
                          .value = "VALUE",
                          .field = cli::no_effect_with<C>(std::move(values), one.reason)});
  }
  idle.flags.push_back({.name = "spec", .value = "VALUE", .field = layer_spec()});
  for (const Idle& one : kRefused) add(refused, one, cli::refused<C>);
  return {idle, refused};
}

const cli::Table<TrainConfig>& flag_table() {
  static const cli::Table<TrainConfig> table = [] {
    cli::Table<TrainConfig> all;
    for (cli::Table<TrainConfig> part :
         {model_flags(), learning_flags(), fp8_flags(), run_flags(), compatibility_flags()}) {
      std::move(part.begin(), part.end(), std::back_inserter(all));
    }
    return all;
  }();
  return table;
}

std::map<std::string, std::vector<std::string>> flag_values(const TrainConfig& config) {
  TrainConfig copy = config;
  std::map<std::string, std::vector<std::string>> out;
  for (const cli::Row& row : cli::bind_rows(flag_table(), copy)) {
    if (!row.show) continue;
    cli::Values values = row.show();
    if (!values.empty()) out[std::string(row.name)] = std::move(values);
  }
  return out;
}

std::string effective_config(const TrainConfig& config) {
  TrainConfig copy = config;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), copy);
  return cli::show_config(rows);
}

}  // namespace trainer
