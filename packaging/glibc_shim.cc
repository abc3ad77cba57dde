// SPDX-License-Identifier: MIT
// libgristmill_glibc.so: functions that the programs, or libraries built on this machine, take from
// glibc and that glibc 2.27 does not have under any version. Only the archive and the wheel carry
// it; packaging/lower-glibc.cc binds each such symbol to this library, under the version of
// glibc_shim.map, so that it works the same whether the host's glibc has the function or not.
//
// Needs: Linux's system calls and what glibc has had since 2.17. No C++ library: this file is
// linked before it.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

struct stat;

namespace {

using Initializer = void (*)(int, char**, char**);
using Main = int (*)(int, char**, char**);

struct Program {
  void (*init)() = nullptr;
  Initializer* init_array = nullptr;
  size_t initializers = 0;
};
Program program;

// The program is the first object that is listed; its dynamic section holds offsets.
int read_program(dl_phdr_info* info, size_t, void*) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry =
        reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) address = info->dlpi_addr + entry->d_un.d_ptr;
      if (entry->d_tag == DT_INIT) program.init = reinterpret_cast<void (*)()>(address);
      if (entry->d_tag == DT_INIT_ARRAY)
        program.init_array = reinterpret_cast<Initializer*>(address);
      if (entry->d_tag == DT_INIT_ARRAYSZ)
        program.initializers = entry->d_un.d_val / sizeof(Initializer);
    }
  }
  return 1;  // no other object
}

// What every program linked against glibc 2.33 or older brings as __libc_csu_init: glibc runs a
// library's constructors, but left the program's own to the program.
int run_initializers(int argc, char** argv, char** environment) {
  dl_iterate_phdr(read_program, nullptr);
  if (program.init) program.init();
  for (size_t i = 0; i < program.initializers; ++i) program.init_array[i](argc, argv, environment);
  return 0;
}

struct Search {
  uintptr_t address = 0;
  const dl_phdr_info* found = nullptr;
  uintptr_t begin = 0;
  uintptr_t end = 0;
  void* eh_frame_header = nullptr;
};

int covers(dl_phdr_info* info, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  uintptr_t begin = UINTPTR_MAX, end = 0;
  void* header = nullptr;
  bool inside = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const uintptr_t first = info->dlpi_addr + segment.p_vaddr;
    const uintptr_t last = first + segment.p_memsz;
    if (segment.p_type == PT_GNU_EH_FRAME) header = reinterpret_cast<void*>(first);
    if (segment.p_type != PT_LOAD) continue;
    begin = first < begin ? first : begin;
    end = last > end ? last : end;
    inside = inside || (search.address >= first && search.address < last);
  }
  if (!inside) return 0;
  search.begin = begin;
  search.end = end;
  search.eh_frame_header = header;
  return 1;
}

long stat_at(int folder, const char* path, struct stat* result, int flags) {
  return syscall(SYS_newfstatat, folder, path, result, flags);
}

constexpr long kNanoseconds = 1000000000;

}  // namespace

extern "C" {

int real_libc_start_main(Main main, int argc, char** argv, int (*init)(int, char**, char**),
                         void (*fini)(), void (*rtld_fini)(), void* stack_end);
#if defined(__x86_64__)
asm(".symver real_libc_start_main, __libc_start_main@GLIBC_2.2.5");
#elif defined(__aarch64__)
asm(".symver real_libc_start_main, __libc_start_main@GLIBC_2.17");
#endif

/// From 2.34 on, glibc runs a program's constructors itself if `init` is null.
int __libc_start_main(Main main, int argc, char** argv, int (*)(int, char**, char**),
                      void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  return real_libc_start_main(main, argc, argv, run_initializers, fini, rtld_fini, stack_end);
}

/// False is always right: the C++ library then counts references with atomic operations.
extern const char __libc_single_threaded = 0;

int stat(const char* path, struct stat* result) {
  return static_cast<int>(stat_at(AT_FDCWD, path, result, 0));
}
int lstat(const char* path, struct stat* result) {
  return static_cast<int>(stat_at(AT_FDCWD, path, result, AT_SYMLINK_NOFOLLOW));
}
int fstat(int file, struct stat* result) {
  return static_cast<int>(stat_at(file, "", result, AT_EMPTY_PATH));
}
int fstatat(int folder, const char* path, struct stat* result, int flags) {
  return static_cast<int>(stat_at(folder, path, result, flags));
}
// struct stat and struct stat64 are the same on 64-bit systems.
int stat64(const char* path, struct stat* result) { return stat(path, result); }
int lstat64(const char* path, struct stat* result) { return lstat(path, result); }
int fstat64(int file, struct stat* result) { return fstat(file, result); }
int fstatat64(int folder, const char* path, struct stat* result, int flags) {
  return fstatat(folder, path, result, flags);
}

/// On 64-bit systems fcntl itself knows large files. Every command takes at most one word.
int fcntl64(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl(file, command, argument);
}
int renameat2(int old_folder, const char* old_path, int new_folder, const char* new_path,
              unsigned int flags) noexcept {
  return static_cast<int>(
      syscall(SYS_renameat2, old_folder, old_path, new_folder, new_path, flags));
}

void arc4random_buf(void* bytes, size_t size) noexcept {
  auto* at = static_cast<unsigned char*>(bytes);
  while (size > 0) {
    const long got = syscall(SYS_getrandom, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) abort();
    at += got;
    size -= static_cast<size_t>(got);
  }
}
uint32_t arc4random() noexcept {
  uint32_t value;
  arc4random_buf(&value, sizeof value);
  return value;
}

/// Waits on the condition's own clock, the realtime one, for as long as is left on `clock`. A
/// caller looks at its clock again when it wakes, as the C++ library does.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  timespec now, realtime;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &realtime);
  realtime.tv_sec += deadline->tv_sec - now.tv_sec;
  realtime.tv_nsec += deadline->tv_nsec - now.tv_nsec;
  if (realtime.tv_nsec < 0) {
    realtime.tv_nsec += kNanoseconds;
    --realtime.tv_sec;
  } else if (realtime.tv_nsec >= kNanoseconds) {
    realtime.tv_nsec -= kNanoseconds;
    ++realtime.tv_sec;
  }
  if (realtime.tv_sec < 0) return ETIMEDOUT;
  return pthread_cond_timedwait(condition, mutex, &realtime);
}

/// Finds the object that holds an instruction, for the unwinder of libgcc_s: by a walk over all
/// objects, as libgcc_s did before glibc 2.35.
int _dl_find_object(void* address, struct dl_find_object* result) noexcept {
  Search search{.address = reinterpret_cast<uintptr_t>(address)};
  if (dl_iterate_phdr(covers, &search) != 1 || !search.eh_frame_header) return -1;
  std::memset(result, 0, sizeof *result);
  result->dlfo_map_start = reinterpret_cast<void*>(search.begin);
  result->dlfo_map_end = reinterpret_cast<void*>(search.end);
  result->dlfo_eh_frame = search.eh_frame_header;
  return 0;
}

}  // extern "C"
