// SPDX-License-Identifier: MIT
// Room: tools/stream. zlib, bzip2, liblzma and zstd, each in the form that codecs.h names. Memory:
// a window or dictionary of more than 128 MiB is refused, as by the zstd program.
#include "tools/stream/codecs.h"

#include <algorithm>
#include <limits>
#include <new>

#include <zstd.h>
#include <zstd_errors.h>

namespace stream {
namespace {

constexpr unsigned kMaxWindowLog = 27;
constexpr uint64_t kMaxDecoderBytes = uint64_t{1} << 27;

unsigned clamp(size_t size) {
  return static_cast<unsigned>(std::min<size_t>(size, std::numeric_limits<unsigned>::max()));
}

}  // namespace

GzipCodec::GzipCodec() {
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&state_, kGzipOnly) != Z_OK) throw std::bad_alloc();
}

GzipCodec::~GzipCodec() { inflateEnd(&state_); }

void GzipCodec::reset() { inflateReset(&state_); }

Step GzipCodec::step(std::string_view in, std::span<char> out) {
  // zlib takes a pointer to bytes that it does not change.
  state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  state_.avail_in = clamp(in.size());
  state_.next_out = reinterpret_cast<Bytef*>(out.data());
  state_.avail_out = clamp(out.size());
  const unsigned in_before = state_.avail_in;
  const unsigned out_before = state_.avail_out;
  const int result = inflate(&state_, Z_NO_FLUSH);
  Step step{in_before - state_.avail_in, out_before - state_.avail_out, result == Z_STREAM_END};
  if (result == Z_MEM_ERROR) throw std::bad_alloc();
  if (result == Z_DATA_ERROR || result == Z_NEED_DICT) {
    step.error = state_.msg != nullptr ? state_.msg : "damaged";
  }
  return step;
}

Bzip2Codec::Bzip2Codec() {
  if (BZ2_bzDecompressInit(&state_, 0, 0) != BZ_OK) throw std::bad_alloc();
}

Bzip2Codec::~Bzip2Codec() { BZ2_bzDecompressEnd(&state_); }

void Bzip2Codec::reset() {
  BZ2_bzDecompressEnd(&state_);
  state_ = {};
  if (BZ2_bzDecompressInit(&state_, 0, 0) != BZ_OK) throw std::bad_alloc();
}

Step Bzip2Codec::step(std::string_view in, std::span<char> out) {
  state_.next_in = const_cast<char*>(in.data());
  state_.avail_in = clamp(in.size());
  state_.next_out = out.data();
  state_.avail_out = clamp(out.size());
  const unsigned in_before = state_.avail_in;
  const unsigned out_before = state_.avail_out;
  const int result = BZ2_bzDecompress(&state_);
  Step step{in_before - state_.avail_in, out_before - state_.avail_out, result == BZ_STREAM_END};
  if (result == BZ_MEM_ERROR) throw std::bad_alloc();
  if (result != BZ_OK && result != BZ_STREAM_END) step.error = "checksum or structure is wrong";
  return step;
}

XzCodec::~XzCodec() { lzma_end(&state_); }

void XzCodec::reset() {
  if (lzma_stream_decoder(&state_, kMaxDecoderBytes, 0) != LZMA_OK) throw std::bad_alloc();
}

void LzmaCodec::reset() {
  if (lzma_alone_decoder(&state_, kMaxDecoderBytes) != LZMA_OK) throw std::bad_alloc();
}

Step XzCodec::step(std::string_view in, std::span<char> out) {
  state_.next_in = reinterpret_cast<const uint8_t*>(in.data());
  state_.avail_in = in.size();
  state_.next_out = reinterpret_cast<uint8_t*>(out.data());
  state_.avail_out = out.size();
  const lzma_ret result = lzma_code(&state_, LZMA_RUN);
  Step step{in.size() - state_.avail_in, out.size() - state_.avail_out, result == LZMA_STREAM_END};
  switch (result) {
    case LZMA_MEM_ERROR:
      throw std::bad_alloc();
    case LZMA_MEMLIMIT_ERROR:
      step.error = "needs a dictionary of more than 128 MiB";
      break;
    case LZMA_OPTIONS_ERROR:
      step.error = "uses an unknown filter";
      break;
    case LZMA_OK:
    case LZMA_STREAM_END:
    case LZMA_BUF_ERROR:
      break;
    default:
      step.error = "checksum or structure is wrong";
  }
  return step;
}

ZstdCodec::ZstdCodec() : state_(ZSTD_createDCtx()) {
  if (state_ == nullptr) throw std::bad_alloc();
  ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax, kMaxWindowLog);
}

ZstdCodec::~ZstdCodec() { ZSTD_freeDCtx(state_); }

void ZstdCodec::reset() { ZSTD_DCtx_reset(state_, ZSTD_reset_session_only); }

Step ZstdCodec::step(std::string_view in, std::span<char> out) {
  ZSTD_inBuffer input{in.data(), in.size(), 0};
  ZSTD_outBuffer output{out.data(), out.size(), 0};
  const size_t result = ZSTD_decompressStream(state_, &output, &input);
  Step step{input.pos, output.pos, result == 0};
  if (ZSTD_isError(result)) {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_memory_allocation) throw std::bad_alloc();
    step.error = code == ZSTD_error_frameParameter_windowTooLarge
                     ? "needs a window of more than 128 MiB"
                     : ZSTD_getErrorString(code);
  }
  return step;
}

}  // namespace stream
