// A library for LD_PRELOAD that counts the operations which change files below one folder, and at a
// chosen one kills the process or lets the operation fail. So a test can stop a program at every
// point of a save that a power cut could hit, and the program itself knows nothing of it.
// FAULT_ROOT: the folder. FAULT_AT: number of the operation, from 1. FAULT_ERRNO: fail with this
// instead of dying, from that operation on for FAULT_TIMES operations. FAULT_SIGNAL: another signal
// than SIGKILL. FAULT_RANK, FAULT_DEVICE: only in the trainer's process of that rank, of that
// device. FAULT_MESSAGES: the process's beginning counts too, and every message it sends, of
// control or between ranks. FAULT_COUNT: a file that holds the number of operations, a long,
// however the process ends; of a rank, with its number after a dot.
//
// SPDX-License-Identifier: MIT
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atol(text) : otherwise;
}

bool below_root(const char* path) {
  static const char* const root = std::getenv("FAULT_ROOT");
  return root && path && std::strncmp(path, root, std::strlen(root)) == 0;
}

bool below_root(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = 0;
  return below_root(path);
}

// Whether the test has not asked for another value of a variable than the process has.
bool agrees(const char* wish, const char* variable) {
  const char *wanted = std::getenv(wish), *value = std::getenv(variable);
  return !wanted || (value && std::strcmp(wanted, value) == 0);
}

bool in_this_process() {
  return agrees("FAULT_RANK", "GRISTMILL_RANK") && agrees("FAULT_DEVICE", "GRISTMILL_DEVICE");
}

// Whether the operation must fail; does not return from the one that kills.
bool fault() {
  static const long at = number("FAULT_AT", 0), error = number("FAULT_ERRNO", 0),
                    times = number("FAULT_TIMES", LONG_MAX);
  static const int signal = static_cast<int>(number("FAULT_SIGNAL", SIGKILL));
  static const bool here = in_this_process();
  const long now = ++*operations;
  if (!here || at == 0 || now < at) return false;
  if (error == 0) {
    if (now == at) kill(getpid(), signal);
    return false;
  }
  if (now - at >= times) return false;
  errno = static_cast<int>(error);
  return true;
}

void message() {
  static const bool counted = std::getenv("FAULT_MESSAGES") != nullptr;
  if (counted) static_cast<void>(fault());
}

struct Begin {
  Begin() {
    const char *path = std::getenv("FAULT_COUNT"), *rank = std::getenv("GRISTMILL_RANK");
    if (path) {
      char name[PATH_MAX];
      std::snprintf(name, sizeof name, "%s%s%s", path, rank ? "." : "", rank ? rank : "");
      if (std::FILE* file = std::fopen(name, "w+")) {
        void* shared =
            ftruncate(fileno(file), sizeof(long)) == 0
                ? mmap(nullptr, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0)
                : MAP_FAILED;
        if (shared != MAP_FAILED) operations = new (shared) std::atomic<long>(0);
        std::fclose(file);
      }
    }
    message();
  }
} begin;

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int mkdir(const char* path, mode_t mode) {
  static int (*const real)(const char*, mode_t) = next<int(const char*, mode_t)>("mkdir");
  return below_root(path) && fault() ? -1 : real(path, mode);
}

int rename(const char* from, const char* to) {
  static int (*const real)(const char*, const char*) =
      next<int(const char*, const char*)>("rename");
  return below_root(to) && fault() ? -1 : real(from, to);
}

int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
  static int (*const real)(int, const char*, int, const char*, unsigned) =
      next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return below_root(to) && fault() ? -1 : real(a, from, b, to, flags);
}

int unlink(const char* path) {
  static int (*const real)(const char*) = next<int(const char*)>("unlink");
  return below_root(path) && fault() ? -1 : real(path);
}

int unlinkat(int fd, const char* path, int flags) {
  static int (*const real)(int, const char*, int) = next<int(int, const char*, int)>("unlinkat");
  const bool ours = below_root(path) || (fd >= 0 && below_root(fd));
  return ours && fault() ? -1 : real(fd, path, flags);
}

int fsync(int fd) {
  static int (*const real)(int) = next<int(int)>("fsync");
  return below_root(fd) && fault() ? -1 : real(fd);
}

ssize_t write(int fd, const void* data, size_t size) {
  static ssize_t (*const real)(int, const void*, size_t) =
      next<ssize_t(int, const void*, size_t)>("write");
  return fd > 2 && below_root(fd) && fault() ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  static ssize_t (*const real)(int, const void*, size_t, off_t) =
      next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return below_root(fd) && fault() ? -1 : real(fd, data, size, offset);
}

ssize_t copy_file_range(int from, off64_t* from_at, int to, off64_t* to_at, size_t size,
                        unsigned flags) {
  static ssize_t (*const real)(int, off64_t*, int, off64_t*, size_t, unsigned) =
      next<ssize_t(int, off64_t*, int, off64_t*, size_t, unsigned)>("copy_file_range");
  return below_root(to) && fault() ? -1 : real(from, from_at, to, to_at, size, flags);
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

int open(const char* path, int flags, ...) {
  static int (*const real)(const char*, int, ...) = next<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
  va_end(arguments);
  return (flags & O_CREAT) && below_root(path) && fault() ? -1 : real(path, flags, mode);
}

}  // extern "C"
