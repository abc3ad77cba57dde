// The command lines of the tutorials this trainer replaces, flag for flag, parsed with only the
// program's name changed. The lists keep each script's set of flags; paths and sizes are ours where
// the script has shell variables. Sources: Megatron-LM examples (pretrain_gpt.sh of 2022,
// train_gpt3_175b_distributed.sh), its GPT-2 345M README run, Megatron-DeepSpeed examples_deepspeed
// (ds_pretrain_gpt_1.3B, pretrain_llama2_distributed, run_universal_bf16), PAI-Megatron-Patch (gpt3
// enwiki, llama3_1), Megatron-LM's SC21 scripts and its fork for AMD GPUs (train_llama2),
// BigScience (tr3i-125M).
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tools/cli/parse.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

struct Result {
  TrainConfig config;
  cli::Parsed parsed;
  std::string error;  // of derive_and_check, empty when it succeeded.
};

// Words of `line`, parsed by the trainer's table; `deepspeed` is the text of the named file, if
// any.
Result run(const std::string& line, const std::string& deepspeed = "") {
  std::istringstream words(line);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  Result result;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), result.config);
  result.parsed = cli::parse_arguments(rows, arguments);
  try {
    if (!deepspeed.empty())
      apply_deepspeed(result.config, result.parsed.given, deepspeed, "ds.json");
    derive_and_check(result.config, result.parsed.given, 1);
  } catch (const cli::UsageError& error) {
    result.error = error.what();
  }
  return result;
}

// The configuration of `line`, which must be accepted.
TrainConfig taken(const std::string& line, const std::string& deepspeed = "") {
  const Result result = run(line, deepspeed);
  EXPECT_EQ(result.error, "");
  return result.config;
}

TEST(Tutorials, MegatronLm345m) {
  const TrainConfig config = taken(
      "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --micro-batch-size 4 "
      "--global-batch-size 8"
      " --seq-length 1024 --max-position-embeddings 1024 --train-iters 500000 --lr-decay-iters "
      "320000 --save ckpt"
      " --load ckpt --data-path my_text_document --vocab-file gpt2-vocab.json --merge-file "
      "gpt2-merges.txt"
      " --data-impl mmap --split 949,50,1 --distributed-backend nccl --lr 0.00015 --min-lr 1.0e-5"
      " --lr-decay-style cosine --weight-decay 1e-2 --clip-grad 1.0 --lr-warmup-fraction .01"
      " --checkpoint-activations --log-interval 100 --save-interval 10000 --eval-interval 1000 "
      "--eval-iters 10"
      " --fp16");
  const TrainConfig::Derived& d = config.derived;
  EXPECT_EQ(d.ffn_hidden_size, 4096);
  EXPECT_EQ(d.kv_channels, 64);
  EXPECT_EQ(d.activation, "gelu_tanh");
  EXPECT_EQ(d.recompute, "full");
  EXPECT_EQ(d.train_samples, 4000000);
  EXPECT_EQ(d.lr_decay_samples, 2560000);
  EXPECT_EQ(d.lr_warmup_samples, 25600);
  EXPECT_TRUE(config.fp16);
  EXPECT_EQ(config.derived.metrics_file, "ckpt/metrics.jsonl");
  EXPECT_EQ(config.metrics_file, "");
}

TEST(Tutorials, MegatronLmGpt2OfTheHuggingFaceBlog) {
  const TrainConfig config = taken(
      "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --num-layers 12 "
      "--hidden-size 768"
      " --num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 "
      "--micro-batch-size 12"
      " --global-batch-size 192 --lr 0.0005 --train-iters 150000 --lr-decay-iters 150000 "
      "--lr-decay-style cosine"
      " --lr-warmup-iters 2000 --weight-decay .1 --adam-beta2 .999 --fp16 --log-interval 10 "
      "--save-interval 2000"
      " --eval-interval 200 --eval-iters 10 --vocab-file vocab.json --merge-file merges.txt "
      "--save ckpt --load ckpt"
      " --data-path codeparrot_content_document --tensorboard-dir tb");
  EXPECT_EQ(config.derived.lr_warmup_samples, 2000 * 192);
  EXPECT_EQ(config.derived.split, "969, 30, 1");
}

