// Cards as JSON. One visitor lists the fields for both directions.
//
// SPDX-License-Identifier: MIT
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "tools/cli/text.h"
#include "trainer/planning/card.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;
using cli::concat;
using ops::Transfer;

constexpr std::pair<const char*, ProductKind> kProducts[] = {
    {"forward", ProductKind::forward},
    {"forward_activation", ProductKind::forward_activation},
    {"input", ProductKind::input},
    {"input_slope", ProductKind::input_slope},
    {"weight", ProductKind::weight},
    {"fp8", ProductKind::fp8},
    {"fp8_weight", ProductKind::fp8_weight},
    {"fp8_rows", ProductKind::fp8_rows},
    {"fp8_rows_weight", ProductKind::fp8_rows_weight},
    {"fp8_blocks", ProductKind::fp8_blocks},
    {"fp8_blocks_weight", ProductKind::fp8_blocks_weight}};
constexpr std::pair<const char*, Transfer> kTransfers[] = {
    {"all_reduce", Transfer::all_reduce},
    {"reduce_scatter", Transfer::reduce_scatter},
    {"all_gather", Transfer::all_gather},
    {"broadcast", Transfer::broadcast},
    {"send", Transfer::send}};

constexpr int kFormat = 3, kOldest = 1;  // 1 has no power_limit, 2 no rows of FP8's scales.

/// Numbers must be in (least, most]; 0 is permitted if `zero`.
template <class Card, class Visit>
void visit_numbers(Card& c, Visit visit) {
  visit("memory_gib", c.memory_gib, 1e5, false);
  visit("watts", c.watts, 1e5, false);
  visit("watts_waiting", c.watts_waiting, 1e5, false);
  visit("peak_tflops", c.peak_tflops, 1e6, false);
  visit("memory_tb_per_s", c.memory_tb_per_s, 1e4, false);
  visit("launch_us", c.launch_us, 1e6, true);
  visit("power_limit", c.power_limit, 10, true);
  visit("fp32_share", c.fp32_share, 1, false);
  visit("host_gb_per_s", c.host_gb_per_s, 1e5, false);
  visit("link_gb_per_s", c.link_gb_per_s, 1e5, false);
  visit("link_us", c.link_us, 1e6, true);
  visit("network_gb_per_s", c.network_gb_per_s, 1e5, false);
  visit("network_us", c.network_us, 1e6, true);
  visit("hidden_cost", c.hidden_cost, 10, true);
  visit("context_gib", c.context_gib, 1e4, true);
  visit("group_gib", c.group_gib, 1e4, true);
  visit("message_gib", c.message_gib, 1e4, true);
  visit("tensor_gib", c.tensor_gib, 1e4, true);
}

/// Reads one object of the text; all its keys must be requested.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("", concat("expected an object, found ", object.type_name()));
  }
  [[noreturn]] void fail(const std::string& key, const std::string& why) const {
    throw std::runtime_error(concat(where_, key.empty() ? "" : concat(": ", key), ": ", why));
  }
  const Json& at(const char* key) {
    known_.insert(key);
    const auto found = object_.find(key);
    if (found == object_.end()) fail(key, "is missing");
    return *found;
  }
  double number(const char* key, double most, bool zero) {
    const Json& value = at(key);
    if (!value.is_number()) fail(key, concat(value.dump(), " is not a number"));
    const double x = value.get<double>();
    if (!(x <= most) || x < 0 || (x == 0 && !zero))
      fail(key, concat(value.dump(), ": expected ", zero ? "0" : "more than 0", " to ", most));
    return x;
  }
  int64_t integer(const char* key, int64_t least) {
    const Json& value = at(key);
    if (!value.is_number_integer() || value.get<int64_t>() < least ||
        value.get<int64_t>() > (int64_t{1} << 40))
      fail(key, concat(value.dump(), ": expected a whole number of at least ", least));
    return value.get<int64_t>();
  }
  std::string text(const char* key) {
    const Json& value = at(key);
    if (!value.is_string()) fail(key, concat(value.dump(), " is no text"));
    return value.get<std::string>();
  }
  bool truth(const char* key) {
    const Json& value = at(key);
    if (!value.is_boolean()) fail(key, concat(value.dump(), ": expected true or false"));
    return value.get<bool>();
  }
  template <class E, size_t n>
  E word(const char* key, const std::pair<const char*, E> (&words)[n]) {
    const std::string found = text(key);
    for (const auto& [name, value] : words)
      if (found == name) return value;
    fail(key, concat("\"", found, "\" is not known"));
  }
  /// `read` of each object in a list.
  template <class Row, class Read>
  std::vector<Row> rows(const char* key, Read read) {
    const Json& list = at(key);
    if (!list.is_array()) fail(key, concat("expected a list, found ", list.type_name()));
    std::vector<Row> out;
    for (size_t i = 0; i < list.size(); ++i) {
      Reader row(list[i], concat(where_, ": ", key, "[", i, "]"));
      out.push_back(read(row));
      row.finish();
    }
    return out;
  }
  void finish() const {
    for (const auto& [key, value] : object_.items())
      if (!known_.contains(key)) fail(key, "is not known");
  }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> known_;
};

