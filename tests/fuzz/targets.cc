// SPDX-License-Identifier: MIT
// targets.h: the readers, called as the programs call them.
#include "tests/fuzz/targets.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "convert/hf_folder.h"
#include "convert/megatron_source.h"
#include "convert/tokenizer_files.h"
#include "convert/trainer_source.h"
#include "libindexed/dataset.h"
#include "libindexed/manifest.h"
#include "libindexed/npy.h"
#include "libtok/loaders.h"
#include "libtok/tokenizer.h"
#include "tests/fuzz/targets_text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/layout.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/flags.h"

namespace fuzz {
namespace {

namespace fs = std::filesystem;

std::string text_of(Bytes input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

void require(bool holds) {
  if (!holds) std::abort();
}

/// The input as a file of its own.
struct File {
  explicit File(Bytes input) : folder({{"file", text_of(input)}}), path(folder.path() + "/file") {}
  Folder folder;
  std::string path;
};

// --- checkpoints ---------------------------------------------------------------------------------

void pickle(Bytes input) {
  const convert::Pickle read(std::as_bytes(input), "pickle");
  for (const char* name : {"args", "model", "iteration"}) {
    const convert::Value value = read.root().attribute(name);
    for (int64_t i = 0; i < std::min<int64_t>(value.size(), 100); ++i)
      value.is(convert::Kind::dict) ? value.value(i).text() : value.item(i).text();
  }
  convert::spec_from_arguments(read.root().find("args"), true);
}

void read_tensors(const convert::TorchFile& file) {
  for (const convert::PickledTensor& tensor : file.pickle().tensors()) {
    if (tensor.elements() > (1 << 20)) continue;
    std::vector<std::byte> out(static_cast<size_t>(tensor.elements() * element_bytes(tensor)));
    file.read_rows(tensor, 0, tensor.shape.empty() ? 1 : tensor.shape[0], out.data());
    file.release(tensor);
  }
}

void torch_file(Bytes input) {
  const File file(input);
  read_tensors(convert::TorchFile(file.path, convert::TorchFile::Checksums::ignore));
}

void load_all(const convert::CanonicalModel& model) {
  int64_t bytes = 0;
  for (const auto& [name, source] : model.tensors)
    if ((bytes += source.bytes()) < (1 << 24)) source.load();
}

void checkpoint(Bytes input) {
  const Folder folder(unpack(text_of(input)));
  convert::SourceOptions options;
  options.checksums = convert::TorchFile::Checksums::ignore;
  options.prefer_main = true;
  load_all(convert::read_megatron(folder.path(), options));
}

void trainer_checkpoint(Bytes input) {
  const Folder folder(unpack(text_of(input)));
  load_all(convert::read_trainer_checkpoint(folder.path(), std::nullopt, false));
}

void hf_folder(Bytes input) {
  const Folder folder(unpack(text_of(input)));
  load_all(convert::read_hf_folder(folder.path()));
}

void tokenizer_folder(Bytes input) {
  const Folder folder(unpack(text_of(input)));
  convert::tokenizer_from_folder(folder.path(), 1024);
}

void safetensors(Bytes input) {
  const File file(input);
  const trainer::SafetensorsFile read = trainer::SafetensorsFile::open(file.path);
  for (const trainer::TensorEntry& entry : read.tensors())
    require(read.bytes(entry).size() == static_cast<size_t>(entry.bytes()));
}

void meta_json(Bytes input) { trainer::parse_meta(text_of(input), "meta.json"); }

// --- datasets ------------------------------------------------------------------------------------

void read_dataset(const std::string& prefix, bool multimodal) {
  const indexed::IndexedDataset data =
      indexed::IndexedDataset::open(prefix, {.multimodal = multimodal});
  int64_t sum = 0;
  for (int64_t i = 0; i < data.num_sequences(); ++i) {
    const indexed::TokenView view = data.sequence(i);
    for (int64_t j = 0; j < view.size(); ++j) sum += view[j] & 0xffff;
  }
  require(sum >= 0);
}

void idx(Bytes input) {
  // The .bin is as long as the first two bytes say.
  if (input.size() < 2) return;
  const size_t bytes = static_cast<size_t>(input[0]) * 16 + input[1] % 16;
  const Folder folder({{"d.idx", text_of(input.subspan(2))}, {"d.bin", std::string(bytes, '\1')}});
  try {
    read_dataset(folder.path() + "/d", true);
  } catch (const std::runtime_error&) {
  }
  read_dataset(folder.path() + "/d", false);
}

void npy(Bytes input) {
  const File file(input);
  const indexed::IndexArray array = indexed::IndexArray::open(file.path);
  int64_t sum = 0;
  for (const std::byte b : array.bytes()) sum += static_cast<int64_t>(b);
  require(sum >= 0);
}

void manifest(Bytes input) { indexed::parse_manifest(text_of(input), "manifest"); }

// --- text ----------------------------------------------------------------------------------------

void tokenizer_json(Bytes input) {
  const tok::Tokenizer tokenizer = tok::Tokenizer::from_tokenizer_json(text_of(input));
  tok::Scratch scratch(64, 64);
  tok::TokenBuffer ids;
  tokenizer.encode("the cat's 12 hats \xc3\xa9\n", scratch, ids);
}

void gpt2_files(Bytes input) {
  const Files files = unpack(text_of(input));
  if (files.size() >= 2) tok::Tokenizer::from_gpt2(files[0].second, files[1].second);
}

/// A text in which each kind of rule has something to do.
constexpr std::string_view kText =
    "  the cat's \xe2\x96\x81 12 <s> hats \xc3\xa9\xef\xbc\xa1 \xf0\x9f\x98\x80\n\t ABC  ";

void encode_both_ways(const tok::Tokenizer& tokenizer) {
  tok::Scratch scratch(64, 64);
  tok::TokenBuffer ids;
  std::vector<int32_t> plain;
  tokenizer.encode(kText, scratch, ids);
  tokenizer.encode_plain(kText, plain);
  require(std::equal(plain.begin(), plain.end(), ids.tokens().begin(), ids.tokens().end()));
  tokenizer.decode(plain);
}

void sentencepiece(Bytes input) {
  encode_both_ways(tok::Tokenizer::from_sentencepiece(text_of(input)));
}

void rank_list(Bytes input) {
  const tok::RankListOptions options{.num_special_tokens = 3, .vocab_size = 3 + 256};
  encode_both_ways(tok::Tokenizer::from_rank_list(text_of(input), options));
}

/// A folder as AutoTokenizer reads it, with its configurations, and the short ways to its ids.
void auto_tokenizer(Bytes input) {
  const Files files = unpack(text_of(input));
  const tok::ReadFile read = [&](std::string_view name) -> std::optional<std::string> {
    for (const auto& [file, bytes] : files)
      if (file == name) return bytes;
    return std::nullopt;
  };
  try {
    tok::read_folder_ids(read);
  } catch (const std::runtime_error&) {
  }
  encode_both_ways(tok::Tokenizer::from_folder(read));
}

void tiktoken(Bytes input) { tok::Tokenizer::from_tiktoken(text_of(input), "r50k_base"); }

/// GPT-NeoX's configurations, several as one, as training and as a checkpoint's reader take them.
void neox_yaml(Bytes input) {
  std::vector<trainer::NamedText> files;
  for (auto& [name, text] : unpack(text_of(input))) files.push_back({name, std::move(text)});
  if (files.empty()) return;
  try {
    trainer::TrainConfig model;
    trainer::apply_neox_model(model, files);
  } catch (const cli::UsageError&) {
  }
  trainer::TrainConfig config;
  trainer::Given given;
  std::vector<std::string> remarks;
  trainer::apply_neox(config, given, files, remarks);
}

constexpr Target kTargets[] = {
    {"pickle", pickle, mutate_pickle},
    {"torch_file", torch_file, mutate_zip},
    {"checkpoint", checkpoint, mutate_folder},
    {"neox_checkpoint", checkpoint, mutate_folder},
    {"trainer_checkpoint", trainer_checkpoint, mutate_folder},
    {"hf_folder", hf_folder, mutate_folder},
    {"tokenizer_folder", tokenizer_folder, mutate_folder},
    {"safetensors", safetensors, nullptr},
    {"meta_json", meta_json, nullptr},
    {"idx", idx, nullptr},
    {"npy", npy, nullptr},
    {"manifest", manifest, nullptr},
    {"auto_tokenizer", auto_tokenizer, mutate_folder},
    {"tokenizer_json", tokenizer_json, mutate_json},
    {"gpt2_files", gpt2_files, mutate_folder},
    {"tiktoken", tiktoken, nullptr},
    {"sentencepiece", sentencepiece, mutate_message},
    {"rank_list", rank_list, mutate_json},
    {"neox_yaml", neox_yaml, mutate_folder},
    {"json_lines", json_lines, nullptr},
    {"packed", packed, nullptr},
    {"bzip2_blocks", bzip2_blocks, nullptr},
    {"wiki_dump", wiki_dump, nullptr},
    {"wikitext", wikitext, nullptr},
};

}  // namespace

std::span<const Target> targets() {
  static const std::vector<Target> kAll = [] {
    std::vector<Target> all(std::begin(kTargets), std::end(kTargets));
    const std::span<const Target> columns = column_targets();
    all.insert(all.end(), columns.begin(), columns.end());
    return all;
  }();
  return kAll;
}

const Target* find_target(std::string_view name) {
  const auto found = std::ranges::find(targets(), name, &Target::name);
  return found == targets().end() ? nullptr : &*found;
}

void run_target(const Target& target, Bytes input) {
  try {
    target.run(input);
  } catch (const std::runtime_error&) {
  }
}

std::string pack(const Files& files) {
  std::string out;
  for (const auto& [name, bytes] : files) {
    out += static_cast<char>(name.size());
    out += name;
    for (int i = 0; i < 4; ++i) out += static_cast<char>(bytes.size() >> (8 * i));
    out += bytes;
  }
  return out;
}

Files unpack(std::string_view packed) {
  Files files;
  while (!packed.empty() && files.size() < 64) {
    const size_t name_bytes = std::min<size_t>(static_cast<uint8_t>(packed[0]), packed.size() - 1);
    const std::string name(packed.substr(1, name_bytes));
    packed.remove_prefix(1 + name_bytes);
    size_t bytes = 0;
    for (size_t i = 0; i < 4 && i < packed.size(); ++i)
      bytes |= static_cast<size_t>(static_cast<uint8_t>(packed[i])) << (8 * i);
    packed.remove_prefix(std::min<size_t>(4, packed.size()));
    bytes = std::min(bytes, packed.size());
    const bool inside = !name.empty() && name[0] != '/' && name.back() != '/' &&
                        name.find("..") == std::string::npos && name != "." &&
                        name.find('\0') == std::string::npos;
    if (inside) files.emplace_back(name, packed.substr(0, bytes));
    packed.remove_prefix(bytes);
  }
  return files;
}

Folder::Folder(const Files& files) {
  std::string name =
      access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path().string();
  name += "/gristmill_fuzz.XXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
  for (const auto& [file, bytes] : files) {
    std::error_code none;
    const fs::path path = fs::path(path_) / file;
    fs::create_directories(path.parent_path(), none);
    std::ofstream(path, std::ios::binary) << bytes;
  }
}

Folder::~Folder() {
  std::error_code none;
  fs::remove_all(path_, none);
}

}  // namespace fuzz