TEST(Tutorials, MegatronLm175bIsRefusedForItsDevicesOnly) {
  const std::string line =
      "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048"
      " --max-position-embeddings 2048 --attention-backend auto --micro-batch-size 1 "
      "--global-batch-size 1536"
      " --rampup-batch-size 16 16 5859375 --train-iters 500000 --weight-decay 0.1 --adam-beta1 0.9 "
      "--adam-beta2 0.95"
      " --init-method-std 0.006 --clip-grad 1.0 --fp16 --lr 6.0e-5 --lr-decay-style cosine "
      "--min-lr 6.0e-6"
      " --lr-warmup-fraction .001 --lr-decay-iters 430000 --data-path d --vocab-file v "
      "--merge-file m"
      " --split 949,50,1 --log-interval 100 --save-interval 10000 --eval-interval 1000 --save c "
      "--load c"
      " --eval-iters 10 --tensorboard-dir t";
  EXPECT_EQ(run(line + " --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16").error,
            "--tensor-model-parallel-size 8 times --pipeline-model-parallel-size 16 does not "
            "divide the 1 "
            "process there is");
  const Result one = run(line);
  EXPECT_EQ(one.error, "");
  EXPECT_EQ(one.config.derived.rampup_samples, 5859375);
}

const char kDeepspeed13b[] =
    "--override-opt_param-scheduler --adam-beta1 0.9 --adam-beta2 0.95 "
    "--tensor-model-parallel-size 1"
    " --init-method-std 0.013 --lr-decay-tokens 300000000000 --lr-warmup-tokens 3000000000 "
    "--micro-batch-size 2"
    " --exit-duration-in-mins 30000000 --global-batch-size 512 --num-layers 24 --hidden-size 2048"
    " --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --train-tokens "
    "300000000000"
    " --train-samples 292968750 --lr 2.0e-4 --min-lr 1.0e-6 --lr-decay-style cosine --split "
    "949,50,1"
    " --log-interval 10 --eval-interval 100 --eval-iters 10 --save-interval 100 --weight-decay 0.1 "
    "--clip-grad 1.0"
    " --hysteresis 2 --num-workers 0 --fp16 --seed 1234 --load c --save c"
    " --no-async-tensor-model-parallel-allreduce --tensorboard-queue-size 1 "
    "--log-timers-to-tensorboard"
    " --log-batch-size-to-tensorboard --log-validation-ppl-to-tensorboard --tensorboard-dir t"
    " --checkpoint-activations --log-optimizer-states-to-tensorboard --vocab-file v --merge-file m "
    "--data-path d"
    " --data-impl mmap --deepspeed --deepspeed_config ds.json --zero-stage 1 "
    "--pipeline-model-parallel-size 1"
    " --no-pipeline-parallel --deepspeed-activation-checkpointing";

TEST(Tutorials, MegatronDeepspeed13b) {
  const std::string file =
      R"({"train_batch_size": 512, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 10,
    "zero_optimization": {"stage": 1}, "gradient_clipping": 1.0, "prescale_gradients": false,
    "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 2,
             "min_loss_scale": 1,
             "initial_scale_power": 11}, "wall_clock_breakdown": false})";
  const TrainConfig config = taken(kDeepspeed13b, file);
  EXPECT_EQ(config.initial_loss_scale, 2048);
  EXPECT_EQ(config.loss_scale_window, 500);
  EXPECT_FALSE(config.loss_scale.has_value());
  // Tokens rule: 3e11 tokens are 146,484,375 samples, reached in step 286103.
  EXPECT_EQ(config.derived.train_iters, 286103);
  EXPECT_DOUBLE_EQ(config.derived.lr_warmup_samples, 3e9 / 2048);
  EXPECT_DOUBLE_EQ(config.derived.lr_decay_samples, 3e11 / 2048);
}

TEST(Tutorials, DeepspeedFileAgainstTheCommandLine) {
  const Result r = run(kDeepspeed13b, R"({"train_batch_size": 256})");
  EXPECT_EQ(r.error, "ds.json: train_batch_size is 256, but --global-batch-size is 512");
  EXPECT_EQ(run(kDeepspeed13b, R"({"bf16": {"enabled": true}})").error,
            "--fp16 and --bf16 exclude each other");
}

// As DeepSpeed refuses it (runtime/config_utils.py, dict_raise_error_on_duplicate_keys).
TEST(Tutorials, DeepspeedFileWithAKeyTwiceIsRefused) {
  EXPECT_EQ(run(kDeepspeed13b, R"({"train_batch_size": 256, "train_batch_size": 512})").error,
            "ds.json: train_batch_size stands there twice");
  EXPECT_EQ(
      run(kDeepspeed13b, R"({"fp16": {"enabled": true, "hysteresis": 2, "enabled": true}})").error,
      "ds.json: enabled stands there twice");
  EXPECT_EQ(run(kDeepspeed13b, R"({"fp16": {"enabled": true}, "bf16": {"enabled": false},
                                   "comms_logger": {"enabled": false}})")
                .error,
            "");
}

