// What plan-training prints about a search: for people, and as JSON. Not here: searching.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "trainer/session/layout_search.h"

namespace trainer {

/// What a report needs besides the result.
struct ReportContext {
  const SearchTask& task;
  /// The command's own words for the trainer, without those of the search and of the layout.
  std::vector<std::string> words;
  bool has_length = false;  ///< Whether the command gives the length of the run.
};

std::string text_report(const SearchResult& result, const ReportContext& context);
std::string json_report(const SearchResult& result, const ReportContext& context);

}  // namespace trainer
