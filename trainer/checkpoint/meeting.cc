// Meeting: a letter is '+' and the content on success, or '-' and a reason; from rank 0 also '='
// and a record to be written, or its last part, after others with '~'.
//
// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/meeting.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "libindexed/message.h"

namespace trainer {
namespace {

using indexed::message;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kGood = '+', kBad = '-', kRecord = '=', kPart = '~';
// Of a record in one letter: a letter is at most twice as long (rendezvous::Control::post).
constexpr size_t kPart_bytes = 16 << 20;

// Adds another rank's record to the whole.
void merge(CheckpointMeta& meta, CheckpointMeta part) {
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (size_t i = 0; i < meta.tensors.size(); ++i)
    known[{meta.tensors[i].group, meta.tensors[i].name}] = i;
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

}  // namespace

Meeting::Meeting(int64_t save, const WriterPlace& place)
    : save_(save), place_(place), words_(static_cast<size_t>(place.world)) {
  words_[0] = "";
}

std::string Meeting::name(int rank) const {
  return place_.name ? place_.name(rank) : message("rank ", rank);
}

// Takes the letters that have arrived.
void Meeting::receive(milliseconds wait) {
  for (const WriterLetter& letter : place_.letters(save_, wait)) {
    if (place_.rank > 0) {
      if (letter.from != 0 || verdict_) continue;
      const char kind = letter.text.empty() ? kBad : letter.text.front();
      if (kind == kPart || kind == kRecord) part_ += letter.text.substr(1);
      if (kind == kRecord) record_ = std::exchange(part_, {});
      if (kind != kPart && kind != kRecord) verdict_ = letter.text;
      continue;
    }
    std::optional<std::string>& word = words_.at(static_cast<size_t>(letter.from));
    if (word) continue;
    word = letter.text;
    const bool good = !word->empty() && word->front() == kGood;
    if (good || !failure_.empty()) continue;
    failure_ = message(name(letter.from), ": ", word->substr(std::min<size_t>(1, word->size())));
    tell(failure_);
  }
}

bool Meeting::given_up() {
  receive(milliseconds(0));
  return place_.rank > 0 ? verdict_.has_value() : !failure_.empty();
}

int Meeting::missing() const {
  for (size_t rank = 0; rank < words_.size(); ++rank)
    if (!words_[rank]) return static_cast<int>(rank);
  return -1;
}

void Meeting::tell(const std::string& failure) {
  if (verdict_) return;
  verdict_ = failure.empty() ? std::string(1, kGood) : kBad + failure;
  place_.post(-1, save_, *verdict_);
}

void Meeting::drop(const std::string& failure) {
  tell(failure);
  throw std::runtime_error(failure);
}

// Until each has sent its letter. Throws if one failed, or sent none.
void Meeting::wait_for_all(const char* what) {
  for (Clock::time_point end = Clock::now() + place_.patience; missing() >= 0;) {
    const milliseconds left = std::chrono::ceil<milliseconds>(end - Clock::now());
    if (left.count() <= 0) break;
    receive(left);
  }
  if (failure_.empty() && missing() >= 0)
    drop(message(name(missing()), ": wrote no ", what, " within ", place_.patience.count(), " s"));
  if (!failure_.empty()) drop(failure_);
}

void Meeting::gather(CheckpointMeta& meta, const std::string& failure) {
  if (failure_.empty() && !failure.empty()) {
    failure_ = message(name(0), ": ", failure);
    tell(failure_);
  }
  wait_for_all("shards");
  for (int rank = 1; rank < place_.world; ++rank) {
    const std::string& word = *words_[static_cast<size_t>(rank)];
    CheckpointMeta part;
    try {
      part = parse_meta(word.substr(1), "its record");
    } catch (const std::exception& error) {
      drop(message(name(rank), ": ", error.what()));
    }
    if (part.state != meta.state)
      drop(name(rank) + ": its shards are of another state than rank 0's");
    merge(meta, std::move(part));
  }
}

void Meeting::hand_out(const std::string& record, const std::vector<int>& writers) {
  for (const int writer : writers) words_.at(static_cast<size_t>(writer)).reset();
  for (const int writer : writers) {
    size_t at = 0;
    for (; record.size() - at > kPart_bytes; at += kPart_bytes)
      place_.post(writer, save_, kPart + record.substr(at, kPart_bytes));
    place_.post(writer, save_, kRecord + record.substr(at));
  }
  wait_for_all("record");
}

void Meeting::answer(const std::function<void(const std::string& record)>& write) {
  std::string why;
  try {
    write(*record_);
  } catch (const std::exception& error) {
    why = kBad + (place_.describe ? place_.describe(error) : error.what());
  }
  record_.reset();
  place_.post(0, save_, why.empty() ? std::string(1, kGood) : why);
}

void Meeting::report_and_wait(const CheckpointMeta& meta, const std::string& failure,
                              const std::function<void(const std::string& record)>& write) {
  CheckpointMeta part;
  part.state = meta.state;
  part.files = meta.files;
  part.tensors = meta.tensors;
  try {
    place_.post(0, save_, failure.empty() ? kGood + format_meta(part) : kBad + failure);
  } catch (const std::exception& error) {  // the record is too long for one letter.
    place_.post(0, save_, kBad + std::string(error.what()));
  }
  // Rank 0 itself may wait the whole patience for another rank, again for a record, and then has
  // more to do.
  const Clock::time_point end = Clock::now() + 3 * place_.patience;
  while (!verdict_ && Clock::now() < end) {
    receive(std::chrono::ceil<milliseconds>(end - Clock::now()));
    if (record_ && write) answer(write);
  }
  if (!verdict_)
    throw std::runtime_error(
        message(name(0), ": did not complete the save within ", 3 * place_.patience.count(), " s"));
  if (verdict_->empty() || verdict_->front() != kGood)
    throw std::runtime_error(verdict_->substr(std::min<size_t>(1, verdict_->size())));
}

}  // namespace trainer
