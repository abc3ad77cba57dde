// SPDX-License-Identifier: MIT
// OutputFile over open(O_EXCL), write, fsync, renameat2. A live writer holds an exclusive flock on
// its temporary, so that a temporary whose lock is free is a dead process's and may be removed, on
// this machine or another.
#include "libindexed/output_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

namespace indexed {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int64_t kWriteBehindBytes = int64_t{64} << 20;

[[noreturn]] void fail(const std::string& what, int code) {
  throw std::system_error(code, std::generic_category(), what);
}

// The table that a signal handler reads: a slot's path is complete before `used` says so.
struct Slot {
  std::atomic<int> state{0};  // 0 free, 1 being filled, 2 in use
  char path[PATH_MAX];
};
constexpr int kSlots = 256;
Slot slots[kSlots];

int take_slot(const std::string& path) {
  if (path.size() >= sizeof slots[0].path) fail(path, ENAMETOOLONG);
  for (int i = 0; i < kSlots; ++i) {
    int free = 0;
    if (slots[i].state.compare_exchange_strong(free, 1)) {
      std::memcpy(slots[i].path, path.c_str(), path.size() + 1);
      slots[i].state.store(2);
      return i;
    }
  }
  fail(path + ": more than 256 unfinished outputs at once", EMFILE);
}

void give_slot(int slot) noexcept {
  if (slot >= 0) slots[slot].state.store(0);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string in_folder_of(const std::string& path, const std::string& name) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? name : path.substr(0, slash + 1) + name;
}

void sync_folder(const std::string& path) {
  const std::string folder = folder_of(path);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // a folder that may be written but not read cannot be synced
  const int code = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  if (code != 0 && code != EINVAL && code != EROFS)
    fail(folder, code);  // EINVAL: a file system without it
}

// The file behind a symbolic link, so that a rename replaces the file and not the link.
std::string resolve_link(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return path;
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) fail(path, errno);  // also a dangling link: where would the file go
  std::string result = real;
  std::free(real);
  return result;
}

bool lock(int fd) noexcept {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  return errno != EWOULDBLOCK &&
         errno != EINTR;  // a file system without locks: take what O_EXCL gives
}

// Removes `.NAME.<digits>.tmp` beside the target where no live process holds its lock.
void remove_stale_temporaries(const std::string& target) {
  DIR* folder = ::opendir(folder_of(target).c_str());
  if (folder == nullptr) return;
  const std::string begin = "." + name_of(target) + ".";
  const std::string end = ".tmp";
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) ||
        !name.ends_with(end))
      continue;
    const std::string_view pid = name.substr(begin.size(), name.size() - begin.size() - end.size());
    if (pid.find_first_not_of("0123456789") != std::string_view::npos) continue;
    const int fd =
        ::openat(::dirfd(folder), entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlinkat(::dirfd(folder), entry->d_name, 0);
    ::close(fd);
  }
  ::closedir(folder);
}

}  // namespace

OutputFile::OutputFile(std::string path, Existing existing)
    : path_(std::move(path)), target_(resolve_link(path_)), existing_(existing) {
  struct stat info {};
  if (::stat(target_.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) fail(path_, EISDIR);
    if (!S_ISREG(info.st_mode)) fail(path_ + ": not a regular file", ENOTSUP);
    if (existing_ == Existing::refuse) fail(path_ + ": not replaced without --force", EEXIST);
  }
  remove_stale_temporaries(target_);
  open_temporary();
  buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
}

void OutputFile::open_temporary() {
  temporary_ =
      in_folder_of(target_, "." + name_of(target_) + "." + std::to_string(::getpid()) + ".tmp");
  // The slot is taken first: a signal between creation and entry would leave the file.
  slot_ = take_slot(temporary_);
  for (int attempt = 0; attempt < 100; ++attempt) {
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) break;
    if (fd_ < 0) {
      ::usleep(1000);  // a process that is removing stale temporaries, or a live writer of the same
                       // number
      errno = EEXIST;
      continue;
    }
    struct stat info {};
    // Another process may have taken it for a dead one's between creation and lock.
    if (lock(fd_) && ::fstat(fd_, &info) == 0 && info.st_nlink > 0) return;
    ::close(fd_);
    fd_ = -1;
  }
  const int code = fd_ < 0 && errno == EEXIST ? EBUSY : errno;
  give_slot(std::exchange(slot_, -1));
  temporary_.clear();
  fail(path_ + (code == EBUSY ? ": being written by another process" : ""), code);
}

