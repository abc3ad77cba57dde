// SPDX-License-Identifier: MIT
// hf_folder.h: shards, index, configs.
#include "convert/hf_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <system_error>
#include <vector>

#include "convert/families/families.h"
#include "convert/set_aside.h"
#include "convert/target_root.h"
#include "convert/tensor_blocks.h"
#include "convert/torch_file.h"
#include "convert/torch_weights.h"
#include "libindexed/format.h"
#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "libindexed/permissions.h"
#include "libindexed/read_file.h"
#include "trainer/checkpoint/killed_conversion.h"
#include "trainer/checkpoint/safetensors.h"

namespace convert {
namespace {

using indexed::FormatError;
using nlohmann::json;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTorchIndex = "pytorch_model.bin.index.json";
constexpr const char* kTransformersVersion = "4.46.3";

using Named = std::pair<std::string, TensorSource>;

// The files of a model that have no name in its folder yet: complete, and on the disk. Those that
// still have none when this object ends, or when a signal ends the process, are removed.
class UnnamedFiles {
 public:
  /// Only the owner can read them before they have the permissions of the files they replace.
  explicit UnnamedFiles(const fs::path& folder) : folder_(folder / kUnnamedFiles) {
    unnamed_.emplace_back(folder_.string());
    if (::mkdir(folder_.c_str(), 0700) != 0)
      throw std::system_error(errno, std::generic_category(), folder_.string());
  }
  ~UnnamedFiles() { remove(); }
  UnnamedFiles(const UnnamedFiles&) = delete;
  UnnamedFiles& operator=(const UnnamedFiles&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) {
    const fs::path folder = fs::path(path(name)).parent_path();
    if (folder != folder_ && !fs::exists(folder)) {
      unnamed_.emplace_back(folder.string());
      fs::create_directory(folder);
    }
    write(name, [&](const std::string& path) {
      indexed::OutputFile out(path);
      out.write(text);
      out.commit();
    });
  }
  /// `work` makes the file at a path.
  void write(const std::string& name, const std::function<void(const std::string&)>& work) {
    unnamed_.emplace_back(path(name));
    work(path(name));
  }
  void remove() const noexcept {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

 private:
  fs::path folder_;
  std::vector<indexed::RemoveOnSignal> unnamed_;
};

std::string torch_dtype(const std::string& dtype) {
  return dtype == "BF16" ? "bfloat16" : dtype == "F16" ? "float16" : "float32";
}

// The dtype of a config.json in safetensors' spelling, if a tensor has it; else empty. It is that
// of the whole model: from_pretrained converts the others to it.
std::string named_dtype(const json& config, const CanonicalModel& model) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto said = config.find(key);
    if (said == config.end() || !said->is_string()) continue;
    for (const auto& [name, source] : model.tensors)
      if (*said == torch_dtype(source.dtype)) return source.dtype;
  }
  return {};
}

// The source model's config.json, stored beside a checkpoint; null if there is none.
json source_config(const TokenizerFiles& source) {
  const auto file = std::find_if(source.model_files.begin(), source.model_files.end(),
                                 [](const TokenizerFile& f) { return f.name == "config.json"; });
  if (file == source.model_files.end()) return {};
  json config = json::parse(file->text, nullptr, false);
  return config.is_object() ? config : json();
}

// The dtype of the export's config where the tensors keep theirs.
std::string kept_dtype(const CanonicalModel& model, const TokenizerFiles& source) {
  const json config = source_config(source);
  const std::string named = config.is_null() ? "" : named_dtype(config, model);
  return named.empty() ? model.dtype : named;
}

std::string shard_name(size_t i, size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, count);
  return name;
}

// Greedy in tensor order; a tensor is never divided.
std::vector<std::vector<Named>> make_shards(std::vector<Named> tensors, int64_t max_bytes) {
  std::vector<std::vector<Named>> shards(1);
  int64_t used = 0;
  for (Named& tensor : tensors) {
    const int64_t bytes = tensor.second.bytes();
    if (!shards.back().empty() && used + bytes > max_bytes) {
      shards.emplace_back();
      used = 0;
    }
    used += bytes;
    shards.back().push_back(std::move(tensor));
  }
  for (std::vector<Named>& shard : shards)  // wide elements first, so that each is aligned
    std::stable_sort(shard.begin(), shard.end(), [](const Named& a, const Named& b) {
      return a.second.element_bytes() > b.second.element_bytes();
    });
  return shards;
}

// What is seen while blocks are written, on any thread.
class Seen {
 public:
  Seen(const std::vector<TensorSource>& tensors, const HfTarget& target, HfResult& result,
       int64_t total)
      : target_(target), result_(result), total_(total), wrong_(tensors.size()) {}

