// sha256.h over libcrypto.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <system_error>

namespace rendezvous {
namespace {

constexpr size_t kDigest = 32;

unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }
const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string sha256(std::string_view data) {
  std::string digest(kDigest, '\0');
  if (EVP_Digest(data.data(), data.size(), bytes_of(digest), nullptr, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("libcrypto has no SHA-256");
  return digest;
}

std::string hmac_sha256(std::string_view key, std::string_view data) {
  std::string digest(kDigest, '\0');
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(data), data.size(),
           bytes_of(digest), nullptr) == nullptr)
    throw std::runtime_error("libcrypto has no HMAC");
  return digest;
}

bool same_bytes(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(size_t count) {
  std::string out(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = getrandom(out.data() + done, count - done, 0);
    if (got < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "random bytes");
    if (got > 0) done += static_cast<size_t>(got);
  }
  return out;
}

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<uint8_t>(c) >> 4];
    out += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return out;
}

}  // namespace rendezvous
