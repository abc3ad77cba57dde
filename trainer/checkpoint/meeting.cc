// Meeting: records, and waiting for them.
//
// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/meeting.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/stat.h>

#include "libindexed/mapped_file.h"
#include "libindexed/message.h"
#include "libindexed/output_file.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using indexed::message;

// Through a mapping: a FIFO or a folder of that name is refused.
std::string read_text(const std::string& path) {
  const indexed::MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void write_text(const std::string& path, const std::string& text) {
  indexed::OutputFile out(path, indexed::Existing::replace);
  out.write(text);
  out.commit();
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

uint64_t file_number(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? uint64_t{status.st_ino} : 0;
}

// Asks `holds` again and again, ever more seldom; false when `patience` has run out.
template <class Condition>
bool wait_until(std::chrono::seconds patience, const Condition& holds) {
  const std::chrono::steady_clock::time_point end = std::chrono::steady_clock::now() + patience;
  std::chrono::milliseconds pause(1);
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
  return true;
}

}  // namespace

Meeting::Meeting(std::string temporary, std::string named, const WriterPlace& place)
    : temporary_(std::move(temporary)), named_(std::move(named)), place_(place) {}

std::string Meeting::record(const std::string& folder, int rank) const {
  char name[32];
  std::snprintf(name, sizeof name, "/rank_%05d.json", rank);
  return folder + name;
}

std::string Meeting::failed(const std::string& folder, int rank) const {
  return record(folder, rank) + ".failed";
}

void Meeting::gather(CheckpointMeta& meta, const std::string& failure) {
  std::string first = failure;
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (size_t i = 0; i < meta.tensors.size(); ++i)
    known[{meta.tensors[i].group, meta.tensors[i].name}] = i;
  for (int rank = 1; rank < place_.world; ++rank) {
    const std::string whole = record(temporary_, rank), broken = failed(temporary_, rank);
    const bool came = wait_until(place_.patience, [&] { return exists(whole) || exists(broken); });
    if (!came)
      throw std::runtime_error(message(temporary_, ": rank ", rank, " wrote no shards within ",
                                       place_.patience.count(), " s"));
    if (!exists(whole)) {
      // All are waited for, so that nobody still writes where rank 0 cleans up.
      if (first.empty()) first = message("rank ", rank, ": ", read_text(broken));
      continue;
    }
    CheckpointMeta part = parse_meta(read_text(whole), whole);
    if (part.state != meta.state)
      throw std::runtime_error(message(whole, ": is of another state than rank 0's"));
    meta.files.insert(part.files.begin(), part.files.end());
    for (TensorRecord& tensor : part.tensors) {
      const auto [at, is_new] = known.try_emplace({tensor.group, tensor.name}, meta.tensors.size());
      if (is_new) {
        meta.tensors.push_back(std::move(tensor));
        continue;
      }
      std::vector<ShardRecord>& shards = meta.tensors[at->second].shards;
      std::move(tensor.shards.begin(), tensor.shards.end(), std::back_inserter(shards));
    }
  }
  if (!first.empty()) throw std::runtime_error(first);
}

void Meeting::clean() const {
  std::error_code ignored;
  for (int rank = 1; rank < place_.world; ++rank) fs::remove(record(named_, rank), ignored);
}

void Meeting::report_and_wait(const CheckpointMeta& meta, const std::string& failure) {
  const std::string mine =
      failure.empty() ? record(temporary_, place_.rank) : failed(temporary_, place_.rank);
  CheckpointMeta part;
  part.state = meta.state;
  part.files = meta.files;
  part.tensors = meta.tensors;
  // Before the record is there: from then on rank 0 may give the folder its name at any moment.
  std::map<std::string, uint64_t> written;
  for (const auto& [name, bytes] : meta.files) written[name] = file_number(temporary_ + "/" + name);
  try {
    fs::create_directory(temporary_);
    write_text(mine, failure.empty() ? format_meta(part) : failure);
  } catch (const std::exception& error) {
    throw std::runtime_error(failure.empty() ? error.what() : failure);
  }
  const uint64_t number = file_number(mine);  // 0: the folder is gone already.
  const bool over =
      number == 0 || wait_until(place_.patience, [&] { return file_number(mine) != number; });
  if (!failure.empty()) throw std::runtime_error(failure);
  if (!over)
    throw std::runtime_error(
        message(temporary_, ": rank 0 did not complete it within ", place_.patience.count(), " s"));
  // The folder took its name with all that was in it; the record itself may be gone again.
  for (const auto& [name, file] : written)
    if (file != file_number(named_ + "/" + name))
      throw std::runtime_error(message(temporary_, ": rank 0 gave it up"));
}

}  // namespace trainer
