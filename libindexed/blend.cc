// SPDX-License-Identifier: MIT
// Grammar and rounding of blends. std::nearbyint rounds halves to even, as Python's round() does.
#include "libindexed/blend.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "libindexed/json.h"
#include "libindexed/mapped_file.h"
#include "libindexed/message.h"

namespace indexed {
namespace {

constexpr std::string_view kSpace = " \t\n\r\f\v";

std::string_view strip(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Python's float(text): white space around, a sign, digits with single underscores between them,
// inf and nan.
std::optional<double> python_number(std::string_view text) {
  text = strip(text);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t k) {
      return k < text.size() && std::isdigit(static_cast<unsigned char>(text[k]));
    };
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return std::nullopt;
    }
  }
  std::string_view rest = digits;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || (digits[0] == '+' && rest[0] == '-') ||
      rest.find('(') != std::string_view::npos) {
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(digits.c_str(), nullptr);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(kSpace); at != std::string_view::npos;
       at = text.find_first_not_of(kSpace, at)) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

double pairwise_sum(const double* values, size_t n) noexcept {
  if (n < 8) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += values[i];
    return sum;
  }
  if (n <= 128) {
    double r[8];
    std::copy_n(values, 8, r);
    size_t i = 8;
    for (; i + 8 <= n; i += 8) {
      for (size_t k = 0; k < 8; ++k) r[k] += values[i + k];
    }
    double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; ++i) sum += values[i];
    return sum;
  }
  const size_t half = n / 2 / 8 * 8;
  return pairwise_sum(values, half) + pairwise_sum(values + half, n - half);
}

int64_t round_half_even(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

std::vector<double> numbers_in(const std::string& split) {
  std::vector<double> numbers;
  constexpr std::string_view kCharacters = ".0123456789";
  for (size_t at = split.find_first_of(kCharacters); at != std::string::npos;
       at = split.find_first_of(kCharacters, at)) {
    const size_t end = std::min(split.find_first_not_of(kCharacters, at), split.size());
    const std::optional<double> number =
        python_number(std::string_view(split).substr(at, end - at));
    if (!number)
      throw FormatError(
          message("split \"", split, "\": \"", split.substr(at, end - at), "\" is not a number"));
    numbers.push_back(*number);
    at = end;
  }
  return numbers;
}

// The rule of 2023: divided at commas, else at slashes; missing parts are 0, further ones dropped.
std::array<std::optional<SequenceRange>, 3> split_ranges_2023(const std::string& split,
                                                              int64_t num_sequences) {
  const char divider = split.find(',') != std::string::npos ? ',' : '/';
  std::array<double, 3> parts{};
  size_t at = 0;
  for (double& part : parts) {
    if (at > split.size()) break;
    const size_t end = std::min(split.find(divider, at), split.size());
    const std::optional<double> number =
        python_number(std::string_view(split).substr(at, end - at));
    if (!number)
      throw FormatError(message("split \"", split, "\": expected numbers divided by commas"));
    part = *number;
    at = end + 1;
  }
  const double sum = (parts[0] + parts[1]) + parts[2];
  if (!(sum > 0)) throw FormatError(message("split \"", split, "\": the parts sum to nothing"));
  std::array<int64_t, 4> edges{};
  for (size_t i = 0; i < 3; ++i) {
    edges[i + 1] = edges[i] + round_half_even(parts[i] / sum * static_cast<double>(num_sequences));
  }
  const int64_t excess = edges[3] - num_sequences;
  std::array<std::optional<SequenceRange>, 3> ranges;
  for (size_t i = 1; i < 4; ++i) edges[i] -= excess;
  for (size_t i = 0; i < 3; ++i) {
    if (edges[i + 1] > edges[i]) ranges[i] = SequenceRange{edges[i], edges[i + 1]};
  }
  return ranges;
}

}  // namespace

Blend parse_blend(std::span<const std::string> words, Compat compat) {
  Blend blend;
  if (words.empty()) throw FormatError("no dataset is named");
  const bool pairs = words.size() % 2 == 0;
  size_t numbers = 0;  // number of leading pairs that begin with a number
  size_t later_numbers = 0;
  for (size_t i = 0; pairs && i < words.size(); i += 2) {
    const bool number = python_number(words[i]).has_value();
    if (number && numbers == i / 2)
      ++numbers;
    else if (number)
      ++later_numbers;
  }
  if (later_numbers > 0) {
    throw FormatError(message(
        "\"", words[2 * numbers],
        "\" stands where a weight is expected: either every dataset has one before it or none"));
  }
  const bool weighted = pairs && numbers == words.size() / 2;
  if (!weighted && compat == Compat::fork_2023 && words.size() > 1) {
    throw FormatError("expected one dataset, or weight and dataset in turn");
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (weighted && i % 2 == 0) {
      const double weight = *python_number(words[i]);
      if (!(weight > 0) || std::isinf(weight)) {
        throw FormatError(
            message("weight ", words[i], " of ", words[i + 1], ", expected a number above 0"));
      }
      blend.weights.push_back(weight);
    } else {
      blend.prefixes.emplace_back(strip(words[i]));
    }
  }
  return blend;
}

