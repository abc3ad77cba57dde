// See layout.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/layout.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>

#include <nlohmann/json.hpp>

#include "libindexed/crc32c.h"
#include "libindexed/format.h"
#include "libindexed/message.h"

namespace trainer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// A piece as rows: global row and column of its box, and which of a row's columns it has.
struct Rows {
  int64_t row = 0, rows = 1, column = 0, columns = 1;
  int64_t first = 0, count = 0;

  explicit Rows(const Piece& piece) : first(piece.first), count(piece.count) {
    if (piece.shape.size() > 2) throw indexed::FormatError("a piece has more than two dimensions");
    if (piece.shape.size() == 2) row = piece.offsets[0], rows = piece.shape[0];
    if (!piece.shape.empty()) column = piece.offsets.back(), columns = piece.shape.back();
  }

  // Global rows of which it has a part: [first_row(), last_row()).
  int64_t first_row() const { return row + first / std::max<int64_t>(columns, 1); }
  int64_t last_row() const {
    return row + (first + count + columns - 1) / std::max<int64_t>(columns, 1);
  }

  // The columns of global row `r` that it has: [begin, end), and the element number of begin.
  struct Run {
    int64_t begin = 0, end = 0, element = 0;
  };
  Run run(int64_t r) const {
    const int64_t start = (r - row) * columns;  // in the box's elements.
    const int64_t low = std::max(start, first), high = std::min(start + columns, first + count);
    return {column + low - start, column + std::max(low, high) - start, low - first};
  }
};

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  return count;
}

constexpr std::string_view kChecksumHead = "{\n \"crc32c\": \"";
constexpr size_t kChecksumDigits = 8;

// The CRC of meta.json with the digits of its own checksum read as zeros.
uint32_t meta_checksum(std::string text) {
  for (size_t i = 0; i < kChecksumDigits; ++i) text[kChecksumHead.size() + i] = '0';
  return indexed::crc32c(0, std::as_bytes(std::span(text.data(), text.size())));
}

bool is_number(const std::string& text) {
  double value = 0;
  const std::from_chars_result end = std::from_chars(text.data(), text.data() + text.size(), value);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && std::isfinite(value);
}

ordered_json texts_to_json(const std::map<std::string, std::string>& texts) {
  ordered_json out = ordered_json::object();
  for (const auto& [key, text] : texts) {
    if (is_number(text) || text == "true" || text == "false")
      out[key] = ordered_json::parse(text);
    else
      out[key] = text;
  }
  return out;
}

