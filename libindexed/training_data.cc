// SPDX-License-Identifier: MIT
// The builder's decision table: one dataset without a weight is used alone; with weights each
// dataset prepares a surplus and a blend draws from it; without weights each provides one epoch and
// the blend is in proportion to their lengths. The forks of 2023 blend whenever there is a weight,
// and do not have the third case.
#include "libindexed/training_data.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "libindexed/md5.h"
#include "libindexed/message.h"
#include "libindexed/output_file.h"

namespace indexed {
namespace {

namespace fs = std::filesystem;

Compat compat_of(CacheStyle style) {
  return style == CacheStyle::megatron_core ? Compat::megatron_core : Compat::fork_2023;
}

bool matches_text(const std::string& path, const std::string& text) {
  const MappedFile file(path);
  return file.bytes().size() == text.size() &&
         std::equal(text.begin(), text.end(), reinterpret_cast<const char*>(file.bytes().data()));
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Whether a cache's files exist and are newer than the index that they describe.
bool usable(const CacheFiles& files, const std::string& description, const std::string& prefix) {
  if (!exists(files.description) || !std::ranges::all_of(files.arrays, exists)) return false;
  const fs::file_time_type made = fs::last_write_time(prefix + ".idx");
  const bool newer = std::ranges::all_of(
      files.arrays, [&](const std::string& path) { return fs::last_write_time(path) >= made; });
  return newer && matches_text(files.description, description);
}

std::string cache_folder(const std::string& prefix, const TrainingDataOptions& options) {
  return options.cache_path.empty() ? default_cache_folder(prefix, options.style)
                                    : options.cache_path;
}

FormatError no_whole_sample(const std::string& prefix, size_t split,
                            const TrainingDataOptions& options) {
  return FormatError(message(prefix, ".idx: gives no whole sample of ", options.seq_length,
                             " tokens to the ", kSplitNames[split], " split"));
}

// Errors: an exception where a file is incomplete, or not of this data.
SampleIndex load_index(const CacheFiles& files, const IndexedDataset& dataset, SequenceRange range,
                       const EpochPlan& plan, const SampleIndexOptions& options) {
  SampleIndex index =
      SampleIndex::adopt(IndexArray::open(files.arrays[0]), IndexArray::open(files.arrays[1]),
                         IndexArray::open(files.arrays[2]), dataset, options, files.description);
  if (!index.fits(dataset, range, plan, options))
    throw FormatError(message(files.description, ": of other data"));
  return index;
}

}  // namespace

// Source: GPT-NeoX, megatron/data/data_utils.py and gpt2_dataset.py. Its split and blend are
// Megatron's of 2023 (compat_of), and it shuffles all epochs together.
void use_neox_order(TrainingDataOptions& options) {
  if (!is_neox(options.style)) options.style = CacheStyle::gpt_neox;
  for (std::vector<std::string>& words : options.split_data_path) {
    if (words.empty() || !parse_blend(words).weights.empty()) continue;
    std::vector<std::string> weighted;
    for (std::string& prefix : words) {
      weighted.emplace_back("1");
      weighted.push_back(std::move(prefix));
    }
    words = std::move(weighted);
  }
}

size_t TrainingData::open_dataset(const std::string& prefix, const TrainingDataOptions& options) {
  for (size_t i = 0; i < datasets_.size(); ++i) {
    if (datasets_[i].prefix() == prefix) return i;
  }
  datasets_.push_back(IndexedDataset::open(prefix, options.open));
  refuse_floats(datasets_.back());
  return datasets_.size() - 1;
}

SplitMember TrainingData::build_member(size_t split, const std::string& prefix,
                                       std::optional<SequenceRange> range,
                                       std::optional<int64_t> num_samples,
                                       std::optional<int64_t> own_place,
                                       const TrainingDataOptions& options) {
  SplitMember member;
  member.dataset = open_dataset(prefix, options);
  const IndexedDataset& dataset = datasets_[member.dataset];
  if (!range || (range->begin == range->end && num_samples.value_or(0) > 0)) {
    throw FormatError(message(prefix, ".idx: ", dataset.num_sequences(),
                              " sequences leave none for the ", kSplitNames[split], " split \"",
                              options.split, "\", which is to give ", num_samples.value_or(0),
                              " samples"));
  }
  member.range = *range;
  SampleIndexOptions index_options{
      .seq_length = options.seq_length,
      .seed = static_cast<uint32_t>(options.seed),
      .num_samples = num_samples,
      .extra_token = options.extra_token,
      .drop_last_partial = split != 1 || options.drop_last_partial_validation,
      .num_epochs = split == 0 ? options.train_epochs : std::nullopt,
      .compat = compat_of(options.style),
      .separate_last_epoch = !is_neox(options.style),
      .split = kSplitNames[split]};
  const EpochPlan plan = plan_epochs(dataset, *range, index_options);
  // Megatron writes empty arrays, also for evaluation, where they can be meant.
  if (split == 0 && plan.num_samples == 0 && num_samples.value_or(1) > 0)
    throw no_whole_sample(prefix, split, options);
  member.identity = {.prefix = prefix,
                     .num_samples = num_samples,
                     .split = static_cast<int64_t>(split),
                     .seed = options.seed,
                     .seq_length = options.seq_length,
                     .split_string = own_place ? std::nullopt : std::optional(options.split),
                     .own_place = own_place,
                     .num_epochs = plan.num_epochs,
                     .tokenizer = options.tokenizer};
  member.description = description_text(member.identity, options.style);
  member.hash = md5_hex(member.description);
  const CacheFiles files = is_neox(options.style)
                               ? neox_cache_files(member.identity, options.style)
                               : dataset_cache_files(cache_folder(prefix, options), member.hash,
                                                     static_cast<int64_t>(split), options.style);
  const bool reads = options.cache == CacheUse::read || options.cache == CacheUse::keep;
  if (reads && usable(files, member.description, prefix)) {
    try {
      member.index = load_index(files, dataset, *range, plan, index_options);
      return member;
    } catch (const std::exception&) {  // incomplete or stale: ours are built instead
    }
  }
  if (options.on_build) options.on_build(message(prefix, " ", kSplitNames[split]));
  member.index = SampleIndex::build(dataset, *range, index_options);
  if (options.cache == CacheUse::write || options.cache == CacheUse::keep) {
    const IndexArray* const arrays[] = {&member.index.document_index(),
                                        &member.index.sample_index(),
                                        &member.index.shuffle_index()};
    write_cache(files, member.description, arrays);
  }
  return member;
}

void TrainingData::add_split(size_t split, const Blend& blend, bool own_path,
                             const TrainingDataOptions& options) {
  const Compat compat = compat_of(options.style);
  const std::optional<int64_t> size = options.num_samples[split];
  const bool weighted = !blend.weights.empty();
  const bool alone = blend.prefixes.size() == 1 &&
                     (own_path ? compat == Compat::megatron_core || !weighted : !weighted);
  std::vector<double> weights = weighted ? normalize(blend.weights) : std::vector<double>();
  if (weighted && compat == Compat::fork_2023) {  // summed in a plain loop there
    double sum = 0;
    for (const double weight : blend.weights) sum += weight;
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = blend.weights[i] / sum;
  }
  if (weighted && !alone && !size) throw FormatError("weights need a number of samples");
  if (split > 0 && options.skip_empty_evaluation && size == 0) return;
  if (split > 0 && !own_path && options.skip_empty_evaluation) {
    const auto has_sequences = [&](const std::string& prefix) {
      const int64_t sequences = datasets_[open_dataset(prefix, options)].num_sequences();
      const std::optional<SequenceRange> range =
          split_ranges(options.split, sequences, compat)[split];
      return range && range->begin < range->end;
    };
    if (std::ranges::none_of(blend.prefixes, has_sequences)) return;
  }
  const BlendSizes sizes =
      weighted && !alone ? blend_sizes(weights, *size, options.surplus, compat) : BlendSizes();
  SplitData data;
  for (size_t i = 0; i < blend.prefixes.size(); ++i) {
    const std::string& prefix = blend.prefixes[i];
    const int64_t sequences = datasets_[open_dataset(prefix, options)].num_sequences();
    const std::optional<SequenceRange> range =
        own_path ? std::optional(SequenceRange{0, sequences})
                 : split_ranges(options.split, sequences, compat)[split];
    if (!range && !own_path && alone) return;
    // No samples are wanted from an empty split; Megatron would loop forever here.
    if (range && range->begin == range->end && alone && size == 0) return;
    if (!range && !own_path && compat == Compat::megatron_core)
      return;  // no such split, for every dataset alike
    std::optional<int64_t> prepare = alone ? size : std::nullopt;
    if (weighted && !alone) prepare = sizes.prepare[i];
    const std::optional<int64_t> own_place =
        own_path ? std::optional(static_cast<int64_t>(i)) : std::nullopt;
    data.members_.push_back(build_member(split, prefix, range, prepare, own_place, options));
  }
  if (!alone) {
    std::optional<int64_t> blend_size = weighted ? std::optional(sizes.blend_size) : std::nullopt;
    if (!weighted) {
      int64_t total = 0;
      for (const SplitMember& member : data.members_) {
        weights.push_back(static_cast<double>(member.index.num_samples()));
        total += member.index.num_samples();
      }
      if (size) blend_size = std::min(*size, total);
    }
    build_blend_layer(data, split, std::move(weights), blend_size, !weighted, options);
  }
  splits_[split] = std::move(data);
}

void TrainingData::build_blend_layer(SplitData& data, size_t split, std::vector<double> weights,
                                     std::optional<int64_t> size, bool lengths,
                                     const TrainingDataOptions& options) {
  std::vector<DatasetIdentity> identities;
  for (size_t i = 0; i < data.members_.size(); ++i) {
    identities.push_back(data.members_[i].identity);
    if (lengths && weights[i] == 0)
      throw no_whole_sample(data.members_[i].identity.prefix, split, options);
  }
  if (size) weights = normalize(weights);
  data.weights_ = weights;
  data.description_ = blend_description(identities, weights, size, options.style);
  data.hash_ = md5_hex(data.description_);
  if (options.on_build) options.on_build(message("blend ", kSplitNames[split]));
  if (size) {
    data.blend_ = build_blend(weights, *size, compat_of(options.style));
  } else {
    std::vector<int64_t> sizes;
    for (const double weight : weights) sizes.push_back(static_cast<int64_t>(weight));
    data.blend_ = build_exhaustive_blend(sizes);
  }
  for (size_t i = 0; i < data.members_.size(); ++i) {
    const int64_t have = data.members_[i].index.num_samples();
    if (data.blend_->counts[i] > have) {
      throw FormatError(message(data.members_[i].identity.prefix, ": the ", kSplitNames[split],
                                " blend takes ", data.blend_->counts[i], " samples of ", have,
                                ": raise --mid-level-dataset-surplus above ", options.surplus));
    }
  }
  const bool writes = options.cache == CacheUse::write || options.cache == CacheUse::keep;
  if (writes && !options.cache_path.empty() && !is_neox(options.style)) {
    const IndexArray* const arrays[] = {&data.blend_->dataset_index,
                                        &data.blend_->dataset_sample_index};
    write_cache(blend_cache_files(options.cache_path, data.hash_, static_cast<int64_t>(split),
                                  options.style),
                data.description_, arrays);
  }
}

void TrainingData::write_cache(const CacheFiles& files, const std::string& description,
                               std::span<const IndexArray* const> arrays) {
  bool same = files.description.empty() ||
              (exists(files.description) && matches_text(files.description, description));
  for (size_t i = 0; i < arrays.size() && same; ++i) {
    same = exists(files.arrays[i]) && arrays[i]->equals_file(files.arrays[i]);
  }
  if (!same) {
    const fs::path folder = fs::path(files.arrays[0]).parent_path();
    if (!folder.empty()) fs::create_directories(folder);
    std::deque<OutputFile> outputs;
    std::vector<OutputFile*> set;
    for (size_t i = 0; i < arrays.size(); ++i) {
      set.push_back(&outputs.emplace_back(files.arrays[i], Existing::replace));
      arrays[i]->write(*set.back());
    }
    if (!files.description.empty()) {
      set.push_back(&outputs.emplace_back(files.description, Existing::replace));
      set.back()->write(description);
    }
    commit_set(set);
  }
  for (const std::string& path : files.arrays) cache_files_.push_back({path, !same});
  if (!files.description.empty()) cache_files_.push_back({files.description, !same});
}

TrainingData TrainingData::build(const TrainingDataOptions& options) {
  TrainingData data;
  if (options.seed < 0 || options.seed > UINT32_MAX) {
    throw FormatError(message("seed ", options.seed, ", expected 0 to 4294967295"));
  }
  if (!options.data_path.empty()) {
    const Blend blend = parse_blend(options.data_path, compat_of(options.style));
    for (size_t split = 0; split < 3; ++split) data.add_split(split, blend, false, options);
    return data;
  }
  for (size_t split = 0; split < 3; ++split) {
    if (options.split_data_path[split].empty()) continue;
    data.add_split(split, parse_blend(options.split_data_path[split], compat_of(options.style)),
                   true, options);
  }
  return data;
}

}  // namespace indexed