// pretrain_gpt.py hands its own optimizer and scheduler to deepspeed.initialize, so that the
// sections of those names change nothing there, whatever they contain (tried with DeepSpeed
// 0.19.8: the parameters after a step are the same bits).
TEST(Tutorials, DeepspeedFilesOptimizerAndSchedulerAreIdle) {
  const TrainConfig plain = taken(kDeepspeed13b);
  const char* files[] = {
      R"({"optimizer": {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.8, 0.999], "eps": 1e-3,
          "weight_decay": 0.5, "max_grad_norm": 1.0, "adam_w_mode": false, "amsgrad": true}}})",
      R"({"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 3}}})",
      R"({"scheduler": {"type": "WarmupLR",
                        "params": {"warmup_max_lr": 3, "warmup_num_steps": 2}}})",
      R"({"optimizer": {"type": "NoSuch"}, "scheduler": {"type": "NoSuch"}})"};
  for (const char* file : files) {
    const Result r = run(kDeepspeed13b, file);
    EXPECT_EQ(r.error, "");
    EXPECT_EQ(flag_values(r.config), flag_values(plain)) << file;
  }
  Result r = run(kDeepspeed13b);
  EXPECT_THAT(apply_deepspeed(r.config, r.parsed.given, files[3], "ds.json"),
              testing::ElementsAre("optimizer",
                                   "scheduler (DeepSpeed before 0.15 follows it instead of "
                                   "--lr-decay-style and --lr-warmup-iters)"));
  EXPECT_THAT(apply_deepspeed(r.config, r.parsed.given, R"({"scheduler": {}})", "ds.json"),
              testing::ElementsAre("scheduler"));
  EXPECT_EQ(run(kDeepspeed13b, R"({"optimizer": 3})").error,
            "ds.json: optimizer 3: expected an object");
}

TEST(Tutorials, DeepspeedFileDoesNotTakeBackThePrecision) {
  EXPECT_EQ(run(kDeepspeed13b, R"({"fp16": {"enabled": false}})").error,
            "ds.json: fp16 is not enabled, but --fp16 is given");
  EXPECT_EQ(run(kDeepspeed13b, R"({"bf16": {"enabled": false}})").error, "");
}

TEST(Tutorials, DeepspeedFileScalesTheLossByItsOwnRules) {
  const std::string line = std::string(kDeepspeed13b) + " --loss-scale 12";
  const Result moving = run(line, R"({"fp16": {"enabled": true, "loss_scale": 0}})");
  EXPECT_EQ(moving.error, "");
  EXPECT_FALSE(moving.config.loss_scale.has_value());
  EXPECT_EQ(moving.config.initial_loss_scale, 65536);
  const Result fixed = run(kDeepspeed13b, R"({"fp16": {"enabled": true, "loss_scale": 128}})");
  EXPECT_EQ(fixed.config.loss_scale, 128);
  // What the file omits has DeepSpeed's default, not the command line's.
  Result patient = run(std::string(kDeepspeed13b) + " --hysteresis 4 --loss-scale-window 1000");
  EXPECT_THAT(apply_deepspeed(patient.config, patient.parsed.given,
                              R"({"fp16": {"enabled": true}})", "ds.json"),
              testing::ElementsAre("--hysteresis 4 (fp16.hysteresis is 2 by default)"));
  EXPECT_EQ(patient.config.hysteresis, 2);
  EXPECT_THAT(run(kDeepspeed13b, R"({"curriculum_learning": {"enabled": true}})").error,
              testing::StartsWith("ds.json: curriculum_learning is enabled: "));
  EXPECT_EQ(run(kDeepspeed13b, R"({"curriculum_learning": {"enabled": false}})").error, "");
  EXPECT_THAT(
      run(kDeepspeed13b, R"({"data_efficiency": {"data_routing": {"enabled": true}}})").error,
      testing::StartsWith("ds.json: data_efficiency is enabled: "));
  EXPECT_EQ(run(kDeepspeed13b, R"({"data_efficiency": {"enabled": false,
                                   "data_routing": {"enabled": true}}})")
                .error,
            "");
}

