// SPDX-License-Identifier: MIT
// torch.save files as data: real ones of every container and protocol read back tensor by tensor;
// hostile, damaged and odd ones refused in one line. Golden: tests/golden/convert/*.pt and
// torch_file.json, by tests/reference/torch_file_golden.py.
#include "convert/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "libindexed/format.h"
#include "tests/convert/outcomes.h"
#include "tests/own.h"

namespace convert {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

std::string golden(const std::string& name) { return std::string(GOLDEN_DIR) + "/convert/" + name; }

std::vector<std::byte> read_tensor(const TorchFile& file, const PickledTensor& t) {
  std::vector<std::byte> out(static_cast<size_t>(t.elements() * element_bytes(t)));
  file.read_rows(t, 0, t.shape.empty() ? 1 : t.shape[0], out.data());
  return out;
}

class TorchFileTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchFileTest, EveryTensorIsRead) {
  const TorchFile file(golden(GetParam()));
  const nlohmann::json expected = nlohmann::json::parse(read_file(golden("torch_file.json")));
  const Value tensors = file.root().find("tensors");
  const bool legacy = std::string(GetParam()) == "legacy.pt";
  ASSERT_EQ(tensors.size(), legacy ? 19 : 22);
  for (int64_t i = 0; i < tensors.size(); ++i) {
    const std::string name(tensors.key(i).text());
    SCOPED_TRACE(name);
    ASSERT_TRUE(tensors.value(i).is(Kind::tensor));
    const PickledTensor& t = tensors.value(i).tensor();
    const nlohmann::json& row = expected.at("tensors").at(name);
    EXPECT_EQ(t.dtype, row[0].get<std::string>());
    EXPECT_EQ(t.shape, row[1].get<std::vector<int64_t>>());
    const std::vector<std::byte> bytes = read_tensor(file, t);
    EXPECT_EQ(
        crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())),
        row[2].get<uint32_t>());
    file.release(t);
  }
}

TEST_P(TorchFileTest, ArgumentsAreData) {
  const TorchFile file(golden(GetParam()));
  const Value root = file.root();
  EXPECT_EQ(root.find("iteration").integer(), 12);
  EXPECT_EQ(root.find("checkpoint_version").real(), 3.0);
  const Value args = root.find("args");
  ASSERT_TRUE(args.is(Kind::object));
  EXPECT_EQ(args.text(), "argparse.Namespace");
  EXPECT_EQ(args.attribute("hidden_size").integer(), 16);
  EXPECT_EQ(args.attribute("lr").real(), 1.5e-4);
  EXPECT_EQ(args.attribute("bf16").integer(), 1);
  EXPECT_EQ(args.attribute("fp16").integer(), 0);
  EXPECT_TRUE(args.attribute("none").is(Kind::null));
  EXPECT_EQ(args.attribute("name").text(), "caf\xc3\xa9");
  EXPECT_TRUE(args.attribute("big").is(Kind::big_integer));
  EXPECT_EQ(args.attribute("negative").integer(), -(int64_t{1} << 40));
  EXPECT_EQ(args.attribute("path").text(), "/a/b");
  EXPECT_EQ(args.attribute("params_dtype").text(), "BF16");
  EXPECT_EQ(args.attribute("betas").item(1).real(), 0.95);
  EXPECT_EQ(args.attribute("data_path").item(1).text(), "y");
  EXPECT_EQ(args.attribute("numpy_int").integer(), 50304);
  EXPECT_EQ(args.attribute("numpy_float").real(), 0.25);
  EXPECT_EQ(args.attribute("raw").text(), std::string_view("\x00\xff", 2));
  EXPECT_EQ(args.attribute("device").text(), "cuda:3");
  EXPECT_EQ(args.attribute("size").item(1).integer(), 3);
  EXPECT_EQ(args.attribute("inner").attribute("a").integer(), 1);
  EXPECT_TRUE(args.attribute("attention").is(Kind::object));
  EXPECT_FALSE(args.attribute("absent"));
  EXPECT_EQ(root.find("list").item(1).item(0).integer(), 2);
  EXPECT_EQ(root.find("list").item(2).item(0).integer(), 3);
  EXPECT_THAT(file.pickle().foreign_classes(), Contains(std::string("__main__.Attention")));
}

