// Unicode normalisation as Hugging Face tokenizers does it: a quick check that passes clean text at
// memory speed, and ICU for the spans around characters that may change. The reference's tables are
// of Unicode 9.0, so code points assigned later are left alone here whatever version ICU has; the
// stability policy makes all others agree.
// Not here: cleaning of corpora (the tools normalise with the newest tables they have).
// Includes: loaders.h; ICU only in the .cc file.
// Source: tokenizers 0.23 (unicode-normalization-alignments 0.1), UAX #15.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "libtok/loaders.h"

namespace tok {

/// Whether `text` is unchanged by `form`, by a quick check: false may also mean "not known".
/// Range: valid UTF-8. Any number of threads may call.
bool is_quickly_normal(std::string_view text, NormalForm form) noexcept;

/// Replaces `out` with `text` in `form`. Range: valid UTF-8, `out` is not what `text` views.
/// Errors: std::runtime_error when ICU fails (no data, no memory).
void normalize(std::string_view text, NormalForm form, std::string& out);

}  // namespace tok
