// SPDX-License-Identifier: MIT
// Independent pieces of one job, shared by threads that live as long as the job: for programs that
// copy files. No result may depend on which thread takes which piece. And how many threads there
// can be.
#pragma once

#include <cstdint>
#include <functional>

namespace indexed {

/// Calls work(0) to work(count - 1) on up to `threads` threads, including the caller. A free thread
/// takes the lowest remaining number. With one thread only the caller runs. Errors: after the first
/// one no further number is taken; it is thrown when all threads have ended.
void share_work(int64_t count, int threads, const std::function<void(int64_t)>& work);

/// How many threads this process can have at once, the caller included: `wanted`, or fewer where
/// the system refuses some, as a container's limit does. For libraries that need all they ask for.
int allowed_threads(int wanted);

/// A good number of threads for copying files on this machine: its processors, at most 16.
int copying_threads() noexcept;

}  // namespace indexed