TEST_P(TorchFileTest, EveryCutIsRefused) {
  const std::string whole = read_file(golden(GetParam()));
  const tests::OwnFolder folder;
  const std::string path = folder / "cut";
  for (size_t cut = 0; cut < whole.size(); cut += 31) {
    std::ofstream(path, std::ios::binary).write(whole.data(), static_cast<std::streamsize>(cut));
    EXPECT_THAT(error_of<indexed::FormatError>([&] { TorchFile file(path); }), StartsWith(path))
        << cut;
  }
}

// Every single damaged byte is refused, unless it is in padding or a date, or in the legacy form,
// which has no checksums: there it changes only values. Nothing crashes.
TEST_P(TorchFileTest, ADamagedByteNeverCrashes) {
  const std::string whole = read_file(golden(GetParam()));
  const tests::OwnFolder folder;
  const std::string path = folder / "damaged";
  int refused = 0;
  for (size_t at = 0; at < whole.size(); at += 29) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    std::ofstream(path, std::ios::binary) << damaged;
    refused += error_of<indexed::FormatError>([&] {
                 const TorchFile file(path);
                 for (const PickledTensor& t : file.pickle().tensors()) read_tensor(file, t);
               }) != "accepted";
  }
  EXPECT_GT(refused, static_cast<int>(whole.size() / 29 / 3));
}

