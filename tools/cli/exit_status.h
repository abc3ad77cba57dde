// Room: tools/cli. The exit statuses of every program, and of the trainer's own ranks.
// Source: <sysexits.h> for 75 (EX_TEMPFAIL); 85 to 88 are used neither there nor by the shell.
//
// SPDX-License-Identifier: MIT
#pragma once

namespace exit_status {

inline constexpr int kComplete = 0;    ///< the output is complete
inline constexpr int kFailed = 1;      ///< it is not: bad data, a system error, no memory
inline constexpr int kUsage = 2;       ///< the command line is wrong; nothing was opened
inline constexpr int kResumable = 75;  ///< trainer: the last checkpoint is complete, and the same
                                       ///< command continues from it

// From a rank to the trainer's launcher, which never ends with these itself.
inline constexpr int kRankLost = 85;  ///< another rank was lost; the launcher may start again
inline constexpr int kAtFault = 86;   ///< like kRankLost, but this rank is at fault
inline constexpr int kNoDevice = 87;  ///< this rank's GPU does not answer
inline constexpr int kStopped = 88;   ///< like kRankLost, but this rank was also asked to stop

}  // namespace exit_status