// No key inside a section is ignored silently: it has an effect, is reported, or is refused.
TEST(Tutorials, DeepspeedFileKeysInsideOfSections) {
  const auto idle = [](const std::string& text) {
    Result r = run(kDeepspeed13b);
    return apply_deepspeed(r.config, r.parsed.given, text, "ds.json");
  };
  EXPECT_THAT(idle(R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8,
                       "stage3_max_live_parameters": 1e9, "zero_quantized_weights": false},
                       "fp16": {"enabled": true, "auto_cast": false}})"),
              testing::ElementsAre("fp16.auto_cast", "zero_optimization.reduce_bucket_size",
                                   "zero_optimization.stage3_max_live_parameters",
                                   "zero_optimization.zero_quantized_weights"));
  EXPECT_TRUE(
      run(kDeepspeed13b, R"({"zero_optimization": {"cpu_offload": true}})").config.cpu_offload);
  EXPECT_THAT(idle(R"({"zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"},
                       "offload_optimizer": {"device": "cpu", "pin_memory": true}},
                       "fp16": {"enabled": true}, "prescale_gradients": true,
                       "tensorboard": {"enabled": true}})"),
              testing::ElementsAre("prescale_gradients", "tensorboard",
                                   "zero_optimization.offload_optimizer.pin_memory",
                                   "zero_optimization.offload_param"));
  EXPECT_THAT(idle(R"({"zero_optimization": {"stage": 1, "offload_optimizer": null,
                       "overlap_comm": null, "offload_param": {"device": "none"}},
                       "communication_data_type": null, "gradient_accumulation_steps": null})"),
              testing::IsEmpty());
  for (const char* name : {"bf16", "bfp16", "bfloat16"})
    EXPECT_THAT(idle(std::string(R"({"communication_data_type": ")") + name + "\"}"),
                testing::IsEmpty());
  const std::pair<const char*, const char*> refused[] = {
      {R"({"zero_optimization": {"zero_quantized_gradients": true}})",
       "ds.json: zero_optimization.zero_quantized_gradients true: not known to this trainer: "
       "permitted is false"},
      {R"({"fp16": {"enabled": true, "fp16_master_weights_and_grads": true}})",
       "ds.json: fp16.fp16_master_weights_and_grads true: not known to this trainer: permitted is "
       "false"},
      {R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})",
       "ds.json: zero_optimization.stage is 3, but --zero-stage is 1"},
      {R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})",
       "ds.json: zero_optimization.offload_optimizer.device: permitted is cpu or none"},
      {R"({"zero_optimization": {"zenflow": {"topk_ratio": 0.1}}})",
       "ds.json: zero_optimization.zenflow {\"topk_ratio\":0.1}: not known to this trainer"},
      {R"({"gradient_allreduce_op": "sum"})",
       "ds.json: gradient_allreduce_op \"sum\": permitted is \"mean\""},
      {R"({"tensor_parallel": {"autotp_size": 4}})",
       "ds.json: tensor_parallel.autotp_size 4: --tensor-model-parallel-size "},
      {R"({"torch_autocast": {"enabled": true}})", "ds.json: torch_autocast is enabled: "},
      {R"({"communication_data_type": "fp16"})",
       "ds.json: communication_data_type \"fp16\": permitted are fp32 and bf16"},
      {R"({"gradient_accumulation_steps": "4"})",
       "ds.json: gradient_accumulation_steps \"4\": expected a whole number"},
      {R"({"elasticity": {"enabled": true}})", "ds.json: elasticity is enabled: "},
      {R"({"sparse_attention": {"mode": "fixed"}})",
       "ds.json: sparse_attention: attention is dense here"},
      {R"({"zero_optimization": true})", "ds.json: zero_optimization true: expected an object"},
      {R"({"fp16": {"enabled": 1}})", "ds.json: fp16: type must be boolean, but is number"},
      {R"({"fp16": )", "ds.json: parse error at line 1, column 10: "},
      {R"({"data_types": {"grad_accum_dtype": "bf16"}})",
       "ds.json: data_types.grad_accum_dtype \"bf16\": permitted is fp32"},
  };
  for (const auto& [text, error] : refused)
    EXPECT_THAT(run(kDeepspeed13b, text).error, testing::StartsWith(error));
}

