// What plan-training prints about a search: for people, and as JSON. Not here: searching.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
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
  /// The flags that `words` lack and without which the trainer does not start.
  std::vector<std::string> lacks = {};
};

/// "83.1 GiB of 79.2 GiB", with as many digits as it takes to tell the two apart.
std::string bytes_of(int64_t bytes, int64_t room);

std::string text_report(const SearchResult& result, const ReportContext& context);
std::string json_report(const SearchResult& result, const ReportContext& context);

}  // namespace trainer
