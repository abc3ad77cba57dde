// Cards as JSON. One visitor lists the fields for both directions.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "tools/cli/json_once.h"
#include "tools/cli/text.h"
#include "trainer/planning/card.h"
#include "trainer/planning/times.h"

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
/// What copy engines make.
constexpr std::pair<const char*, Transfer> kCopied[] = {
    {"all_reduce", Transfer::all_reduce},
    {"reduce_scatter", Transfer::reduce_scatter},
    {"all_gather", Transfer::all_gather}};
constexpr std::pair<const char*, Transfer> kTransfers[] = {
    {"all_reduce", Transfer::all_reduce},
    {"reduce_scatter", Transfer::reduce_scatter},
    {"all_gather", Transfer::all_gather},
    {"broadcast", Transfer::broadcast},
    {"send", Transfer::send}};

// 1 has no power_limit, 2 no rows of FP8's scales, 3 nothing of copy engines.
constexpr int kFormat = 4, kOldest = 1, kFirstOfPower = 2, kFirstOfCopies = 4;

/// What the numbers of a card are divided by, and so what they must not be below: far below every
/// device's, and far above what makes a time infinite.
constexpr double kLeast = 1e-6;

/// Numbers from `least` to `most`; 0 is permitted, too, if `zero`.
struct Range {
  double least = kLeast, most = 0;
  bool zero = false;
};
constexpr Range up_to(double most) { return {.most = most}; }
constexpr Range from_zero(double most) { return {.least = 0, .most = most, .zero = true}; }

template <class Card, class Visit>
void visit_numbers(Card& c, Visit visit) {
  visit("memory_gib", c.memory_gib, up_to(1e5));
  visit("watts", c.watts, up_to(1e5));
  visit("watts_waiting", c.watts_waiting, up_to(1e5));
  visit("peak_tflops", c.peak_tflops, up_to(1e6));
  visit("memory_tb_per_s", c.memory_tb_per_s, up_to(1e4));
  visit("launch_us", c.launch_us, from_zero(1e6));
  visit("power_limit", c.power_limit, Range{.most = 10, .zero = true});
  visit("fp32_share", c.fp32_share, up_to(1));
  visit("host_gb_per_s", c.host_gb_per_s, up_to(1e5));
  visit("link_gb_per_s", c.link_gb_per_s, up_to(1e5));
  visit("link_us", c.link_us, from_zero(1e6));
  visit("network_gb_per_s", c.network_gb_per_s, up_to(1e5));
  visit("network_us", c.network_us, from_zero(1e6));
  visit("hidden_cost", c.hidden_cost, from_zero(10));
  visit("hidden_copy_cost", c.hidden_copy_cost, from_zero(10));
  visit("context_gib", c.context_gib, from_zero(1e4));
  visit("group_gib", c.group_gib, from_zero(1e4));
  visit("message_gib", c.message_gib, from_zero(1e4));
  visit("tensor_gib", c.tensor_gib, from_zero(1e4));
  visit("peer_gib", c.peer_gib, from_zero(1e4));
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
  double number(const char* key, const Range& range) {
    const Json& value = at(key);
    if (!value.is_number()) fail(key, concat(shown(value), " is not a number"));
    const double x = value.get<double>();
    const bool within = x >= range.least && x <= range.most;
    if (!within && !(x == 0 && range.zero))
      fail(key, concat(shown(value), ": expected ", range.zero && range.least > 0 ? "0, or " : "",
                       range.least, " to ", range.most));
    return x;
  }
  int64_t integer(const char* key, int64_t least) {
    constexpr int64_t kMost = int64_t{1} << 40;
    const Json& value = at(key);
    if (!value.is_number_integer() || value.get<int64_t>() < least || value.get<int64_t>() > kMost)
      fail(key, concat(shown(value), ": expected a whole number from ", least, " to ", kMost));
    return value.get<int64_t>();
  }
  std::string text(const char* key) {
    const Json& value = at(key);
    if (!value.is_string()) fail(key, concat(shown(value), " is no text"));
    return value.get<std::string>();
  }
  bool truth(const char* key) {
    const Json& value = at(key);
    if (!value.is_boolean()) fail(key, concat(shown(value), ": expected true or false"));
    return value.get<bool>();
  }
  template <class E, size_t n>
  E word(const char* key, const std::pair<const char*, E> (&words)[n]) {
    const std::string found = text(key);
    std::vector<std::string> names;
    for (const auto& [name, value] : words) {
      if (found == name) return value;
      names.emplace_back(name);
    }
    fail(key, concat(cli::quote(found), ": expected one of ", cli::join(names, ", ")));
  }
  std::string one_of(const char* key, const std::vector<std::string>& names) {
    const std::string found = text(key);
    if (std::ranges::find(names, found) != names.end()) return found;
    fail(key, concat(cli::quote(found), ": expected one of ", cli::join(names, ", ")));
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
  /// A value for a message, at most its beginning.
  static std::string shown(const Json& value) {
    constexpr size_t kMost = 60;
    const std::string text = value.dump();
    return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
  }

  const Json& object_;
  std::string where_;
  std::set<std::string> known_;
};

constexpr Range kTflops = up_to(1e6), kRate = up_to(1e5), kMib = up_to(1e7);

ProductRate read_product(Reader& r) {
  return {.kind = r.word("kind", kProducts),
          .rows = r.integer("rows", 1),
          .outputs = r.integer("outputs", 1),
          .inputs = r.integer("inputs", 1),
          .tflops = r.number("tflops", kTflops)};
}

AttentionRate read_attention(Reader& r) {
  return {.head_size = r.integer("head_size", 1),
          .length = r.integer("length", 1),
          .heads = r.integer("heads", 1),
          .forward_tflops = r.number("forward_tflops", kTflops),
          .backward_tflops = r.number("backward_tflops", kTflops)};
}

PassRate read_pass(Reader& r) {
  return {.operation = r.one_of("operation", pass_operations()),
          .mib = r.number("mib", kMib),
          .tb_per_s = r.number("tb_per_s", kRate)};
}

template <const auto& kinds>
TransferRate read_transfer(Reader& r) {
  return {.kind = r.word("kind", kinds),
          .ranks = r.integer("ranks", 2),
          .mib = r.number("mib", kMib),
          .gb_per_s = r.number("gb_per_s", kRate)};
}

// Four digits are more than the precision of a measurement.
double rounded(double x) {
  if (x == 0) return 0;
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(x))));
  return std::round(x * scale) / scale;
}

