// SPDX-License-Identifier: MIT
// OutputFile over open(O_EXCL), write, fsync, renameat2. A running writer holds an exclusive flock
// on its temporary file, so a temporary file whose lock is free belongs to a dead process, on this
// machine or another, and may be removed.
#include "libindexed/output_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "libindexed/mapped_file.h"
#include "libindexed/permissions.h"
#include "libindexed/sync_folder.h"
#include "libindexed/temporary_names.h"

namespace indexed {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

/// Writes of at least this size bypass the buffer: the copy would cost more than the call.
constexpr size_t kDirectBytes = size_t{1} << 16;

/// Bytes of one call of write(2); those of write_at() end at a multiple of it. For more, Linux
/// takes huge pages into its cache; a virtual machine's have often gone back to the host, and
/// getting one again costs several times as much as the copy (bench/conversion.md).
constexpr int64_t kCallBytes = int64_t{256} << 10;

constexpr int64_t kWriteBehindBytes = int64_t{4} << 20;

[[noreturn]] void fail(const std::string& what, int code) {
  throw std::system_error(code, std::generic_category(), what);
}

// The same for what could not be opened; where this process has too many files, with the limit.
[[noreturn]] void fail_to_open(const std::string& what, int code) {
  rlimit files{};
  if (code != EMFILE || ::getrlimit(RLIMIT_NOFILE, &files) != 0) fail(what, code);
  fail(what + ": `ulimit -n` allows " + std::to_string(files.rlim_cur), code);
}

// The table that a signal handler reads: a slot's path is complete before its state says so. States
// lie together, and nothing is set at the start, so that no program touches 16 MB of paths.
// kept: in use when a naming section ended by an error after a file got its name; the temporary
// file stays, as after a kill, to show the next run what happened.
enum State : int { free_slot, being_filled, in_use, kept };
constexpr int kSlots = 4096;
constinit std::atomic<int> states[kSlots] = {};
constinit char paths[kSlots][PATH_MAX] = {};

int take_slot(const std::string& path) {
  if (path.size() >= sizeof paths[0]) fail(path, ENAMETOOLONG);
  for (int i = 0; i < kSlots; ++i) {
    int state = free_slot;
    if (states[i].compare_exchange_strong(state, being_filled)) {
      std::memcpy(paths[i], path.c_str(), path.size() + 1);
      states[i].store(in_use);
      return i;
    }
  }
  fail(path + ": more than 4096 unfinished outputs at once", EMFILE);
}

// Whether this process writes that temporary file already, under this name or another.
bool has_slot(const std::string& path) {
  struct stat wanted {};
  if (::stat(path.c_str(), &wanted) != 0) return false;
  for (int i = 0; i < kSlots; ++i) {
    struct stat info {};
    if (states[i].load() >= in_use && ::stat(paths[i], &info) == 0 &&
        info.st_dev == wanted.st_dev && info.st_ino == wanted.st_ino)
      return true;
  }
  return false;
}

void give_slot(int slot) noexcept {
  if (slot >= 0) states[slot].store(free_slot);
}

constexpr const char* kNameInDoubt = ": complete, but a loss of power may take its name";

// Puts the names in the folder of `target` on the disk. `state`: what a message says of the files
// where that fails.
void sync_folder_of(const std::string& target, const std::string& state) {
  const std::string folder = folder_of(target);
  if (const int error = sync_folder(folder); error != 0)
    fail_to_open(state + ": fsync of the folder " + folder, error);
}

// Refuses a link to a file that is open (/dev/fd/3, /dev/stderr): who opened it goes on writing,
// and a rename would take its name from it.
void refuse_open_file(const std::string& path) {
  std::filesystem::path at = path;
  std::error_code none;
  for (int links = 0; links < 40; ++links) {
    const std::filesystem::path folder = std::filesystem::canonical(folder_of(at), none);
    if (folder.native().starts_with("/proc/")) fail(path + ": an open file, not a name", ENOTSUP);
    const std::filesystem::path next = std::filesystem::read_symlink(at, none);
    if (none) return;
    at = folder / next;
  }
}

// The file behind a symbolic link, so that a rename replaces the file and not the link.
std::string resolve_link(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return path;
  refuse_open_file(path);
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr)
    fail(path, errno);  // also for a dangling link, which has no target to
                        // replace
  std::string result = real;
  std::free(real);
  return result;
}