std::map<std::string, std::string> texts_from_json(const json& object) {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : object.items()) {
    out[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return out;
}

// The single list of RunState's fields, for reading and writing.
template <class State, class Visit>
void visit_state(State& s, Visit visit) {
  visit("iteration", s.iteration);
  visit("consumed_train_samples", s.consumed_train_samples);
  visit("consumed_valid_samples", s.consumed_valid_samples);
  visit("scheduled_samples", s.scheduled_samples);
  visit("evaluated_iteration", s.evaluated_iteration);
  visit("seed", s.seed);
  visit("loss_scale", s.loss_scale);
  visit("growth_tracker", s.growth_tracker);
  visit("hysteresis_tracker", s.hysteresis_tracker);
  visit("adam_steps", s.adam_steps);
  visit("skipped_steps", s.skipped_steps);
  visit("interval_loss_sum", s.interval_loss_sum);
  visit("interval_steps", s.interval_steps);
  visit("interval_applied", s.interval_applied);
  visit("interval_skipped", s.interval_skipped);
  visit("interval_nan", s.interval_nan);
}

ordered_json tensor_to_json(const TensorRecord& tensor) {
  ordered_json out = {{"group", tensor.group},
                      {"name", tensor.name},
                      {"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"shards", ordered_json::array()}};
  for (const ShardRecord& shard : tensor.shards) {
    ordered_json one = {{"file", shard.file},
                        {"key", shard.key},
                        {"offsets", shard.piece.offsets},
                        {"shape", shard.piece.shape}};
    if (shard.piece.count != product(shard.piece.shape)) {
      one["range"] = {shard.piece.first, shard.piece.count};
    }
    one["crc32c"] = shard.crc32c;
    out["shards"].push_back(std::move(one));
  }
  return out;
}

void check(bool good, const std::string& what) {
  if (!good) throw indexed::FormatError(what);
}

// Checks that the piece is inside the tensor and has consistent counts; later arithmetic relies on
// it.
void check_piece(const Piece& piece, const TensorRecord& tensor) {
  const std::string what = indexed::message("shard of ", tensor.group, " ", tensor.name, ": ");
  check(piece.shape.size() == tensor.shape.size() && piece.offsets.size() == tensor.shape.size(),
        what + "dimensions differ");
  int64_t elements = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    const int64_t n = piece.shape[i], whole = tensor.shape[i];
    check(n >= 0 && piece.offsets[i] >= 0 && whole >= 0 && piece.offsets[i] <= whole - n,
          what + "outside of the tensor");
    check(n == 0 || elements <= (int64_t{1} << 56) / n, what + "too large");
    elements *= n;
  }
  check(piece.first >= 0 && piece.count >= 0 && piece.first <= elements - piece.count,
        what + "range outside of the shard");
}

TensorRecord tensor_from_json(const json& object) {
  TensorRecord tensor;
  object.at("group").get_to(tensor.group);
  object.at("name").get_to(tensor.name);
  object.at("dtype").get_to(tensor.dtype);
  object.at("shape").get_to(tensor.shape);
  check(tensor.shape.size() <= 2, tensor.name + ": more than two dimensions");
  for (const json& one : object.at("shards")) {
    ShardRecord shard;
    one.at("file").get_to(shard.file);
    one.at("key").get_to(shard.key);
    check(shard.file.find('/') == std::string::npos && shard.file != "..",
          "a shard's file has a path");
    shard.piece = Piece::box(one.at("offsets"), one.at("shape"));
    if (one.contains("range")) {
      shard.piece.first = one.at("range").at(0);
      shard.piece.count = one.at("range").at(1);
    }
    one.at("crc32c").get_to(shard.crc32c);
    check_piece(shard.piece, tensor);
    tensor.shards.push_back(std::move(shard));
  }
  return tensor;
}

CheckpointMeta meta_from_json(const json& root) {
  CheckpointMeta meta;
  const int64_t format = root.at("format");
  check(format == CheckpointMeta::kFormat,
        indexed::message("format ", format, " is not known: expected ", CheckpointMeta::kFormat));
  root.at("writer").get_to(meta.writer);
  meta.run = root.value("run", "");
  meta.last_samples = root.value("last_samples", "");
  meta.next_samples = root.value("next_samples", "");
  meta.tokenizer_hash = root.value("tokenizer_hash", "");
  visit_state(meta.state,
              [&](const char* key, auto& field) { root.at("state").at(key).get_to(field); });
  root.at("has_optimizer").get_to(meta.has_optimizer);
  root.at("has_generator").get_to(meta.has_generator);
  root.at("config").get_to(meta.config);
  meta.model = texts_from_json(root.at("model"));
  meta.schedule = texts_from_json(root.at("schedule"));
  root.at("files").get_to(meta.files);
  for (const json& tensor : root.at("tensors")) meta.tensors.push_back(tensor_from_json(tensor));
  return meta;
}

}  // namespace

Piece Piece::whole(std::vector<int64_t> shape) {
  std::vector<int64_t> offsets(shape.size(), 0);
  return box(std::move(offsets), std::move(shape));
}

Piece Piece::box(std::vector<int64_t> offsets, std::vector<int64_t> shape) {
  const int64_t count = product(shape);
  return {std::move(offsets), std::move(shape), 0, count};
}

int64_t for_each_common_run(const Piece& wanted, const Piece& held,
                            const std::function<void(int64_t, int64_t, int64_t)>& copy) {
  if (wanted == held) {
    if (wanted.count > 0) copy(0, 0, wanted.count);
    return wanted.count;
  }
  if (wanted.offsets == held.offsets && wanted.shape == held.shape) {  // Ranges of one box.
    const int64_t begin = std::max(wanted.first, held.first);
    const int64_t end = std::min(wanted.first + wanted.count, held.first + held.count);
    if (begin >= end) return 0;
    copy(begin - wanted.first, begin - held.first, end - begin);
    return end - begin;
  }
  const Rows to(wanted), from(held);
  int64_t covered = 0;
  const int64_t last = std::min(to.last_row(), from.last_row());
  for (int64_t r = std::max(to.first_row(), from.first_row()); r < last; ++r) {
    const Rows::Run a = to.run(r), b = from.run(r);
    const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
    if (begin >= end) continue;
    copy(a.element + begin - a.begin, b.element + begin - b.begin, end - begin);
    covered += end - begin;
  }
  return covered;
}

const TensorRecord* CheckpointMeta::find(std::string_view group,
                                         std::string_view name) const noexcept {
  for (const TensorRecord& tensor : tensors) {
    if (tensor.name == name && tensor.group == group) return &tensor;
  }
  return nullptr;
}

std::string format_meta(const CheckpointMeta& meta) {
  ordered_json root = {{"crc32c", "00000000"},
                       {"format", CheckpointMeta::kFormat},
                       {"writer", meta.writer},
                       {"state", ordered_json::object()},
                       {"has_optimizer", meta.has_optimizer},
                       {"has_generator", meta.has_generator},
                       {"model", texts_to_json(meta.model)},
                       {"schedule", texts_to_json(meta.schedule)},
                       {"config", meta.config},
                       {"files", meta.files},
                       {"tensors", ordered_json::array()}};
  if (!meta.run.empty()) root["run"] = meta.run;
  if (!meta.last_samples.empty()) root["last_samples"] = meta.last_samples;
  if (!meta.next_samples.empty()) root["next_samples"] = meta.next_samples;
  if (!meta.tokenizer_hash.empty()) root["tokenizer_hash"] = meta.tokenizer_hash;
  visit_state(meta.state, [&](const char* key, const auto& field) { root["state"][key] = field; });
  for (const TensorRecord& tensor : meta.tensors) root["tensors"].push_back(tensor_to_json(tensor));
  // A path need not be UTF-8; what is not becomes U+FFFD.
  std::string text = root.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  const std::string digits = indexed::hex8(meta_checksum(text));
  text.replace(kChecksumHead.size(), kChecksumDigits, digits);
  return text;
}

bool begins_as_meta(std::string_view text) noexcept { return text.starts_with(kChecksumHead); }

bool is_foreign_meta(std::string_view text) noexcept {
  if (begins_as_meta(text)) return false;
  try {
    const json root = json::parse(text);
    return !root.contains("tensors") || !root.contains("files");
  } catch (const std::exception&) {
    return false;
  }
}

CheckpointMeta parse_meta(std::string_view text, const std::string& path) {
  try {
    check(text.size() > kChecksumHead.size() + kChecksumDigits && begins_as_meta(text),
          "not a checkpoint's record");
    check(text.substr(kChecksumHead.size(), kChecksumDigits) ==
              indexed::hex8(meta_checksum(std::string(text))),
          "checksum differs: damaged");
    return meta_from_json(json::parse(text));
  } catch (const indexed::FormatError& error) {
    throw indexed::FormatError(path + ": " + error.what());
  } catch (const json::exception& error) {
    throw indexed::FormatError(path + ": " + error.what());
  }
}

}  // namespace trainer
