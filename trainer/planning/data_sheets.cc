// Cards from their data sheets, for those without a table. What a data sheet does not have (which
// share of the peak products and passes over memory reach) is assumed to be as on the measured
// card. Sources: NVIDIA's data sheets; 16-bit products with fp32 sums, without sparsity.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>

#include "tools/cli/text.h"
#include "trainer/planning/card.h"

namespace trainer {

/// The tables in trainer/planning/cards, which the build embeds in this program.
struct CardFile {
  const char* name;
  const char* text;
};
extern const CardFile kCardFiles[];
extern const int kCardFileCount;

namespace {

struct DataSheet {
  const char* name;
  double tflops, memory_tb_per_s;
  int multiprocessors;
  double watts, link_gb_per_s;
};

// link_gb_per_s: one direction of NVLink or PCIe, times the four fifths that rings reach.
constexpr DataSheet kDataSheets[] = {
    {"a30", 165, 0.933, 56, 165, 20},
    {"a100-40gb", 312, 1.555, 108, 400, 240},
    {"a100-80gb", 312, 2.039, 108, 400, 240},
    {"a100-pcie-40gb", 312, 1.555, 108, 250, 20},
    {"a100-pcie-80gb", 312, 1.935, 108, 300, 20},
    {"a800-40gb", 312, 1.555, 108, 250, 20},
    {"a800-80gb", 312, 2.039, 108, 400, 160},
    {"a800-pcie-80gb", 312, 1.935, 108, 300, 20},
    {"a10", 125, 0.600, 72, 150, 20},
    {"a40", 149.7, 0.696, 84, 300, 20},
    {"a5000", 111.1, 0.768, 64, 230, 20},
    {"a6000", 154.8, 0.768, 84, 300, 20},
    {"rtx3090", 71, 0.936, 82, 350, 10},
    {"l4", 121, 0.300, 58, 72, 20},
    {"l20", 119.5, 0.864, 92, 275, 20},
    {"l40", 181, 0.864, 142, 300, 20},
    {"l40s", 362, 0.864, 142, 350, 20},
    {"rtx6000-ada", 364, 0.960, 142, 300, 20},
    {"rtx4080", 97.5, 0.717, 76, 320, 10},
    {"rtx4090", 165.2, 1.008, 128, 450, 10},
    {"h100-80gb", 989.4, 3.35, 132, 700, 320},
    {"h100-pcie", 756, 2.0, 114, 350, 40},
    {"h100-nvl", 835, 3.9, 132, 400, 240},
    {"h800", 989.4, 3.35, 132, 700, 160},
    {"h800-pcie", 756, 2.0, 114, 350, 40},
    {"h800-nvl", 835, 3.9, 132, 400, 160},
    {"h20", 148, 4.0, 78, 400, 320},
    {"h20-3e", 148, 4.8, 78, 400, 320},
    {"gh200-96gb", 989.4, 4.0, 132, 900, 320},
    {"gh200-144gb", 989.4, 4.9, 132, 900, 320},
    {"h200", 989.4, 4.8, 132, 700, 320},
    {"h200-nvl", 835, 4.8, 132, 600, 320},
    {"b200", 2250, 7.7, 148, 1000, 640},
    {"gb200", 2500, 8.0, 152, 1200, 640},
    {"b300", 2500, 8.0, 148, 1400, 640},
    {"rtx5090", 209.5, 1.792, 170, 575, 20},
    {"rtx-pro-6000", 503.8, 1.792, 188, 600, 20},
};

// Shares of the peaks that the H200 sustains at its power limit: bench/training.md.
constexpr double kHeldProducts = 0.66, kHeldAttention = 0.35, kHeldMemory = 0.8;

/// The words of letters and digits, in lower case.
std::set<std::string> words_of(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (!word.empty()) words.insert(word);
    word.clear();
  }
  if (!word.empty()) words.insert(word);
  return words;
}

/// Drivers' names that contain neither of a card's.
struct DriverName {
  const char* product;
  const char* name;
};
constexpr DriverName kDriverNames[] = {
    {"NVIDIA GH200 120GB", "gh200-96gb"},  // the size of the CPU's memory.
    {"NVIDIA GH200 480GB", "gh200-96gb"},
    {"NVIDIA GH200 144G HBM3e", "gh200-144gb"},
};

/// Words that make a name that of a card with fewer or more multiprocessors.
constexpr const char* kOtherCards[] = {"d", "laptop", "super", "ti"};

}  // namespace

