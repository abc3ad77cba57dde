// SPDX-License-Identifier: MIT
// A library for LD_PRELOAD that counts the operations which change files below one folder, and at a
// chosen one kills the process or lets the operation fail. So a test can stop a program at every
// point of a save that a power cut could hit, and the program itself is unchanged.
//   FAULT_ROOT: the folder; "/memfd:" for files in memory.
//   FAULT_AT: number of the operation, from 1.
//   FAULT_ERRNO: fail with this instead of dying, from that one on for FAULT_TIMES operations.
//   FAULT_SIGNAL: a signal other than SIGKILL.
//   FAULT_DELAY: milliseconds for which this thread waits before it kills: others go on.
//   FAULT_RANK, FAULT_DEVICE: only in the trainer's process of that rank, of that device.
//   FAULT_MESSAGES: the start of the process counts, too, and every message that it sends, of
//     control or between ranks.
//   FAULT_HOST: the name that the process finds for its host.
//   FAULT_COUNT: a file that gets the number of operations, a long, however the process ends. For a
//     rank the file's name has a dot and the rank's number appended.
//   FAULT_FROM: a text; operations count from the first one whose path contains it.
//   FAULT_WHEN: a file; while it exists, and only then, every operation fails with FAULT_ERRNO.
//   FAULT_SAVES: operations are counted from 1 in each save of the trainer, including those that
//     change nothing. The first save fails at operation FAULT_AT, the third at the FAULT_SAVES-th
//     after it, and so on, each with the next of FAULT_ERRNO's numbers, which are separated by
//     commas. The saves between them do not fail.
//   FAULT_LOG: a file that gets a line for each operation that was made to fail: the number of the
//     save, the number of the operation, its name, its path, and errno. Without FAULT_AT it gets a
//     line for each operation that changes something: its name and path. The rank's number is
//     appended as for FAULT_COUNT.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<long> uncounted{0};
std::atomic<long>* operations = &uncounted;  // or in the file of FAULT_COUNT
std::atomic<long> save_number{0};            // of FAULT_SAVES
int log_file = -1;

long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atol(text) : otherwise;
}

const bool by_saves = std::getenv("FAULT_SAVES") != nullptr;

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

// A path without links or the program's folder before it.
struct Path {
  explicit Path(const char* path) {
    if (path == nullptr) return;
    size_t length = 0;
    if (path[0] != '/' && getcwd(text, sizeof text - 1)) {
      length = std::strlen(text);
      text[length++] = '/';
    }
    std::snprintf(text + length, sizeof text - length, "%s", path);
  }
  explicit Path(int fd) {
    const int saved = errno;
    char link[64];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    errno = saved;
  }
  Path(int fd, const char* name) : Path(fd < 0 || name[0] == '/' ? Path(name) : Path(fd)) {
    if (fd < 0 || name[0] == '/') return;
    const size_t length = std::strlen(text);
    std::snprintf(text + length, sizeof text - length, "/%s", name);
  }
  bool below_root() const {
    static const char* const root = std::getenv("FAULT_ROOT");
    return root && std::strncmp(text, root, std::strlen(root)) == 0;
  }
  char text[2 * PATH_MAX] = "";
};

// Whether the test has not asked for another value of a variable than the process has.
bool agrees(const char* wish, const char* variable) {
  const char *wanted = std::getenv(wish), *value = std::getenv(variable);
  return !wanted || (value && std::strcmp(wanted, value) == 0);
}

bool in_this_process() {
  return agrees("FAULT_RANK", "GRISTMILL_RANK") && agrees("FAULT_DEVICE", "GRISTMILL_DEVICE");
}

// The n-th of FAULT_ERRNO's numbers, which start over after the last.
int error_number(long n) {
  const char* text = std::getenv("FAULT_ERRNO");
  if (!text) return 0;
  long count = 1;
  for (const char* c = text; *c; ++c) count += *c == ',';
  for (n %= count; n > 0; ++text) n -= *text == ',';
  return std::atoi(text);
}

template <class... Parts>
void log(const char* format, Parts... parts) {
  static ssize_t (*const write)(int, const void*, size_t) =
      next<ssize_t(int, const void*, size_t)>("write");
  char line[3 * PATH_MAX];
  const int length = std::snprintf(line, sizeof line, format, parts...);
  if (log_file >= 0) static_cast<void>(!write(log_file, line, static_cast<size_t>(length)));
}