  void add(const TensorBlock& block, const std::string& dtype) {
    const int64_t wrong = count_not_finite(dtype, block.bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    wrong_[block.tensor] += wrong;
    result_.bytes += static_cast<int64_t>(block.bytes.size());
    if (target_.progress) target_.progress(result_.bytes, total_);
  }
  int64_t wrong(size_t tensor) const { return wrong_[tensor]; }

 private:
  const HfTarget& target_;
  HfResult& result_;
  int64_t total_;
  std::vector<int64_t> wrong_;
  std::mutex mutex_;
};

void write_shard(const std::vector<Named>& shard, const std::string& path, const HfTarget& target,
                 HfResult& result, int64_t total) {
  std::vector<trainer::TensorEntry> entries;
  std::vector<TensorSource> sources;
  for (const auto& [name, source] : shard) {
    entries.push_back({name, source.dtype, source.shape});
    sources.push_back(source);
  }
  trainer::SafetensorsWriter out(path, std::move(entries), {{"format", "pt"}});
  Seen seen(sources, target, result, total);
  for_each_block(sources, [&](const TensorBlock& block) {
    seen.add(block, sources[block.tensor].dtype);
    out.write_at(block.tensor, block.at, block.bytes);
  });
  for (size_t i = 0; i < shard.size(); ++i)
    if (seen.wrong(i) > 0)
      result.notes.push_back(shard[i].first + ": " + std::to_string(seen.wrong(i)) + " of " +
                             std::to_string(sources[i].elements()) + " numbers are not finite");
  result.tensors += static_cast<int64_t>(shard.size());
  out.commit();
}

// Several names stand for one formula, and transformers rounds it differently under each: the
// source's name stays where it says what the model computes.
void keep_activation_name(const Family& family, const TokenizerFiles& source,
                          ordered_json& config) {
  const json before = source_config(source);
  for (const KeyRow& row : family.keys) {
    if (row.field != "activation" || !before.contains(row.key())) continue;
    const json& name = before[row.key()];
    if (name.is_string() && same_activation(name.get<std::string>(), config[row.key()]))
      config[row.key()] = name;
  }
}

ordered_json make_config(const CanonicalModel& model, const Family& family,
                         const TokenizerFiles& tokenizer, const std::string& dtype) {
  ordered_json config;
  config["architectures"] = {family.architecture};
  config["model_type"] = family.name;
  config["vocab_size"] = model.spec.padded_vocab_size;
  const ordered_json own = write_config(family, model.spec);
  for (const auto& [key, value] : own.items()) config[key] = value;
  keep_activation_name(family, tokenizer, config);
  for (const auto& [key, id] : tokenizer.ids.items()) config[key] = id;
  // Without the key transformers would take OPT's token 1 for padding, and never train it.
  if (family.name == "opt" && tokenizer.model_files.empty() && !config.contains("pad_token_id"))
    config["pad_token_id"] = nullptr;
  config["tie_word_embeddings"] = model.spec.tied_embeddings;
  config["use_cache"] = true;
  config["torch_dtype"] = torch_dtype(dtype);  // read by transformers 4
  config["dtype"] = torch_dtype(dtype);        // read by transformers 5
  config["transformers_version"] = kTransformersVersion;
  return config;
}

// The source's own file, or one with the same ids that keeps generation within the model's
// positions: without max_length, transformers 5 adds 256 tokens to any text.
std::string generation_config(const TokenizerFiles& tokenizer, int64_t max_length) {
  for (const TokenizerFile& file : tokenizer.model_files)
    if (file.name == "generation_config.json") return file.text;
  ordered_json config;
  config["_from_model_config"] = true;
  for (const auto& [key, id] : tokenizer.ids.items())
    if (!id.is_null()) config[key] = id;
  config["max_length"] = max_length;
  config["transformers_version"] = kTransformersVersion;
  return config.dump(2) + "\n";
}

std::string index_json(const std::vector<std::vector<Named>>& shards, int64_t total) {
  json map = json::object();  // sorted keys, as transformers writes them
  for (size_t i = 0; i < shards.size(); ++i)
    for (const auto& [name, source] : shards[i]) map[name] = shard_name(i, shards.size());
  const json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  return index.dump(2) + "\n";
}

// What must go, by name in the folder: files that from_pretrained reads, since those that this run
// does not write would be read along with the new ones; whatever has the name of a new file; and a
// link in the place of kTemplatesFolder, before what it leads to. Without target.replace there must
// be none. Folders of other names are the user's.
std::set<std::string> replaced_files(const HfTarget& target, const std::set<std::string>& names) {
  const fs::path folder(target.folder);
  refuse_existing(folder / kConfig, target.replace);
  std::set<std::string> found;
  for (const std::string& name : names)
    if (fs::exists(fs::symlink_status(folder / name))) found.insert(name);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool link = entry.is_symlink();
    if ((is_model_file(name) && (link || !entry.is_directory())) ||
        (link && name == kTemplatesFolder))
      found.insert(name);
  }
  for (const std::string& name : tokenizer_file_names(target.folder))
    if (name.find('/') != std::string::npos) found.insert(name);
  for (const std::string& name : found) refuse_existing(folder / name, target.replace);
  for (const std::string& name : names) refuse_folder(folder / name);
  refuse_no_folder(folder / kTemplatesFolder, true);
  return found;
}

