// SPDX-License-Identifier: MIT
// Room: tools/extract. Escaping, hashing, writing.
// Not here: renaming of files (OutputFile).
#include "tools/extract/text_output.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <zstd.h>

#include "tools/cli/output_path.h"
#include "tools/cli/run.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace extract {
namespace {

/// For each byte: 0 for unchanged, 'u' for a \u00xx escape, else the letter after the backslash.
constexpr std::array<char, 256> make_escapes() {
  std::array<char, 256> table{};
  for (size_t i = 0; i < 0x20; ++i) table[i] = 'u';
  table['\b'] = 'b';
  table['\f'] = 'f';
  table['\n'] = 'n';
  table['\r'] = 'r';
  table['\t'] = 't';
  table['"'] = '"';
  table['\\'] = '\\';
  return table;
}
constexpr std::array<char, 256> kEscapes = make_escapes();

constexpr uint64_t kMultipliers[] = {0x9E3779B97F4A7C15u, 0xC2B2AE3D27D4EB4Fu, 0xD6E8FEB86659FD93u,
                                     0xA0761D6478BD642Fu};

/// Both halves of a product, folded: every bit of the result depends on every bit of both factors.
uint64_t fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t load(const char* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// Position of the first byte that needs an escape; the size if none does.
size_t find_escaped(std::string_view text) {
  size_t at = 0;
#if defined(__x86_64__)
  const __m128i highest = _mm_set1_epi8(0x1F);
  const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
  for (; at + 16 <= text.size(); at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
    const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, highest), bytes);
    const __m128i found = _mm_or_si128(
        control, _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(found));
    if (mask != 0) return at + static_cast<size_t>(std::countr_zero(mask));
  }
#endif
  while (at < text.size() && kEscapes[static_cast<unsigned char>(text[at])] == 0) ++at;
  return at;
}

}  // namespace

void append_json_string(std::string_view text, std::string& out) {
  out.reserve(out.size() + text.size() + 2);
  out += '"';
  while (true) {
    const size_t at = find_escaped(text);
    out.append(text.data(), at);
    if (at == text.size()) break;
    const unsigned char byte = static_cast<unsigned char>(text[at]);
    text.remove_prefix(at + 1);
    out += '\\';
    out += kEscapes[byte];
    if (kEscapes[byte] == 'u') {
      constexpr std::string_view kHex = "0123456789abcdef";
      out += "00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  out += '"';
}

Hash128 hash128(std::string_view text) {
  // Two lanes with different constants over 16 bytes at a time; the length is included, so that
  // zeros at the end of a text count.
  uint64_t a = kMultipliers[0] ^ text.size();
  uint64_t b = kMultipliers[1] + text.size();
  const char* at = text.data();
  size_t left = text.size();
  const auto mix = [&](uint64_t first, uint64_t second) {
    const uint64_t next = fold(a ^ first ^ kMultipliers[2], b + second + kMultipliers[3]);
    b = fold(b ^ second ^ kMultipliers[0], a + first + kMultipliers[1]) ^ next;
    a = (a + first) * kMultipliers[2] ^ (next << 31 | next >> 33);
  };
  for (; left >= 16; left -= 16, at += 16) mix(load(at), load(at + 8));
  char rest[16] = {};
  std::memcpy(rest, at, left);
  mix(load(rest), load(rest + 8));
  mix(text.size(), ~text.size());
  return {fold(a, kMultipliers[1] ^ b), fold(b, kMultipliers[2] ^ (a << 32 | a >> 32))};
}

HashSet::HashSet() : slots_(1 << 12) {}

bool HashSet::insert(Hash128 hash) {
  if (hash == Hash128{}) hash.low = 1;  // the empty slot's value
  if (3 * used_ >= 2 * slots_.size()) grow();
  for (size_t at = hash.low;; ++at) {
    Hash128& slot = slots_[at & (slots_.size() - 1)];
    if (slot == hash) return false;
    if (slot == Hash128{}) {
      slot = hash;
      ++used_;
      return true;
    }
  }
}

void HashSet::grow() {
  std::vector<Hash128> old(slots_.size() * 2);
  old.swap(slots_);
  used_ = 0;
  for (const Hash128& hash : old) {
    if (hash != Hash128{}) insert(hash);
  }
}

namespace {

// Another descriptor for what `open` is; -1 and EBADF, as of write(2), where it is closed, was
// closed at the start (cli::run), or is open for reading only.
int duplicate_for_writing(int open) {
  const int flags = ::fcntl(open, F_GETFL);
  if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) {
    errno = EBADF;
    return -1;
  }
  return ::fcntl(open, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

}  // namespace

TextOutput::TextOutput(const TextOutputOptions& options) {
  if (!cli::is_stream(options.path)) {
    file_.emplace(options.path, options.existing);
  } else if (!options.path.empty() && options.path != "-") {
    name_ = options.path;
    const std::optional<int> open = cli::open_descriptor(name_);
    stream_ = open ? duplicate_for_writing(*open) : ::open(name_.c_str(), O_WRONLY | O_CLOEXEC);
    if (stream_ < 0) throw std::system_error(errno, std::generic_category(), name_);
  }
  if (!file_ && options.zstd) cli::refuse_terminal(stream_, "compressed bytes");
  if (!options.zstd) return;
  packed_capacity_ = ZSTD_CStreamOutSize();
  packed_ = std::make_unique<char[]>(packed_capacity_);
  zstd_ = ZSTD_createCCtx();
  if (zstd_ == nullptr) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(zstd_, ZSTD_c_compressionLevel, options.zstd_level);
  ZSTD_CCtx_setParameter(zstd_, ZSTD_c_checksumFlag, 1);
}

TextOutput::~TextOutput() {
  ZSTD_freeCCtx(zstd_);
  if (stream_ > STDERR_FILENO) ::close(stream_);
}

void TextOutput::put(std::string_view bytes) {
  if (file_) {
    file_->write(bytes);
    return;
  }
  while (!bytes.empty()) {
    const ssize_t written = ::write(stream_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // the reader's end of the pipe made it so
      pollfd ready{.fd = stream_, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
      continue;
    }
    if (written < 0) throw std::system_error(errno, std::generic_category(), name_);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void TextOutput::write_packed(std::string_view bytes, bool end) {
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  while (true) {
    ZSTD_outBuffer out{packed_.get(), packed_capacity_, 0};
    const size_t left = ZSTD_compressStream2(zstd_, &out, &in, end ? ZSTD_e_end : ZSTD_e_continue);
    if (ZSTD_isError(left)) throw std::runtime_error(ZSTD_getErrorName(left));
    put({packed_.get(), out.pos});
    if (end ? left == 0 : in.pos == in.size) return;
  }
}

void TextOutput::write(std::string_view bytes) {
  if (zstd_ != nullptr)
    write_packed(bytes, false);
  else
    put(bytes);
}

void TextOutput::prepare() {
  if (std::exchange(prepared_, true)) return;
  if (zstd_ != nullptr) write_packed({}, true);
  if (file_)
    file_->sync();
  else if (isatty(stream_) != 1 && fsync(stream_) != 0 &&
           (errno == ENOSPC || errno == EIO || errno == EDQUOT))
    throw std::system_error(errno, std::generic_category(), name_);
}

void TextOutput::finish() {
  prepare();
  if (file_) file_->commit();
}

}  // namespace extract
