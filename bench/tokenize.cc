// SPDX-License-Identifier: MIT
// The library's encode on one thread, timed: loads a tokenizer, reads documents (NUL-ended) into
// memory, encodes them again and again, and prints one JSON object. The first pass is a fresh
// process's. Peers are timed by bench/tokenize.py, which runs this program between them and
// compares the ids.
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libtok/boundaries.h"
#include "libtok/tokenizer.h"

namespace {

/// Ids kept before the buffer is used again: 4 MiB.
constexpr size_t kBufferedIds = size_t{1} << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Processor time of this process: what counts where others use the machine too.
double processor_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "tokenize_bench: %s: cannot open\n", path.c_str());
    std::exit(1);
  }
  in.seekg(0, std::ios::end);
  std::string bytes(static_cast<size_t>(in.tellg()), '\0');
  in.seekg(0);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

std::vector<std::string_view> documents_of(std::string_view bytes) {
  std::vector<std::string_view> out;
  while (!bytes.empty()) {
    size_t end = std::min(bytes.find('\0'), bytes.size());
    out.push_back(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return out;
}

tok::TokenizerSource load(int count, char** names) {
  std::string first = read_file(names[0]);
  if (count == 2) return tok::read_gpt2(first, read_file(names[1]));
  if (std::string_view(names[0]).ends_with(".tiktoken")) {
    return tok::read_tiktoken(first, "cl100k_base");
  }
  return tok::read_tokenizer_file(first);
}

int64_t pieces_only(const std::vector<std::string_view>& documents,
                    const tok::PreTokenizer& pretokenizer) {
  uint32_t ends[1024];
  int64_t pieces = 0;
  for (std::string_view text : documents) {
    tok::BoundaryScan scan(pretokenizer, text);
    while (size_t count = scan.next(ends, 1024)) pieces += static_cast<int64_t>(count);
  }
  return pieces;
}

}  // namespace

/// Usage: tokenize_bench PASSES DOCUMENTS IDS_OUT|-|keep VOCAB.json MERGES.txt | TOKENIZER.json |
/// RANKS
int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: tokenize_bench PASSES DOCUMENTS IDS_OUT|-|keep TOKENIZER...\n");
    return 2;
  }
  int passes = std::atoi(argv[1]);
  std::string bytes = read_file(argv[2]);
  std::vector<std::string_view> documents = documents_of(bytes);
  double start = now();
  tok::Tokenizer tokenizer(load(argc - 4, argv + 4));
  std::printf("{\"level\": \"%s\", \"load_s\": %.4f, \"bytes\": %zu, \"documents\": %zu",
              std::string(tok::simd_level_name(tok::chosen_simd_level())).c_str(), now() - start,
              bytes.size(), documents.size());
  tok::Scratch scratch;
  // As bpe-tokenize writes them: two bytes an id where the vocabulary allows it.
  const bool narrow = tokenizer.id_limit() <= 65536;
  tok::TokenBuffer ids(narrow ? tok::IdWidth::two : tok::IdWidth::four);
  tok::TextBatch batch;
  std::vector<int64_t> counts;
  std::string wall, processor;
  double processor_start;
  const std::string_view ids_out = argv[3];
  const bool keep_all = ids_out == "keep";
  const bool write = ids_out != "-" && !keep_all;
  int64_t total = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const bool keep = keep_all || (write && pass == passes - 1);
    ids.clear();
    counts.clear();
    total = 0;
    start = now();
    processor_start = processor_seconds();
    const auto encode_batch = [&] {
      std::span<const int32_t> lengths;
      tokenizer.encode(batch, scratch, ids, lengths);
      for (const int32_t length : lengths) {
        counts.push_back(length);
        total += length;
      }
      batch.clear();
    };
    for (std::string_view text : documents) {
      // A reused buffer, as a writer of files has; everything is kept only to be compared.
      if (!keep && ids.size() > kBufferedIds) ids.clear();
      if (!batch.has_room_for(text)) encode_batch();
      if (batch.has_room_for(text)) {
        batch.add(text);
        continue;
      }
      size_t before = ids.size();
      tokenizer.encode(text, scratch, ids);
      counts.push_back(static_cast<int64_t>(ids.size() - before));
      total += counts.back();
    }
    encode_batch();
    const char* comma = pass == 0 ? "" : ", ";
    wall += comma + std::to_string(now() - start);
    processor += comma + std::to_string(processor_seconds() - processor_start);
  }
  processor_start = processor_seconds();
  int64_t pieces = pieces_only(documents, tokenizer.pretokenizer());
  std::printf(", \"wall_s\": [%s], \"processor_s\": [%s]", wall.c_str(), processor.c_str());
  std::printf(", \"ids\": %lld, \"pieces\": %lld, \"boundaries_s\": %.5f}\n",
              static_cast<long long>(total), static_cast<long long>(pieces),
              processor_seconds() - processor_start);
  if (write) {
    std::ofstream out(argv[3], std::ios::binary);
    int64_t num_documents = static_cast<int64_t>(counts.size());
    out.write(reinterpret_cast<const char*>(&num_documents), sizeof num_documents);
    out.write(reinterpret_cast<const char*>(counts.data()),
              static_cast<std::streamsize>(counts.size() * sizeof(int64_t)));
    for (size_t i = 0; i < ids.size(); ++i) {
      const int32_t id = ids[i];
      out.write(reinterpret_cast<const char*>(&id), sizeof id);
    }
  }
  return 0;
}
