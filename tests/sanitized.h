// SPDX-License-Identifier: MIT
// How much work random and exhaustive tests do. A sanitizer finds its errors when a line runs once,
// and makes everything ten times slower: there a part of the work is enough.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// Rounds of a loop: `full`, or a tenth of them.
constexpr int rounds(int full) { return kSanitized ? (full + 9) / 10 : full; }