TEST(Tutorials, MegatronDeepspeedLlama2) {
  const std::string line =
      "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --num-layers 24 "
      "--hidden-size 2048"
      " --ffn-hidden-size 5504 --num-attention-heads 16 --micro-batch-size 4 --global-batch-size 32"
      " --seq-length 2048 --max-position-embeddings 2048 --train-iters 250000 --save c --load c"
      " --data-path 1 ./tmp/data/bookcorpus_train_1m_text_sentence --data-impl mmap"
      " --tokenizer-type GPTSentencePieceTokenizer --tokenizer-model tokenizer.model --split "
      "949,50,1"
      " --distributed-backend nccl --lr 3e-4 --lr-decay-style cosine --min-lr 3e-5 --weight-decay "
      "0.1 --clip-grad 1"
      " --lr-warmup-iters 2000 --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --log-interval 1"
      " --save-interval 10000 --eval-interval 1000 --eval-iters 10 --bf16 "
      "--no-query-key-layer-scaling"
      " --attention-dropout 0 --hidden-dropout 0 --use-rotary-position-embeddings"
      " --untie-embeddings-and-output-weights --swiglu --normalization rmsnorm "
      "--disable-bias-linear"
      " --num-key-value-heads 4 --deepspeed --deepspeed_config=./tmp/deepspeed.json --zero-stage=0";
  const TrainConfig config =
      taken(line, R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
    "steps_per_print": 1, "zero_optimization": {"stage": 0}, "bf16": {"enabled": true}})");
  EXPECT_EQ(config.normalization, "RMSNorm");
  EXPECT_EQ(config.derived.num_query_groups, 4);
  EXPECT_EQ(config.derived.position_embedding_type, "rope");
  EXPECT_THAT(config.data_path,
              testing::ElementsAre("1", "./tmp/data/bookcorpus_train_1m_text_sentence"));
}

TEST(Tutorials, PaiGpt3Enwiki) {
  const TrainConfig config = taken(
      "--save c --split 98,2,0 --data-impl mmap --data-path d --lr 1e-4 --min-lr 1e-5 "
      "--lr-decay-style linear"
      " --adam-beta1 0.9 --adam-beta2 0.95 --weight-decay 0.1 --clip-grad 1.0 --init-method-std "
      "0.006"
      " --lr-decay-iters 1000 --lr-warmup-iters 10 --train-iters 1000 --micro-batch-size 1 "
      "--global-batch-size 8"
      " --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048"
      " --max-position-embeddings 2048 --log-interval 1 --eval-interval 100 --eval-iters 10 "
      "--save-interval 100"
      " --tensorboard-queue-size 1 --tensorboard-dir t --log-timers-to-tensorboard "
      "--log-batch-size-to-tensorboard"
      " --log-validation-ppl-to-tensorboard --tensor-model-parallel-size 1 "
      "--pipeline-model-parallel-size 1"
      " --DDP-impl local --no-load-optim --no-load-rng --num-workers 1 --seed 1234"
      " --tokenizer-type GPT2BPETokenizer --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt"
      " --position-embedding-type rope --swiglu --untie-embeddings-and-output-weights "
      "--recompute-method uniform"
      " --recompute-granularity full --use-distributed-optimizer --bf16 --use-flash-attn --load p");
  EXPECT_EQ(config.derived.ffn_hidden_size, 10880);  // int(4 * 4096 * 2 / 3 / 64) * 64
  EXPECT_EQ(config.derived.recompute_num_layers, 1);
}

TEST(Tutorials, MegatronLmOfTheFirstRelease) {
  const TrainConfig config = taken(
      "--model-parallel-size 1 --num-layers 24 --hidden-size 1024 --num-attention-heads 16 "
      "--batch-size 8 --seq-length 1024 --max-position-embeddings 1024 --train-iters 500000 "
      "--lr-decay-iters 320000 --save c --load c --data-path d --vocab-file v --merge-file m "
      "--data-impl mmap --split 949,50,1 --distributed-backend nccl --lr 0.00015 "
      "--lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --clip-grad 1.0 --warmup .01 "
      "--checkpoint-activations --log-interval 100 --save-interval 10000 --eval-interval 1000 "
      "--eval-iters 10 --fp16");
  EXPECT_EQ(config.micro_batch_size, 8);
  EXPECT_EQ(config.derived.lr_warmup_samples, .01 * 320000 * 8);
}

TEST(Tutorials, MegatronLmSc21) {
  const TrainConfig config = taken(
      "--activations-checkpoint-method uniform --tensor-model-parallel-size 1 "
      "--pipeline-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 12 --num-layers 96"
      " --hidden-size 12288 --num-attention-heads 96 --DDP-impl local --data-path d --vocab-file v "
      "--merge-file m --log-interval 5 --seq-length 2048 --max-position-embeddings 2048 "
      "--train-iters 500 --lr-decay-iters 320 --lr 0.0001 --min-lr 0.00001 --lr-decay-style cosine "
      "--lr-warmup-fraction 0.01 --split 969,30,1 --eval-iters 100 --eval-interval 1000 "
      "--clip-grad 1.0 --fp16 --loss-scale 8192");
  EXPECT_EQ(config.derived.recompute, "full");
  EXPECT_EQ(config.derived.recompute_num_layers, 1);
  EXPECT_EQ(config.loss_scale, 8192);
}

