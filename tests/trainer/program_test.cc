// The trainer program as its users see it: what it prints, what it refuses and with which status,
// what it does with damaged checkpoints and poisoned numbers.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class TrainerTest : public ProgramTest {
 protected:
  /// What --dry-run predicts about a checkpoint, against one that is written.
  void dry_run_and_checkpoint(const std::vector<std::string>& flags);
  std::string memory_line_;  ///< Of the dry run.
};

TEST_F(TrainerTest, LearnsAndReports) {
  const Ended ended = run({"--train-iters", "200", "--log-interval", "100", "--eval-interval",
                           "100", "--hidden-dropout", "0", "--attention-dropout", "0",
                           "--tensorboard-dir", "tb", "--log-throughput", "--metrics-file",
                           "m.jsonl", "--log-params-norm", "--log-num-zeros-in-grad"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out,
              HasSubstr(" iteration      100/     200 | consumed samples:          400 |"));
  EXPECT_THAT(ended.out,
              ContainsRegex("throughput per GPU \\(TFLOP/s/GPU\\): [0-9.]+ \\| learning rate: "));
  EXPECT_THAT(ended.out, ContainsRegex("num zeros: [0-9]+ \\| params norm: [0-9.]+ \\|"));
  EXPECT_THAT(ended.out, HasSubstr(" validation loss at iteration 100 | lm loss value: "));
  EXPECT_THAT(ended.out,
              HasSubstr(" validation loss at iteration 200 on test set | lm loss value: "));
  EXPECT_THAT(ended.out, HasSubstr("num-layers = 2"));
  std::vector<double> losses;
  std::ifstream in(folder_ + "/m.jsonl");
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    if (record.contains("grad_norm")) losses.push_back(record.at("lm_loss"));
  }
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_LT(losses[1], 1.0);  // a sequence that follows from its last token: 4.16 nats at first.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/tb"), {}), 1);
  const std::filesystem::directory_entry events =
      *std::filesystem::directory_iterator(folder_ + "/tb");
  const std::string points = read("tb/" + events.path().filename().string());
  for (const char* tag : {"lm loss", "grad-norm vs samples", "lm loss validation", "num-zeros",
                          "params-norm", "params-norm vs samples", "learning-rate"})
    EXPECT_NE(points.find(tag), std::string::npos) << tag;
}

TEST_F(TrainerTest, ThreadsDoNotChangeABit) {
  ASSERT_EQ(run({"--save", "one"}).status, 0);
  ASSERT_EQ(run({"--save", "two", "--cpu-threads", "2"}).status, 0);
  EXPECT_EQ(metrics("one"), metrics("two"));
  EXPECT_TRUE(tensors("one", 12) == tensors("two", 12));
}

TEST_F(TrainerTest, WrongCommandLinesAreTwo) {
  const auto error = [&](const std::vector<std::string>& more) {
    const Ended ended = run(more);
    EXPECT_EQ(ended.status, 2) << ended.err;
    return ended.err;
  };
  EXPECT_EQ(error({"--global-batch-size", "3"}),
            "trainer: --global-batch-size 3 is no multiple of --micro-batch-size 2 times "
            "data-parallel size 1\n");
  EXPECT_EQ(error({"--num-layer", "3"}),
            "trainer: unknown option --num-layer: did you mean --num-layers\n");
  EXPECT_EQ(error({"--tensor-model-parallel-size", "2"}),
            "trainer: --tensor-model-parallel-size 2 times --pipeline-model-parallel-size 1 does "
            "not divide the 1 process there is\n");
#ifdef FAKE_DRIVER
  EXPECT_EQ(error({"--bf16"}),
            "trainer: --bf16 needs a GPU, and there is none here: without it the trainer computes "
            "in fp32 on the CPU\n");
#else
  EXPECT_EQ(error({"--bf16"}),
            "trainer: --bf16 needs a GPU, and this build has no CUDA half: without it the trainer "
            "computes in fp32 on the CPU; ./bootstrap builds it where nvcc is found\n");
#endif
  EXPECT_EQ(error({"--parallel-residual", "--hidden-dropout", "0.1"}),
            "trainer: --parallel-residual needs --hidden-dropout 0\n");
  EXPECT_THAT(error({"--eod-id", "64"}), HasSubstr("--eod-id 64: the vocabulary has ids 0 to 63"));
}

