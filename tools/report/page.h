// SPDX-License-Identifier: MIT
// Room: tools/report. The page: one HTML file with pictures, tables, style and a small script in
// it, which loads nothing else. Text everywhere is escaped: names, settings and documents are
// foreign.
#pragma once

#include <string>
#include <vector>

#include "tools/report/dataset_facts.h"
#include "tools/report/run.h"

namespace report {

/// The whole page. Equal contents give equal bytes.
std::string page(const std::string& title, const std::vector<Run>& runs,
                 const std::vector<DatasetFacts>& datasets);

/// Its parts, each a few <section>s; empty if there is nothing to show.
std::string run_sections(const std::vector<Run>& runs);
std::string dataset_sections(const std::vector<DatasetFacts>& datasets);

/// A table. `head` and the cells are HTML already; the first cell of a row is its name. Wide tables
/// scroll by themselves, and are reached by keyboard, as `label`.
std::string table(const std::string& label, const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows);

}  // namespace report
