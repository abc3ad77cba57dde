// SPDX-License-Identifier: MIT
// Independent pieces of one work shared by threads that live as long as the work: for programs that
// copy files. No result may depend on which thread takes which piece.
#pragma once

#include <cstdint>
#include <functional>

namespace indexed {

/// Calls work(0) to work(count - 1) on up to `threads` threads, the calling one among them. Each
/// takes the lowest number left when it is free. With one thread nothing but the caller runs.
/// Errors: after the first one no number is taken; it comes out when all threads have ended.
void share_work(int64_t count, int threads, const std::function<void(int64_t)>& work);

/// How many threads copy files well on this machine: its processors, at most 16.
int copying_threads() noexcept;

}  // namespace indexed
