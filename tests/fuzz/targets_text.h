// SPDX-License-Identifier: MIT
// The targets of tools/: JSON lines, packed input, bzip2 by blocks, Wikipedia's dumps and markup.
// targets.h lists them.
#pragma once

#include "tests/fuzz/targets.h"

namespace fuzz {

void json_lines(Bytes input);
void packed(Bytes input);
void bzip2_blocks(Bytes input);
void wiki_dump(Bytes input);
void wikitext(Bytes input);

}  // namespace fuzz
