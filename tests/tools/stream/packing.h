// SPDX-License-Identifier: MIT
// Text packed in memory by the four libraries, and files of it, for the tests of tools/stream.
#pragma once

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include <bzlib.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "tools/stream/input.h"

namespace stream {

inline std::string pack_gzip(std::string_view text) {
  z_stream state{};
  deflateInit2(&state, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<unsigned>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<unsigned>(out.size());
  deflate(&state, Z_FINISH);
  out.resize(out.size() - state.avail_out);
  deflateEnd(&state);
  return out;
}

inline std::string pack_bzip2(std::string_view text) {
  unsigned size = static_cast<unsigned>(text.size() + text.size() / 50 + 1000);
  std::string out(size, '\0');
  BZ2_bzBuffToBuffCompress(out.data(), &size, const_cast<char*>(text.data()),
                           static_cast<unsigned>(text.size()), 1, 0, 0);
  out.resize(size);
  return out;
}

inline std::string pack_xz(std::string_view text) {
  std::string out(lzma_stream_buffer_bound(text.size()), '\0');
  size_t size = 0;
  lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr,
                          reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                          reinterpret_cast<uint8_t*>(out.data()), &size, out.size());
  out.resize(size);
  return out;
}

inline std::string pack_lzma(std::string_view text) {
  lzma_options_lzma options{};
  lzma_lzma_preset(&options, 1);
  lzma_stream state = LZMA_STREAM_INIT;
  EXPECT_EQ(lzma_alone_encoder(&state, &options), LZMA_OK);
  std::string out(lzma_stream_buffer_bound(text.size()), '\0');
  state.next_in = reinterpret_cast<const uint8_t*>(text.data());
  state.avail_in = text.size();
  state.next_out = reinterpret_cast<uint8_t*>(out.data());
  state.avail_out = out.size();
  EXPECT_EQ(lzma_code(&state, LZMA_FINISH), LZMA_STREAM_END);
  out.resize(state.total_out);
  lzma_end(&state);
  return out;
}

inline std::string pack_zstd(std::string_view text) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

inline std::string pack(Kind kind, std::string_view text) {
  switch (kind) {
    case Kind::gzip:
      return pack_gzip(text);
    case Kind::bzip2:
      return pack_bzip2(text);
    case Kind::xz:
      return pack_xz(text);
    case Kind::zstd:
      return pack_zstd(text);
    case Kind::lzma:
      return pack_lzma(text);
    case Kind::plain:
      break;
  }
  return std::string(text);
}

/// A file of a test, removed at its end.
class TestFile {
 public:
  explicit TestFile(std::string_view bytes)
      : path(testing::TempDir() + "/stream_" + std::to_string(getpid()) + "_" +
             std::to_string(next_number())) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  ~TestFile() { std::remove(path.c_str()); }

  const std::string path;

 private:
  static int next_number() {
    static int number = 0;
    return ++number;
  }
};

}  // namespace stream
