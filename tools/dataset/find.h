// SPDX-License-Identifier: MIT
// Room: tools/dataset. From the words of a command line to dataset prefixes, for merge-datasets,
// shuffle-index and inspect-dataset. Files are searched for, not opened. May include libindexed,
// tools/cli.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dataset {

/// `name` code points in Python's string order, as Megatron's merge sorts: a byte that is not UTF-8
/// is the code point U+DC00 + byte. `natural` numbers by value.
enum class Order { name, natural };

/// Whether `a` comes before `b`, in a total order that no locale changes. Natural: runs of ASCII
/// digits by value, the rest by code points; ties by name.
bool comes_before(std::string_view name_a, std::string_view name_b, Order order);

/// The contents of a folder.
struct Folder {
  std::vector<std::string> prefixes = {};    ///< with both files, in order
  std::vector<std::string> incomplete = {};  ///< paths of a .bin or .idx without its partner
  std::vector<std::string> dangling = {};    ///< paths of a .bin or .idx that leads nowhere: a link
  std::vector<std::string> strays = {};      ///< paths of files with other names
  std::vector<std::string> unfinished = {};  ///< paths of temporaries
};

/// Lists a folder, not its subfolders. Manifests belong to their datasets. `except` is the prefix
/// of the output, which is not an input even if it exists already. Errors: std::system_error.
Folder look_into(const std::string& folder, const std::string& except, Order order);

/// A dataset's prefix from a prefix or the path of one of its files.
std::string prefix_of(std::string_view word);

/// The datasets that the words of a command line name. A pattern such as `dir/*` gives both files
/// of each, which are one dataset; the same word twice is that dataset twice.
class NamedDatasets {
 public:
  /// The prefix that the next word names, or nothing where it is another spelling (PREFIX,
  /// PREFIX.bin, PREFIX.idx, PREFIX.manifest) of a dataset that was returned already: each is
  /// returned as often as the spelling that is there most often.
  std::optional<std::string> take(const std::string& word);

 private:
  std::map<std::string, int64_t> words_;     // how often each was taken
  std::map<std::string, int64_t> prefixes_;  // how often each was returned
};

/// Whether two prefixes are the same, links and relative paths resolved.
bool same_prefix(const std::string& a, const std::string& b);

/// Refuses a prefix that ends in a slash: its files would be `.bin` and `.idx`, which are hidden.
/// Errors: UsageError naming `flag` and the prefix.
void refuse_nameless(std::string_view flag, const std::string& prefix);

}  // namespace dataset
