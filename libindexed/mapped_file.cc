// SPDX-License-Identifier: MIT
// MappedFile over open, fstat, mmap, madvise; and the table of mappings that a signal handler
// reads.
#include "libindexed/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace indexed {

/// A mapping as the handler sees it: `begin` is set last and cleared first.
struct MappingSlot {
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<size_t> size{0};
  std::string path;
};

namespace {

// Blocks of slots, each linked to the one before it. Their number grows with the mappings, and they
// are never freed, so that a handler may walk them at any moment.
struct SlotBlock {
  std::array<MappingSlot, 256> slots;
  SlotBlock* before = nullptr;
};
std::atomic<SlotBlock*> last_block = nullptr;

// The free slots and their lock. Never destroyed, because mappings of static objects are released
// late.
struct FreeSlots {
  std::mutex mutex;
  std::vector<MappingSlot*> free;  // has capacity for every slot
  size_t count = 0;
};
FreeSlots& free_slots() {
  static FreeSlots* const all = new FreeSlots;
  return *all;
}

MappingSlot* take_slot(const std::string& path, const std::byte* begin, size_t size) {
  FreeSlots& all = free_slots();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.free.empty()) {
    auto block = std::make_unique<SlotBlock>();
    block->before = last_block.load();
    all.count += block->slots.size();
    all.free.reserve(all.count);
    for (MappingSlot& slot : block->slots) all.free.push_back(&slot);
    last_block = block.release();
  }
  MappingSlot* slot = all.free.back();
  slot->path = path;
  slot->size = size;
  slot->begin = begin;
  all.free.pop_back();
  return slot;
}

void give_slot(MappingSlot* slot) noexcept {
  slot->begin = nullptr;
  FreeSlots& all = free_slots();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.free.push_back(slot);
}

// Writes text to a buffer without allocation or locale, for a signal handler.
class Line {
 public:
  Line(char* begin, size_t size) noexcept : begin_(begin), size_(size) {}
  void add(std::string_view text) noexcept {
    for (const char c : text)
      if (length_ < size_) begin_[length_++] = c >= 0 && c < ' ' ? '?' : c;
  }
  void add(uint64_t number) noexcept {
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    add(std::string_view(digits + at, sizeof digits - at));
  }
  size_t length() const noexcept { return length_; }

 private:
  char* begin_;
  size_t size_;
  size_t length_ = 0;
};

[[noreturn]] void fail(const std::string& path, int code) {
  throw std::system_error(code, std::generic_category(), path);
}

}  // namespace

MappedFile::MappedFile(const std::string& path, Access access) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(path, errno);
  struct stat info {};
  int code = ::fstat(fd, &info) != 0 ? errno : 0;
  if (code == 0 && S_ISDIR(info.st_mode)) code = EISDIR;
  if (code == 0 && !S_ISREG(info.st_mode)) {  // a pipe has no size and cannot be mapped
    ::close(fd);
    fail(path + ": not a regular file", ENOTSUP);
  }
  if (code == 0 && info.st_size > 0) {
    void* at = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
      code = errno;
    } else {
      data_ = static_cast<const std::byte*>(at);
      size_ = static_cast<size_t>(info.st_size);
      if (access == Access::sequential) ::madvise(at, size_, MADV_SEQUENTIAL);
      if (access == Access::random) ::madvise(at, size_, MADV_RANDOM);
    }
  }
  ::close(fd);
  if (code != 0) fail(path, code);
  if (size_ == 0) return;
  try {
    slot_ = take_slot(path, data_, size_);
  } catch (...) {
    ::munmap(const_cast<std::byte*>(data_), size_);
    throw;
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      slot_(std::exchange(other.slot_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(slot_, other.slot_);
  return *this;
}

MappedFile::~MappedFile() {
  if (slot_ != nullptr) give_slot(slot_);
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(size_t offset, size_t size) const noexcept {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  const size_t end = std::min(offset + size, size_);
  if (data_ == nullptr || begin >= end) return;
  ::madvise(const_cast<std::byte*>(data_ + begin), end - begin, MADV_DONTNEED);
}

size_t describe_fault(const void* address, char* line, size_t size) noexcept {
  const auto* at = static_cast<const std::byte*>(address);
  for (const SlotBlock* block = last_block.load(); block != nullptr; block = block->before) {
    for (const MappingSlot& slot : block->slots) {
      const std::byte* begin = slot.begin.load();
      if (begin == nullptr || at < begin || at >= begin + slot.size.load()) continue;
      const auto offset = static_cast<uint64_t>(at - begin);
      struct stat info {};
      const bool shrunk =
          ::stat(slot.path.c_str(), &info) == 0 && static_cast<uint64_t>(info.st_size) <= offset;
      Line text(line, size);
      text.add(slot.path);
      text.add(": byte ");
      text.add(offset);
      if (shrunk) {
        text.add(": the file was cut short to ");
        text.add(static_cast<uint64_t>(info.st_size));
        text.add(" bytes while it was read");
      } else {
        text.add(": cannot be read: input/output error");
      }
      return text.length();
    }
  }
  return 0;
}

void touch(std::span<const std::byte> bytes) noexcept {
  constexpr size_t kPage = 4096;  // or a part of one
  if (bytes.empty()) return;
  for (size_t at = 0; at < bytes.size(); at += kPage)
    static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[at]));
  static_cast<void>(*static_cast<const volatile std::byte*>(&bytes.back()));
}

}  // namespace indexed
