# The archive carries the shared libraries beside the programs; the .deb names them as dependencies.
# CPACK_PART=parquet packs parquet-extract and Arrow's libraries instead, to be installed, or
# unpacked, beside the rest of the same release.
if(CPACK_PART)
  set(CPACK_PACKAGE_NAME gristmill-${CPACK_PART})
  string(REPLACE "gristmill-" "gristmill-${CPACK_PART}-" CPACK_PACKAGE_FILE_NAME
    "${CPACK_PACKAGE_FILE_NAME}")
  set(CPACK_COMPONENTS_ALL ${CPACK_PART})
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "gristmill (= ${CPACK_PACKAGE_VERSION})")
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
    "Parquet and Arrow files to loose JSON or text, for gristmill")
  set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
      "parquet-extract reads Parquet and Arrow IPC files, as the Hugging Face Hub and
its datasets library keep them, and writes the columns named as loose JSON or
as NUL-ended text, which bpe-tokenize reads. Carries Apache Arrow's libraries.")
elseif(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_ALL runtime development)
  set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
      "Small programs, joined by files and pipes, that turn raw text into a language
model: extraction from JSON lines and Wikipedia dumps, BPE tokenization with
the ids of tiktoken and Hugging Face tokenizers, Megatron's .bin/.idx datasets,
a trainer for CPUs and NVIDIA GPUs that takes Megatron's flags, and conversion
of checkpoints to and from Hugging Face transformers.
.
The trainer opens cuBLASLt 13, cuDNN 9 and NCCL 2 if they are there; without
them it trains on CPUs. Also has the C++ libraries gristmill::tok (tokenizers)
and gristmill::indexed (datasets); the suggested packages are for using them.")
else()
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
  set(CPACK_COMPONENTS_ALL runtime development bundle)
endif()
