// SPDX-License-Identifier: MIT
// Room: tools/dataset. The damage that preprocess_data.py of mid-2023 (and Megatron-DeepSpeed
// still) does with --append-eod: the end-of-document token lies in the .bin but is not counted in
// the .idx, so each document is read shifted by one token for every document before it. Here it is
// recognised, proved, and mended in the .idx alone.
// Source: docs/format/indexed.5.md, "Uncounted end-of-document tokens".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dataset {

/// What was found of the damage.
struct UncountedEod {
  int64_t num_documents;  ///< of the dataset, empty ones too
  int64_t non_empty;      ///< each lacks one token
  int64_t eod_token;      ///< the token that all of them end with
};

/// Looks whether PREFIX is such a dataset: the .bin holds one token more for each non-empty
/// document, and the token at each document's true end is the same everywhere. Nothing when the
/// sizes do not point to it.
/// Errors: FormatError when they do but the tokens differ, or when the .idx is damaged otherwise.
std::optional<UncountedEod> find_uncounted_eod(const std::string& prefix);

/// Writes the .idx anew with the tokens counted, in constant memory; the .bin stays as it is. The
/// new .idx replaces the old one when it is whole. A manifest of the old one is removed.
/// Errors: as find_uncounted_eod; std::system_error.
void mend_uncounted_eod(const std::string& prefix, const UncountedEod& found);

}  // namespace dataset
