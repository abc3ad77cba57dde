// SPDX-License-Identifier: MIT
// Room: tools/dataset. Repairs the damage that preprocess_data.py of mid-2023 (and
// Megatron-DeepSpeed still) does with --append-eod: the end-of-document token is in the .bin but
// not counted in the .idx, so each document is read shifted by one token for every document before
// it. The damage is recognised, proved, and repaired in the .idx alone.
// Source: docs/format/indexed.5.md, "Uncounted end-of-document tokens".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dataset {

/// What was found of the damage.
struct UncountedEod {
  int64_t num_documents;  ///< of the dataset, including empty ones
  int64_t non_empty;      ///< each has one uncounted token
  int64_t eod_token;      ///< the token with which all of them end
  bool operator==(const UncountedEod&) const = default;
};

/// Checks whether PREFIX is such a dataset: the .bin has one token more for each non-empty
/// document, and the token at each document's real end is the same everywhere, `eod_token` if that
/// is given; a single document shows nothing, and needs it. Returns nothing if the sizes do not
/// indicate it. Errors: FormatError if they do but the tokens differ, or if the .idx is damaged in
/// another way.
std::optional<UncountedEod> find_uncounted_eod(const std::string& prefix,
                                               std::optional<int64_t> eod_token = {});

/// Writes a new .idx that counts the tokens, in constant memory; the .bin is not changed. The new
/// .idx replaces the old one when it is complete. A manifest of the old one is removed.
/// Errors: as find_uncounted_eod; FormatError for a dataset that is not as it was `found`;
/// std::system_error, EBUSY while another process writes it.
void mend_uncounted_eod(const std::string& prefix, const UncountedEod& found);

}  // namespace dataset