// The status of a file that may be replaced, if there is one.
std::optional<struct stat> status_of_target(const std::string& path, const std::string& target,
                                            Existing existing) {
  struct stat info {};
  const bool found = existing == Existing::replace_link
                         ? ::lstat(target.c_str(), &info) == 0 && !S_ISLNK(info.st_mode)
                         : ::stat(target.c_str(), &info) == 0;
  if (!found) return std::nullopt;
  if (S_ISDIR(info.st_mode)) fail(path, EISDIR);
  if (!S_ISREG(info.st_mode)) fail(path + ": not a regular file", ENOTSUP);
  if (existing == Existing::refuse) fail(path + ": not replaced without --force", EEXIST);
  return info;
}

bool lock(int fd) noexcept {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  return errno != EWOULDBLOCK && errno != EINTR;  // a file system without locks: rely on O_EXCL
}

// Calls use(folder, name, fd) for each file beside the target with the name of a temporary one.
template <class Use>
void for_temporaries(const std::string& target, Use use) {
  DIR* folder = ::opendir(folder_of(target).c_str());
  if (folder == nullptr) return;
  const TemporaryNames names(target);
  while (const dirent* entry = ::readdir(folder)) {
    if (!names.contains(entry->d_name)) continue;
    const int fd =
        ::openat(::dirfd(folder), entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) continue;
    use(::dirfd(folder), entry->d_name, fd);
    ::close(fd);
  }
  ::closedir(folder);
}

// The same, with use(folder, name), for those whose lock no running process holds.
template <class Use>
void for_stale_temporaries(const std::string& target, Use use) {
  for_temporaries(target, [&](int folder, const char* name, int fd) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) use(folder, name);
  });
}

// Removes all but `own`, which has no lock if the file system has none.
void remove_stale_temporaries(const std::string& target, const std::string& own = "") {
  for_stale_temporaries(target, [&](int folder, const char* name) {
    if (name != name_of(own)) ::unlinkat(folder, name, 0);
  });
}

bool replaces(Existing existing) {
  return existing == Existing::replace || existing == Existing::replace_link;
}

// Whether two files have the same bytes.
bool equal_files(int a, const std::string& path) {
  const int b = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (b < 0) fail(path, errno);
  struct stat info_a {
  }, info_b{};
  bool equal =
      ::fstat(a, &info_a) == 0 && ::fstat(b, &info_b) == 0 && info_a.st_size == info_b.st_size;
  std::vector<char> left(kBufferBytes), right(kBufferBytes);
  for (off_t at = 0; equal && at < info_a.st_size;) {
    const ssize_t n = ::pread(a, left.data(), left.size(), at);
    const ssize_t m = n > 0 ? ::pread(b, right.data(), static_cast<size_t>(n), at) : n;
    if (n <= 0 || m <= 0) {
      const int code = n == 0 || m == 0 ? EIO : errno;
      ::close(b);
      fail(path, code);
    }
    equal = std::memcmp(left.data(), right.data(), static_cast<size_t>(m)) == 0;
    at += m;
  }
  ::close(b);
  return equal;
}

// The number of active sections, and the signal that arrived during one.
std::atomic<int> naming = 0;
std::atomic<int> waiting_signal = 0;
// How many threads remove what has no name yet. Then the process ends: what begins to give names
// waits for that, so that no file of a set is missing among those that have a name.
std::atomic<int> removing = 0;

// Whether a file got its name in the active section.
std::atomic<bool> named = false;

}  // namespace

OutputFile::OutputFile(std::string path, Existing existing)
    : path_(std::move(path)),
      target_(existing == Existing::replace_link ? path_ : resolve_link(path_)),
      existing_(existing) {
  const std::optional<struct stat> old = status_of_target(path_, target_, existing_);
  open_temporary(old ? 0600 : 0666);  // nobody else opens it before it has the old permissions
  if (old) copy_permissions(target_, *old, fd_);
  // Afterwards, so that the next run always finds one.
  remove_stale_temporaries(target_, temporary_);
  buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
}