std::vector<Json> rows_of(const std::vector<TransferRate>& transfers) {
  std::vector<Json> rows;
  for (const TransferRate& t : transfers)
    rows.push_back({{"kind", name_of(t.kind)},
                    {"ranks", t.ranks},
                    {"mib", rounded(t.mib)},
                    {"gb_per_s", rounded(t.gb_per_s)}});
  return rows;
}

int64_t first_format_of(std::string_view key) {
  if (key == "power_limit") return kFirstOfPower;
  return key == "hidden_copy_cost" || key == "peer_gib" ? kFirstOfCopies : kOldest;
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
    json = cli::parse_once<Json>(text);
  } catch (const cli::TwiceError& error) {
    throw std::runtime_error(concat(path, ": ", error.what(), " stands there twice"));
  } catch (const Json::parse_error& error) {
    throw std::runtime_error(concat(path, ": byte ", error.byte, ": no JSON"));
  } catch (const Json::out_of_range&) {
    throw std::runtime_error(concat(path, ": has a number beyond 1.8e+308"));
  }
  Reader r(json, path);
  const int64_t format = r.integer("gristmill_card", 0);
  if (format < kOldest || format > kFormat)
    r.fail("gristmill_card", concat(format, ": this program reads ", kOldest, " to ", kFormat));
  Card c;
  c.name = r.text("name");
  c.product = r.text("product");
  c.source = r.text("source");
  c.measured = r.truth("measured");
  c.measured_transfers = r.truth("measured_transfers");
  c.multiprocessors = r.integer("multiprocessors", 0);
  visit_numbers(c, [&](const char* key, double& field, const Range& range) {
    if (format >= first_format_of(key)) field = r.number(key, range);
  });
  if (format < kFirstOfCopies) assume_copies(c);
  c.products = r.rows<ProductRate>("products", read_product);
  c.attention = r.rows<AttentionRate>("attention", read_attention);
  c.passes = r.rows<PassRate>("passes", read_pass);
  c.transfers = r.rows<TransferRate>("transfers", read_transfer<kTransfers>);
  if (format >= kFirstOfCopies) c.copies = r.rows<TransferRate>("copies", read_transfer<kCopied>);
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
      c, [&](const char* key, const double& field, const Range&) { head[key] = rounded(field); });
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
  add_rows(text, "transfers", rows_of(c.transfers), false);
  add_rows(text, "copies", rows_of(c.copies), true);
  return text + "}\n";
}

}  // namespace trainer