void refuse_stray_weights(const Blend& blend) {
  if (!blend.weights.empty() || blend.prefixes.size() < 2) return;
  for (const std::string& word : blend.prefixes)
    if (python_number(word) && !std::filesystem::exists(word + ".idx"))
      throw FormatError(message("\"", word, "\" stands where a dataset is expected, and ", word,
                                ".idx does not exist: either every dataset has a weight before it "
                                "or none"));
}

std::vector<std::string> read_blend_words(const std::string& path) {
  return split_words(read_text(path));
}

std::array<std::vector<std::string>, 3> read_blend_words_per_split(const std::string& path) {
  const Json json = Json::parse(read_text(path), path);
  std::array<std::vector<std::string>, 3> words;
  for (size_t i = 0; i < 3; ++i) {
    const Json* value = json.find(kSplitNames[i]);
    if (value == nullptr) throw FormatError(message(path, ": \"", kSplitNames[i], "\" is missing"));
    if (value->is_null()) continue;
    if (const std::string* text = value->string()) {
      words[i] = split_words(*text);
      continue;
    }
    if (value->array() == nullptr) {
      throw FormatError(
          message(path, ": \"", kSplitNames[i], "\" is neither list nor string nor null"));
    }
    for (const Json& word : *value->array()) {
      words[i].push_back(word.string() != nullptr ? *word.string() : word.dump(0));
    }
  }
  return words;
}

double numpy_sum(std::span<const double> values) noexcept {
  return values.empty() ? 0 : pairwise_sum(values.data(), values.size());
}

std::vector<double> normalize(std::span<const double> values) {
  const double sum = numpy_sum(values);
  std::vector<double> out(values.begin(), values.end());
  for (double& value : out) value /= sum;
  return out;
}

SplitMatrix parse_split(const std::string& split) {
  std::vector<double> numbers = numbers_in(split);
  if (numbers.size() > 3)
    throw FormatError(message("split \"", split, "\": more than three parts"));
  numbers.resize(3);
  numbers = normalize(numbers);
  if (!(numbers[0] >= 0))
    throw FormatError(message("split \"", split, "\": the parts sum to nothing"));
  SplitMatrix matrix;
  double edge = 0;
  for (size_t i = 0; i < 3; ++i) {
    const double next = edge + numbers[i];
    if (next > edge) matrix[i] = SplitFraction{edge, next};
    edge = next;
  }
  return matrix;
}

std::array<std::optional<SequenceRange>, 3> split_ranges(const std::string& split,
                                                         int64_t num_sequences, Compat compat) {
  if (compat == Compat::fork_2023) return split_ranges_2023(split, num_sequences);
  const SplitMatrix matrix = parse_split(split);
  std::array<std::optional<SequenceRange>, 3> ranges;
  const auto n = static_cast<double>(num_sequences);
  for (size_t i = 0; i < 3; ++i) {
    if (matrix[i])
      ranges[i] =
          SequenceRange{round_half_even(matrix[i]->begin * n), round_half_even(matrix[i]->end * n)};
  }
  return ranges;
}

BlendSizes blend_sizes(std::span<const double> normalized_weights, int64_t size, double surplus,
                       Compat compat) {
  constexpr double kTooMany = 0x1p63;
  BlendSizes sizes;
  double total = 0;
  for (const double weight : normalized_weights) {
    const double share = static_cast<double>(size) * weight;
    const bool old = compat == Compat::fork_2023;
    const double take = old ? std::ceil(share * 1.005) : std::ceil(share);
    const double prepare = old ? take : std::ceil(take * (1 + surplus));
    total += prepare;
    if (!(total < kTooMany))
      throw FormatError(message(size, " samples with a surplus of ", surplus, " are too many"));
    sizes.take.push_back(static_cast<int64_t>(take));
    sizes.prepare.push_back(static_cast<int64_t>(prepare));
    sizes.blend_size += sizes.take.back();
  }
  return sizes;
}

namespace {

// The product of numbers of the command line.
int64_t samples_of(int64_t iterations, int64_t per_iteration, int64_t times = 1) {
  int64_t product = 0;
  if (__builtin_mul_overflow(iterations, per_iteration, &product) ||
      __builtin_mul_overflow(product, times, &product)) {
    throw FormatError(message(iterations, " iterations of ", per_iteration, " samples",
                              times == 1 ? "" : message(", ", times, " times"), " are too many"));
  }
  return product;
}

}  // namespace

std::array<int64_t, 3> requested_samples(const RunLength& run) {
  const int64_t iterations = run.train_samples && run.global_batch_size > 0 && run.train_iters == 0
                                 ? *run.train_samples / run.global_batch_size
                                 : run.train_iters;
  const int64_t evaluations = run.eval_interval > 0 ? iterations / run.eval_interval + 1 : 1;
  const int64_t batch = run.global_batch_size;
  return {run.train_samples ? *run.train_samples : samples_of(run.train_iters, batch),
          samples_of(run.eval_iters, batch, evaluations), samples_of(run.eval_iters, batch)};
}

}  // namespace indexed
