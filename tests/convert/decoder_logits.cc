// decoder-logits: what our decoder computes from a model, for tests/reference/judge_export.py; not
// installed.
//   decoder-logits FOLDER <IDS >LOGITS
// FOLDER: checkpoints of the trainer, or a Hugging Face folder. IDS: one text per line, token ids
// in decimal. LOGITS: for every token of every text the scores of the next token, vocab_size of
// them in fp32. Each text goes through the cache token by token, on one CPU thread.
// SPDX-License-Identifier: MIT
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "trainer/generation/decoder.h"
#include "trainer/generation/decoder_weights.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace {

void write_logits(const std::string& folder) {
  ops::cpu::CpuOps cpu(1);
  const trainer::DecoderModel model = trainer::open_decoder_model(folder, std::nullopt);
  trainer::Decoder decoder(model.spec, trainer::DType::f32, model.spec.max_position_embeddings,
                           cpu);
  model.load(decoder, cpu);
  for (std::string line; std::getline(std::cin, line);) {
    decoder.reset();
    std::istringstream ids(line);
    for (int32_t id; ids >> id;) {
      const std::vector<float> logits = decoder.append(std::span(&id, 1));
      std::fwrite(logits.data(), sizeof(float), logits.size(), stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fputs("usage: decoder-logits FOLDER <IDS >LOGITS\n", stderr);
    return 2;
  }
  write_logits(argv[1]);
  return std::fflush(stdout) == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "decoder-logits: %s: %s\n", argv[1], error.what());
  return 1;
}