constexpr double kMostTflops = 1e6, kMostRate = 1e5, kMostMib = 1e7;

ProductRate read_product(Reader& r) {
  return {.kind = r.word("kind", kProducts),
          .rows = r.integer("rows", 1),
          .outputs = r.integer("outputs", 1),
          .inputs = r.integer("inputs", 1),
          .tflops = r.number("tflops", kMostTflops, false)};
}

AttentionRate read_attention(Reader& r) {
  return {.head_size = r.integer("head_size", 1),
          .length = r.integer("length", 1),
          .heads = r.integer("heads", 1),
          .forward_tflops = r.number("forward_tflops", kMostTflops, false),
          .backward_tflops = r.number("backward_tflops", kMostTflops, false)};
}

PassRate read_pass(Reader& r) {
  return {.operation = r.text("operation"),
          .mib = r.number("mib", kMostMib, false),
          .tb_per_s = r.number("tb_per_s", kMostRate, false)};
}

TransferRate read_transfer(Reader& r) {
  return {.kind = r.word("kind", kTransfers),
          .ranks = r.integer("ranks", 2),
          .mib = r.number("mib", kMostMib, false),
          .gb_per_s = r.number("gb_per_s", kMostRate, false)};
}

// Four digits are more than the precision of a measurement.
double rounded(double x) {
  if (x == 0) return 0;
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(x))));
  return std::round(x * scale) / scale;
}

void add_rows(std::string& text, const char* name, const std::vector<Json>& rows, bool last) {
  text += concat("  \"", name, "\": [");
  for (size_t i = 0; i < rows.size(); ++i)
    text += concat(i == 0 ? "\n    " : ",\n    ", rows[i].dump());
  text += concat(rows.empty() ? "]" : "\n  ]", last ? "\n" : ",\n");
}

}  // namespace

const char* name_of(ProductKind kind) noexcept {
  for (const auto& [name, value] : kProducts)
    if (value == kind) return name;
  return "";
}

const char* name_of(Transfer kind) noexcept {
  for (const auto& [name, value] : kTransfers)
    if (value == kind) return name;
  return "";
}

Card parse_card(std::string_view text, const std::string& path) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw std::runtime_error(concat(path, ": byte ", error.byte, ": no JSON"));
  }
  Reader r(json, path);
  const int64_t format = r.integer("gristmill_card", 1);
  if (format < kOldest || format > kFormat)
    r.fail("gristmill_card", concat(format, ": this program reads ", kOldest, " to ", kFormat));
  Card c;
  c.name = r.text("name");
  c.product = r.text("product");
  c.source = r.text("source");
  c.measured = r.truth("measured");
  c.measured_transfers = r.truth("measured_transfers");
  c.multiprocessors = r.integer("multiprocessors", 0);
  visit_numbers(c, [&](const char* key, double& field, double most, bool zero) {
    if (format > 1 || std::string_view(key) != "power_limit") field = r.number(key, most, zero);
  });
  c.products = r.rows<ProductRate>("products", read_product);
  c.attention = r.rows<AttentionRate>("attention", read_attention);
  c.passes = r.rows<PassRate>("passes", read_pass);
  c.transfers = r.rows<TransferRate>("transfers", read_transfer);
  r.finish();
  return c;
}

std::string card_text(const Card& c) {
  Json head = {{"gristmill_card", kFormat},
               {"name", c.name},
               {"product", c.product},
               {"source", c.source},
               {"measured", c.measured},
               {"measured_transfers", c.measured_transfers},
               {"multiprocessors", c.multiprocessors}};
  visit_numbers(
      c, [&](const char* key, const double& field, double, bool) { head[key] = rounded(field); });
  std::string text = head.dump(2);
  text.resize(text.size() - 2);  // the brace and the line end before it.
  text += ",\n";
  std::vector<Json> rows;
  for (const ProductRate& p : c.products)
    rows.push_back({{"kind", name_of(p.kind)},
                    {"rows", p.rows},
                    {"outputs", p.outputs},
                    {"inputs", p.inputs},
                    {"tflops", rounded(p.tflops)}});
  add_rows(text, "products", rows, false);
  rows.clear();
  for (const AttentionRate& a : c.attention)
    rows.push_back({{"head_size", a.head_size},
                    {"length", a.length},
                    {"heads", a.heads},
                    {"forward_tflops", rounded(a.forward_tflops)},
                    {"backward_tflops", rounded(a.backward_tflops)}});
  add_rows(text, "attention", rows, false);
  rows.clear();
  for (const PassRate& p : c.passes)
    rows.push_back(
        {{"operation", p.operation}, {"mib", rounded(p.mib)}, {"tb_per_s", rounded(p.tb_per_s)}});
  add_rows(text, "passes", rows, false);
  rows.clear();
  for (const TransferRate& t : c.transfers)
    rows.push_back({{"kind", name_of(t.kind)},
                    {"ranks", t.ranks},
                    {"mib", rounded(t.mib)},
                    {"gb_per_s", rounded(t.gb_per_s)}});
  add_rows(text, "transfers", rows, true);
  return text + "}\n";
}

}  // namespace trainer
