// Arena and Pool: one block, cut into named parts; first fit within a part.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/arena.h"

#include <algorithm>
#include <cassert>
#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <utility>

namespace ops {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

int64_t tensor_bytes(DType dtype, std::initializer_list<int64_t> shape) {
  int64_t elements = 1;
  for (int64_t n : shape) elements *= n;
  return align_up(std::max<int64_t>(elements, 1) * size_bytes(dtype));
}

void* plan_address(int64_t offset) noexcept {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(kPlanBase + offset));
}

std::string line(const char* format, const std::string& what, double mib, double share) {
  char text[160];
  std::snprintf(text, sizeof text, format, what.c_str(), mib, share);
  return text;
}

}  // namespace

Arena::Arena(Ops& ops, int64_t bytes) : ops_(&ops), device_(ops.device()), capacity_(bytes) {
  block_ = static_cast<std::byte*>(ops.allocate(std::max<int64_t>(bytes, kAlignment)));
}

Arena Arena::on_host(Ops& ops, int64_t bytes) {
  Arena arena;
  if (bytes == 0) return arena;
  arena.block_ = static_cast<std::byte*>(ops.allocate_host(bytes));
  arena.ops_ = &ops;
  arena.on_host_ = true;
  arena.device_ = ops.device();
  arena.capacity_ = bytes;
  return arena;
}

Arena::~Arena() {
  if (block_ == nullptr) return;
  if (on_host_)
    ops_->release_host(block_);
  else
    ops_->release(block_);
}

Arena::Arena(Arena&& other) noexcept
    : ops_(other.ops_),
      block_(std::exchange(other.block_, nullptr)),
      on_host_(other.on_host_),
      device_(other.device_),
      capacity_(other.capacity_),
      used_(other.used_),
      cuts_(std::move(other.cuts_)) {}

Tensor Arena::cut(std::string_view purpose, DType dtype, std::initializer_list<int64_t> shape) {
  const int64_t bytes = tensor_bytes(dtype, shape);
  if (block_ != nullptr && used_ + bytes > capacity_)
    throw DeviceError("memory: " + std::string(purpose) + ": " + std::to_string(bytes) +
                      " bytes wanted, " + std::to_string(capacity_ - used_) + " planned for");
  void* address = block_ != nullptr ? block_ + used_ : plan_address(used_);
  used_ += bytes;
  auto found = std::find_if(cuts_.begin(), cuts_.end(),
                            [&](const Cut& cut) { return cut.purpose == purpose; });
  if (found == cuts_.end()) found = cuts_.insert(cuts_.end(), Cut{std::string(purpose), 0});
  found->bytes += bytes;
  return Tensor(address, dtype, device_, shape);
}

std::string Arena::report() const {
  std::string text;
  const double total = static_cast<double>(std::max<int64_t>(used_, 1));
  for (const Cut& cut : cuts_)
    text += line("  %-36s %12.1f MiB %6.1f%%\n", cut.purpose, static_cast<double>(cut.bytes) / kMiB,
                 100.0 * static_cast<double>(cut.bytes) / total);
  return text + line("  %-36s %12.1f MiB %6.1f%%\n", "in all", total / kMiB, 100.0);
}

Pool::Pool(Tensor block) : block_(block) {}

size_t Pool::index_of(std::string_view purpose) {
  for (size_t i = 0; i < purposes_.size(); ++i)
    if (purposes_[i] == purpose) return i;
  purposes_.emplace_back(purpose);
  now_.push_back(0);
  return purposes_.size() - 1;
}

PoolTensor Pool::take(std::string_view purpose, DType dtype, std::initializer_list<int64_t> shape) {
  const int64_t bytes = tensor_bytes(dtype, shape);
  const auto gap = std::find_if(gaps_.begin(), gaps_.end(),
                                [&](const Gap& free) { return free.bytes >= bytes; });
  const int64_t offset = gap != gaps_.end() ? gap->offset : end_;
  if (block_ && offset + bytes > block_.bytes())
    throw DeviceError("memory of a step: " + std::string(purpose) + ": " + std::to_string(bytes) +
                      " bytes do not fit into " + std::to_string(block_.bytes()));
  if (gap == gaps_.end()) {
    end_ += bytes;
  } else if (gap->bytes == bytes) {
    gaps_.erase(gap);
  } else {
    gap->offset += bytes;
    gap->bytes -= bytes;
  }
  const size_t index = index_of(purpose);
  used_ += bytes;
  now_[index] += bytes;
  if (end_ > peak_) {
    peak_ = end_;
    at_peak_ = now_;
  }
  void* address = block_ ? static_cast<std::byte*>(block_.data) + offset : plan_address(offset);
  return {this, index, Tensor(address, dtype, block_ ? block_.device : Device::plan, shape)};
}

void Pool::give(const Tensor& tensor, size_t purpose) noexcept {
  const int64_t offset =
      block_ ? static_cast<std::byte*>(tensor.data) - static_cast<std::byte*>(block_.data)
             : static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.data)) - kPlanBase;
  const int64_t bytes = align_up(std::max<int64_t>(tensor.bytes(), size_bytes(tensor.dtype)));
  assert(offset >= 0 && offset + bytes <= end_);
  used_ -= bytes;
  now_[purpose] -= bytes;
  const auto next = std::lower_bound(gaps_.begin(), gaps_.end(), offset,
                                     [](const Gap& gap, int64_t at) { return gap.offset < at; });
  const bool joins_last = next != gaps_.begin() && (next - 1)->offset + (next - 1)->bytes == offset;
  const bool joins_next = next != gaps_.end() && offset + bytes == next->offset;
  assert(next == gaps_.begin() || (next - 1)->offset + (next - 1)->bytes <= offset);
  assert(next == gaps_.end() || offset + bytes <= next->offset);
  if (offset + bytes == end_) {
    end_ = joins_last ? gaps_.back().offset : offset;
    if (joins_last) gaps_.pop_back();
  } else if (joins_last && joins_next) {
    (next - 1)->bytes += bytes + next->bytes;
    gaps_.erase(next);
  } else if (joins_last) {
    (next - 1)->bytes += bytes;
  } else if (joins_next) {
    *next = {offset, bytes + next->bytes};
  } else {
    gaps_.insert(next, {offset, bytes});
  }
}

PoolTensor::PoolTensor(PoolTensor&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      purpose_(other.purpose_),
      tensor_(std::exchange(other.tensor_, Tensor())) {}

PoolTensor& PoolTensor::operator=(PoolTensor&& other) noexcept {
  if (this == &other) return *this;
  reset();
  pool_ = std::exchange(other.pool_, nullptr);
  purpose_ = other.purpose_;
  tensor_ = std::exchange(other.tensor_, Tensor());
  return *this;
}

PoolTensor PoolTensor::borrow(const Tensor& tensor) noexcept { return {nullptr, 0, tensor}; }

void PoolTensor::reset() noexcept {
  if (pool_ != nullptr) pool_->give(tensor_, purpose_);
  pool_ = nullptr;
  tensor_ = Tensor();
}

std::string Pool::report() const {
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (size_t i = 0; i < at_peak_.size(); ++i)
    if (at_peak_[i] > 0) sorted.emplace_back(-at_peak_[i], purposes_[i]);
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  const double peak = static_cast<double>(std::max<int64_t>(peak_, 1));
  for (const auto& [bytes, purpose] : sorted)
    text += line("    %-34s %12.1f MiB %6.1f%%\n", purpose, static_cast<double>(-bytes) / kMiB,
                 -100.0 * static_cast<double>(bytes) / peak);
  return text;
}

}  // namespace ops
