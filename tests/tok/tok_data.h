// What the tests of libtok share: reading files, the constructed tokenizers of cases.json, and the
// seeded generator of texts of make_tok_goldens.py.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libtok/loaders.h"
#include "libtok/tokenizer.h"

namespace tok_test {

/// A file's bytes; none when it cannot be read.
std::optional<std::string> read_file(const std::string& path);

/// A file of the sample data, which not every machine has; NAME.gz is unpacked.
std::optional<std::string> read_shared(const std::string& name);

/// A file of tests/golden/tok; the test fails without it.
std::string read_golden(const std::string& name);

/// cases.json, read once.
const nlohmann::json& golden_cases();

/// The tokenizer.json that a case's patch makes of base.json.
std::string patched_json(const nlohmann::json& patch);

/// A case's tokenizer; empty when its files are not on this machine.
std::optional<tok::Tokenizer> load_case(const std::string& name,
                                        const tok::ParallelFor& parallel_for = tok::serial_for);

/// A folder's files: texts by name.
using Files = std::map<std::string, std::string>;

/// Reads them as from a folder.
tok::ReadFile reader(const Files& files);

/// The message of the ParseError that a folder's tokenizer throws; empty when it loads.
std::string folder_refusal(const Files& files);

/// xorshift64*, as in make_tok_goldens.py.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t next(uint32_t limit) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>((state_ * 0x2545F4914F6CDD1Du >> 33) % limit);
  }

 private:
  uint64_t state_;
};

/// The symbols of the short strings.
const std::vector<std::string>& class_alphabet();

/// The texts that random_texts() of make_tok_goldens.py makes.
std::vector<std::string> random_texts(uint64_t seed, int count);

}  // namespace tok_test