INSTANTIATE_TEST_SUITE_P(Containers, TorchFileTest,
                         ::testing::Values("zip.pt", "legacy.pt", "protocol4.pt", "deflated.pt"),
                         [](const auto& info) {
                           std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

TEST(TorchFileDamage, AStorageWithoutItsChecksumIsNamedUnlessIgnored) {
  std::string whole = read_file(golden("zip.pt"));
  const TorchFile good(golden("zip.pt"));
  const std::vector<std::byte> data =
      read_tensor(good, good.root().find("tensors").find("f32").tensor());
  const size_t place =
      whole.find(std::string(reinterpret_cast<const char*>(data.data()), data.size()));
  ASSERT_NE(place, std::string::npos);
  whole[place] = static_cast<char>(whole[place] ^ 1);
  const tests::OwnFolder folder;
  const std::string path = folder / "checksum.pt";
  std::ofstream(path, std::ios::binary) << whole;
  const TorchFile strict(path);
  const PickledTensor& t = strict.root().find("tensors").find("f32").tensor();
  EXPECT_THAT(error_of<indexed::FormatError>([&] { read_tensor(strict, t); }),
              HasSubstr("does not have its checksum"));
  const TorchFile lax(path, TorchFile::Checksums::ignore);
  EXPECT_EQ(read_tensor(lax, lax.root().find("tensors").find("f32").tensor()).size(), data.size());
}

TEST(TorchFileDamage, ForeignFilesAreRefused) {
  const tests::OwnFolder folder;
  const std::string path = folder / "foreign.pt";
  const auto refuse = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return error_of<indexed::FormatError>([&] { TorchFile file(path); });
  };
  EXPECT_THAT(refuse(""), HasSubstr("not a file of torch.save"));
  EXPECT_THAT(refuse("hello"), HasSubstr("not a file of torch.save"));
  EXPECT_THAT(refuse("PYTORCH1" + std::string(100, 'x')), HasSubstr("before 2018"));
  EXPECT_THAT(refuse(std::string(257, '\0') + "ustar"), HasSubstr("before 2018"));
  EXPECT_THAT(refuse("PK\x03\x04" + std::string(100, '\0')), HasSubstr("no end record"));
}

// --- pickles alone -------------------------------------------------------------------------------

std::string pickle_error(const std::string& body) {
  const std::string bytes = "\x80\x02" + body;
  return error_of<indexed::FormatError>(
      [&] { Pickle pickle(std::as_bytes(std::span(bytes)), "p"); });
}

std::string text(const std::string& s) {
  return "X" + std::string(1, static_cast<char>(s.size())) + std::string(3, '\0') + s;
}

TEST(Pickle, HostileImportsEndTheReading) {
  const tests::OwnFolder folder;
  const std::string touched = folder / "touched";
  const std::string command = text("touch " + touched);
  for (const std::string global :
       {"cos\nsystem\n", "cposix\nsystem\n", "cnt\nsystem\n", "csubprocess\nPopen\n",
        "cbuiltins\neval\n", "c__builtin__\nexec\n", "cbuiltins\n__import__\n", "cbuiltins\nopen\n",
        "csys\nexit\n", "cimportlib\nimport_module\n", "crunpy\n_run_code\n", "cpty\nspawn\n",
        "coperator\nattrgetter\n", "ctypes\nFunctionType\n", "ctorch.hub\nload\n",
        "ctorch.serialization\nload\n", "cos.path\njoin\n", "cctypes\nCDLL\n"}) {
    EXPECT_THAT(pickle_error(global + "(" + command + "tR."), HasSubstr("refused as hostile"))
        << global;
  }
  // The same through a protocol-4 import, and through getattr on a harmless one.
  EXPECT_THAT(pickle_error("\x8c\x02os\x8c\x06system\x93" + command + "\x85R."),
              HasSubstr("refused as hostile"));
  EXPECT_THAT(pickle_error("cbuiltins\ngetattr\n(" + command + text("system") + "tR."),
              HasSubstr("getattr"));
  EXPECT_FALSE(fs::exists(touched)) << "nothing ran";
}

TEST(Pickle, UnknownClassesAreInert) {
  const std::string bytes =
      "\x80\x02"
      "cmegatron.core.enums\nModelType\nK\x01\x85R.";
  const Pickle pickle(std::as_bytes(std::span(bytes)), "p");
  EXPECT_TRUE(pickle.root().is(Kind::object));
  EXPECT_EQ(pickle.root().text(), "megatron.core.enums.ModelType");
  EXPECT_EQ(pickle.root().item(0).integer(), 1);
}

// State as copyreg writes it: None and the slots. Dicts out of pairs, which are tuples or lists.
TEST(Pickle, SlotsAndPairsAreRead) {
  const auto five = [](const std::string& body) {
    const std::string bytes = "\x80\x02" + body + ".";
    const Pickle pickle(std::as_bytes(std::span(bytes)), "p");
    return pickle.root().attribute("a").integer();
  };
  const std::string pair = text("a") + "K\x05";
  const std::string object = "c__main__\nA\n)R";
  EXPECT_EQ(five(object + "}" + pair + "sb"), 5);
  EXPECT_EQ(five(object + "N}" + pair + "s\x86" + "b"), 5);
  EXPECT_EQ(five(object + "}" + pair + "s}\x86" + "b"), 5);
  const std::string dict = "ccollections\nOrderedDict\n";
  EXPECT_EQ(five(dict + "]" + pair + "\x86" + "a\x85R"), 5);
  EXPECT_EQ(five(dict + "]]" + text("a") + "aK\x05" + "aa\x85R"), 5);
  EXPECT_THAT(pickle_error(dict + "]" + text("a") + "\x85" + "a\x85R."), HasSubstr("no pairs"));
  EXPECT_THAT(pickle_error(dict + "]K\x05" + "a\x85R."), HasSubstr("no pairs"));
}

TEST(Pickle, BrokenStreamsAreRefused) {
  EXPECT_THAT(pickle_error(""), HasSubstr("ends in the middle"));
  EXPECT_THAT(pickle_error("."), HasSubstr("stack is empty"));
  EXPECT_THAT(pickle_error("NN."), HasSubstr("left on the stack"));
  EXPECT_THAT(pickle_error("Ns."), HasSubstr("stack is empty"));
  EXPECT_THAT(pickle_error("NNNs."), HasSubstr("not a dict"));
  EXPECT_THAT(pickle_error("NNa."), HasSubstr("not a list"));
  EXPECT_THAT(pickle_error("NNb."), HasSubstr("not an object"));
  EXPECT_THAT(pickle_error("}(Nu."), HasSubstr("without a value"));
  EXPECT_THAT(pickle_error("t."), HasSubstr("no mark"));
  EXPECT_THAT(pickle_error("(."), HasSubstr("stack is empty"));
  EXPECT_THAT(pickle_error("h\x05."), HasSubstr("recalls object 5"));
  EXPECT_THAT(pickle_error("NNR."), HasSubstr("not an import"));
  EXPECT_THAT(pickle_error("ccollections\nOrderedDict\nNR."), HasSubstr("not a tuple"));
  EXPECT_THAT(pickle_error("Pabc\n."), HasSubstr("opcode 80 is not supported"));
  EXPECT_THAT(pickle_error("(ios\nsystem\n."), HasSubstr("opcode 105 is not supported"));
  EXPECT_THAT(pickle_error("X\xff\xff\xff\xff"
                           "a."),
              HasSubstr("at most 64 MiB"));
  EXPECT_THAT(pickle_error("\x8b\xff\xff\xff\x7f"
                           "a."),
              HasSubstr("an integer of"));
  EXPECT_THAT(pickle_error("NQ."), HasSubstr("no storage"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "]";
  for (int i = 1; i < 100'000; ++i) deep += "a";
  EXPECT_EQ(pickle_error(deep + "."), "accepted") << "nesting takes no stack of ours";
  EXPECT_EQ(pickle_error(std::string("]q\x00h\x00"
                                     "a.",
                                     7)),
            "accepted")
      << "a list in itself";
}

// A tensor's pickle with the given storage size, offset, shape and stride.
std::string tensor(const std::string& storage_class, char elements, char offset,
                   const std::string& shape, const std::string& stride) {
  const auto one = [](char c) { return std::string("K") + c; };
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" + storage_class +
         "\n" + text("0") + text("cpu") + one(elements) + "tQ" + one(offset) + shape + stride +
         "\x89"
         "ccollections\nOrderedDict\n)RtR.";
}

TEST(Pickle, TensorsStayInsideTheirStorage) {
  EXPECT_EQ(pickle_error(tensor("FloatStorage", 6, 0, "K\x02K\x03\x86", "K\x03K\x01\x86")),
            "accepted");
  EXPECT_THAT(pickle_error(tensor("FloatStorage", 6, 1, "K\x02K\x03\x86", "K\x03K\x01\x86")),
              HasSubstr("reaches element 6 of a storage of 6"));
  EXPECT_THAT(pickle_error(tensor("FloatStorage", 6, 0, "K\x02K\x03\x86", "K\x04K\x01\x86")),
              HasSubstr("reaches element 6"));
  EXPECT_THAT(pickle_error(tensor("FloatStorage", 6, 0, "K\x02K\x03\x86", "K\x03\x85")),
              HasSubstr("differ in length"));
  EXPECT_THAT(pickle_error(tensor("FloatStorage", 6, 0, "K\x02\x85", "J\xff\xff\xff\xff\x85")),
              HasSubstr("not a number from 0 up"));
  EXPECT_THAT(pickle_error(tensor("FloatStorage", 6, 0, "K\xff\x85", std::string("K\x00\x85", 3))),
              HasSubstr("more elements than its storage"));
  const std::string huge =
      "\x8a\x08"
      "\xff\xff\xff\xff\xff\xff\xff\x7f";
  EXPECT_THAT(
      pickle_error(tensor("FloatStorage", 6, 0, huge + huge + "\x86", huge + huge + "\x86")),
      HasSubstr("overflows"));
  EXPECT_THAT(pickle_error(tensor("QInt8Storage", 6, 0, "K\x02\x85", "K\x01\x85")),
              HasSubstr("storage class torch.QInt8Storage is not supported"));
}

}  // namespace
}  // namespace convert
