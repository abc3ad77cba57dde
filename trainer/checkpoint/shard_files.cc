// See shard_files.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/shard_files.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "libindexed/crc32c.h"
#include "libindexed/message.h"
#include "libindexed/workers.h"
#include "trainer/checkpoint/meeting.h"

namespace trainer {
namespace {

using indexed::message;

// Bytes at .. at + size of a shard.
std::span<const std::byte> bytes_of(const ShardSource& shard, int64_t at, int64_t size) {
  if (shard.read) return shard.read(at, size);
  return shard.bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(size));
}

// The name of a shard in its file, and what the file says of it.
TensorEntry entry_of(const ShardSource& shard) {
  std::string key = shard.group == "model" ? shard.name : shard.group + "." + shard.name;
  const Piece& piece = shard.piece;
  if (piece != Piece::whole(shard.whole_shape))
    key += message("@", piece.offsets.empty() ? 0 : piece.offsets[0], ".",
                   piece.offsets.size() > 1 ? piece.offsets[1] : 0, ".", piece.first);
  const bool is_box = piece.first == 0 && piece.count == Piece::whole(piece.shape).count;
  return {.name = std::move(key),
          .dtype = shard.dtype,
          .shape = is_box ? piece.shape : std::vector<int64_t>{piece.count}};
}

int64_t blocks_of(const ShardSource& shard) {
  return (shard.size_bytes() + kChecksumBlock_bytes - 1) / kChecksumBlock_bytes;
}

// A shard being written, by any number of threads.
struct Progress {
  std::vector<uint32_t> crc32c;     ///< of each block
  std::atomic<int64_t> blocks = 0;  ///< still to be written
  int64_t end = 0;                  ///< blocks of this and of the shards before
};

// Writes one block and returns its checksum. It goes to the system in parts that a processor's
// cache holds, so that memory is read once.
uint32_t write_block(const ShardWork& work, SafetensorsWriter& writer, size_t i, int64_t at,
                     const ShardSource& shard) {
  constexpr int64_t kPart = 2 << 20;
  const int64_t end = std::min(at + kChecksumBlock_bytes, shard.size_bytes());
  uint32_t crc = 0;
  for (int64_t from = at; from < end; from += kPart) {
    if (work.given_up()) throw GivenUp();
    const std::span<const std::byte> part = bytes_of(shard, from, std::min(kPart, end - from));
    crc = indexed::crc32c(crc, part);
    writer.write_at(i, from, part);
  }
  return crc;
}

// Writes the shards of one file and notes them in meta.
void write_file(CheckpointMeta& meta, const ShardWork& work, const std::string& name,
                const std::vector<const ShardSource*>& shards) {
  std::vector<TensorEntry> entries;
  std::vector<Progress> progress(shards.size());
  int64_t blocks = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    entries.push_back(entry_of(*shards[i]));
    progress[i].blocks = blocks_of(*shards[i]);
    progress[i].crc32c.resize(static_cast<size_t>(progress[i].blocks));
    progress[i].end = blocks += progress[i].blocks;
  }
  const std::unique_ptr<SafetensorsWriter> writer = work.open(name, entries);
  indexed::share_work(blocks, work.threads, [&](int64_t number) {
    const auto found =
        std::upper_bound(progress.begin(), progress.end(), number,
                         [](int64_t block, const Progress& p) { return block < p.end; });
    const size_t i = static_cast<size_t>(found - progress.begin());
    const int64_t block = number - (progress[i].end - blocks_of(*shards[i]));
    progress[i].crc32c[static_cast<size_t>(block)] =
        write_block(work, *writer, i, block * kChecksumBlock_bytes, *shards[i]);
    if (--progress[i].blocks == 0 && shards[i]->done) shards[i]->done();
  });
  for (size_t i = 0; i < shards.size(); ++i) {
    const ShardSource& shard = *shards[i];
    TensorRecord* tensor = const_cast<TensorRecord*>(meta.find(shard.group, shard.name));
    if (!tensor) {
      meta.tensors.push_back({shard.group, shard.name, shard.dtype, shard.whole_shape, {}});
      tensor = &meta.tensors.back();
    }
    tensor->shards.push_back({name, entries[i].name, shard.piece, std::move(progress[i].crc32c)});
  }
  meta.files[name] = writer->file_bytes();
  writer->commit();
}

std::string file_name(int rank, const char* rest) {
  char head[32];
  std::snprintf(head, sizeof head, "rank_%05d_", rank);
  return message(head, rest, ".safetensors");
}

}  // namespace

std::string model_file_name(int rank) { return file_name(rank, "model"); }
std::string optimizer_file_name(int rank) { return file_name(rank, "optimizer"); }

void write_shard_files(CheckpointMeta& meta, int rank, const ShardWork& work) {
  std::vector<const ShardSource*> weights, others;
  for (const ShardSource& shard : work.shards)
    (shard.group == "model" ? weights : others).push_back(&shard);
  if (!weights.empty()) write_file(meta, work, model_file_name(rank), weights);
  if (!others.empty()) write_file(meta, work, optimizer_file_name(rank), others);
}

}  // namespace trainer
