// Room: tools/cli. The exit statuses of every program, and of the trainer's own ranks.
// Source: <sysexits.h> for 75 (EX_TEMPFAIL); 85 to 87 are free there and in the shell's use.
//
// SPDX-License-Identifier: MIT
#pragma once

namespace exit_status {

inline constexpr int kComplete = 0;    ///< the output is complete
inline constexpr int kFailed = 1;      ///< it is not: bad data, a refusal of the system, memory
inline constexpr int kUsage = 2;       ///< the command line is wrong; nothing was opened
inline constexpr int kResumable = 75;  ///< trainer: the last checkpoint is whole, and the same
                                       ///< command goes on from it

// Of one rank, to the trainer's launcher alone, which never ends with them itself.
inline constexpr int kRankLost = 85;  ///< another rank was lost; another start may follow
inline constexpr int kAtFault = 86;   ///< as kRankLost, and this rank is the one to blame
inline constexpr int kNoDevice = 87;  ///< this rank's GPU does not answer

}  // namespace exit_status
