// SPDX-License-Identifier: MIT
// Room: tools/stream. The five decompressors with the same interface: unpack from a view into a
// span until the member ends. Each verifies the format's own checksums; lzma has none. Only
// input.cc includes this.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>

struct ZSTD_DCtx_s;

namespace stream {

/// Result of one step: bytes consumed and made; whether a member's end was reached; why it failed,
/// if it did.
struct Step {
  size_t consumed = 0;
  size_t made = 0;
  bool member_end = false;
  std::string_view error = {};
};

/// A codec: reset() before each member, then step() until member_end.
class GzipCodec {
 public:
  GzipCodec();
  GzipCodec(const GzipCodec&) = delete;
  GzipCodec& operator=(const GzipCodec&) = delete;
  ~GzipCodec();
  void reset();
  Step step(std::string_view in, std::span<char> out);

 private:
  z_stream state_{};
};

/// The same for bzip2.
class Bzip2Codec {
 public:
  Bzip2Codec();
  Bzip2Codec(const Bzip2Codec&) = delete;
  Bzip2Codec& operator=(const Bzip2Codec&) = delete;
  ~Bzip2Codec();
  void reset();
  Step step(std::string_view in, std::span<char> out);

 private:
  bz_stream state_{};
};

/// The same for xz.
class XzCodec {
 public:
  XzCodec() = default;
  XzCodec(const XzCodec&) = delete;
  XzCodec& operator=(const XzCodec&) = delete;
  ~XzCodec();
  void reset();
  Step step(std::string_view in, std::span<char> out);

 protected:
  lzma_stream state_ = LZMA_STREAM_INIT;
};

/// The same for lzma, xz's predecessor (.lzma).
class LzmaCodec : public XzCodec {
 public:
  void reset();
};

/// The same for zstd.
class ZstdCodec {
 public:
  ZstdCodec();
  ZstdCodec(const ZstdCodec&) = delete;
  ZstdCodec& operator=(const ZstdCodec&) = delete;
  ~ZstdCodec();
  void reset();
  Step step(std::string_view in, std::span<char> out);

 private:
  ZSTD_DCtx_s* state_;
};

using AnyCodec = std::variant<std::monostate, GzipCodec, Bzip2Codec, XzCodec, ZstdCodec, LzmaCodec>;

}  // namespace stream
