// SPDX-License-Identifier: MIT
// Room: tools/report. The page's sections about datasets.
#include <algorithm>

#include "tools/cli/text.h"
#include "tools/draw/chart.h"
#include "tools/report/page.h"

namespace report {
namespace {

using cli::concat;
using cli::with_commas;
using draw::escape_html;

// A row of a picture of counts: a name, the count, and a bar beside the largest one's.
std::vector<std::string> bar_row(const std::string& name, int64_t count, int64_t most) {
  return {name, with_commas(count),
          concat("<i style=\"width:",
                 draw::short_number(100.0 * static_cast<double>(count) /
                                    static_cast<double>(std::max<int64_t>(most, 1))),
                 "%\"></i>")};
}

// The table of bar_row's rows.
std::string bars(const std::string& label, const std::vector<std::string>& head,
                 const std::vector<std::vector<std::string>>& rows) {
  std::string out = table(label, head, rows);
  // The bars are pictures of the numbers beside them: nothing to read aloud.
  const std::string plain = "<td><i ", bar = "<td class=\"bar\" aria-hidden=\"true\"><i ";
  for (size_t at = 0; (at = out.find(plain, at)) != std::string::npos; at += bar.size())
    out.replace(at, plain.size(), bar);
  return out;
}

std::string lengths(const DatasetFacts& facts) {
  const dataset::LengthCounts& counts = facts.lengths;
  std::vector<std::vector<std::string>> rows;
  int64_t most = 0;
  for (int64_t i = 0; i < counts.bins(); ++i) most = std::max(most, counts.bin(i).documents);
  for (int64_t i = 0; i < counts.bins(); ++i) {
    const auto [begin, end, documents] = counts.bin(i);
    rows.push_back(bar_row(
        begin == end ? with_commas(begin) : concat(with_commas(begin), " to ", with_commas(end)),
        documents, most));
  }
  if (rows.empty()) return "";
  return concat("<h3>Length of documents</h3><p>Tokens: least ", with_commas(counts.least()),
                ", median ", with_commas(counts.percentile(0.5)), ", 90% ",
                with_commas(counts.percentile(0.9)), ", 99% ", with_commas(counts.percentile(0.99)),
                ", most ", with_commas(counts.most()), ".</p>",
                bars("Length of documents", {"tokens", "documents", ""}, rows));
}

std::string sources(const DatasetFacts& facts) {
  if (facts.sources.empty()) return "";
  constexpr size_t kMost = 20;
  std::vector<std::vector<std::string>> rows;
  int64_t rest = 0;
  for (size_t i = 0; i < facts.sources.size(); ++i) {
    if (i < kMost)
      rows.push_back(bar_row(escape_html(facts.sources[i].path), facts.sources[i].documents,
                             facts.sources[0].documents));
    else
      rest += facts.sources[i].documents;
  }
  if (rest > 0)
    rows.push_back({concat(facts.sources.size() - kMost, " more files"), with_commas(rest), ""});
  return "<h3>Where documents come from</h3>" +
         bars("Where documents come from", {"file", "documents", ""}, rows);
}

std::string samples(const DatasetFacts& facts) {
  if (facts.samples.empty()) return "";
  std::string out = "<h3>Some documents</h3>\n";
  for (const Sample& sample : facts.samples) {
    std::string text;
    for (size_t at = 0; at <= sample.text.size();) {  // line ends and tabs stay
      const size_t end = std::min(sample.text.find_first_of("\n\t", at), sample.text.size());
      text += escape_html(std::string_view(sample.text).substr(at, end - at));
      if (end < sample.text.size()) text += sample.text[end];
      at = end + 1;
    }
    out += concat("<p>Document ", with_commas(sample.document), ", ",
                  cli::counted(sample.tokens, "token"),
                  sample.source.empty() ? "" : concat(", ", escape_html(sample.source)),
                  ":</p><pre tabindex=\"0\">", text, "</pre>\n");
  }
  return out;
}

std::string facts_table(const DatasetFacts& facts) {
  std::vector<std::vector<std::string>> rows = {
      {"documents", with_commas(facts.documents)},
      {"tokens", with_commas(facts.tokens)},
      {"of them a document, mean", facts.documents == 0
                                       ? "\u2013"
                                       : draw::short_number(static_cast<double>(facts.tokens) /
                                                            static_cast<double>(facts.documents))},
      {"sequences", with_commas(facts.sequences)},
      {"empty documents", with_commas(facts.empty_documents)}};
  if (facts.repeated >= 0) rows.push_back({"equal to an earlier one", with_commas(facts.repeated)});
  rows.push_back({"token bytes", concat(cli::readable_bytes(static_cast<double>(facts.bin_bytes)),
                                        ", ", escape_html(facts.dtype))});
  if (!facts.tokenizer.empty()) rows.push_back({"tokenizer", escape_html(facts.tokenizer)});
  if (!facts.tool.empty()) rows.push_back({"made by", escape_html(facts.tool)});
  return table("The dataset in numbers", {}, rows);
}

}  // namespace

std::string dataset_sections(const std::vector<DatasetFacts>& datasets) {
  std::string out;
  for (const DatasetFacts& facts : datasets)
    out += concat("<section><h2>Dataset ", escape_html(facts.prefix), "</h2>\n", facts_table(facts),
                  lengths(facts), sources(facts), samples(facts), "</section>\n");
  return out;
}

}  // namespace report