// A new file gets the permissions of one that it replaces, as an OutputFile does.
void keep_permissions(const fs::path& old, const std::string& path) {
  struct stat info {};
  if (::lstat(old.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw std::system_error(errno, std::generic_category(), path);
  indexed::copy_permissions(old.string(), info, file);
  ::close(file);
}

// The old model's names go and the new one's come together. A link in the place of a file is itself
// set aside: what it leads to may be another model's, as in the hub's cache.
void exchange(const HfTarget& target, std::set<std::string> names, const UnnamedFiles& files) {
  const fs::path folder(target.folder);
  const std::set<std::string> found = replaced_files(target, names);
  const auto is_weights = [](const std::string& name) {
    return name.ends_with(".safetensors") || name == kIndex;
  };
  const auto weights = std::ranges::find_if(found, is_weights);
  for (const std::string& name : names) {
    const bool as_weights = is_weights(name) && !found.contains(name) && weights != found.end();
    keep_permissions(folder / (as_weights ? *weights : name), files.path(name));
  }
  const indexed::NamingSection naming;
  SetAside old(target.folder, kConfig);
  old.take(folder / kConfig);
  for (const std::string& name : found) old.take(folder / name);
  names.erase(kConfig);
  for (const std::string& name : names) {
    old.make_folders((folder / name).parent_path());
    old.name(files.path(name), folder / name);
  }
  old.name_last(files.path(kConfig));
  old.keep();
  files.remove();  // before a signal that waits ends the process
}

std::string read_text(const std::string& path) {
  const indexed::MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

json read_json(const std::string& path) {
  json tree = json::parse(read_text(path), nullptr, false);
  if (!tree.is_object()) throw FormatError(path + ": not a JSON object");
  return tree;
}

void add_torch_file(const std::string& path, std::map<std::string, TensorSource>& tensors) {
  const auto file = std::make_shared<TorchFile>(path);
  for (auto& [name, source] : torch_weights(file, file->root())) {
    if (!tensors.emplace(name, std::move(source)).second)
      throw FormatError(path + ": tensor " + name + " stands in two files");
  }
}

void add_file(const std::string& path, std::map<std::string, TensorSource>& tensors) {
  if (path.ends_with(".bin")) return add_torch_file(path, tensors);
  const auto file =
      std::make_shared<trainer::SafetensorsFile>(trainer::SafetensorsFile::open(path));
  for (const trainer::TensorEntry& entry : file->tensors()) {
    MappedRows rows{.data = file->bytes(entry).data()};
    rows.release = [file, &entry](int64_t begin, int64_t end) { file->release(entry, begin, end); };
    if (!tensors
             .emplace(entry.name,
                      mapped_source(entry.dtype, entry.shape, path + ": " + entry.name, rows))
             .second)
      throw FormatError(path + ": tensor " + entry.name + " stands in two files");
  }
}

// The weight files, by the index `name` that lists the file of each tensor.
std::set<std::string> indexed_files(const std::string& folder, const std::string& name) {
  const json index = read_json(folder + "/" + name);
  std::set<std::string> files;
  const json map = index.value("weight_map", json::object());
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
      throw FormatError(folder + "/" + name + ": " + tensor + " is in no file");
    files.insert(file.get<std::string>());
  }
  return files;
}

// The files with a folder's weights, in transformers' order: safetensors are preferred, and one
// file to shards, whose index may be left over from an earlier save.
std::set<std::string> weight_files(const std::string& folder) {
  for (const auto& [index, file] :
       {std::pair(kIndex, "model.safetensors"), std::pair(kTorchIndex, "pytorch_model.bin")}) {
    if (fs::exists(folder + "/" + file)) return {file};
    if (fs::exists(folder + "/" + index)) return indexed_files(folder, index);
  }
  throw FormatError(folder + ": no weights there: neither model.safetensors nor " +
                    "pytorch_model.bin, nor an index of either");
}

// A folder whose config says that the head is the embedding, but whose head has other numbers.
void untie_if_different(const Family& family, const std::map<std::string, TensorSource>& tensors,
                        CanonicalModel& model) {
  if (!model.spec.tied_embeddings) return;
  const auto find = [&](std::string_view canonical) -> const TensorSource* {
    for (const NameRow& row : family.rows) {
      if (row.canonical[0] != canonical) continue;
      const std::string name(row.hf);
      auto found = tensors.find(name);
      for (const std::string_view base : family.bases)  // files may lack it, or have it
        if (found == tensors.end())
          found = tensors.find(name.starts_with(base) ? name.substr(base.size())
                                                      : std::string(base) + name);
      if (found != tensors.end()) return &found->second;
    }
    return nullptr;
  };
  const TensorSource* words = find("embedding.word_embeddings.weight");
  const TensorSource* head = find("output_layer.weight");
  if (words == nullptr || head == nullptr || same_bytes(*words, *head)) return;
  model.spec.tied_embeddings = false;
  model.notes.push_back(head->place +
                        " differs from the embedding, though tie_word_embeddings is "
                        "true: taken as a head of its own");
}

}  // namespace

bool is_model_file(const std::string& name) {
  static const std::regex kWeights(R"(model(-\d{5}-of-\d{5})?\.safetensors)");
  return name == kIndex || has_tokenizer_name(name) || std::regex_match(name, kWeights);
}

HfResult write_hf_folder(const CanonicalModel& model, const Family& family,
                         const TokenizerFiles& tokenizer, const HfTarget& target) {
  std::vector<Named> tensors = export_tensors(family, model);
  int64_t total = 0;
  for (auto& [name, source] : tensors) {
    if (!target.dtype.empty()) source = convert_dtype(source, target.dtype);
    total += source.bytes();
  }
  const std::vector<std::vector<Named>> shards =
      make_shards(std::move(tensors), target.max_shard_bytes);
  std::set<std::string> names = {"generation_config.json", kConfig};
  for (size_t i = 0; i < shards.size(); ++i) names.insert(shard_name(i, shards.size()));
  if (shards.size() > 1) names.insert(kIndex);
  for (const TokenizerFile& file : tokenizer.files) names.insert(file.name);
  fs::create_directories(target.folder);
  const FolderLock lock(target.folder);
  fs::remove_all(fs::path(target.folder) / kUnnamedFiles);  // of a killed run
  undo_killed(target.folder);
  replaced_files(target, names);  // refuses before any work
  UnnamedFiles files(target.folder);
  HfResult result;
  for (size_t i = 0; i < shards.size(); ++i) {
    files.write(shard_name(i, shards.size()), [&](const std::string& path) {
      write_shard(shards[i], path, target, result, total);
    });
  }
  result.shards = static_cast<int64_t>(shards.size());
  if (shards.size() > 1) files.write(kIndex, index_json(shards, total));
  for (const TokenizerFile& file : tokenizer.files) files.write(file.name, file.text);
  files.write("generation_config.json",
              generation_config(tokenizer, model.spec.max_position_embeddings));
  const std::string dtype = target.dtype.empty() ? kept_dtype(model, tokenizer) : target.dtype;
  files.write(kConfig, make_config(model, family, tokenizer, dtype).dump(2) + "\n");
  exchange(target, std::move(names), files);
  return result;
}

CanonicalModel read_hf_folder(const std::string& folder) {
  const std::string config_path = folder + "/" + kConfig;
  if (has_unfinished_changes(folder, kConfig))
    throw FormatError(folder + ": not a whole model" + trainer::killed_conversion(folder));
  const json config = read_json(config_path);
  const auto said = config.find("model_type");
  const std::string type =
      said != config.end() && said->is_string() ? said->get<std::string>() : "";
  const Family* family = find_family(type);
  if (family == nullptr)
    throw FormatError(config_path + ": model_type \"" + type + "\" is not supported");
  CanonicalModel model;
  try {
    model.spec = read_config(*family, config);
    model.training_note = training_note(*family, config, model.spec);
  } catch (const FormatError& e) {
    throw FormatError(config_path + ": " + e.what());
  } catch (const json::exception& e) {
    throw FormatError(config_path + ": a key has a value of another kind than it should");
  }
  if (!model.training_note.empty()) model.training_note = config_path + ": " + model.training_note;
  std::map<std::string, TensorSource> tensors;
  for (const std::string& file : weight_files(folder)) add_file(folder + "/" + file, tensors);
  try {
    untie_if_different(*family, tensors, model);
    model.tensors = import_tensors(*family, model.spec, tensors);
    model.dtype = named_dtype(config, model);
    if (model.dtype.empty()) model.dtype = dtype_of_most(model);
    check_complete(model);
  } catch (const FormatError& e) {
    const std::string what = e.what();
    throw FormatError(what.starts_with(folder) ? what : folder + ": " + what);
  }
  return model;
}

}  // namespace convert
