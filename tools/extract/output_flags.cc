// SPDX-License-Identifier: MIT
// See output_flags.h.
#include "tools/extract/output_flags.h"

#include <unistd.h>

#include "tools/cli/fields.h"
#include "tools/cli/run.h"

namespace extract {

cli::Group<OutputFlags> output_group() {
  using O = OutputFlags;
  return {"Output",
          {{.name = "output",
            .letter = 'o',
            .value = "FILE",
            .help = "Write to FILE, which appears when it is complete; - or none is standard "
                    "output. A pipe or a device is written at once.",
            .field = cli::text(&O::path)},
           {.name = "compress",
            .value = "HOW",
            .help = "Compress the output.",
            .field = cli::choice(&O::compress, {"none", "zstd"})},
           {.name = "compress-level",
            .value = "N",
            .help = "zstd's level.",
            .field = cli::integer(&O::level, 1, 19)},
           {.name = "force",
            .letter = 'f',
            .help = "Replace existing output files.",
            .field = cli::on(&O::force)},
           {.name = "workers",
            .letter = 'w',
            .value = "N",
            .help = "Threads; 0 means one for each processor. The output does not depend on them.",
            .field = cli::integer(&O::workers, 0, 4096)}}};
}

void OutputFlags::refuse_terminal(bool nul) const {
  if (path == "-" && (nul || compress != "none"))
    cli::refuse_terminal(STDOUT_FILENO, nul ? "NUL-ended documents" : "compressed bytes");
}

}  // namespace extract
