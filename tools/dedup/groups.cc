// SPDX-License-Identifier: MIT
// Room: tools/dedup. Keys with the same remainder are sorted together; each such part reads its
// band again.
#include "tools/dedup/groups.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <stdexcept>

#include "tools/dedup/min_hash.h"
#include "tools/stream/pipeline.h"

namespace dedup {
namespace {

struct Entry {
  uint64_t key;
  uint32_t document;
};

struct Pair {
  uint32_t first;
  uint32_t later;
};

/// The entries of a band whose keys have the remainder `part`.
std::vector<Entry> read_part(indexed::ScratchFile& file, uint64_t parts, uint64_t part) {
  std::vector<Entry> entries;
  uint32_t document = 0;
  file.read_all([&](std::span<const std::byte> bytes) {
    const auto* keys = reinterpret_cast<const uint64_t*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / sizeof *keys; ++i, ++document) {
      if (keys[i] != kNoKey && keys[i] % parts == part) entries.push_back({keys[i], document});
    }
  });
  return entries;
}

/// Pairs of each document with the first one that has the same key, sorted by key and document.
std::vector<Pair> pairs_of(std::vector<Entry>& entries) {
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key < b.key : a.document < b.document;
  });
  std::vector<Pair> pairs;
  for (size_t i = 1, first = 0; i < entries.size(); ++i) {
    if (entries[i].key != entries[first].key)
      first = i;
    else
      pairs.push_back({entries[first].document, entries[i].document});
  }
  return pairs;
}

}  // namespace

Groups::Groups(uint32_t documents) : parents_(documents) {
  std::iota(parents_.begin(), parents_.end(), 0u);
}

uint32_t Groups::first_of(uint32_t document) {
  while (parents_[document] != document) {
    parents_[document] = parents_[parents_[document]];
    document = parents_[document];
  }
  return document;
}

void Groups::join(uint32_t a, uint32_t b) {
  a = first_of(a);
  b = first_of(b);
  parents_[std::max(a, b)] = std::min(a, b);
}

KeyStore::KeyStore(const std::string& beside, int64_t bands) {
  for (int64_t i = 0; i < bands; ++i) {
    files_.push_back(std::make_unique<indexed::ScratchFile>(beside));
  }
}

void KeyStore::add(std::span<const uint64_t> keys) {
  const size_t bands = files_.size();
  documents_ += static_cast<int64_t>(keys.size() / bands);
  if (documents_ > kMostDocuments)
    throw std::runtime_error("more than 4,294,967,295 documents: share them out");
  for (size_t band = 0; band < bands; ++band) {
    column_.clear();
    for (size_t at = band; at < keys.size(); at += bands) column_.push_back(keys[at]);
    files_[band]->write(std::as_bytes(std::span(column_)));
  }
}

Groups KeyStore::group(int64_t threads, int64_t memory) {
  Groups groups(static_cast<uint32_t>(documents_));
  std::mutex mutex;
  // While a vector grows it takes up to three times its entries; pairs take half as much.
  const int64_t wanted = documents_ * static_cast<int64_t>(sizeof(Entry)) * 7 / 2;
  const int64_t share = std::max<int64_t>(memory / std::max<int64_t>(threads, 1), 1);
  const auto parts = static_cast<uint64_t>(std::max<int64_t>((wanted + share - 1) / share, 1));
  stream::run_parts(threads, files_.size(), [&](size_t band) {
    for (uint64_t part = 0; part < parts; ++part) {
      std::vector<Entry> entries = read_part(*files_[band], parts, part);
      const std::vector<Pair> pairs = pairs_of(entries);
      const std::lock_guard lock(mutex);
      for (const Pair& pair : pairs) groups.join(pair.first, pair.later);
    }
  });
  return groups;
}

}  // namespace dedup
