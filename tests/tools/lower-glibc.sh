# packaging/lower-glibc: a program asks for the functions of an old glibc, or of the shim, and does
# what it did; what no old glibc has is refused; a damaged file is refused and stays as it is.
. "$(dirname "$0")/prelude"
build=$(dirname "$(dirname "$(command -v bpe-tokenize)")")/packaging
[ -x "$build/lower-glibc" ] || { echo "skipped: lower-glibc is not built"; exit 77; }
shim=$build/libgristmill_glibc.so
cat >program.cc <<'END'
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

extern "C" unsigned arc4random();
static int constructed = 0;
struct Constructed { Constructed() { ++constructed; } } object;

int main(int argc, char** argv) {
  std::printf("%d constructor, %d arguments, %s\n", constructed, argc, getenv("VARIABLE"));
  try {
    throw std::runtime_error("thrown and caught");
  } catch (const std::exception& e) {
    std::puts(e.what());
  }
  struct stat by_name, by_link, by_file;
  symlink("program.cc", "link");
  const int file = open("program.cc", O_RDONLY);
  if (stat("link", &by_name) || lstat("link", &by_link) || fstat(file, &by_file)) return 1;
  std::printf("%d %d %d %d\n", by_name.st_ino == by_file.st_ino, by_name.st_size == by_file.st_size,
              S_ISLNK(by_link.st_mode), S_ISREG(by_file.st_mode));
  std::printf("stat of nothing: %d", stat("nothing", &by_name));
  std::perror("");
  std::printf("descriptor flags: %d\n", fcntl(fcntl(file, F_DUPFD_CLOEXEC, 100), F_GETFD));
  close(open("from", O_CREAT | O_WRONLY, 0600));
  close(open("to", O_CREAT | O_WRONLY, 0600));
  std::printf("kept: %d, renamed: %d\n",
              renameat2(AT_FDCWD, "from", AT_FDCWD, "to", RENAME_NOREPLACE),
              renameat2(AT_FDCWD, "from", AT_FDCWD, "new", 0));
  bool differ = false;
  for (int i = 0; i < 8; ++i) differ = differ || arc4random() != arc4random();
  std::printf("random: %d\n", differ || std::random_device()() != std::random_device()());
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  const auto begin = std::chrono::steady_clock::now();
  const bool woken = condition.wait_for(lock, std::chrono::milliseconds(700), [] { return false; });
  const auto waited = std::chrono::steady_clock::now() - begin;
  const bool in_time =
      waited >= std::chrono::milliseconds(700) && waited < std::chrono::seconds(5);
  std::printf("woken: %d, waited: %d\n", woken, in_time);
  std::printf("late: %d\n", condition.wait_until(lock, begin) == std::cv_status::timeout);
  bool ready = false;
  std::thread other([&] { std::lock_guard hold(mutex); ready = true; condition.notify_one(); });
  std::printf("notified: %d\n",
              condition.wait_for(lock, std::chrono::seconds(60), [&] { return ready; }));
  lock.unlock();
  other.join();
}
END
c++ -std=c++20 -O1 -w program.cc -o program -pthread || exit 77
VARIABLE=here ./program one two >as-linked 2>&1; echo "status $?"; cat as-linked
rm -f link from to new
cp program lowered
# The libraries that an archive would bring are lowered, too.
for library in libstdc++.so.6 libgcc_s.so.1; do cp "$(c++ -print-file-name=$library)" .; done
"$build/lower-glibc" 2.27 "$shim" . && "$build/lower-glibc" 2.27 "$shim" lowered
for file in lowered libstdc++.so.6 libgcc_s.so.1; do
  readelf -W -V $file 2>&1 | grep -oE 'warning.*|GLIBC_2\.(2[89]|3[0-9])' | sort -u
  readelf -W -V $file | grep -c GRISTMILL_GLIBC_1 | sed 's/[1-9][0-9]*/bound to the shim/'
done
# A loader before 2.30 looks for a symbol in the named library only.
readelf -W -V libstdc++.so.6 | grep -o 'File: libpthread.so.0'
export LD_LIBRARY_PATH=$PWD:$build LD_BIND_NOW=1
VARIABLE=here ./lowered one two 2>&1 | cmp - as-linked && echo same
LD_BIND_NOW= ldd ./lowered | grep -c "$PWD/libstdc\|$PWD/libgcc_s"
unset LD_LIBRARY_PATH LD_BIND_NOW
echo 'extern "C" unsigned arc4random_uniform(unsigned);' >new.cc
echo 'unsigned f() { return arc4random_uniform(3); }' >>new.cc
c++ -shared -fPIC new.cc -o new.so && cp new.so kept.so
"$build/lower-glibc" 2.27 "$shim" new.so; echo "status $?"
head -c 9000 program >cut && cp cut cut.kept
"$build/lower-glibc" 2.27 "$shim" cut; echo "status $?"
cmp new.so kept.so && cmp cut cut.kept && ls ./*.tmp 2>/dev/null
"$build/lower-glibc" 2.27; echo "status $?"
