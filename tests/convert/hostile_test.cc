// SPDX-License-Identifier: MIT
// Checkpoints made to exhaust memory or time, or to crash the process: small files that refer to
// one large object many times, tables that claim more than there is, missing values. Each is
// refused in one line, at a cost in proportion to its size. Real files must use a small share of
// that budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "convert/torch_dist.h"
#include "convert/zero_source.h"
#include "libindexed/format.h"
#include "tests/convert/foreign_bytes.h"
#include "tests/convert/outcomes.h"
#include "tests/own.h"

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
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

constexpr const char* kTooMuch = "asks for more memory or work than a file of its size may";

std::string pickle_error(const std::string& body) {
  const std::string bytes = foreign::pickle(body);
  return error_of([&] { Pickle pickle(std::as_bytes(std::span(bytes)), "p"); });
}

/// A folder of this test's own.
class HostileTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }

  tests::OwnFolder own_;
  const std::string& folder_ = own_.path();
};

// --- pickles -------------------------------------------------------------------------------------

TEST(HostilePickle, ALargeTextIsNotJoinedToItselfWithoutEnd) {
  const std::string long_text = text(std::string(1 << 20, 'x')) + put(1) + "0";
  EXPECT_THAT(pickle_error(long_text + call(global("pathlib", "PosixPath"), times(30'000, get(1)))),
              HasSubstr(kTooMuch));
  for (const auto& [module, name] : {std::pair("_codecs", "encode"), std::pair("torch", "device")})
    EXPECT_THAT(
        pickle_error(long_text + times(3000, call(global(module, name), get(1)) + "0") + "N"),
        HasSubstr(kTooMuch))
        << name;
}

TEST(HostilePickle, NamesAreShort) {
  const std::string long_text = text(std::string(5000, 'x')) + put(1) + "0";
  EXPECT_THAT(pickle_error(long_text + get(1) + get(1) + "\x93"),
              HasSubstr("a name of 5000 bytes"));
  EXPECT_THAT(pickle_error(tuple(text("storage") + global("torch", "FloatStorage") +
                                 text(std::string(5000, 'k')) + text("cpu") + number(1)) +
                           "Q"),
              HasSubstr("a storage of a name"));
  EXPECT_THAT(
      pickle_error(long_text + call(global("builtins", "getattr"), global("a", "B") + get(1))),
      HasSubstr("getattr"));
}

TEST(HostilePickle, CopiesOfWhatIsRecalledAreCounted) {
  // Each repeated piece is some ten bytes, and would take 4 KiB, 1 KiB, 40 KB, 80 KB, 40 KB.
  const std::string storage_id = tuple(text("storage") + global("torch", "FloatStorage") +
                                       text(std::string(4000, 'k')) + text("cpu") + number(1)) +
                                 put(1) + "0";
  EXPECT_THAT(pickle_error(storage_id + times(100'000, get(1) + "Q0") + "N"), HasSubstr(kTooMuch));
  const std::string ones = tuple(times(64, "K\x01"));
  const std::string view = foreign::storage("0", 1) + put(1) + "0" +
                           tuple(get(1) + number(0) + ones + ones) + put(2) + "0" +
                           global("torch._utils", "_rebuild_tensor_v2") + put(3) + "0";
  EXPECT_THAT(pickle_error(view + times(100'000, "h\x03h\x02R0") + "N"), HasSubstr(kTooMuch));
  const std::string many = list(times(10'000, "N")) + put(1) + "0";
  EXPECT_THAT(
      pickle_error(many + times(10'000, call(global("builtins", "set"), get(1)) + "0") + "N"),
      HasSubstr(kTooMuch));
  const std::string pairs = dict(times(10'000, "NN")) + put(1) + "0";
  EXPECT_THAT(
      pickle_error(pairs + times(10'000, call(global("collections", "OrderedDict"), get(1)) + "0") +
                   "N"),
      HasSubstr(kTooMuch));
}

TEST(HostilePickle, ArgumentsAreNotCopied) {
  const size_t entries = 100'000, calls = 100'000;
  const std::string bytes =
      foreign::pickle(tuple(times(entries, "N")) + put(1) + "0" + global("some.module", "Class") +
                      put(2) + "0" + times(calls, get(2) + get(1) + "R0") + get(2) + get(1) + "R");
  const Pickle pickle(std::as_bytes(std::span(bytes)), "p");
  EXPECT_EQ(pickle.root().size(), static_cast<int64_t>(entries));
  EXPECT_TRUE(pickle.root().item(entries - 1).is(Kind::null));
  EXPECT_LT(pickle.budget().spent(), static_cast<int64_t>(200 * (entries + calls)));
}

TEST(HostilePickle, LookingForAttributesIsCounted) {
  const std::string bytes =
      foreign::pickle(dict(times(2000, text("a") + "N")) + put(1) + "0" +
                      call(global("some.module", "Class"), "") + times(2000, get(1) + "b"));
  const Pickle pickle(std::as_bytes(std::span(bytes)), "p");
  EXPECT_TRUE(pickle.root().attribute("a"));
  EXPECT_THAT(error_of([&] {
                for (int i = 0; i < 2; ++i) pickle.root().attribute("absent");
              }),
              HasSubstr(kTooMuch));
}

TEST(HostilePickle, WhatIsNotThereCannotBeAskedFor) {
  const std::string bytes = foreign::pickle(dict(text("a") + tuple("NN")));
  const Pickle pickle(std::as_bytes(std::span(bytes)), "p");
  const Value root = pickle.root(), absent = root.find("b"), two = root.find("a");
  EXPECT_EQ(two.size(), 2);
  EXPECT_EQ(absent.size(), 0);
  EXPECT_EQ(absent.kind(), Kind::absent);
  for (const std::function<void()>& ask : std::initializer_list<std::function<void()>>{
           [&] { absent.item(0); }, [&] { absent.state().item(0); }, [&] { absent.tensor(); },
           [&] { two.item(2); }, [&] { two.item(-1); }, [&] { two.key(0); }, [&] { root.item(0); },
           [&] { root.key(1); }, [&] { root.value(-1); }, [&] { root.tensor(); }})
    EXPECT_THAT(error_of(ask), StartsWith("p: its pickle has "));
  EXPECT_THAT(error_of([] { Value().item(0); }), HasSubstr("nothing where item 0 is expected"));
}

TEST(HostilePickle, NumpyNumbersOfNoBytesAreNone) {
  const auto scalar = [](const std::string& type, const std::string& raw) {
    const std::string bytes =
        foreign::pickle(call(global("numpy.core.multiarray", "scalar"),
                             call(global("numpy", "dtype"), text(type)) + "C" +
                                 std::string(1, static_cast<char>(raw.size())) + raw));
    const Pickle pickle(std::as_bytes(std::span(bytes)), "p");
    return pickle.root().integer();
  };
  EXPECT_EQ(scalar("i0", ""), std::nullopt);
  EXPECT_EQ(scalar("u0", ""), std::nullopt);
  EXPECT_EQ(scalar("i1", "\xff"), -1);
  EXPECT_EQ(scalar("u1", "\xff"), 255);
}

TEST(HostilePickle, RealFilesTakeASmallShareOfTheirBudget) {
  for (const char* name : {"zip.pt", "legacy.pt", "protocol4.pt", "deflated.pt",
                           "torch_dist/gpt2_tp2_pp2/.metadata"}) {
    const std::string path = std::string(GOLDEN_DIR) + "/convert/" + name;
    const int64_t bytes = static_cast<int64_t>(fs::file_size(path));
    if (fs::path(name).filename() == ".metadata") {
      const indexed::MappedFile file(path);
      EXPECT_LT(Pickle(file.bytes(), path).budget().spent(), 64 * bytes) << name;
    } else {
      EXPECT_LT(TorchFile(path).budget().spent(), 64 * bytes) << name;
    }
  }
}

// --- zip -----------------------------------------------------------------------------------------

TEST_F(HostileTest, MembersOfAnArchiveDoNotLieOverOneAnother) {
  const std::string pickle = foreign::pickle("N");
  const auto opened = [&](const std::vector<foreign::Member>& members) {
    const std::string path = write("a.pt", foreign::zip(members));
    return error_of([&] { TorchFile file(path); });
  };
  const foreign::Member first{"archive/data.pkl", pickle}, second{"archive/version", "3\n"};
  EXPECT_EQ(opened({first, second}), "accepted");
  // "archive/version" of the directory is the first member's header again.
  EXPECT_THAT(opened({first, {"archive/version", pickle, 0}}), HasSubstr("lies over what follows"));
  EXPECT_THAT(opened({first, second, {"archive/../../evil", "x"}}),
              HasSubstr("leaves the archive"));
}

TEST_F(HostileTest, AnArchiveHasNoMoreMembersThanItsDirectoryHasRoom) {
  const std::string path = write("a.pt", "PK\x03\x04" + foreign::zip_end(60'000, 4, 0));
  EXPECT_THAT(error_of([&] { TorchFile file(path); }),
              HasSubstr("60000 members in a directory of 4 bytes"));
}

TEST_F(HostileTest, ABombIsNotInflated) {
  std::string zeros(8 << 20, '\0'), packed(zeros.size(), '\0');
  z_stream stream{};
  ASSERT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(zeros.data());
  stream.avail_in = static_cast<uInt>(zeros.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  std::string bytes = foreign::torch_file(packed, {});
  // The first member is deflated: method 8 and its true size, here and in the directory.
  for (const auto& [sign, method, size] :
       {std::tuple("PK\x03\x04", 8, 22), std::tuple("PK\x01\x02", 10, 24)}) {
    const size_t header = bytes.find(sign);
    bytes.replace(header + static_cast<size_t>(method), 2, foreign::little(8, 2));
    bytes.replace(header + static_cast<size_t>(size), 4, foreign::little(zeros.size(), 4));
  }
  const std::string path = write("a.pt", bytes);
  EXPECT_THAT(error_of([&] { TorchFile file(path); }), HasSubstr("at most 64 times"));
}

// --- checkpoints ---------------------------------------------------------------------------------

TEST_F(HostileTest, SharedDictionariesAreNotWalkedAsATree) {
  // Twelve dicts, each twenty times in the next: 20^12 places for one tensor.
  std::string body = dict(text("w") + foreign::tensor("0", 4)) + put(0);
  for (uint32_t depth = 1; depth < 13; ++depth) {
    std::string pairs;
    for (int i = 0; i < 20; ++i) pairs += text("k" + std::to_string(i)) + get(depth - 1);
    body += "0" + dict(pairs) + put(depth);
  }
  const std::string pickle = foreign::pickle(body + "0" + dict(text("model") + get(12)));
  const std::string path = write("mp_rank_00/model_optim_rng.pt",
                                 foreign::torch_file(pickle, {{"0", std::string(16, '\0')}}));
  EXPECT_THAT(outcome(folder_), AllOf(StartsWith(path), HasSubstr(kTooMuch)));
}

TEST_F(HostileTest, OneStorageIsNotAThousandParameters) {
  std::string pairs;
  for (int i = 0; i < 1000; ++i)
    pairs += text("layers." + std::to_string(i) + ".input_layernorm.weight") +
             foreign::tensor("0", 100'000);
  write("mp_rank_00/model_optim_rng.pt",
        foreign::torch_file(foreign::pickle(dict(text("model") + dict(pairs))),
                            {{"0", std::string(400'000, '\0')}}));
  EXPECT_THAT(outcome(folder_), HasSubstr("more than 8 times its"));
}

TEST_F(HostileTest, SizesInTheArgumentsAreBounded) {
  const auto with = [&](const std::string& name, uint64_t value) {
    const std::string args =
        call(global("argparse", "Namespace"), "") +
        dict(text("num_attention_heads") + number(4) + text("ffn_hidden_size") + number(4) +
             text("max_position_embeddings") + number(4) + text(name) + number(value)) +
        "b";
    const std::string model = dict(
        text("embedding.word_embeddings.weight") +
        call(global("torch._utils", "_rebuild_tensor_v2"),
             foreign::storage("0", 16) + number(0) + tuple("K\x04K\x04") + tuple("K\x04K\x01")));
    write("mp_rank_00/model_optim_rng.pt",
          foreign::torch_file(foreign::pickle(dict(text("args") + args + text("model") + model)),
                              {{"0", std::string(64, '\0')}}));
    return outcome(folder_);
  };
  EXPECT_THAT(with("num_layers", uint64_t{1} << 40), HasSubstr("layers of 1099511627776"));
  EXPECT_THAT(with("kv_channels", uint64_t{1} << 62), HasSubstr("head size of"));
  EXPECT_THAT(with("num_layers", uint64_t{1} << 29), HasSubstr("536870912 layers, but"));
}

std::string object(const std::string& state) {
  return call(global("torch.distributed.checkpoint.metadata", "Any"), "") + state + "b";
}

/// A torch_dist folder's metadata: tensors of one chunk each, all in "f" from byte 0.
std::string metadata(const std::vector<std::string>& keys, const std::string& shape,
                     const std::string& properties, uint64_t length) {
  std::string zeros = "(", tensors, places;
  for (const char c : shape) zeros += c == '\x8a' ? number(0) : "";
  zeros += "t";
  const std::string chunk = object(dict(text("offsets") + zeros + text("sizes") + tuple(shape)));
  for (const std::string& key : keys) {
    tensors += text(key) + object(dict(text("properties") + properties + text("size") +
                                       tuple(shape) + text("chunks") + list(chunk)));
    places += object(dict(text("fqn") + text(key) + text("offset") + zeros)) +
              object(dict(text("relative_path") + text("f") + text("offset") + number(0) +
                          text("length") + number(length)));
  }
  return foreign::pickle(object(
      dict(text("state_dict_metadata") + dict(tensors) + text("storage_data") + dict(places))));
}

TEST_F(HostileTest, LayersThatHoldNothingAreNotMadeByTheMillion) {
  write("f", std::string(100, '\0'));
  const std::string floats = object(tuple(global("torch", "float32")));
  write(".metadata", metadata({"decoder.layers.input_layernorm.weight"},
                              number(uint64_t{1} << 40) + number(0), floats, 100));
  EXPECT_THAT(outcome(folder_), HasSubstr(kTooMuch));
  write(".metadata", metadata({"decoder.layers.input_layernorm.weight"}, number(uint64_t{1} << 40),
                              floats, 100));
  EXPECT_THAT(outcome(folder_), HasSubstr("a chunk of 4398046511104 bytes lies in 100"));
}

TEST_F(HostileTest, ATensorWithoutATypeIsNamed) {
  write("f", std::string(100, '\0'));
  for (const std::string& properties :
       {std::string("N"), object(")"), object(tuple("N")), object(dict(""))}) {
    write(".metadata", metadata({"w"}, number(4), properties, 100));
    EXPECT_THAT(outcome(folder_), HasSubstr(".metadata: w: has no type of its elements"));
  }
}

TEST_F(HostileTest, ChunksDoNotShareBytes) {
  write("f", std::string(100, '\0'));
  const std::string floats = object(tuple(global("torch", "float32")));
  write(".metadata", metadata({"a", "b"}, number(4), floats, 100));
  EXPECT_THAT(outcome(folder_), HasSubstr("f: b: lies over " + folder_ + "/f: a"));
}

TEST_F(HostileTest, NoChangedByteOfMetadataCrashes) {
  fs::copy(std::string(GOLDEN_DIR) + "/convert/torch_dist/gpt2_layers_apart", folder_,
           fs::copy_options::recursive);
  const std::string path = folder_ + "/.metadata";
  const std::string bytes = read_file(path);
  ASSERT_GT(bytes.size(), 1000U);
  int refused = 0, tried = 0;
  for (size_t at = 0; at < bytes.size(); at += 5) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    write(".metadata", damaged);
    const std::string what =
        error_of([&] { TorchDist checkpoint(folder_, TorchFile::Checksums::require); });
    EXPECT_THAT(what, AnyOf("accepted", HasSubstr(folder_))) << at;
    refused += what != "accepted";
    ++tried;
  }
  EXPECT_GT(refused, tried / 4);
}

TEST_F(HostileTest, ZeroGroupsThatNameOneTensorManyTimesAreRefused) {
  const std::string shapes = list(dict(text("w") + tuple(number(1000))));
  write("zero_pp_rank_0_mp_rank_00_model_states.pt",
        foreign::torch_file(foreign::pickle(dict(text("dp_world_size") + number(1) +
                                                 text("param_shapes") + shapes)),
                            {}));
  write("zero_pp_rank_0_mp_rank_00_optim_states.pt",
        foreign::torch_file(foreign::pickle(dict(text("optimizer_state_dict") +
                                                 dict(text("fp32_flat_groups") +
                                                      list(foreign::tensor("0", 100'000) + put(1) +
                                                           times(1000, get(1)))))),
                            {{"0", std::string(400'000, '\0')}}));
  EXPECT_THAT(outcome(folder_), HasSubstr("fp32_flat_groups holds more than the file"));
}

TEST_F(HostileTest, AFolderOrAPipeIsNoTracker) {
  for (const char* name : {"latest", "latest_checkpointed_iteration.txt"}) {
    const std::string path = folder_ + "/" + name;
    fs::create_directory(path);
    EXPECT_THAT(outcome(folder_), AllOf(HasSubstr(path), HasSubstr("Is a directory"))) << name;
    fs::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(outcome(folder_), AllOf(HasSubstr(path), HasSubstr("not a regular file"))) << name;
    fs::remove(path);
  }
}

}  // namespace
}  // namespace convert
