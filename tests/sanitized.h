// SPDX-License-Identifier: MIT
// How much the tests of chance and the exhaustive ones do. A sanitizer looks for what one run of a
// line shows, and slows each tenfold: there a part of the work will do.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// Rounds of a loop: `full`, or a tenth of them.
constexpr int rounds(int full) { return kSanitized ? (full + 9) / 10 : full; }
