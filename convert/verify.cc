// SPDX-License-Identifier: MIT
// verify.h: tokens from the folder's own files, two forward passes, the report.
#include "convert/verify.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convert/hf_folder.h"
#include "convert/plain_forward.h"
#include "convert/tokenizer_files.h"
#include "libindexed/format.h"
#include "libindexed/output_file.h"
#include "libtok/tokenizer.h"

namespace convert {
namespace {

// Enough to detect a difference; the logits of a long text would take much memory.
constexpr int64_t kMostTokens = 512;

std::vector<int32_t> tokenize(const std::string& folder, const std::string& text) {
  namespace fs = std::filesystem;
  if (!fs::exists(folder + "/tokenizer.json") && !fs::exists(folder + "/vocab.json"))
    throw indexed::FormatError(folder +
                               ": no tokenizer.json, so --verify cannot read its text: "
                               "give --vocab-file and --merge-file, or --tokenizer");
  try {
    return tok::Tokenizer::from_folder(folder_reader(folder)).encode(text);
  } catch (const tok::ParseError& error) {
    throw indexed::FormatError(folder + ": " + error.what());
  }
}

// Rounding that a change of the weights' dtype explains, relative to the largest logit. In fp32 the
// two ways differ only in the order of sums.
double allowed(const std::string& from, const std::string& to) {
  if (from == to) return 1e-4;
  return to == "F16" || from == "F16" ? 2e-2 : to == "BF16" || from == "BF16" ? 1e-1 : 1e-4;
}

}  // namespace

VerifyReport verify_folder(const CanonicalModel& model, const std::string& folder,
                           const std::string& text) {
  VerifyReport report;
  report.text = text;
  const CanonicalModel written = read_hf_folder(folder);
  std::vector<int32_t> tokens = tokenize(folder, text);
  const int64_t most = std::min<int64_t>(kMostTokens, written.spec.max_position_embeddings);
  if (static_cast<int64_t>(tokens.size()) > most) tokens.resize(static_cast<size_t>(most));
  const std::vector<float> a = plain_forward(model, tokens, QkvRoad::fused);
  const std::vector<float> b = plain_forward(written, tokens, QkvRoad::apart);
  report.tokens = static_cast<int64_t>(tokens.size());
  report.vocab_size = written.spec.padded_vocab_size;
  double sum = 0;
  bool finite = true;
  const size_t width = static_cast<size_t>(report.vocab_size);
  for (size_t row = 0; row < tokens.size(); ++row) {
    double worst = 0;
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      finite = finite && std::isfinite(difference);
      worst = std::max(worst, difference);
      sum += difference;
      report.largest_logit = std::max(report.largest_logit, std::abs(static_cast<double>(a[i])));
    }
    const auto first = [&](const std::vector<float>& logits) {
      const float* begin = logits.data() + row * width;
      return std::max_element(begin, begin + width) - begin;
    };
    report.equal_choices += first(a) == first(b);
    report.by_position.push_back(worst);
    report.largest_difference = std::max(report.largest_difference, worst);
  }
  report.mean_difference = sum / static_cast<double>(a.size());
  report.bound = allowed(model.dtype, written.dtype) * std::max(1.0, report.largest_logit);
  report.equal = finite && report.largest_difference <= report.bound;
  return report;
}

std::string VerifyReport::summary() const {
  std::ostringstream out;
  out << (equal ? "verified: " : "models differ: ") << "largest difference of logits "
      << largest_difference << " (allowed " << bound << "), mean " << mean_difference << ", over "
      << tokens << " tokens; the same token comes first at " << equal_choices << " of them";
  return out.str();
}

void VerifyReport::write(const std::string& path, bool replace) const {
  nlohmann::ordered_json out;
  out["equal"] = equal;
  out["largest_difference"] = largest_difference;
  out["allowed"] = bound;
  out["mean_difference"] = mean_difference;
  out["largest_logit"] = largest_logit;
  out["tokens"] = tokens;
  out["equal_choices"] = equal_choices;
  out["vocab_size"] = vocab_size;
  out["difference_by_position"] = by_position;
  out["text"] = text;
  indexed::OutputFile file(path, replace ? indexed::Existing::replace : indexed::Existing::refuse);
  file.write(out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  file.commit();
}

}  // namespace convert
