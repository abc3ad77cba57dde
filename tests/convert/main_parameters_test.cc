// SPDX-License-Identifier: MIT
// The fp32 weights behind DeepSpeed's 16-bit models. Goldens: tests/golden/convert/main_parameters,
// checkpoints that DeepSpeed saved, and the same with the fp32 weights that DeepSpeed's own
// programs find in them (tests/reference/zero_golden.py). What no DeepSpeed writes is made by hand.
#include "convert/main_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "convert/torch_weights.h"
#include "convert/torch_writer.h"
#include "tests/convert/foreign_bytes.h"
#include "tests/convert/outcomes.h"
#include "tests/own.h"
#include "trainer/spec/model_fields.h"

namespace convert {
namespace {

using foreign::call;
using foreign::dict;
using foreign::get;
using foreign::global;
using foreign::list;
using foreign::number;
using foreign::put;
using foreign::text;
using foreign::times;
using foreign::tuple;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

constexpr const char* kTaken = ": fp32 weights are not read, those of 16 bits are taken";

std::string golden(const std::string& name) {
  return std::string(GOLDEN_DIR) + "/convert/main_parameters/" + name;
}

const SourceOptions kMain{.prefer_main = true};

class MainParametersCases : public ::testing::TestWithParam<const char*> {};

TEST_P(MainParametersCases, AreDeepSpeedsOwn) {
  const std::string folder = golden(GetParam());
  const CanonicalModel model = read_megatron(folder + "/run", kMain);
  const CanonicalModel exact = read_megatron(folder + "/exact/global_step5", {});
  const CanonicalModel rounded = read_megatron(folder + "/run", {});
  EXPECT_THAT(model.notes, ::testing::IsEmpty());
  EXPECT_EQ(model.dtype, "F32");
  EXPECT_NE(rounded.dtype, "F32");
  EXPECT_EQ(model.iteration, 5);
  EXPECT_EQ(trainer::model_record(model.spec), trainer::model_record(exact.spec));
  ASSERT_EQ(model.tensors.size(), exact.tensors.size());
  const bool frozen = std::string(GetParam()) == "plain_frozen";
  for (const auto& [name, source] : exact.tensors) {
    ASSERT_EQ(source.dtype, "F32");
    const TensorSource& half = rounded.at(name);
    EXPECT_EQ(convert_dtype(model.at(name), "F32").load(), source.load()) << name;
    EXPECT_EQ(convert_dtype(source, half.dtype).load(), half.load()) << name;
    const bool same = frozen && name == "embedding.position_embeddings.weight";
    EXPECT_EQ(convert_dtype(half, "F32").load() == source.load(), same) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(DeepSpeed, MainParametersCases,
                         ::testing::Values("plain_tp2", "plain_frozen", "pipe_bf16", "pipe_no_zero",
                                           "neox_pipe", "neox_sequential"),
                         [](const auto& info) { return std::string(info.param); });

class MainParametersTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }

  /// A copy of a golden's run; its step's folder.
  std::string copy(const std::string& name) {
    fs::remove_all(path("copy"));
    fs::copy(golden(name + "/run"), path("copy"), fs::copy_options::recursive);
    return path("copy/global_step5");
  }
  /// How the copy is read with all of its tensors.
  std::string read_copy(const SourceOptions& options = kMain) {
    return error_of([&] {
      for (const auto& [name, source] : read_megatron(path("copy"), options).tensors) source.load();
    });
  }

  // --- files made by hand, of one rank of the model ----------------------------------------------

  void write(const std::string& name, const std::string& root,
             const std::vector<std::pair<std::string, std::string>>& storages) const {
    std::ofstream(path(name), std::ios::binary)
        << foreign::torch_file(foreign::pickle(root), storages);
  }
  /// The model's file; `more` is of its dict.
  void write_model(const std::string& shapes, const std::string& more = "") const {
    write("mp_rank_00_model_states.pt", dict(text("param_shapes") + shapes + more), {});
  }
  /// Data rank `d`'s file: groups of so many numbers, which go on where the last rank's ended.
  void write_optimizer(int d, const std::vector<uint64_t>& groups, uint64_t ranks,
                       const std::string& more = "") {
    std::vector<std::pair<std::string, std::string>> storages;
    std::string tensors;
    for (size_t g = 0; g < groups.size(); ++g) {
      std::string bytes;
      for (uint64_t i = 0; i < groups[g]; ++i) {
        const float main = main_at(g, next_[g] + i);
        bytes += foreign::little(std::bit_cast<uint32_t>(main), 4);
      }
      next_[g] += groups[g];
      tensors += foreign::tensor(std::to_string(g), groups[g]);
      storages.emplace_back(std::to_string(g), bytes);
    }
    write("zero_pp_rank_" + std::to_string(d) + "_mp_rank_00_optim_states.pt",
          dict(text("optimizer_state_dict") +
               dict(text("single_partition_of_fp32_groups") + list(tensors) +
                    text("partition_count") + list(number(ranks)) + more)),
          storages);
  }
  /// Element `i` of group `g`: in bf16 a whole number.
  static float main_at(size_t g, uint64_t i) {
    return static_cast<float>(32 * g + i + 1) * 1.0009765625F;
  }

  /// The 16-bit weight whose first element is element `begin` of a group.
  static TensorSource half(std::vector<int64_t> shape, uint64_t begin, size_t group = 0) {
    TensorSource source{"BF16", std::move(shape), {}, "model: w"};
    source.read_rows = [begin, group, row = source.row_bytes() / 2](int64_t first, int64_t count,
                                                                    std::byte* out) {
      for (int64_t i = 0; i < count * row; ++i) {
        const auto wide =
            static_cast<float>(32 * group + begin + static_cast<uint64_t>(first * row + i) + 1);
        const auto narrow = static_cast<uint16_t>(std::bit_cast<uint32_t>(wide) >> 16);
        std::memcpy(out + 2 * i, &narrow, 2);
      }
    };
    return source;
  }
  /// How `weight` is read as parameter `name`; "main" where it is that of the group at `begin`.
  std::string asked(const std::string& name, const TensorSource& weight, uint64_t begin = 0,
                    size_t group = 0) {
    std::string what;
    const std::string error = error_of([&] {
      MainParameters main(folder_.path(), kMain);
      const TensorSource found = main.of_rank(0, name, weight);
      const std::vector<std::byte> bytes = found.load();
      what = main.note();
      if (found.dtype != "F32") return;
      what = "main";
      for (size_t i = 0; 4 * i < bytes.size(); ++i) {
        const float expected = main_at(group, begin + i);
        if (std::memcmp(&bytes[4 * i], &expected, 4) != 0) what = "other numbers";
      }
    });
    return error == "accepted" ? what : error;
  }

  tests::OwnFolder folder_;
  std::map<size_t, uint64_t> next_;
};

std::string shape(uint64_t rows, uint64_t columns) { return tuple(number(rows) + number(columns)); }

TEST_F(MainParametersTest, WithoutTheOptimizersFilesTheRoundedOnesAreTakenAndANoteSaysSo) {
  for (const char* name : {"plain_tp2", "pipe_bf16", "neox_pipe", "neox_sequential"}) {
    const std::string step = copy(name);
    std::vector<fs::path> optimizers;
    for (const auto& entry : fs::directory_iterator(step))
      if (entry.path().string().ends_with("optim_states.pt")) optimizers.push_back(entry.path());
    for (const fs::path& one : optimizers) fs::remove(one);
    const CanonicalModel model = read_megatron(path("copy"), kMain);
    const CanonicalModel rounded = read_megatron(path("copy"), {});
    ASSERT_EQ(model.notes.size(), 1U) << name;
    EXPECT_THAT(model.notes[0], StartsWith(step + ": has no zero_pp_rank_*_optim_states.pt: fp32"));
    EXPECT_TRUE(rounded.notes.empty());
    EXPECT_EQ(model.dtype, rounded.dtype);
    for (const auto& [tensor, source] : rounded.tensors)
      EXPECT_EQ(model.at(tensor).load(), source.load()) << tensor;
  }
}

TEST_F(MainParametersTest, ARankOfWhichAFileIsMissingIsNamed) {
  std::string step = copy("plain_tp2");
  fs::remove(step + "/zero_pp_rank_1_mp_rank_01_optim_states.pt");
  EXPECT_EQ(read_copy(), step + "/zero_pp_rank_1_mp_rank_01_optim_states.pt: is missing");
  EXPECT_EQ(read_copy({}), "accepted");
  step = copy("pipe_bf16");
  fs::remove(step + "/bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt");
  EXPECT_EQ(read_copy(), step + "/bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt: is missing");
  step = copy("plain_tp2");
  for (const char* data : {"0", "1"})
    fs::remove(step + "/zero_pp_rank_" + data + "_mp_rank_01_optim_states.pt");
  EXPECT_EQ(read_copy(), step +
                             "/zero_pp_rank_0_mp_rank_01_optim_states.pt: is missing, but those of "
                             "other ranks are there");
  step = copy("neox_pipe");
  fs::remove(step + "/mp_rank_03_model_states.pt");
  EXPECT_EQ(read_copy({}), "accepted");
  EXPECT_EQ(read_copy(), step +
                             "/mp_rank_03_model_states.pt: is missing, but its optimizer's files "
                             "are there");
}

TEST_F(MainParametersTest, FilesThatAreOneTooManyAreNamed) {
  std::string step = copy("plain_tp2") + "/";
  fs::copy_file(step + "zero_pp_rank_1_mp_rank_00_optim_states.pt",
                step + "zero_pp_rank_2_mp_rank_00_optim_states.pt");
  EXPECT_THAT(read_copy(), HasSubstr("zero_pp_rank_2_mp_rank_00_optim_states.pt: is there, but the "
                                     "partition_count of "));
  step = copy("plain_tp2") + "/";
  fs::copy_file(step + "zero_pp_rank_1_mp_rank_00_optim_states.pt",
                step + "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
  EXPECT_EQ(read_copy(), step + "zero_pp_rank_1_mp_rank_00_optim_states.pt: is there beside " +
                             step + "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
  EXPECT_EQ(read_copy({}), "accepted");
}

// All names and sizes fit; the numbers do not.
TEST_F(MainParametersTest, WeightsOfAnotherStepAreSeenByTheirRounding) {
  const std::string step = copy("neox_pipe") + "/";
  for (const auto& [from, to] :
       {std::pair("00", "hidden"), std::pair("01", "00"), std::pair("hidden", "01")})
    fs::rename(step + "bf16_zero_pp_rank_0_mp_rank_" + from + "_optim_states.pt",
               step + "bf16_zero_pp_rank_0_mp_rank_" + to + "_optim_states.pt");
  EXPECT_THAT(read_copy(),
              AllOf(StartsWith(step + "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"),
                    HasSubstr(": rounded to BF16 it is not " + step),
                    HasSubstr(": files of two checkpoints")));
}

TEST_F(MainParametersTest, AnFp32ModelNeedsNone) {
  fs::copy(golden("plain_tp2/exact/global_step5"), path("run"));
  std::ofstream(path("run/zero_pp_rank_0_mp_rank_00_optim_states.pt")) << "no such file";
  EXPECT_TRUE(read_megatron(path("run"), kMain).notes.empty());
}

TEST_F(MainParametersTest, ARankOfAFileByItselfHasThem) {
  const std::string file = copy("plain_frozen") + "/mp_rank_00_model_states.pt";
  const CanonicalModel model = read_megatron(file, kMain);
  EXPECT_EQ(model.dtype, "F32");
  EXPECT_TRUE(model.notes.empty());
}

TEST_F(MainParametersTest, StrictPicklesAreStrictInTheseFilesToo) {
  copy("plain_frozen");
  SourceOptions strict = kMain;
  strict.strict_pickle = true;
  EXPECT_THAT(read_copy(strict), HasSubstr("optim_states.pt: class deepspeed."));
}

TEST_F(MainParametersTest, NoCutOfAFileIsRead) {
  for (const char* name : {"plain_frozen", "pipe_no_zero"}) {
    const std::string file = copy(name) + "/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
    const std::string bytes = read_file(file);
    ASSERT_GT(bytes.size(), 1000U);
    for (size_t size = 0; size < bytes.size(); size += 211) {
      std::ofstream(file, std::ios::binary) << bytes.substr(0, size);
      EXPECT_THAT(read_copy(), StartsWith(file)) << size;
    }
  }
}

// Each damaged byte is refused, or the weights are those of before.
TEST_F(MainParametersTest, NoChangedByteGivesOtherWeights) {
  for (const char* name : {"plain_frozen", "pipe_no_zero"}) {
    const std::string step = copy(name);
    std::map<std::string, std::vector<std::byte>> want;
    for (const auto& [tensor, source] : read_megatron(path("copy"), kMain).tensors)
      want[tensor] = source.load();
    for (const char* end :
         {"bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"}) {
      const std::string file = step + "/" + end;
      const std::string bytes = read_file(file);
      int refused = 0;
      for (size_t at = 0; at < bytes.size(); at += 29) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
        std::ofstream(file, std::ios::binary) << damaged;
        const std::string what = error_of([&] {
          const CanonicalModel model = read_megatron(path("copy"), kMain);
          for (const auto& [tensor, source] : model.tensors) {
            const std::vector<std::byte> got = source.load();
            EXPECT_TRUE(source.dtype != "F32" || got == want.at(tensor)) << at << " " << tensor;
          }
        });
        EXPECT_THAT(what, AnyOf("accepted", HasSubstr(path("copy")))) << at;
        refused += what != "accepted";
      }
      EXPECT_GT(refused, 10) << file;
      std::ofstream(file, std::ios::binary) << bytes;
    }
  }
}

TEST_F(MainParametersTest, PlacesFollowTheListAndPaddingIsPassedOver) {
  write_model(list(dict(text("a") + shape(2, 3) + text("b") + shape(1, 5)) +
                   dict(text("c") + shape(3, 3))));
  write_optimizer(0, {6, 6}, 2);
  write_optimizer(1, {5, 6}, 2);
  EXPECT_EQ(asked("a", half({2, 3}, 0)), "main");
  EXPECT_EQ(asked("b", half({1, 5}, 6), 6), "main");
  EXPECT_EQ(asked("c", half({3, 3}, 0, 1), 0, 1), "main");
  EXPECT_THAT(asked("b", half({1, 5}, 5), 6), HasSubstr("rounded to BF16 it is not model: w"));
  EXPECT_THAT(asked("a", half({3, 2}, 0)), HasSubstr("a: another shape than model: w"));
  EXPECT_THAT(asked("d", half({3, 2}, 0)),
              HasSubstr("model: w: is not among the main parameters of"));
}

TEST_F(MainParametersTest, PaddingBetweenParametersIsPassedOver) {
  const std::string shapes = list(dict(text("a") + shape(1, 3) + text("b") + shape(1, 3)));
  const auto with = [&](const std::string& paddings, uint64_t elements) {
    write_model(shapes);
    next_.clear();
    write_optimizer(0, {elements}, 1, text("param_alignment_paddings") + paddings);
    return asked("b", half({1, 3}, 4), 4);
  };
  EXPECT_EQ(with(list(list(number(1) + number(0))), 8), "main");
  for (const std::string& paddings : {list(""), list(list(number(1))), list(list(number(1) + "N")),
                                      number(1), list(list(number(uint64_t{1} << 63) + number(0)))})
    EXPECT_THAT(with(paddings, 8), HasSubstr("param_alignment_paddings do not fit param_shapes"));
}

TEST_F(MainParametersTest, SizesThatDoNotFitAreRefused) {
  write_model(list(dict(text("a") + shape(2, 3) + text("b") + shape(1, 5))));
  const auto with = [&](uint64_t first, uint64_t second) {
    next_.clear();
    write_optimizer(0, {first}, 2);
    write_optimizer(1, {second}, 2);
    return asked("a", half({2, 3}, 0));
  };
  EXPECT_EQ(with(6, 5), "main");
  EXPECT_EQ(with(6, 6), "main");  // padded to a multiple of twice the ranks
  EXPECT_THAT(with(6, 4), HasSubstr("group 0 of all data ranks has 10 elements, expected 11"));
  EXPECT_THAT(with(6, 7), HasSubstr("group 0 of all data ranks has 13 elements, expected 11"));
}

TEST_F(MainParametersTest, TablesThatContradictEachOtherAreRefused) {
  const auto shapes = [](const std::string& pairs) { return list(dict(pairs)); };
  const std::string two = text("a") + shape(2, 3);
  const auto with = [&](const std::string& listed, const std::string& more = "") {
    write_model(listed, more);
    next_.clear();
    write_optimizer(0, {6}, 1);
    return asked("a", half({2, 3}, 0));
  };
  EXPECT_EQ(with(shapes(two)), "main");
  EXPECT_THAT(with(list(dict(two) + dict(two))), HasSubstr("param_shapes has 2 groups, but "));
  EXPECT_THAT(with(list("")), HasSubstr("param_shapes has 0 groups, but "));
  EXPECT_THAT(with(list("N")), HasSubstr("param_shapes holds no dict"));
  EXPECT_THAT(with(shapes(two + two)), HasSubstr("param_shapes has a twice"));
  EXPECT_THAT(with(shapes(text("a") + "N")), HasSubstr("a: its shape is no tuple"));
  EXPECT_THAT(with(shapes(text("a") + shape(2, uint64_t{1} << 63))), HasSubstr("impossible shape"));
  std::string many;
  for (int i = 0; i < 300; ++i) many += text(std::to_string(i)) + shape(1 << 20, 1 << 20);
  EXPECT_THAT(with(shapes(many)), HasSubstr(": an impossible shape"));
  EXPECT_EQ(
      with(shapes(text("b") + shape(2, 3)), text("shared_params") + dict(text("a") + text("b"))),
      "main");
  // A frozen one has none, and stays what it is; no note is due.
  EXPECT_EQ(with(shapes(text("b") + shape(2, 3)), text("frozen_param_shapes") + dict(two)), "");
}

TEST_F(MainParametersTest, ThePartitionsMustBeOfOneCheckpoint) {
  write_model(list(dict(text("a") + shape(2, 3))));
  write_optimizer(0, {3}, 2);
  write_optimizer(1, {3}, 3);
  EXPECT_THAT(asked("a", half({2, 3}, 0)), HasSubstr("its partition_count is 3, but 2 in "));
  write_optimizer(1, {3, 3}, 2);
  EXPECT_THAT(asked("a", half({2, 3}, 0)), HasSubstr("_1_mp_rank_00_optim_states.pt: 2 groups, but "
                                                     "1 in "));
  write_optimizer(0, {3}, uint64_t{1} << 62);
  EXPECT_THAT(asked("a", half({2, 3}, 0)), HasSubstr("its partition_count is 2, but 461168601842"));
  write_optimizer(0, {3}, 0);
  EXPECT_THAT(asked("a", half({2, 3}, 0)), HasSubstr("no partition_count"));
  write_optimizer(0, {3}, 2, text("partition_count") + list(number(2) + number(1)));
  EXPECT_THAT(asked("a", half({2, 3}, 0)), HasSubstr("is not the same for all groups"));
}

TEST_F(MainParametersTest, GroupsThatNameOneTensorManyTimesAreRefused) {
  write_model(list(dict(text("a") + shape(2, 3))));
  write("zero_pp_rank_0_mp_rank_00_optim_states.pt",
        dict(text("optimizer_state_dict") +
             dict(text("partition_count") + number(1) + text("single_partition_of_fp32_groups") +
                  list(foreign::tensor("0", 100'000) + put(1) + times(1000, get(1))))),
        {{"0", std::string(400'000, '\0')}});
  EXPECT_THAT(asked("a", half({2, 3}, 0)), HasSubstr("holds more than the file"));
  write("zero_pp_rank_0_mp_rank_00_optim_states.pt",
        dict(text("optimizer_state_dict") +
             dict(text("partition_count") + number(1) + text("single_partition_of_fp32_groups") +
                  list("N"))),
        {});
  EXPECT_THAT(asked("a", half({2, 3}, 0)), HasSubstr("something that is no flat fp32 tensor"));
  write("zero_pp_rank_0_mp_rank_00_optim_states.pt", dict(text("optimizer_state_dict") + "N"), {});
  EXPECT_THAT(asked("a", half({2, 3}, 0)), HasSubstr("no partition_count"));
}

// As BF16_Optimizer without ZeRO says it: each data rank lists its fragments.
TEST_F(MainParametersTest, FragmentsAreJoinedOrRefused) {
  const auto fragment = [](const std::string& name, uint64_t start, uint64_t count) {
    return text(name) + call(global("argparse", "Namespace"), "") +
           dict(text("start") + number(start) + text("numel") + number(count)) + "b";
  };
  const auto with = [&](const std::string& first, const std::string& second) {
    write_model("N");
    next_.clear();
    write_optimizer(0, {6}, 2, text("param_slice_mappings") + list(dict(first)));
    write_optimizer(1, {6}, 2, text("param_slice_mappings") + list(dict(second)));
    return asked("b", half({2, 4}, 2), 2);
  };
  EXPECT_EQ(with(fragment("a", 0, 2) + fragment("b", 2, 4), fragment("b", 0, 4)), "main");
  EXPECT_THAT(with(fragment("b", 2, 4), fragment("b", 1, 4)),
              HasSubstr("b: does not follow its part of the ranks before"));
  EXPECT_THAT(with(fragment("b", 2, 3), fragment("b", 0, 5)), HasSubstr("does not follow"));
  EXPECT_THAT(with(fragment("b", 2, 5), ""), HasSubstr("leaves the file's part of the group"));
  EXPECT_THAT(with(fragment("b", uint64_t{1} << 63, 5), ""), HasSubstr("leaves the file's part"));
  EXPECT_THAT(with(fragment("b", 2, uint64_t{1} << 62), ""), HasSubstr("leaves the file's part"));
  EXPECT_THAT(with(text("b") + "N", ""), HasSubstr("leaves the file's part"));
  EXPECT_THAT(with(fragment("b", 2, 4), ""), HasSubstr("b: another shape than model: w"));
  EXPECT_THAT(with(fragment("a", 2, 4), ""), HasSubstr("is not among the main parameters of"));
}

TEST_F(MainParametersTest, FormsThatAreNotReadAreNoted) {
  const auto optimizer = [&](const std::string& state, const std::string& class_name = "Float") {
    std::string root = dict(text("optimizer_state_dict") + dict(state));
    for (size_t at = 0; (at = root.find("FloatStorage", at)) != std::string::npos; at += 40)
      root.replace(at, 5, class_name);
    write("zero_pp_rank_0_mp_rank_00_optim_states.pt", root,
          {{"0", std::string(class_name == "Float" ? 24 : 12, '\0')}});
    return asked("a", half({2, 3}, 0));
  };
  const std::string listed = list(dict(text("a") + shape(2, 3)));
  const std::string groups =
      text("single_partition_of_fp32_groups") + list(foreign::tensor("0", 6));
  write_model(listed);
  EXPECT_THAT(optimizer(text("local_sub_partitions_of_fp32_groups") + list("")),
              AllOf(HasSubstr("has no single_partition_of_fp32_groups"), HasSubstr(kTaken)));
  EXPECT_THAT(optimizer(groups + text("partition_count") + number(1), "BFloat16"),
              AllOf(HasSubstr("its main parameters are BF16"), HasSubstr(kTaken)));
  for (const std::string& shapes : {std::string("N"), dict(text("a") + shape(2, 3))}) {
    write_model(shapes);
    EXPECT_THAT(optimizer(groups + text("partition_count") + number(1)),
                AllOf(HasSubstr("does not list the parameters of each group in param_shapes"),
                      HasSubstr(kTaken)));
  }
}

TEST_F(MainParametersTest, NaNIsNaNInEitherForm) {
  write_model(list(dict(text("a") + shape(1, 2))));
  write("zero_pp_rank_0_mp_rank_00_optim_states.pt",
        dict(text("optimizer_state_dict") +
             dict(text("partition_count") + number(1) + text("single_partition_of_fp32_groups") +
                  list(foreign::tensor("0", 2)))),
        {{"0", foreign::little(0x7FC12345, 4) + foreign::little(0x3F800001, 4)}});
  const std::string bits = foreign::little(0xFFFF, 2) + foreign::little(0x3F80, 2);
  const TensorSource weight = mapped_source(
      "BF16", {1, 2}, "model: w", {.data = reinterpret_cast<const std::byte*>(bits.data())});
  EXPECT_EQ(error_of([&] { MainParameters(folder_.path(), kMain).of_rank(0, "a", weight).load(); }),
            "accepted");
}

// --- Megatron-LM's optimizers, which are not read ------------------------------------------------

TEST_F(MainParametersTest, OfMegatronLmANoteSaysThatTheyAreNotRead) {
  const auto file = std::make_shared<TorchFile>(std::string(GOLDEN_DIR) + "/convert/gpt2/bf16.pt");
  const auto with = [&](bool optimizer, const char* dtype, const SourceOptions& options) {
    PickleBuilder out;
    out.begin_dict().text("args").begin_namespace();
    for (const auto& [key, size] :
         {std::pair("num_layers", 4), std::pair("hidden_size", 8), std::pair("ffn_hidden_size", 20),
          std::pair("num_attention_heads", 4), std::pair("max_position_embeddings", 16)})
      out.text(key).integer(size);
    out.end_object().text("checkpoint_version").real(3).text("model").begin_dict();
    for (const auto& [name, source] : torch_weights(file, file->root().find("model")))
      out.text(name).tensor(convert_dtype(source, dtype));
    out.end_dict().text("optimizer").begin_dict();
    if (optimizer) out.text("fp32_from_fp16_params").none();
    out.end_dict().end_dict();
    write_torch_file(path("model_optim_rng.pt"), std::move(out), indexed::Existing::replace);
    const CanonicalModel model = read_megatron(path("model_optim_rng.pt"), options);
    return model.notes.empty() ? "" : model.notes[0];
  };
  EXPECT_EQ(with(true, "BF16", kMain), path("model_optim_rng.pt") +
                                           ": the optimizer's fp32 weights are not read, those of "
                                           "16 bits are taken in their place");
  EXPECT_EQ(with(true, "BF16", {}), "");
  EXPECT_EQ(with(true, "F32", kMain), "");
  EXPECT_EQ(with(false, "BF16", kMain), "");
  std::ofstream(path("distrib_optim.pt")) << "x";
  EXPECT_THAT(with(false, "BF16", kMain), HasSubstr("fp32 weights are not read"));
}

}  // namespace
}  // namespace convert