OutputFile::OutputFile(const UnnamedFile& file)
    : path_(file.name),
      existing_(Existing::replace),
      fd_(::open(("/proc/self/fd/" + std::to_string(file.fd)).c_str(), O_RDWR | O_CLOEXEC)) {
  if (fd_ < 0) fail(path_, errno);
  buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
}

void OutputFile::open_temporary(mode_t mode) {
  temporary_ = TemporaryNames(target_).own();
  if (has_slot(temporary_)) {
    temporary_.clear();
    fail(path_ + ": two outputs of this command have this name", EBUSY);
  }
  // The slot is taken first: otherwise a signal between creating the file and filling the slot
  // would leave the file.
  slot_ = take_slot(temporary_);
  for (int attempt = 0; attempt < 100; ++attempt) {
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd_ < 0 && errno != EEXIST) break;
    if (fd_ < 0) {
      remove_stale_temporaries(target_);  // of a dead process with this pid
      ::usleep(1000);  // a process that is removing stale temporary files, or a running writer with
                       // the same pid
      errno = EEXIST;
      continue;
    }
    struct stat info {};
    // Another process may have removed it as stale between creation and lock.
    if (lock(fd_) && ::fstat(fd_, &info) == 0 && info.st_nlink > 0) return;
    ::close(fd_);
    fd_ = -1;
  }
  const int code = fd_ < 0 && errno == EEXIST ? EBUSY : errno;
  give_slot(std::exchange(slot_, -1));
  temporary_.clear();
  const std::string folder = folder_of(target_);
  if (code == ENOENT && ::access(folder.c_str(), F_OK) != 0)
    fail_to_open(path_ + ": its folder " + folder, code);
  fail_to_open(path_ + (code == EBUSY ? ": being written by another process" : ""), code);
}

