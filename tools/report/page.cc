// SPDX-License-Identifier: MIT
// Room: tools/report. The page's frame, style and script; see page.h. Without the script nothing is
// missing but the line that tells the values under the pointer. The page is well-formed XML, too:
// that is how its test finds what was not escaped.
#include "tools/report/page.h"

#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "tools/draw/chart.h"

namespace report {
namespace {

constexpr std::string_view kStyle = R"(
body{margin:0 auto;max-width:84rem;padding:1rem;background:var(--page);color:var(--text);
font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;margin:.2em 0}h2{font-size:1.25rem;margin:1.6em 0 .5em}
h3{font-size:1rem;margin:1em 0 0}figcaption h3{margin:0}
p,figure,dl{margin:.4em 0}.faint,footer{color:var(--faint)}
.grid{display:grid;gap:1.5rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr))}
figure{min-width:0;break-inside:avoid}
.legend{display:flex;flex-wrap:wrap;gap:0 1em;font-size:.85rem;padding:0;margin:0;list-style:none}
.key{display:inline-block;width:2em;height:.7em;vertical-align:middle}
.key path{stroke:var(--color);stroke-width:2;stroke-dasharray:var(--dash);fill:none}
.key.dotted path{stroke-dasharray:1 3;stroke-linecap:round}
output{display:block;min-height:1.5em;font-size:.85rem;color:var(--faint)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:left;padding:.15em 1em .15em 0;vertical-align:top;border-bottom:1px solid
var(--line);overflow-wrap:normal}
td{font-variant-numeric:tabular-nums}thead th{white-space:nowrap}
summary{cursor:pointer;color:var(--faint);font-size:.85rem}
.bar{min-width:8rem;width:40%}.bar i{display:block;height:.8em;margin-top:.35em;
background:var(--c0);print-color-adjust:exact;-webkit-print-color-adjust:exact}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem;margin:.2em 0 1em;padding:.5em;
border:1px solid var(--line);max-height:20em;overflow-y:auto}
:focus-visible{outline:2px solid var(--c0)}
@media print{details:not([open]),output{display:none}pre{max-height:none}.wide{overflow:visible}
th,td{overflow-wrap:anywhere}thead th{white-space:normal}tr,li{break-inside:avoid}
h2,h3{break-after:avoid}}
)";

// Tells, below a picture, the values nearest to the pointer. A series' data-values are triples: the
// place on the picture, x and y.
constexpr std::string_view kScript = R"(
for (const svg of document.querySelectorAll("svg.chart")) {
  const out = svg.parentElement.querySelector("output");
  const series = [...svg.querySelectorAll("g[data-values]")].map(g => ({name: g.dataset.name,
    points: g.dataset.values.split(" ").map(v => v.split(","))}));
  svg.addEventListener("pointermove", event => {
    const at = (event.clientX - svg.getBoundingClientRect().left) *
      svg.viewBox.baseVal.width / svg.clientWidth;
    const near = s => s.points.reduce((a, b) => Math.abs(a[0] - at) > Math.abs(b[0] - at) ? b : a);
    out.textContent = series.map(s => s.name + " at " + near(s).slice(1).join(": ")).join("; ");
  });
  svg.addEventListener("pointerleave", () => { out.textContent = ""; });
}
)";

}  // namespace

std::string table(const std::string& label, const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows) {
  std::string out = cli::concat("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"",
                                draw::escape_html(label), "\"><table>");
  if (!head.empty()) {
    out += "<thead><tr>";
    for (const std::string& cell : head)
      out += cell.empty() ? "<td></td>" : cli::concat("<th scope=\"col\">", cell, "</th>");
    out += "</tr></thead>";
  }
  out += "<tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      out += i == 0 ? cli::concat("<th scope=\"row\">", row[i], "</th>")
                    : cli::concat("<td>", row[i], "</td>");
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string page(const std::string& title, const std::vector<Run>& runs,
                 const std::vector<DatasetFacts>& datasets) {
  const std::string name = draw::escape_html(title);
  return cli::concat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n<title>",
      name, "</title>\n<style>", draw::chart_style(), kStyle, "</style></head>\n<body><header><h1>",
      name, "</h1></header><main>\n", run_sections(runs), dataset_sections(datasets),
      "</main><footer><p>Made by gristmill ", cli::version(), ".</p></footer>\n<script>", kScript,
      "</script></body></html>\n");
}

}  // namespace report