// Whether the operation must fail; does not return from the one that kills.
bool fault(const char* name, const char* path) {
  static const long first = number("FAULT_AT", 0), stride = number("FAULT_SAVES", 0),
                    times = number("FAULT_TIMES", LONG_MAX);
  static const int signal = static_cast<int>(number("FAULT_SIGNAL", SIGKILL));
  static const long delay = number("FAULT_DELAY", 0);
  static const bool here = in_this_process();
  static const char* const when = std::getenv("FAULT_WHEN");
  const long now = ++*operations;
  const long save = save_number;
  if (first == 0) log("%s %s\n", name, path);
  if (when) {
    const bool fails = here && access(when, F_OK) == 0;
    if (fails) errno = error_number(0);
    return fails;
  }
  if (!here || first == 0 || (by_saves && save % 2 == 0)) return false;
  const long at = by_saves ? first + save / 2 * stride : first;
  const int error = error_number(by_saves ? save / 2 : 0);
  if (now < at) return false;
  if (error == 0) {
    if (now != at) return false;
    usleep(static_cast<useconds_t>(delay * 1000));
    raise(signal);  // to this thread: another one would stop it too late
    return false;
  }
  if (now - at >= times) return false;
  log("%ld %ld %s %s %d\n", save, now, name, path, error);
  errno = error;
  return true;
}

// Whether operations count already.
bool begun(const Path& path) {
  static const char* const from = std::getenv("FAULT_FROM");
  static std::atomic<bool> yes{from == nullptr};
  if (!yes && std::strstr(path.text, from) != nullptr) yes = true;
  return yes;
}

// Of an operation that changes files.
bool changes(const char* name, const Path& path) {
  return path.below_root() && begun(path) && fault(name, path.text);
}

// Of a rename, which also has a line with its old name.
bool changes_name(const Path& from, const Path& to) {
  static const bool logged = number("FAULT_AT", 0) == 0;
  if (logged && to.below_root()) log("from %s\n", from.text);
  return changes("rename", to);
}

// Of one that only reads: counted only in tests of saves.
bool looks(const char* name, const Path& path) {
  return by_saves && path.below_root() && fault(name, path.text);
}

void message() {
  static const bool counted = std::getenv("FAULT_MESSAGES") != nullptr;
  if (counted) static_cast<void>(fault("message", ""));
}

int open_of_rank(const char* variable, int flags) {
  const char *path = std::getenv(variable), *rank = std::getenv("GRISTMILL_RANK");
  if (!path) return -1;
  char name[PATH_MAX];
  std::snprintf(name, sizeof name, "%s%s%s", path, rank ? "." : "", rank ? rank : "");
  return next<int(const char*, int, ...)>("open")(name, flags | O_CLOEXEC, 0666);
}

struct Begin {
  Begin() {
    log_file = open_of_rank("FAULT_LOG", O_WRONLY | O_CREAT | O_APPEND);
    // Two launchers may share a file: emptied, it would be too short for a moment where the other
    // one has mapped it, which kills that one.
    const int fd = open_of_rank("FAULT_COUNT", O_RDWR | O_CREAT);
    if (fd >= 0) {
      void* shared = next<int(int, off_t)>("ftruncate")(fd, sizeof(long)) == 0
                         ? mmap(nullptr, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                         : MAP_FAILED;
      if (shared != MAP_FAILED) operations = new (shared) std::atomic<long>(0);
      next<int(int)>("close")(fd);
    }
    message();
  }
} begin;

}  // namespace

extern "C" {

int mkdir(const char* path, mode_t mode) {
  static int (*const real)(const char*, mode_t) = next<int(const char*, mode_t)>("mkdir");
  const Path whole(path);
  if (by_saves && whole.below_root() && std::strstr(whole.text, "/.iter_")) {
    ++save_number;
    *operations = 0;
  }
  return changes("mkdir", whole) ? -1 : real(path, mode);
}

int rename(const char* from, const char* to) {
  static int (*const real)(const char*, const char*) =
      next<int(const char*, const char*)>("rename");
  return changes_name(Path(from), Path(to)) ? -1 : real(from, to);
}

int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
  static int (*const real)(int, const char*, int, const char*, unsigned) =
      next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return changes_name(Path(from), Path(to)) ? -1 : real(a, from, b, to, flags);
}

int unlink(const char* path) {
  static int (*const real)(const char*) = next<int(const char*)>("unlink");
  return changes("unlink", Path(path)) ? -1 : real(path);
}

int unlinkat(int fd, const char* path, int flags) {
  static int (*const real)(int, const char*, int) = next<int(int, const char*, int)>("unlinkat");
  return changes("unlink", Path(fd, path)) ? -1 : real(fd, path, flags);
}

int truncate(const char* path, off_t size) {
  static int (*const real)(const char*, off_t) = next<int(const char*, off_t)>("truncate");
  return changes("truncate", Path(path)) ? -1 : real(path, size);
}

int ftruncate(int fd, off_t size) {
  static int (*const real)(int, off_t) = next<int(int, off_t)>("ftruncate");
  return changes("truncate", Path(fd)) ? -1 : real(fd, size);
}

int fsync(int fd) {
  static int (*const real)(int) = next<int(int)>("fsync");
  return changes("fsync", Path(fd)) ? -1 : real(fd);
}

