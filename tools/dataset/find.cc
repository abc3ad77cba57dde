// SPDX-License-Identifier: MIT
// Room: tools/dataset. Folders as lists of datasets. Not here: the content of the files
// (libindexed). UTF-8 sorts by bytes in the order of code points, so Python's order needs no
// decoding where a name is UTF-8.
#include "tools/dataset/find.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"

namespace dataset {
namespace {

namespace fs = std::filesystem;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t end_of_digits(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// Natural order as -1, 0, 1; leading zeros are ignored.
int compare_naturally(std::string_view a, std::string_view b) {
  size_t i = 0, k = 0;
  while (i < a.size() && k < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[k])) {
      const auto x = static_cast<unsigned char>(a[i++]);
      const auto y = static_cast<unsigned char>(b[k++]);
      if (x != y) return x < y ? -1 : 1;
      continue;
    }
    const size_t a_end = end_of_digits(a, i), b_end = end_of_digits(b, k);
    while (i + 1 < a_end && a[i] == '0') ++i;
    while (k + 1 < b_end && b[k] == '0') ++k;
    const std::string_view x = a.substr(i, a_end - i), y = b.substr(k, b_end - k);
    if (x.size() != y.size()) return x.size() < y.size() ? -1 : 1;
    if (x != y) return x < y ? -1 : 1;
    i = a_end;
    k = b_end;
  }
  return static_cast<int>(i < a.size()) - static_cast<int>(k < b.size());
}

// Bytes of the UTF-8 character that `text` begins with; 0 if that is none. Source: Unicode 16,
// table 3-7.
size_t character_size(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned lead = byte(0), second = byte(1);
  if (lead < 0x80) return 1;
  const size_t size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (size == 0 || second < low || second > high) return 0;
  for (size_t i = 2; i < size; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return size;
}

// The name with each byte that is not UTF-8 as the bytes of the surrogate U+DC00 + byte, for which
// Python takes it: so that bytes sort as Python sorts such names.
std::string as_python_sees(std::string_view name) {
  std::string out;
  for (size_t at = 0; at < name.size();) {
    const size_t size = character_size(name.substr(at));
    if (size == 0) {
      const auto byte = static_cast<unsigned char>(name[at]);
      out += '\xed';
      out += static_cast<char>(0xB0 | byte >> 6);
      out += static_cast<char>(0x80 | (byte & 0x3F));
    }
    out += name.substr(at, size);
    at += std::max<size_t>(size, 1);
  }
  return out;
}

}  // namespace

bool comes_before(std::string_view name_a, std::string_view name_b, Order order) {
  const std::string a = as_python_sees(name_a), b = as_python_sees(name_b);
  const int natural = order == Order::natural ? compare_naturally(a, b) : 0;
  return natural != 0 ? natural < 0 : a < b;
}

Folder look_into(const std::string& folder, const std::string& except, Order order) {
  struct Pair {
    bool bin = false;
    bool idx = false;
    bool dangling = false;
  };
  std::map<std::string, Pair> pairs;
  std::vector<std::string> others;
  Folder found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const bool leads_nowhere = entry.is_symlink(ignored) && !entry.exists(ignored);
    if (!leads_nowhere && !entry.is_regular_file(ignored)) continue;
    const std::string path = entry.path().string();
    const std::string extension = entry.path().extension().string();
    const std::string prefix = (entry.path().parent_path() / entry.path().stem()).string();
    if (same_prefix(prefix, except)) continue;
    if (extension == ".bin" || extension == ".idx") {
      Pair& pair = pairs[prefix];
      (leads_nowhere ? pair.dangling : extension == ".bin" ? pair.bin : pair.idx) = true;
      if (leads_nowhere) found.dangling.push_back(path);
    } else if (extension == ".tmp" && entry.path().filename().string().starts_with('.')) {
      found.unfinished.push_back(path);
    } else {
      others.push_back(path);
    }
  }
  for (const auto& [prefix, pair] : pairs) {
    if (pair.dangling) continue;
    if (pair.bin && pair.idx)
      found.prefixes.push_back(prefix);
    else
      found.incomplete.push_back(prefix + (pair.bin ? ".bin" : ".idx"));
  }
  for (std::string& path : others) {
    const bool manifest =
        path.ends_with(".manifest") && pairs.contains(path.substr(0, path.size() - 9));
    if (!manifest) found.strays.push_back(std::move(path));
  }
  const auto before = [order](const std::string& a, const std::string& b) {
    return comes_before(a, b, order);
  };
  std::ranges::sort(found.prefixes, before);
  std::ranges::sort(found.dangling, before);
  std::ranges::sort(found.strays, before);
  return found;
}

std::string prefix_of(std::string_view word) {
  for (const std::string_view ending : {".bin", ".idx", ".manifest"}) {
    if (word.size() > ending.size() && word.ends_with(ending))
      return std::string(word.substr(0, word.size() - ending.size()));
  }
  return std::string(word);
}

std::optional<std::string> NamedDatasets::take(const std::string& word) {
  std::string prefix = prefix_of(word);
  int64_t& returned = prefixes_[prefix];
  if (++words_[word] <= returned) return std::nullopt;
  ++returned;
  return prefix;
}

bool same_prefix(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

void refuse_nameless(std::string_view flag, const std::string& prefix) {
  if (prefix.ends_with('/'))
    throw cli::UsageError(cli::concat(flag, " ", prefix, ": ends in a slash, expected a name: ",
                                      "its files would be .bin and .idx"));
}

}  // namespace dataset