OutputFile::~OutputFile() { forget(); }

void OutputFile::forget() noexcept {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  give_slot(std::exchange(slot_, -1));
  temporary_.clear();
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void OutputFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void OutputFile::write(std::span<const std::byte> bytes) {
  size_ += static_cast<int64_t>(bytes.size());
  if (bytes.size() < kBufferBytes - buffered_) {
    if (!bytes.empty()) std::memcpy(buffer_.get() + buffered_, bytes.data(), bytes.size());
    buffered_ += bytes.size();
    return;
  }
  write_fully(buffer_.get(), std::exchange(buffered_, 0));
  if (bytes.size() >= kBufferBytes) {
    write_fully(bytes.data(), bytes.size());
  } else {
    std::memcpy(buffer_.get(), bytes.data(), bytes.size());
    buffered_ = bytes.size();
  }
  // Starts writing back early, so that the fsync at the end finds little left.
  const int64_t written = size_ - static_cast<int64_t>(buffered_);
  if (written - write_behind_ >= kWriteBehindBytes) {
    ::sync_file_range(fd_, write_behind_, written - write_behind_, SYNC_FILE_RANGE_WRITE);
    write_behind_ = written;
  }
}

void OutputFile::write_fully(const std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd_, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, errno);
    data += n;
    size -= static_cast<size_t>(n);
  }
}

void OutputFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
  std::atomic_ref<int64_t> size(size_);
  for (int64_t old = size.load(); old < end && !size.compare_exchange_weak(old, end);) {
  }
}

void OutputFile::flush() { write_fully(buffer_.get(), std::exchange(buffered_, 0)); }

void OutputFile::refresh_size() {
  size_ = ::lseek(fd_, 0, SEEK_END);
  if (size_ < 0) fail(path_, errno);
}

void OutputFile::sync() {
  if (synced_) return;
  flush();
  if (::fsync(fd_) != 0) fail(path_, errno);
  synced_ = true;
}

void OutputFile::rename_into_place() {
  const unsigned flags = existing_ == Existing::refuse ? RENAME_NOREPLACE : 0;
  int result = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), flags);
  if (result != 0 &&
      (errno == EINVAL || errno == ENOSYS)) {  // a file system without RENAME_NOREPLACE
    if (flags != 0 && ::access(target_.c_str(), F_OK) == 0)
      fail(path_ + ": not replaced without --force", EEXIST);
    result = ::rename(temporary_.c_str(), target_.c_str());
  }
  if (result != 0) fail(path_ + (errno == EEXIST ? ": not replaced without --force" : ""), errno);
  temporary_.clear();
  forget();
}

void OutputFile::commit() {
  sync();
  rename_into_place();
  sync_folder(target_);
}

void commit_set(std::span<OutputFile* const> files) {
  for (OutputFile* file : files) file->sync();
  struct stat info {};
  for (const OutputFile* file : files) {
    if (file->existing_ == Existing::refuse && ::lstat(file->target_.c_str(), &info) == 0) {
      fail(file->path_ + ": not replaced without --force", EEXIST);
    }
  }
  if (files.size() > 1) {
    const OutputFile& last = *files.back();
    if (::unlink(last.target_.c_str()) != 0 && errno != ENOENT) fail(last.path_, errno);
    sync_folder(last.target_);
  }
  for (OutputFile* file : files) {
    // Data and index may lie in one folder or several; before the last name appears, all others are
    // on the disk.
    if (file == files.back() && files.size() > 1) sync_folder(files.front()->target_);
    file->rename_into_place();
  }
  for (const OutputFile* file : files) sync_folder(file->target_);
}

void remove_temporaries() noexcept {
  const int saved = errno;
  for (Slot& slot : slots) {
    if (slot.state.load() == 2) ::unlink(slot.path);
  }
  errno = saved;
}

int open_scratch_file(const std::string& beside) {
  const std::string folder = folder_of(beside);
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = in_folder_of(beside, "." + name_of(beside) + ".XXXXXX");
  fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) fail(folder, errno);
  ::unlink(name.c_str());
  return fd;
}

}  // namespace indexed