ssize_t write(int fd, const void* data, size_t size) {
  static ssize_t (*const real)(int, const void*, size_t) =
      next<ssize_t(int, const void*, size_t)>("write");
  return fd > 2 && changes("write", Path(fd)) ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  static ssize_t (*const real)(int, const void*, size_t, off_t) =
      next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return changes("write", Path(fd)) ? -1 : real(fd, data, size, offset);
}

ssize_t copy_file_range(int from, off64_t* from_at, int to, off64_t* to_at, size_t size,
                        unsigned flags) {
  static ssize_t (*const real)(int, off64_t*, int, off64_t*, size_t, unsigned) =
      next<ssize_t(int, off64_t*, int, off64_t*, size_t, unsigned)>("copy_file_range");
  return changes("write", Path(to)) ? -1 : real(from, from_at, to, to_at, size, flags);
}

int open(const char* path, int flags, ...) {
  static int (*const real)(const char*, int, ...) = next<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
  va_end(arguments);
  // A full disk lets a file be opened that is there.
  static const bool full = std::getenv("FAULT_WHEN") != nullptr;
  const bool creates = (flags & O_CREAT) != 0 && (!full || access(path, F_OK) != 0);
  const bool fails = creates ? changes("open", Path(path)) : looks("open", Path(path));
  return fails ? -1 : real(path, flags, mode);
}

int openat(int fd, const char* path, int flags, ...) {
  static int (*const real)(int, const char*, int, ...) =
      next<int(int, const char*, int, ...)>("openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
  va_end(arguments);
  return looks("open", Path(fd, path)) ? -1 : real(fd, path, flags, mode);
}

int close(int fd) {
  static int (*const real)(int) = next<int(int)>("close");
  const bool fails = looks("close", Path(fd));
  const int error = errno, result = real(fd);
  if (fails) errno = error;
  return fails ? -1 : result;
}

int stat(const char* path, struct stat* about) {
  static int (*const real)(const char*, struct stat*) =
      next<int(const char*, struct stat*)>("stat");
  return looks("stat", Path(path)) ? -1 : real(path, about);
}

int lstat(const char* path, struct stat* about) {
  static int (*const real)(const char*, struct stat*) =
      next<int(const char*, struct stat*)>("lstat");
  return looks("lstat", Path(path)) ? -1 : real(path, about);
}

int fstat(int fd, struct stat* about) {
  static int (*const real)(int, struct stat*) = next<int(int, struct stat*)>("fstat");
  return looks("fstat", Path(fd)) ? -1 : real(fd, about);
}

int statvfs(const char* path, struct statvfs* about) {
  static int (*const real)(const char*, struct statvfs*) =
      next<int(const char*, struct statvfs*)>("statvfs");
  return looks("statvfs", Path(path)) ? -1 : real(path, about);
}

int gethostname(char* name, size_t size) {
  static int (*const real)(char*, size_t) = next<int(char*, size_t)>("gethostname");
  static const char* const given = std::getenv("FAULT_HOST");
  if (!given) return real(name, size);
  std::snprintf(name, size, "%s", given);
  return 0;
}

int flock(int fd, int operation) {
  static int (*const real)(int, int) = next<int(int, int)>("flock");
  return looks("flock", Path(fd)) ? -1 : real(fd, operation);
}

int sync_file_range(int fd, off64_t at, off64_t size, unsigned flags) {
  static int (*const real)(int, off64_t, off64_t, unsigned) =
      next<int(int, off64_t, off64_t, unsigned)>("sync_file_range");
  return looks("sync_file_range", Path(fd)) ? -1 : real(fd, at, size, flags);
}

DIR* opendir(const char* path) {
  static DIR* (*const real)(const char*) = next<DIR*(const char*)>("opendir");
  return looks("opendir", Path(path)) ? nullptr : real(path);
}

dirent* readdir(DIR* folder) {
  static dirent* (*const real)(DIR*) = next<dirent*(DIR*)>("readdir");
  return looks("readdir", Path(dirfd(folder))) ? nullptr : real(folder);
}

ssize_t send(int fd, const void* data, size_t size, int flags) {
  static ssize_t (*const real)(int, const void*, size_t, int) =
      next<ssize_t(int, const void*, size_t, int)>("send");
  message();
  return real(fd, data, size, flags);
}

ssize_t sendmsg(int fd, const msghdr* parts, int flags) {
  static ssize_t (*const real)(int, const msghdr*, int) =
      next<ssize_t(int, const msghdr*, int)>("sendmsg");
  message();
  return real(fd, parts, flags);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  static ssize_t (*const real)(int, const iovec*, int) =
      next<ssize_t(int, const iovec*, int)>("writev");
  message();
  return real(fd, parts, count);
}

}  // extern "C"