const char kAmdLlama2[] =
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 "
    "--seq-length 4096 --max-position-embeddings 32000 --untie-embeddings-and-output-weights "
    "--position-embedding-type rope --no-position-embedding --swiglu --disable-bias-linear "
    "--init-method-std 0.02 --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm "
    "--micro-batch-size 1 --global-batch-size 8 --train-iters 12 "
    "--no-async-tensor-model-parallel-allreduce --bf16 --no-masked-softmax-fusion --optimizer adam "
    "--lr 1e-4 --min-lr 1e-5 --lr-decay-iters 320000 --lr-decay-style cosine --weight-decay 1.0e-1 "
    "--clip-grad 1.0 --adam-beta1 0.9 --adam-beta2 0.95 --tokenizer-type HuggingFaceTokenizer "
    "--tokenizer-model t --split 99990,8,2 --save-interval 200000 --tensorboard-dir b "
    "--log-interval 1 --eval-interval 320000 --num-workers 8 --data-path d --log-throughput "
    "--no-save-optim --no-save-rng --eval-iters 10 --exit-on-missing-checkpoint --no-load-optim "
    "--no-load-rng --use-checkpoint-args --load c --group-query-attention --num-query-groups 8 "
    "--no-gradient-accumulation-fusion --distributed-backend nccl --distributed-timeout-minutes "
    "120 "
    "--overlap-grad-reduce --use-distributed-optimizer --overlap-param-gather --use-flash-attn "
    "--use-contiguous-parameters-in-local-ddp --use-mcore-models --rerun-mode disabled "
    "--wandb-project=L --wandb-exp-name=e --wandb-save-dir logs";

TEST(Tutorials, AmdLlama2) {
  const TrainConfig config = taken(kAmdLlama2);
  EXPECT_EQ(config.derived.position_embedding_type, "rope");
  EXPECT_EQ(config.derived.max_position_embeddings, 32000);
}

// What those scripts can do and this trainer cannot: each is refused by name.
TEST(Tutorials, WhatCannotBeHonouredIsRefusedByName) {
  for (const char* flag : {"--mock-data",
                           "--apply-layernorm-1p",
                           "--fp8-output-proj",
                           "--fp4-format=e2m1",
                           "--fp8-recipe=mxfp8",
                           "--decoupled-lr=5.0e-4",
                           "--use-torch-fsdp2",
                           "--embed-layernorm",
                           "--position-embedding-type=alibi",
                           "--optimizer=sgd",
                           "--dataloader-type=cyclic",
                           "--train-weighted-split-paths-path=t",
                           "--ds-sequence-parallel-size=4",
                           "--kd",
                           "--train-mode=finetune",
                           "--multi-latent-attention",
                           "--cpu-offloading",
                           "--yaml-cfg=y",
                           "--epochs=2",
                           "--q-lora-rank=512",
                           "--use-mup",
                           "--fim-data",
                           "--eval-global-batch-size=8",
                           "--step-batch-size-schedule=s",
                           "--train-idx-path=t",
                           "--load-tag=global_step5",
                           "--force-ds-sequence-parallel",
                           "--glu-activation=geglu",
                           "--squared-relu",
                           "--rotary-interleaved",
                           "--embedding-weights-in-fp32"}) {
    try {
      run(std::string(kAmdLlama2) + " " + flag);
      ADD_FAILURE() << flag << " is taken";
    } catch (const cli::UsageError& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find("unknown option"), std::string::npos) << text;
      EXPECT_THAT(text, testing::StartsWith(std::string(flag).substr(0, 6)));
    }
  }
}