void OutputFile::refuse_second_writer() const {
  const std::string own = name_of(temporary_);
  for (int pause = 0;; ++pause) {
    bool others = false, first = true;
    for_temporaries(target_, [&](int, const char* name, int fd) {
      if (name == own || ::flock(fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
      others = true;
      first = first && own < name;
    });
    if (!others) return;
    // Who only looks for left files holds a lock for a moment. Of two that begin together the first
    // by name goes on, when the other has gone.
    if (pause == (first ? 200 : 20)) fail(path_ + ": being written by another process", EBUSY);
    ::usleep(10'000);
  }
}

OutputFile::~OutputFile() { forget(); }

void OutputFile::forget() noexcept {
  const bool stays = slot_ >= 0 && states[slot_].load() == kept;
  if (!temporary_.empty() && !stays) ::unlink(temporary_.c_str());
  give_slot(std::exchange(slot_, -1));
  temporary_.clear();
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void OutputFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void OutputFile::write(std::span<const std::byte> bytes) {
  size_ += static_cast<int64_t>(bytes.size());
  if (bytes.size() < kDirectBytes && bytes.size() < kBufferBytes - buffered_) {
    if (!bytes.empty()) std::memcpy(buffer_.get() + buffered_, bytes.data(), bytes.size());
    buffered_ += bytes.size();
    return;
  }
  write_fully(buffer_.get(), std::exchange(buffered_, 0));
  if (bytes.size() >= kDirectBytes) {
    write_fully(bytes.data(), bytes.size());
  } else {
    std::memcpy(buffer_.get(), bytes.data(), bytes.size());
    buffered_ = bytes.size();
  }
  start_writing_back(size_ - static_cast<int64_t>(buffered_));
}

int64_t OutputFile::append_from(int fd, int64_t offset, int64_t bytes) {
  flush();
  ssize_t copied;
  do {
    off_t from = offset;
    copied = ::copy_file_range(fd, &from, fd_, nullptr, static_cast<size_t>(bytes), 0);
  } while (copied < 0 && errno == EINTR);
  if (copied <= 0) return 0;
  size_ += copied;
  start_writing_back(size_);
  return copied;
}

/// Early, so that the fsync at the end finds little left.
void OutputFile::start_writing_back(int64_t written) noexcept {
  if (written - write_behind_ < kWriteBehindBytes) return;
  ::sync_file_range(fd_, write_behind_, written - write_behind_, SYNC_FILE_RANGE_WRITE);
  write_behind_ = written;
}

// Writing bytes of a mapped file that was cut short fails with EFAULT; touching them raises SIGBUS,
// whose handler names that file.
void OutputFile::fail_writing(std::span<const std::byte> bytes) const {
  const int code = errno;
  if (code == EFAULT) touch(bytes);
  fail(path_, code);
}

// At most `size` bytes, up to the end of one call's in the file.
static size_t of_one_call(int64_t offset, size_t size) noexcept {
  return std::min(size, static_cast<size_t>(kCallBytes - offset % kCallBytes));
}

void OutputFile::write_fully(const std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd_, data, std::min(size, static_cast<size_t>(kCallBytes)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_writing({data, size});
    data += n;
    size -= static_cast<size_t>(n);
  }
}

void OutputFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const size_t size = of_one_call(offset, bytes.size());
    const ssize_t n = ::pwrite(fd_, bytes.data(), size, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_writing(bytes);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
  std::atomic_ref<int64_t> size(size_);
  for (int64_t old = size.load(); old < end && !size.compare_exchange_weak(old, end);) {
  }
}

void OutputFile::begin_writing_back(int64_t offset, int64_t bytes) noexcept {
  ::sync_file_range(fd_, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

void OutputFile::flush() { write_fully(buffer_.get(), std::exchange(buffered_, 0)); }

void OutputFile::end_writing() {
  if (buffer_ == nullptr) return;
  flush();
  buffer_.reset();
}

void OutputFile::sync() {
  if (synced_) return;
  end_writing();
  if (::fsync(fd_) != 0) fail(path_, errno);
  synced_ = true;
}

// Before any rename: checks the target of a file that must not replace another.
void OutputFile::check_target() const {
  struct stat info {};
  if (replaces(existing_) || ::lstat(target_.c_str(), &info) != 0) return;
  if (existing_ == Existing::refuse) fail(path_ + ": not replaced without --force", EEXIST);
  if (equal_files(fd_, target_)) return;
  fail(path_ + ": differs from what this run made, not replaced without --force", EEXIST);
}

void OutputFile::rename_into_place() {
  const unsigned flags = replaces(existing_) ? 0 : RENAME_NOREPLACE;
  int result = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), flags);
  if (result != 0 &&
      (errno == EINVAL || errno == ENOSYS)) {  // a file system without RENAME_NOREPLACE
    errno = EEXIST;
    if (flags == 0 || ::access(target_.c_str(), F_OK) != 0)
      result = ::rename(temporary_.c_str(), target_.c_str());
  }
  if (result != 0 && errno == EEXIST && existing_ == Existing::same) return forget();
  if (result != 0) fail(path_ + (errno == EEXIST ? ": not replaced without --force" : ""), errno);
  named = true;
  temporary_.clear();
  forget();
}

void OutputFile::commit() {
  sync();
  check_mapped_files();
  if (target_.empty()) {
    if (::ftruncate(fd_, size_) != 0) fail(path_, errno);
    return forget();
  }
  check_target();
  rename_into_place();
  sync_folder_of(target_, path_ + kNameInDoubt);
}

void sync_all(std::span<OutputFile* const> files) {
  for (OutputFile* file : files) {
    if (file->synced_) continue;
    file->flush();
    ::sync_file_range(file->fd_, 0, 0, SYNC_FILE_RANGE_WRITE);
  }
  for (OutputFile* file : files) file->sync();
}

void commit_set(std::span<OutputFile* const> files, size_t num_last,
                std::span<const std::string> surplus) {
  sync_all(files);
  check_mapped_files();
  for (const OutputFile* file : files) file->check_target();
  const NamingSection section;
  const std::string& last_path = files.back()->path_;
  const auto sync_folders = [](const std::vector<std::string>& paths, const std::string& state) {
    std::vector<std::string> synced;
    for (const std::string& path : paths) {
      const std::string folder = folder_of(path);
      if (std::ranges::find(synced, folder) != synced.end()) continue;
      sync_folder_of(path, state);
      synced.push_back(folder);
    }
  };
  std::vector<std::string> removed;
  const auto remove = [&](const std::string& target, const std::string& path) {
    if (::unlink(target.c_str()) == 0) {
      removed.push_back(target);
    } else if (errno != ENOENT) {
      fail(path, errno);
    }
  };
  // One that must not be replaced was not there a moment ago: now it would be another process's.
  for (const OutputFile* last : files.last(num_last)) {
    if (files.size() > 1 && replaces(last->existing_)) remove(last->target_, last->path_);
  }
  for (const std::string& path : surplus) remove(path, path);
  sync_folders(removed, last_path + ": not written, though the old one is removed");
  std::vector<std::string> targets;
  for (const OutputFile* file : files) targets.push_back(file->target_);
  const auto rename = [&](std::span<OutputFile* const> some) {
    for (OutputFile* file : some) file->rename_into_place();
  };
  // Data and index may be in different folders; all other names are on the disk before one of the
  // last appears.
  const size_t others = files.size() - num_last;
  rename(files.first(others));
  sync_folders({targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(others)},
               last_path + ": not named, though the files that belong to it are");
  rename(files.last(num_last));
  sync_folders(targets, files.size() == 1
                            ? last_path + kNameInDoubt
                            : last_path +
                                  ": complete, as are the files that belong to it, but a "
                                  "loss of power may take their names");
}

std::string target_of(const std::string& path) { return resolve_link(path); }

void refuse_bad_target(const std::string& path, Existing existing) {
  const std::string target = resolve_link(path);
  status_of_target(path, target, existing);
  if (::access((folder_of(target) + "/.").c_str(), W_OK | X_OK) != 0) fail(path, errno);
}

std::vector<std::string> left_temporaries(const std::string& path) {
  std::vector<std::string> found;
  const std::string target = resolve_link(path);
  for_stale_temporaries(
      target, [&](int, const char* name) { found.push_back(in_folder_of(target, name)); });
  return found;
}

bool left_unfinished(const std::string& path) { return !left_temporaries(path).empty(); }

NamingSection::NamingSection() noexcept : errors_before_(std::uncaught_exceptions()) {
  if (naming++ == 0) named = false;
  constexpr timespec kMoment = {0, 1'000'000};
  while (removing.load() > 0) ::nanosleep(&kMoment, nullptr);
}

NamingSection::~NamingSection() {
  if (std::uncaught_exceptions() > errors_before_ && named.load()) {
    for (std::atomic<int>& state : states) {
      int used = in_use;
      state.compare_exchange_strong(used, kept);
    }
  }
  if (--naming > 0) return;
  if (const int signal = waiting_signal.exchange(0); signal != 0) ::raise(signal);
}

RemoveOnSignal::RemoveOnSignal(const std::string& path) : slot_(take_slot(path)) {}

RemoveOnSignal::RemoveOnSignal(RemoveOnSignal&& other) noexcept
    : slot_(std::exchange(other.slot_, -1)) {}

RemoveOnSignal::~RemoveOnSignal() { give_slot(slot_); }

bool remove_temporaries(int signal) noexcept {
  while (true) {
    ++removing;
    if (naming.load() == 0) break;
    --removing;
    if (signal == 0) return false;
    waiting_signal.store(signal);
    // The section may have ended in between; then nothing else would raise the signal.
    if (naming.load() > 0 || waiting_signal.exchange(0) == 0) return false;
  }
  const int saved = errno;
  // Twice: another thread may give a finished file its name in the meantime.
  for (int i = 0; i < 2 * kSlots; ++i) {
    if (states[i % kSlots].load() == in_use) ::unlink(paths[i % kSlots]);
  }
  // Then the folders, now empty. Twice: a folder may come before the one inside it.
  for (int i = 0; i < 2 * kSlots; ++i) {
    if (states[i % kSlots].load() == in_use) ::rmdir(paths[i % kSlots]);
  }
  errno = saved;
  return true;
}

int open_scratch_file(const std::string& beside) {
  const std::string folder = folder_of(beside);
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = TemporaryNames(beside).scratch();
  fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) fail_to_open(folder, errno);
  ::unlink(name.c_str());
  return fd;
}

}  // namespace indexed