void assume_copies(Card& card) noexcept {
  constexpr double kMostOfPcie = 64;
  card.hidden_copy_cost = card.hidden_cost;
  card.peer_gib = card.link_gb_per_s > kMostOfPcie ? kPeerGib : 0;
}

const ops::Gpu* find_product(std::string_view product) {
  for (const auto& [known, name] : kDriverNames)
    if (product == known) return ops::find_gpu(name);
  const std::set<std::string> wanted = words_of(product);
  const auto is_another = [&](const std::set<std::string>& words) {
    return std::ranges::any_of(kOtherCards, [&](const char* word) {
      return wanted.contains(word) && !words.contains(word);
    });
  };
  // All words of a card's name must be in the product's: "NVIDIA A100-SXM4-80GB" is an a100-80gb.
  const ops::Gpu* best = nullptr;
  size_t most = 0;
  for (const ops::Gpu& gpu : ops::known_gpus()) {
    for (const std::string_view name : {gpu.name, gpu.product}) {
      const std::set<std::string> words = words_of(name);
      if (words.size() <= most || !std::ranges::includes(wanted, words) || is_another(words))
        continue;
      best = &gpu, most = words.size();
    }
  }
  return best;
}

Card card_of(const ops::Gpu& gpu) {
  for (int i = 0; i < kCardFileCount; ++i)
    if (gpu.name == kCardFiles[i].name)
      return parse_card(kCardFiles[i].text, cli::concat("built-in ", kCardFiles[i].name));
  Card card;
  card.name = gpu.name;
  card.product = gpu.product;
  card.source = "computed from the data sheet; no card of this kind was measured";
  card.memory_gib = static_cast<double>(ops::usable_bytes(gpu)) / (int64_t{1} << 30) + 0.5;
  card.launch_us = 3;
  card.host_gb_per_s = 16;
  card.link_us = 15;
  card.network_gb_per_s = 50;
  card.network_us = 20;
  card.context_gib = 0.65;  // 0.57 to 0.65, by the algorithms that are chosen: bench/planning.md.
  card.group_gib = 0.66;
  card.message_gib = 0.62;
  card.tensor_gib = 0.16;
  const auto sheet =
      std::ranges::find_if(kDataSheets, [&](const DataSheet& d) { return gpu.name == d.name; });
  if (sheet == std::end(kDataSheets)) return card;
  card.peak_tflops = sheet->tflops;
  card.memory_tb_per_s = sheet->memory_tb_per_s;
  card.multiprocessors = sheet->multiprocessors;
  card.watts = sheet->watts;
  card.watts_waiting = 0.4 * sheet->watts;
  card.link_gb_per_s = sheet->link_gb_per_s;
  assume_copies(card);
  card.products = {{ProductKind::forward, 16384, 8192, 2048, kHeldProducts * sheet->tflops},
                   {ProductKind::input, 16384, 8192, 2048, kHeldProducts * sheet->tflops},
                   {ProductKind::weight, 16384, 8192, 2048, kHeldProducts * sheet->tflops}};
  card.attention = {
      {128, 2048, 128, kHeldAttention * sheet->tflops, 0.75 * kHeldAttention * sheet->tflops},
      {64, 1024, 512, 0.65 * kHeldAttention * sheet->tflops,
       0.45 * kHeldAttention * sheet->tflops}};
  card.passes = {{"any", 0.25, 0.1 * sheet->memory_tb_per_s},
                 {"any", 4, 0.4 * sheet->memory_tb_per_s},
                 {"any", 64, kHeldMemory * sheet->memory_tb_per_s}};
  return card;
}

}  // namespace trainer
