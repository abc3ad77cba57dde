// SPDX-License-Identifier: MIT
// MappedFile over open, fstat, mmap, madvise; and the table of mappings that a signal handler
// reads, and by which changed files are found.
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

#include "libindexed/format.h"
#include "libindexed/message.h"

namespace indexed {

/// A mapping as the handler sees it: `begin` is set last and cleared first. The rest is for
/// check_mapped_files().
struct MappingSlot {
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<size_t> size{0};
  std::string path;
  dev_t device = 0;
  ino_t inode = 0;
  timespec modified = {};
  MappedFile::Refuse refuse = MappedFile::Refuse::changes;
  size_t witness = 0;         ///< the last byte of the last page that is not zero, or its last byte
  bool witness_zero = false;  ///< the whole last page was zeros
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
  std::string changed;  // the message about the first file that was found changed
};
FreeSlots& free_slots() {
  static FreeSlots* const all = new FreeSlots;
  return *all;
}

MappingSlot* take_slot(const std::string& path, const struct stat& info, MappedFile::Refuse refuse,
                       const std::byte* begin) {
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
  slot->device = info.st_dev;
  slot->inode = info.st_ino;
  slot->modified = info.st_mtim;
  slot->refuse = refuse;
  slot->size = static_cast<size_t>(info.st_size);
  slot->begin = begin;
  all.free.pop_back();
  return slot;
}

size_t page_bytes() noexcept { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

// Chooses the byte that tells whether the file was cut: read now, while it is whole.
void choose_witness(MappingSlot& slot) noexcept {
  const std::byte* const data = slot.begin.load();
  const size_t size = slot.size.load();
  const size_t page = (size - 1) / page_bytes() * page_bytes();
  size_t at = size;
  while (at > page && data[at - 1] == std::byte{0}) --at;
  slot.witness_zero = at == page;
  slot.witness = slot.witness_zero ? size - 1 : at - 1;
}

// What has happened to the file of a mapping; empty: nothing that counts.
std::string change_of(const MappingSlot& slot) {
  struct stat info {};
  // A name that leads nowhere, or to another file, says nothing about this one.
  const bool known = ::stat(slot.path.c_str(), &info) == 0 && info.st_dev == slot.device &&
                     info.st_ino == slot.inode;
  if (known && static_cast<size_t>(info.st_size) < slot.size.load())
    return message(slot.path, ": the file was cut short to ", info.st_size,
                   " bytes while it was read");
  const auto witness = *static_cast<const volatile std::byte*>(slot.begin.load() + slot.witness);
  if (!slot.witness_zero && witness == std::byte{0})
    return message(slot.path, ": the file was cut short while it was read");
  if (known && slot.refuse == MappedFile::Refuse::changes &&
      (static_cast<size_t>(info.st_size) != slot.size.load() ||
       info.st_mtim.tv_sec != slot.modified.tv_sec ||
       info.st_mtim.tv_nsec != slot.modified.tv_nsec))
    return message(slot.path, ": the file was changed while it was read");
  return {};
}

void give_slot(MappingSlot* slot) noexcept {
  FreeSlots& all = free_slots();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.changed.empty()) {
    try {
      all.changed = change_of(*slot);
    } catch (const std::bad_alloc&) {
      all.changed.assign("a file");  // short enough to need no memory
    }
  }
  slot->begin = nullptr;
  all.free.push_back(slot);
}

// Writes text to a buffer without allocation or locale, for a signal handler.
class Line {
 public:
  Line(char* begin, size_t size) noexcept : begin_(begin), size_(size) {}
  void add(std::string_view text) noexcept {
    for (const char c : text)
      if (length_ < size_) begin_[length_++] = static_cast<unsigned char>(c) < ' ' ? '?' : c;
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

MappedFile::MappedFile(const std::string& path, Access access, Refuse refuse) {
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
    slot_ = take_slot(path, info, refuse, data_);
  } catch (...) {
    ::munmap(const_cast<std::byte*>(data_), size_);
    throw;
  }
  choose_witness(*slot_);
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
  const size_t begin = offset / page_bytes() * page_bytes();
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

void check_mapped_files() {
  FreeSlots& all = free_slots();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const SlotBlock* block = last_block.load(); block != nullptr; block = block->before) {
    for (const MappingSlot& slot : block->slots)
      if (all.changed.empty() && slot.begin.load() != nullptr) all.changed = change_of(slot);
  }
  if (!all.changed.empty()) throw FormatError(all.changed);
}

void forget_changed_files() noexcept {
  FreeSlots& all = free_slots();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.changed.clear();
}

void touch(std::span<const std::byte> bytes) noexcept {
  constexpr size_t kPage = 4096;  // or a part of one
  if (bytes.empty()) return;
  for (size_t at = 0; at < bytes.size(); at += kPage)
    static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[at]));
  static_cast<void>(*static_cast<const volatile std::byte*>(&bytes.back()));
}

}  // namespace indexed