// Names that other scripts may add to a line, of Megatron-LM's core 0.19 and Megatron-DeepSpeed.
TEST(Tutorials, WhatChangesNothingIsTakenAndNamedOnce) {
  const Result r =
      run(std::string(kAmdLlama2) +
          " --flash-attention-version 3 --fused-residual-rmsnorm --disable-jit-fuser "
          "--cuda-graph-modules attn mlp --init-model-with-meta-device --enable-experimental "
          "--async-strategy nvrx --async-ckpt-cpu-priority 10 --dist-ckpt-workers 2 "
          "--ckpt-fully-parallel-load-exchange-algo broadcast --use-tp-pp-dp-mapping "
          "--dataloader-fast-cache-load --log-device-memory-used --record-shapes --nvtx-ranges "
          "--exit-signal-handler-for-training --flight-recorder-dump-path f "
          "--flight-recorder-trace-buffer-size 2000 --moe-router-score-function sigmoid "
          "--moe-router-load-balancing-type none none --mlp-type standard --topk 1 "
          "--moe-expert-parallel-size 1 --torch_adam --universal-checkpoint --use-flash-attn-v1 "
          "--tokenizer-hf-use-fast --tokenizer-hf-include-special-tokens --use-gigatoken "
          "--zero-reduce-scatter --use-pin-memory --tile-factor 1 --log-level info --log-path l");
  EXPECT_EQ(r.error, "");
  const auto named = [&](const Result& result) {
    TrainConfig config;
    return std::ranges::count_if(cli::bind_rows(flag_table(), config), [&](const cli::Row& row) {
      return !row.no_effect.empty() && result.parsed.given.contains(row.name);
    });
  };
  const auto before = named(run(kAmdLlama2));
  EXPECT_EQ(named(r), before + 34);
  const Result honoured = run(std::string(kAmdLlama2) +
                              " --kill-switch-file=f --null-tokenizer-eod-id=5 --vocab-size -1 "
                              "--tokenizer-special-tokens <a> <b> --tiktoken-pattern v2 "
                              "--tiktoken-num-special-tokens 1000");
  EXPECT_EQ(named(honoured), before);
  EXPECT_EQ(honoured.config.stop_file, "f");
  EXPECT_EQ(honoured.config.eod_id, 5);
  EXPECT_EQ(honoured.config.vocab_size, std::nullopt);
  EXPECT_THAT(honoured.config.tokenizer_special_tokens, testing::ElementsAre("<a>", "<b>"));
  EXPECT_EQ(run(std::string(kAmdLlama2) + " --enable-zbh1-pipeline").config.pipeline_schedule,
            "zero-bubble");
}

// As in Megatron, where 0 is no fixed scale: many scripts say `--loss-scale 0`.
TEST(Tutorials, ALossScaleOfZeroIsDynamic) {
  const std::string line = std::string(kAmdLlama2) + " ";
  const auto refused = [&](const std::string& flags) {
    EXPECT_THROW(run(line + flags), cli::UsageError) << flags;
  };
  EXPECT_EQ(run(line + "--loss-scale 8 --loss-scale 0").config.loss_scale, std::nullopt);
  EXPECT_EQ(run(line + "--loss-scale 0 --loss-scale 8").config.loss_scale, 8);
  refused("--loss-scale 1e-9");
  refused("--loss-scale -1");
  refused("--initial-loss-scale 0");
  refused("--min-loss-scale 0");
}

TEST(Tutorials, OnlySpecsOfThisModelChangeNothing) {
  const std::string line = std::string(kAmdLlama2) + " --spec ";
  EXPECT_EQ(run(line + "megatron.core.models.gpt.gpt_layer_specs get_gpt_layer_local_spec").error,
            "");
  EXPECT_EQ(run(line + "local").error, "");
  for (const char* other :
       {"megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec",
        "megatron.core.models.gpt.gpt_layer_specs get_moe_layer_spec", "mine.py spec"})
    EXPECT_THAT([&] { run(line + other); },
                testing::ThrowsMessage<cli::UsageError>(testing::HasSubstr("another model")));
}

// --rotary-scaling-factor is that of latent attention, which is not --use-rope-scaling's.
TEST(Tutorials, TheFactorOfLatentAttentionIsNotLlamas) {
  const TrainConfig config =
      run(std::string(kAmdLlama2) + " --use-rope-scaling --rotary-scaling-factor 40").config;
  EXPECT_EQ(config.rope_scaling_factor, TrainConfig().rope_scaling_factor);
}

TEST(Tutorials, MegatronDeepspeedUniversalCheckpoint) {
  const TrainConfig config = taken(
      "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 "
      "--ds-sequence-parallel-size 1 --num-layers 24 --hidden-size 1024 --num-attention-heads 32 "
      "--seq-length 1024 --loss-scale 12 --max-position-embeddings 1024 --micro-batch-size 4 "
      "--global-batch-size 4 --train-iters 100000 --lr 6.0e-3 --min-lr 6.0e-4 --lr-decay-style "
      "cosine --log-interval 1 --eval-iters 40 --eval-interval 10 --data-path d --vocab-file v "
      "--merge-file m --save-interval 100 --split 98,2,0 --clip-grad 1.0 --weight-decay 0.1 "
      "--adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 --bf16 --checkpoint-activations "
      "--exit-interval 200 --save s --load l --make-vocab-size-divisible-by 256 "
      "--universal-checkpoint --tensorboard-dir t --deepspeed --deepspeed_config=ds.json "
      "--zero-stage=2 --deepspeed-activation-checkpointing --no-pipeline-parallel",
      R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 4, "steps_per_print": 1,
    "zero_optimization": {"stage": 2, "ignore_missing_optim_state": false},
    "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},
    "wall_clock_breakdown": false})");
  EXPECT_EQ(config.zero_stage, 2);
  EXPECT_TRUE(config.accumulate_allreduce_grads_in_fp32);
  EXPECT_EQ(config.make_vocab_size_divisible_by, 256);
}