TEST_F(TrainerTest, FlagsWithoutEffectAreNamedOnce) {
  const Ended ended = run(
      {"--use-flash-attn", "--no-masked-softmax-fusion", "--num-workers", "2", "--use-flash-attn"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  const size_t first = ended.err.find("--use-flash-attn: accepted, no effect here");
  ASSERT_NE(first, std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("--use-flash-attn", first + 1), std::string::npos) << ended.err;
}

TEST_F(TrainerTest, ConfigFileSaysTheSameAsTheCommandLine) {
  ASSERT_EQ(run({"--save", "one"}).status, 0);
  std::string text = read("one/config.toml");
  const std::string from = "save = \"one\"";
  text.replace(text.find(from), from.size(), "save = \"two\"");
  std::ofstream(folder_ + "/c.toml") << text;
  const Ended ended = wait(start({"--config", "c.toml"}, {}, TRAINER_PROGRAM, false));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(metrics("one"), metrics("two"));
  EXPECT_TRUE(tensors("one", 12) == tensors("two", 12));
}

TEST_F(TrainerTest, NotFiniteStopsBeforeItIsApplied) {
  const Ended ended = run({"--lr", "1e30", "--lr-warmup-iters", "0", "--metrics-file", "m.jsonl",
                           "--save", "s", "--save-interval", "1"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(
      ended.err,
      ContainsRegex("trainer: step [0-9]+: gradient of [a-z_0-9.]+ is not finite "
                    "\\([0-9]+ tensors? in all\\), loss .*: nothing of this step was applied; its "
                    "samples are of d: documents [0-9]+"));
  EXPECT_THAT(read("m.jsonl"), HasSubstr("\"event\":\"gradients are not finite\""));
}

TEST_F(TrainerTest, DamagedShardIsNamedAndThePreviousOffered) {
  const std::vector<std::string> flags = {"--save", "s", "--load", "s", "--save-interval", "6"};
  ASSERT_EQ(run(flags).status, 0);
  const std::string shard = folder_ + "/s/iter_0000012/rank_00000_optimizer.safetensors";
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(shard)) - 100);
  file.put('\x55');
  file.close();
  const Ended ended = run(flags);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(
      ended.err,
      ContainsRegex("trainer: s/iter_0000012/rank_00000_optimizer.safetensors: [a-z_0-9.]+: bytes "
                    "[0-9]+ to [0-9]+: checksum differs: damaged; the previous whole checkpoint is "
                    "of step 6: go on from it with --ckpt-step 6"));
  std::vector<std::string> back = flags;
  back.insert(back.end(), {"--ckpt-step", "6"});
  EXPECT_EQ(run(back).status, 0);
  std::filesystem::remove(shard);
  EXPECT_THAT(run(flags).err,
              HasSubstr("trainer: s/iter_0000012/rank_00000_optimizer.safetensors: no such file or "
                        "directory; the previous whole checkpoint is of step 6: "));
}

TEST_F(TrainerTest, ScheduleAndModelMustAgreeWithTheCheckpoint) {
  ASSERT_EQ(run({"--save", "s"}).status, 0);
  const Ended differs = run({"--load", "s", "--lr", "2e-2", "--train-iters", "14"});
  EXPECT_EQ(differs.status, 2);
  EXPECT_THAT(differs.err, HasSubstr("give --override-opt_param-scheduler to take the command's"));
  EXPECT_EQ(
      run({"--load", "s", "--lr", "2e-2", "--train-iters", "14", "--override-opt_param-scheduler"})
          .status,
      0);
  EXPECT_EQ(run({"--load", "s", "--lr", "2e-2", "--train-iters", "14",
                 "--use-checkpoint-opt_param-scheduler"})
                .status,
            0);
  const Ended model = run({"--load", "s", "--hidden-size", "64"});
  EXPECT_EQ(model.status, 2);
  EXPECT_THAT(model.err, HasSubstr("the model's ffn_hidden_size is 128, this command's is 256"));
  EXPECT_THAT(run({"--load", "nowhere"}).err,
              HasSubstr("nowhere: no checkpoint there, starting from the beginning"));
  EXPECT_EQ(run({"--load", "nowhere", "--exit-on-missing-checkpoint"}).status, 1);
  std::ofstream(folder_ + "/file") << "no checkpoint";
  for (const char* flag : {"--load", "--save"}) {
    const Ended file = run({flag, "file"});
    EXPECT_EQ(file.status, 2);
    EXPECT_THAT(file.err, HasSubstr(std::string(flag) + " file: a file, where a folder is"));
  }
}

TEST_F(TrainerTest, FinetuneTakesOnlyTheWeights) {
  ASSERT_EQ(run({"--save", "s", "--train-iters", "40"}).status, 0);
  const Ended ended =
      run({"--load", "s", "--finetune", "--log-interval", "1", "--train-iters", "3"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("at iteration 0 (weights only)"));
  EXPECT_THAT(ended.out,
              HasSubstr(" iteration        1/       3 | consumed samples:            4 |"));
  EXPECT_THAT(ended.out,
              Not(ContainsRegex("1/       3 .* lm loss: 4\\.")));  // not where a new model starts.
}

// A job that is started again by its first command would otherwise lose what it had in silence.
TEST_F(TrainerTest, SaysWhatItWritesOver) {
  const std::string over = "--override-opt_param-scheduler";
  EXPECT_EQ(run({"--save", "s", "--train-iters", "20"}).err, "");
  EXPECT_EQ(run({"--save", "s", "--load", "s", "--train-iters", "22", over}).err, "");
  EXPECT_THAT(
      run({"--save", "s", "--load", "s", "--ckpt-step", "20", over}).err,
      HasSubstr("s: has checkpoints up to step 22, this run begins at step 20: it replaces"));
  EXPECT_THAT(run({"--save", "s"}).err, HasSubstr("has checkpoints up to step "));
}

// A checkpoint defines the model; the command line then only says how to train.
TEST_F(TrainerTest, ModelComesFromTheCheckpoint) {
  ASSERT_EQ(run({"--save", "s", "--swiglu", "--normalization", "RMSNorm", "--disable-bias-linear",
                 "--position-embedding-type", "rope", "--untie-embeddings-and-output-weights",
                 "--num-query-groups", "1", "--hidden-dropout", "0"})
                .status,
            0);
  const std::vector<std::string> flags = {"--load",
                                          "s",
                                          "--use-checkpoint-args",
                                          "--micro-batch-size",
                                          "2",
                                          "--lr",
                                          "1e-2",
                                          "--data-path",
                                          "d",
                                          "--split",
                                          "80,10,10",
                                          "--device",
                                          "cpu"};
  std::vector<std::string> tune = flags;
  tune.insert(tune.end(), {"--finetune", "--train-iters", "2", "--save", "t"});
  const Ended tuned = wait(start(tune, {}, TRAINER_PROGRAM, false));
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  for (const char* line :
       {"seq-length = 16\n", "activation = \"swiglu\"\n", "num-query-groups = 1\n",
        "disable-bias-linear = true\n", "hidden-dropout = 0\n", "vocab-size = 64\n",
        "attention-dropout = 0.1\n"}) {
    EXPECT_THAT(tuned.out, HasSubstr(line));
  }
  std::vector<std::string> other = flags;
  other.insert(other.end(), {"--train-iters", "2", "--finetune", "--hidden-size", "64"});
  EXPECT_THAT(wait(start(other, {}, TRAINER_PROGRAM, false)).err,
              HasSubstr("hidden_size is 32, this command's is 64"));  // the command line wins.
  EXPECT_EQ(wait(start({"--use-checkpoint-args"}, {}, TRAINER_PROGRAM, false)).err,
            "trainer: --use-checkpoint-args needs --load\n");
}

TEST_F(TrainerTest, TokensOutsideOfTheVocabularyAreNamed) {
  const Ended ended = run({"--vocab-size", "50", "--eod-id", "49"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(
      ended.err,
      ContainsRegex("trainer: d.bin: document [0-9]+, token [0-9]+: id [0-9]+: the vocabulary has "
                    "ids 0 to 49"));
}

TEST_F(TrainerTest, DryRunPrintsAndWritesNothing) {
  dry_run_and_checkpoint({});
  std::filesystem::remove_all(folder_ + "/s");
  const std::string adam = memory_line_;
  dry_run_and_checkpoint({"--optimizer", "muon"});
  EXPECT_NE(memory_line_, adam) << "one number less of each matrix' element";
}

void TrainerTest::dry_run_and_checkpoint(const std::vector<std::string>& flags) {
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  };
  const Ended ended = run(with({"--dry-run", "--save", "s"}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("parameters  "));
  EXPECT_THAT(ended.out, ContainsRegex("memory      .* planned"));
  EXPECT_THAT(ended.out, ContainsRegex("run         12 steps, about "));
  EXPECT_THAT(ended.out, ContainsRegex("rates       of this processor: a product at [0-9.e-]+ "
                                       "TFLOP/s and a copy at [0-9.e-]+ TB/s, measured now\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/s"));

  // Its prediction of a checkpoint is what a run writes, except for the files' headers.
  ASSERT_EQ(run(with({"--save", "s"})).status, 0);
  memory_line_ = ended.out.substr(ended.out.find("memory "), 40);
  double kib = 0;
  for (const char* kind : {"model", "optimizer"}) {
    const std::string file =
        read(std::string("s/iter_0000012/rank_00000_") + kind + ".safetensors");
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    kib += static_cast<double>(file.size() - sizeof header - header) / 1024;
  }
  const std::string::size_type line = ended.out.find("checkpoint  ");
  ASSERT_NE(line, std::string::npos) << ended.out;
  EXPECT_THAT(ended.out.substr(line), ContainsRegex("^checkpoint  [0-9.]+ KiB on disk"));
  EXPECT_NEAR(std::stod(ended.out.substr(line + 12)), kib, 0.051);
}

TEST_F(TrainerTest, DryRunPlansForTheGpuThatIsElsewhere) {
  const Ended ended =
      run({"--dry-run", "--bf16", "--device", "auto"}, {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("device      planned for a GPU: there is none here\n"));
  EXPECT_THAT(ended.out, ContainsRegex("memory      .* planned"));
  EXPECT_THAT(ended.out,
              ContainsRegex("step        .* flop, .* no time without a card: --gpu names one"));
}

TEST_F(TrainerTest, DryRunPlansForACardByName) {
  const auto planned = [&](const std::string& card, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--dry-run", "--device", "auto", "--bf16", "--gpu", card};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Ended fits = planned("a100-40gb", {});
  EXPECT_EQ(fits.status, 0) << fits.err;
  EXPECT_THAT(fits.out, HasSubstr("device      planned for NVIDIA A100 40 GB (8.0); tested on 9.0 "
                                  "alone, no card of this kind was tried\n"));
  EXPECT_THAT(fits.out, ContainsRegex("planned, about [0-9.]+ MiB of CUDA, NCCL and the GPU's "
                                      "libraries, 39.2 GiB free\n"));
  EXPECT_THAT(fits.out, ContainsRegex("step        about [0-9.e-]+ s: compute 100.0%"));
  EXPECT_THAT(fits.out, ContainsRegex("rates       NVIDIA A100 40 GB: .*not measured\n"));
  EXPECT_THAT(fits.out, Not(HasSubstr("links ")));
  EXPECT_THAT(planned("H200", {}).out, HasSubstr("planned for NVIDIA H200 (9.0)\n"));
  // 1.4 billion parameters of 18 bytes each.
  const std::vector<std::string> large = {"--num-layers",          "28", "--hidden-size", "2048",
                                          "--num-attention-heads", "16"};
  const Ended full = planned("rtx4090", large);
  EXPECT_EQ(full.status, 1) << full.err;
  EXPECT_THAT(full.out, HasSubstr("\ndoes not fit: "));
  EXPECT_EQ(planned("a100-40gb", large).status, 0);
  // Two cards of a kind that can access each other's memory, and two of a kind that cannot.
  const std::vector<std::string> two = {"--nproc-per-node", "2"};
  EXPECT_THAT(planned("l40s", two).out, Not(HasSubstr("links ")));
  EXPECT_THAT(planned("rtx4090", two).out,
              HasSubstr("links       the GPUs of this host do not reach each other's memory: "));

  const auto refused = [&](const std::vector<std::string>& words) {
    const Ended ended = run(words);
    EXPECT_EQ(ended.status, 2) << ended.out;
    return ended.err;
  };
  EXPECT_THAT(refused({"--dry-run", "--device", "auto", "--gpu", "v100-16gb"}),
              HasSubstr("trainer: --gpu v100-16gb: NVIDIA V100 16 GB: compute capability 7.0, "));
  EXPECT_THAT(refused({"--dry-run", "--device", "auto", "--gpu", "v100"}),
              HasSubstr("trainer: --gpu v100: NVIDIA V100 32 GB: compute capability 7.0, "));
  EXPECT_THAT(refused({"--dry-run", "--device", "auto", "--gpu", "a100"}),
              HasSubstr("trainer: --gpu a100: expected one of a30, a100-40gb, "));
  EXPECT_EQ(refused({"--dry-run", "--device", "cpu", "--gpu", "l4"}),
            "trainer: --gpu contradicts --device cpu\n");
  EXPECT_EQ(refused({"--device", "auto", "--gpu", "l4"}),
            "trainer: --gpu needs --dry-run or --auto-layout\n");
  EXPECT_EQ(refused({"--dry-run", "--device", "auto", "--gpu", ""}),
            "trainer: --gpu \"\": expected the name of a card\n");
}

TEST_F(TrainerTest, VersionSaysWhichGpusThereIsCodeFor) {
  const Ended ended = run({"--version"});
  EXPECT_EQ(ended.status, 0);
#ifdef FAKE_DRIVER
  EXPECT_THAT(ended.out, ContainsRegex("^trainer \\(gristmill\\) [0-9.]+\nGPUs: CUDA [0-9.]+, "
                                       "(code for|PTX of) [0-9]"));
#else
  EXPECT_THAT(ended.out, HasSubstr("\nGPUs: none, built without CUDA\n"));
#endif
}

// A GPU with an unusable driver is not reported as missing: the reason is given.
TEST_F(TrainerTest, ADriverThatDoesNotServeIsNamed) {
#ifdef FAKE_DRIVER
  const auto said = [&](const char* version, const char* status) {
    const Ended ended = run({"--device", "cuda"}, {{"LD_LIBRARY_PATH", FAKE_DRIVER},
                                                   {"FAKE_DRIVER_VERSION", version},
                                                   {"FAKE_DRIVER_STATUS", status}});
    EXPECT_EQ(ended.status, 1) << ended.out;
    return ended.err;
  };
  EXPECT_EQ(
      said("12040", "0"),
      "trainer: cuda: the NVIDIA driver is too old: it is for CUDA 12.4, this build needs one "
      "for CUDA 13.0 (580 or newer); --device cpu needs no GPU\n");
  EXPECT_EQ(said("13000", "802"),
            "trainer: cuda: the NVIDIA driver does not start: system not yet initialized; "
            "--device cpu needs no GPU\n");
#else
  GTEST_SKIP() << "built without CUDA";
#endif
}

TEST_F(TrainerTest, DrawsItsLossAndItsSchedule) {
  const std::string plain = run({"--log-interval", "2"}).out;
  EXPECT_THAT(plain, Not(HasSubstr("lm loss 3")));
  const Ended stars = run({"--log-interval", "2", "--plot-ascii"});
  EXPECT_EQ(stars.status, 0);
  // Twelve rows, then first and last iteration and the last loss: once, at the end.
  EXPECT_THAT(stars.out, ContainsRegex("\n[0-9.]+ \\*+[^\n]*\n([ *]*\n){10}[0-9.]+ [ *]*\n +2 +lm "
                                       "loss [0-9.]+ +12\n$"));
  EXPECT_THAT(run({"--log-interval", "2", "--plot"}).out, HasSubstr("\u2809"));
  EXPECT_THAT(run({"--plot", "-q"}).out, Not(HasSubstr("lm loss")));
  const Ended dry = run({"--dry-run", "--num-layers", "4", "--nproc-per-node", "2",
                         "--pipeline-model-parallel-size", "2", "--schedule-svg", "s.svg"});
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("picture     s.svg\n"));
  EXPECT_THAT(read("s.svg"), AllOf(HasSubstr("One step of 2 pipeline stages"), HasSubstr("stage 1"),
                                   HasSubstr("class=\"in\"")));
  const Ended refused = run({"--schedule-svg", "t.svg"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.err, "trainer: --schedule-svg needs --dry-run\n");
}

// Mistakes of a user's first day.
TEST_F(TrainerTest, CommonMistakesAreNamed) {
  const auto refused = [&](const std::vector<std::string>& more, int status) {
    const Ended ended = run(more);
    EXPECT_EQ(ended.status, status) << ended.err;
    return ended.err;
  };
  EXPECT_EQ(refused({"--data-path", "d.bin"}, 2),
            "trainer: --data-path d.bin: name it without .bin or .idx\n");
  EXPECT_THAT(refused({"--tokenizer-model", "some/model"}, 1),
              HasSubstr("--tokenizer-model some/model (nothing is downloaded: "));
  EXPECT_EQ(refused({"--vocab-file", "some/gpt2-vocab.json"}, 2),
            "trainer: --vocab-file some/gpt2-vocab.json needs --merge-file\n");
  std::ofstream(folder_ + "/m.txt") << "#version: 0.2\n";
  EXPECT_EQ(refused({"--vocab-file", "m.txt", "--merge-file", "m.txt"}, 1),
            "trainer: m.txt: byte 1: not valid JSON\n");
  EXPECT_THAT(refused({"--tokenizer-type", "Gpt2"}, 2),
              HasSubstr("--tokenizer-type Gpt2: expected one of GPT2BPETokenizer, "));
  std::filesystem::create_directories(folder_ + "/hf");
  std::ofstream(folder_ + "/hf/config.json") << "{}";
  EXPECT_EQ(refused({"--load", "hf"}, 2),
            "trainer: --load hf: a transformers folder: convert it with hf-to-megatron "
            "--input hf --output hf-start and give --load hf-start --finetune\n");
  std::filesystem::rename(folder_ + "/hf", folder_ + "/it's hf");
  EXPECT_EQ(refused({"--load", "it's hf/"}, 2),
            "trainer: --load it's hf/: a transformers folder: convert it with "
            "hf-to-megatron --input 'it'\\''s hf/' --output 'it'\\''s hf-start' and give --load "
            "'it'\\''s hf-start' --finetune\n");
  ASSERT_EQ(run({"--save", "s"}).status, 0);
  EXPECT_THAT(refused({"--load", "s", "--train-iters", "12", "--weight-decay", "0.3"}, 2),
              HasSubstr(": --weight-decay is 0.01, this command's is 0.3: give "));
}

// The splits of the tutorials, on a corpus too small for them: Megatron 2 and 3 leave out what has
// no document.
TEST_F(TrainerTest, SplitsWithoutDocumentsAreNotEvaluated) {
  const Ended ended = run({"--split", "949,50,1"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("--split 949,50,1 leaves no document for test: there is no such "
                                   "evaluation\n"));
  EXPECT_THAT(ended.out, HasSubstr("on validation set"));
  EXPECT_THAT(ended.out, Not(HasSubstr("on test set")));
  const Ended wrong = run({"--split", "a,b"});
  EXPECT_EQ(wrong.status, 2) << wrong.err;
  EXPECT_EQ(run({"--data-path", "0", "d"}).status, 2);
}

TEST_F(TrainerTest, TwoTrainersDoNotShareAFolder) {
  const std::vector<std::string> longer = {"--save", "s", "--train-iters", "3000"};
  const pid_t first = start(longer);
  for (int i = 0; i < 200 && !std::filesystem::exists(folder_ + "/s/.trainer.lock"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const Ended second = wait(start({"--save", "s"}));
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("trainer: s: another trainer is saving there"));
  kill(first, SIGKILL);
  wait(first);
}

TEST_F(TrainerTest, FurtherStepsAreSaved) {
  ASSERT_EQ(run({"--save", "s", "--save-interval", "6", "--extra-save-iters", "0", "1", "4", "99"})
                .status,
            0);
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/s"))
    if (entry.path().filename().string().starts_with("iter_"))
      found.push_back(entry.path().filename().string());
  EXPECT_THAT(found, testing::UnorderedElementsAre("iter_0000001", "iter_0000004", "iter_0000006",
                                                   "iter_0000012"));
}

// However a step's samples are divided: one micro-batch, several, several ranks and stages.
TEST_F(TrainerTest, TokensCountTheSameInEveryLayout) {
  const auto losses = [&](std::vector<std::string> words, int64_t evaluation = 4) {
    for (const char* word : {"--eod-mask-loss", "--log-interval", "1", "--train-iters", "4",
                             "--hidden-dropout", "0", "--attention-dropout", "0", "--eval-iters"})
      words.push_back(word);
    words.push_back(std::to_string(evaluation));
    const Ended ended = run(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    std::vector<double> out;
    for (const std::string mark : {"lm loss: ", "lm loss value: "})
      for (size_t at = ended.out.find(mark); at != std::string::npos;
           at = ended.out.find(mark, at + 1))
        out.push_back(std::stod(ended.out.substr(at + mark.size())));
    return out;
  };
  const auto differ = [](const std::vector<double>& a, const std::vector<double>& b) {
    EXPECT_EQ(a.size(), 6u);
    EXPECT_EQ(b.size(), 6u);
    double most = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      most = std::max(most, std::abs(a[i] - b[i]));
    return most;
  };
  const std::string flag = "--calculate-per-token-loss";
  const std::vector<double> whole =
      losses({"--micro-batch-size", "8", "--global-batch-size", "8", flag});
  const std::vector<std::vector<std::string>> layouts = {
      {"--micro-batch-size", "1"},
      {"--micro-batch-size", "2", "--nproc-per-node", "2"},
      {"--micro-batch-size", "1", "--nproc-per-node", "4", "--pipeline-model-parallel-size", "2",
       "--use-distributed-optimizer"}};
  for (std::vector<std::string> layout : layouts) {
    layout.insert(layout.end(), {"--global-batch-size", "8"});
    EXPECT_GT(differ(losses(layout), whole), 2e-4) << "without the flag micro-batches count";
    layout.push_back(flag);
    EXPECT_LT(differ(losses(layout), whole), 2e-5) << layout[1];
  }
}

// Evaluations are weighted by the tokens that count in each of their batches.
TEST_F(TrainerTest, EvaluationsCountTokensWhereAsked) {
  ASSERT_EQ(run({"--save", "s"}).status, 0);
  const auto loss = [&](const char* batch, const char* iterations, bool per_token) {
    std::vector<std::string> words = {"--load",
                                      "s",
                                      "--skip-train",
                                      "--micro-batch-size",
                                      "1",
                                      "--global-batch-size",
                                      batch,
                                      "--eval-iters",
                                      iterations,
                                      "--override-opt_param-scheduler",
                                      "--eod-mask-loss"};
    if (per_token) words.push_back("--calculate-per-token-loss");
    const Ended ended = run(words);
    const size_t at = ended.out.find("lm loss value: ");
    EXPECT_NE(at, std::string::npos) << ended.err << ended.out;
    return at == std::string::npos ? 0 : std::stod(ended.out.substr(at + 15));
  };
  EXPECT_NEAR(loss("2", "8", true), loss("16", "1", true), 1e-6);
  EXPECT_GT(std::abs(loss("2", "8", false) - loss("2", "8", true)), 1e-5);
}

TEST_F(TrainerTest, EvaluatesAlone) {
  ASSERT_EQ(run({"--save", "s"}).status, 0);
  const Ended ended = run({"--load", "s", "--skip-train"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr(" validation loss at iteration 12 on validation set | "));
  EXPECT_THAT(ended.out, Not(HasSubstr("elapsed time per iteration")));
}

// A model of a sequence that its last token decides continues that sequence greedily, whatever the
// cache; and the same seed draws the same text.
TEST_F(TrainerTest, GenerateGoesOnAsTheDataDid) {
  const auto letter = [](int t) { return static_cast<char>(t == 0 ? '!' : '"' + t); };
  nlohmann::json vocab = {{"<|endoftext|>", 63}};
  for (int t = 0; t < 63; ++t) vocab[std::string(1, letter(t))] = t;
  std::ofstream(folder_ + "/vocab.json") << vocab.dump();
  std::ofstream(folder_ + "/merges.txt") << "#version: 0.2\n";
  std::vector<std::string> flags = {
      "--train-iters",       "300",        "--hidden-dropout", "0",
      "--attention-dropout", "0",          "--save",           "s",
      "--vocab-file",        "vocab.json", "--merge-file",     "merges.txt"};
  const Ended trained = run(flags);
  ASSERT_EQ(trained.status, 0) << trained.err;
  std::string expected;
  for (int i = 0, t = 7; i < 12; ++i, t = (t * 5 + 3) % 61) expected += letter(t);
  const auto generate = [&](const std::vector<std::string>& more) {
    return wait(start(more, {}, GENERATE_PROGRAM, false));
  };
  const Ended greedy = generate({"--load", "s", "--prompt", expected.substr(0, 2),
                                 "--max-new-tokens", "10", "--greedy", "--device", "cpu"});
  EXPECT_EQ(greedy.status, 0) << greedy.err;
  EXPECT_EQ(greedy.out, expected + "\n");
  const std::vector<std::string> drawn = {"--load",
                                          "s",
                                          "--prompt",
                                          "A",
                                          "--max-new-tokens",
                                          "14",
                                          "--temperature",
                                          "5",
                                          "--seed",
                                          "3",
                                          "--ignore-eod",
                                          "--device",
                                          "cpu"};
  const std::string first = generate(drawn).out;
  EXPECT_GT(first.size(), 10u);
  EXPECT_EQ(generate(drawn).out, first);
  EXPECT_EQ(generate({"--load", "s", "--prompt", "A", "--max-new-tokens", "16"}).status,
            2);  // 17 of 16 positions.
  EXPECT_EQ(generate({"--load", "nowhere", "--prompt", "A"}).status, 2);
}

}  // namespace
}  // namespace trainer