TEST(Tutorials, BigScience125m) {
  const std::string line =
      "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --num-layers 12 "
      "--hidden-size 768 --num-attention-heads 16 --ffn-hidden-size 3072 --seq-length 2048 "
      "--max-position-embeddings 2048 --micro-batch-size 8 --global-batch-size 512 "
      "--rampup-batch-size 32 32 2_000_000 --train-samples 73_242_187 --vocab-file v --merge-file m"
      " --loss-scale 12 --clip-grad 1.0 --fp16 --checkpoint-activations --optimizer adam "
      "--adam-beta1 0.9 --adam-beta2 0.999 --adam-eps 1e-8 --lr 6e-4 --min-lr 1e-5 "
      "--lr-decay-style cosine --lr-decay-samples 73_242_187 --lr-warmup-samples 183_105 "
      "--clip-grad 1.0 --weight-decay 1e-1 --exit-duration-in-mins 1190 --log-interval 200 "
      "--save-interval 1500 --eval-interval 1000 --eval-iters 100 --tensorboard-dir b "
      "--tensorboard-queue-size 5 --log-timers-to-tensorboard --log-batch-size-to-tensorboard "
      "--log-validation-ppl-to-tensorboard --save c --load c --data-path d --data-impl mmap "
      "--split 949,50,1 --distributed-backend nccl --deepspeed --deepspeed_config ds.json "
      "--zero-stage 1 --deepspeed-activation-checkpointing";
  const TrainConfig config =
      taken(line, R"({"train_micro_batch_size_per_gpu": 8, "train_batch_size": 512,
    "gradient_clipping": 1.0, "zero_optimization": {"stage": 1}, "fp16": {"enabled": true,
    "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1,
    "initial_scale_power": 12}, "steps_per_print": 2000, "wall_clock_breakdown": false})");
  EXPECT_EQ(config.derived.rampup_samples, 2000000);
  EXPECT_EQ(config.derived.train_samples, 73242187);
  EXPECT_FALSE(config.loss_scale.has_value());
  EXPECT_EQ(config.initial_loss_scale, 4096);
}

TEST(Tutorials, PaiLlama31) {
  const TrainConfig config = taken(
      "--save c --lr 1e-5 --min-lr 1e-6 --lr-decay-style cosine --weight-decay 0.1 --adam-beta1 0.9"
      " --adam-beta2 0.95 --clip-grad 1.0 --init-method-std 0.008 --attention-dropout 0.0 "
      "--hidden-dropout 0.0"
      " --lr-decay-iters 1000 --lr-warmup-iters 10 --train-iters 1000 --micro-batch-size 1 "
      "--global-batch-size 8"
      " --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 "
      "--seq-length 128"
      " --max-position-embeddings 131072 --max-padding-length 128 --log-interval 1 --log-throughput"
      " --eval-interval 10000 --eval-iters 10 --save-interval 100 --tensorboard-queue-size 1 "
      "--tensorboard-dir t"
      " --log-timers-to-tensorboard --log-batch-size-to-tensorboard "
      "--log-validation-ppl-to-tensorboard"
      " --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --context-parallel-size 1 "
      "--no-load-optim"
      " --no-load-rng --num-workers 8 --extra-vocab-size 256 --patch-tokenizer-type "
      "LLama3Tokenizer --swiglu"
      " --normalization RMSNorm --norm-epsilon 1e-05 --use-rotary-position-embeddings"
      " --position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear"
      " --rotary-base 500000 --no-save-optim --data-path d --split 99,1,0 --dataset "
      "LLama-Pretrain-Idxmap --bf16"
      " --load p --transformer-impl transformer_engine --recompute-activations "
      "--use-distributed-optimizer"
      " --sequence-parallel --group-query-attention --num-query-groups 8 --overlap-grad-reduce"
      " --overlap-param-gather --tp-comm-overlap --train-mode pretrain");
  EXPECT_EQ(config.derived.recompute, "selective");
  EXPECT_EQ(config.derived.num_query_groups, 8);
  EXPECT_EQ(config.extra_vocab_size, 256);
  EXPECT_EQ(config.patch_tokenizer_type, "LLama3Tokenizer");
}

}  // namespace
}  // namespace trainer
